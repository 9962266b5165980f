//! `jobtree cancel`: jobs stop, and it returns when they have.

use std::time::{Duration, Instant};

use clap::{ArgMatches, Command};
use jobtree_protocol::{JobId, JobState};
use serde::Serialize;

use crate::args::{self, flag, places, value};
use crate::commands::wait;
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::filter;

/// How long a job may take to stop if nothing is said.
const USUAL: Duration = Duration::from_secs(60);

pub fn define(command: Command) -> Command {
    command
        .about("Stop jobs; returns when they have stopped")
        .arg(
            places("job", "JOB", "Their ids")
                .required_unless_present("filter")
                .required(false),
        )
        .arg(value("filter", "FILTER", "All that this finds, as in ls").conflicts_with("job"))
        .arg(value("reason", "TEXT", "Why; stands in their trail"))
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
    state: JobState,
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let client = context.client()?;
    let reason = args::get(arguments, "reason");
    let mut exit = Exit::OK;
    let ids = match args::get(arguments, "filter") {
        Some(words) => {
            let query = filter::parse(&[words.to_owned()]).map_err(CliError::usage)?;
            let answer = client.cancel_many(query, reason)?;
            for failure in answer.failed {
                context
                    .out
                    .note(&format!("{}: {}", failure.job_id, failure.error));
                exit = Exit::CONFLICT;
            }
            answer.done
        }
        None => {
            let ids = args::job_ids(arguments, "job")?;
            for &id in &ids {
                client.cancel(id, reason)?;
            }
            ids
        }
    };
    let limit = args::duration(arguments, "timeout")?.unwrap_or(USUAL);
    let until = match arguments.get_flag("no-wait") {
        true => Instant::now(),
        false => Instant::now() + limit,
    };
    for id in ids {
        let state = wait::ended(&client, id, Some(until), context)?.state;
        match context.out.json {
            true => context.out.line(&Line { job_id: id, state })?,
            false => context
                .out
                .print(&format!("{id} {}", context.out.state(state)))?,
        }
        if !state.is_ended() && !arguments.get_flag("no-wait") {
            context
                .out
                .note(&format!("{id} was asked to stop, and still runs"));
            exit = Exit::STILL_WAITING;
        }
    }
    Ok(exit)
}
