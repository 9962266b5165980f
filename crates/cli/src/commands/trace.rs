//! `jobtree trace`: the history of a job for a trace viewer.

use clap::{ArgMatches, Command};
use serde_json::Value;

use crate::args::{self, JOB, place};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::names;

pub fn define(command: Command) -> Command {
    command
        .about("Print a job's history as a trace, for Perfetto or Chrome's tracing page")
        .after_help(
            "Bars for states, attempts and leases, marks for events, and the jobs below it in its worker as they were reported last.\n\n\
             For example: jobtree trace last > trace.json, and open the file at https://ui.perfetto.dev",
        )
        .arg(place("job", "JOB", JOB).required(true))
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let client = context.client()?;
    let id = names::job(&client, &args::needed::<String>(arguments, "job")?)?;
    let trace: Value = client.job_trace(id)?;
    match context.out.json {
        true => context.out.document(&trace)?,
        false => context.out.print(&trace.to_string())?,
    }
    Ok(Exit::OK)
}
