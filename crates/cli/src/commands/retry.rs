//! `jobtree retry`: a job that waits for its next attempt, or failed, is tried now.

use clap::{ArgMatches, Command};
use jobtree_protocol::{JobId, JobState};
use serde::Serialize;

use crate::args::{self, JOBS, places, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::names;

pub fn define(command: Command) -> Command {
    command
        .about("Try jobs again now, without waiting for their backoff")
        .after_help(
            "retry starts the next attempt of a job that is queued and waits for its time: its backoff after a failed attempt, or\n\
             --after. A job that has ended without success is queued again, as by redrive, which also takes filters.",
        )
        .arg(places("job", "JOB", JOBS))
        .arg(value("reason", "TEXT", "Why; stands in their event log"))
}

#[derive(Serialize)]
struct Line {
    job_id: JobId,
    state: JobState,
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let client = context.client()?;
    for job_id in names::jobs(&client, arguments, "job")? {
        let state = client.retry(job_id, args::get(arguments, "reason"))?;
        match context.out.json {
            true => context.out.line(&Line { job_id, state })?,
            false => context
                .out
                .print(&format!("{job_id} {}", context.out.state(state)))?,
        }
    }
    Ok(Exit::OK)
}
