//! `jobtree redrive`: dead letters are queued again, their attempts counted anew.

use clap::{ArgMatches, Command};
use jobtree_protocol::RedriveRequest;

use crate::args::{self, places, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::filter;

pub fn define(command: Command) -> Command {
    command
        .about("Queue jobs again that are FAILED or CANCELED")
        .arg(
            places("job", "JOB", "Their ids")
                .required_unless_present("filter")
                .required(false),
        )
        .arg(value("filter", "FILTER", "All that this finds, as in ls").conflicts_with("job"))
        .arg(value("reason", "TEXT", "Why; stands in their trail"))
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let query = match args::get(arguments, "filter") {
        Some(words) => Some(filter::parse(&[words.to_owned()]).map_err(CliError::usage)?),
        None => None,
    };
    let answer = context.client()?.redrive(&RedriveRequest {
        job_ids: args::job_ids(arguments, "job")?,
        query,
        reason: args::get(arguments, "reason").map(str::to_owned),
    })?;
    if context.out.json {
        context.out.document(&answer)?;
    } else {
        for id in &answer.done {
            context.out.print(&id.to_string())?;
        }
    }
    for failure in &answer.failed {
        context
            .out
            .note(&format!("{}: {}", failure.job_id, failure.error));
    }
    Ok(match answer.failed.is_empty() {
        true => Exit::OK,
        false => Exit::CONFLICT,
    })
}
