//! `jobtree redrive`: jobs that have ended without success are queued again, their attempts counted anew.

use clap::{ArgMatches, Command};
use jobtree_protocol::RedriveRequest;

use crate::args::{self, JOBS, flag, places, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::filter;
use crate::names;
use crate::out::counted;

pub fn define(command: Command) -> Command {
    command
        .about("Queue jobs again that are FAILED or CANCELED")
        .after_help(
            "redrive begins ended jobs anew: attempts are counted from 0, and many jobs can be given at once. retry is for a\n\
             job that is still queued and waits for its next attempt; it starts that attempt now.\n\n\
             A filter without a state finds FAILED jobs. CANCELED ones were stopped by intent: write state:canceled for them.\n\n\
             For example: jobtree redrive --filter 'addon:photos state:failed,canceled'",
        )
        .arg(
            places("job", "JOB", JOBS)
                .required_unless_present_any(["filter", "all"])
                .required(false),
        )
        .arg(value("filter", "FILTER", "All that this finds, as in ls").conflicts_with("job"))
        .arg(flag("all", "All that are FAILED").conflicts_with_all(["job", "filter"]))
        .arg(value("reason", "TEXT", "Why; stands in their event log"))
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let query = filter::of_many(arguments, "redrive")?;
    let failed_only = query.as_ref().is_some_and(|query| query.state.is_empty());
    let client = context.client()?;
    let answer = client.redrive(&RedriveRequest {
        job_ids: names::jobs(&client, arguments, "job")?,
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
    let which = if failed_only { "FAILED " } else { "" };
    match answer.done.len() {
        0 if failed_only => context
            .out
            .note("no FAILED job fits; to redrive CANCELED ones, write state:canceled"),
        0 => context.out.note("no job was queued again"),
        count => {
            let jobs = counted(count as u64, &format!("{which}job"));
            context.out.note(&format!("queued {jobs} again"));
        }
    }
    Ok(match answer.failed.is_empty() {
        true => Exit::OK,
        false => Exit::CONFLICT,
    })
}
