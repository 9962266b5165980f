//! `jobtree cancel`: jobs stop, and it returns when they have.

use std::time::{Duration, Instant};

use clap::{ArgMatches, Command};
use jobtree_protocol::{JobId, JobState};
use serde::Serialize;

use crate::args::{self, JOBS, flag, places, value};
use crate::commands::wait;
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::filter;
use crate::names;

/// How long a job may take to stop if nothing is said.
const USUAL: Duration = Duration::from_secs(60);

pub fn define(command: Command) -> Command {
    command
        .about("Stop jobs; returns when they have stopped")
        .after_help(
            "A job that waits is CANCELED at once. A program that runs gets TERM, and KILL after its grace.\n\n\
             The token needs the scope cancel. Without the scope read, it returns when the daemon has taken the wish.",
        )
        .arg(
            places("job", "JOB", JOBS)
                .required_unless_present_any(["filter", "all"])
                .required(false),
        )
        .arg(value("filter", "FILTER", "All that this finds, as in ls").conflicts_with("job"))
        .arg(flag("all", "All that have not ended").conflicts_with_all(["job", "filter"]))
        .arg(value("reason", "TEXT", "Why; stands in their event log"))
        .arg(value(
            "timeout",
            "DURATION",
            "How long they may take to stop [60s]",
        ))
        .arg(flag("no-wait", "Do not wait until they have stopped"))
}

#[derive(Serialize)]
struct Line {
    job_id: JobId,
    /// Absent if the token may not read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<JobState>,
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let client = context.client()?;
    let reason = args::get(arguments, "reason");
    let mut exit = Exit::OK;
    let asked: Vec<(JobId, Option<JobState>)> = match filter::of_many(arguments, "cancel")? {
        Some(query) => {
            let answer = client.cancel_many(query, reason)?;
            for failure in answer.failed {
                context
                    .out
                    .note(&format!("{}: {}", failure.job_id, failure.error));
                exit = Exit::CONFLICT;
            }
            if answer.done.is_empty() && exit == Exit::OK {
                context.out.note("no job that has not ended fits");
            }
            answer.done.into_iter().map(|id| (id, None)).collect()
        }
        None => {
            let ids = names::jobs(&client, arguments, "job")?;
            let cancel = |id| Ok((id, Some(client.cancel(id, reason)?)));
            ids.into_iter()
                .map(cancel)
                .collect::<Result<_, CliError>>()?
        }
    };
    let limit = args::duration(arguments, "timeout")?.unwrap_or(USUAL);
    let until = match arguments.get_flag("no-wait") {
        true => Some(Instant::now()),
        false => Instant::now().checked_add(limit),
    };
    for (id, answered) in asked {
        let state = match wait::ended(&client, id, until, context) {
            Ok(job) => Some(job.state),
            Err(error) if error.exit() == Exit::REFUSED => answered,
            Err(error) => return Err(error),
        };
        if context.out.json {
            context.out.line(&Line { job_id: id, state })?;
        } else {
            let shown = state.map_or("asked to stop".to_owned(), |state| context.out.state(state));
            context.out.print(&format!("{id} {shown}"))?;
        }
        if state.is_some_and(|state| !state.is_ended()) && !arguments.get_flag("no-wait") {
            context
                .out
                .note(&format!("{id} was asked to stop, and still runs"));
            exit = Exit::STILL_WAITING;
        }
    }
    Ok(exit)
}
