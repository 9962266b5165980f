//! `jobtree retry`: a job that waits for its next attempt, or failed, is tried now.

use clap::{ArgMatches, Command};
use jobtree_protocol::{JobId, JobState};
use serde::Serialize;

use crate::args::{self, places, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;

pub fn define(command: Command) -> Command {
    command
        .about("Try jobs again now, without waiting for their backoff")
        .arg(places("job", "JOB", "Their ids"))
        .arg(value("reason", "TEXT", "Why; stands in their trail"))
}

#[derive(Serialize)]
struct Line {
    job_id: JobId,
    state: JobState,
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let client = context.client()?;
    for job_id in args::job_ids(arguments, "job")? {
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
