//! `jobtree edit`: changes a job that waits.

use clap::{ArgAction, ArgMatches, Command};
use jiff::{Timestamp, Zoned};
use jobtree_client::protocol::EditRequest;

use crate::args::{self, JOBS, places, value};
use crate::commands::show;
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::names;
use crate::when;

/// What takes a time away.
const NONE: &str = "none";

pub fn define(command: Command) -> Command {
    command
        .about("Change priority, start, deadline or tags of jobs that are QUEUED")
        .after_help(
            "What is not named stays as it is. --after also replaces the wait before another attempt. A job that runs or has ended\n\
             is refused with exit code 6.\n\n\
             For example: jobtree edit last --priority high --after none",
        )
        .arg(places("job", "JOB", JOBS))
        .arg(value("priority", "CLASS", "low, normal or high"))
        .arg(value(
            "after",
            "TIME",
            "Not before: 2h, 22:00, \"tomorrow 22:00\", RFC 3339; or `none`",
        ))
        .arg(value("deadline", "TIME", "Done by then; or `none`"))
        .arg(
            value("tag", "TAG", "All of its tags from now on; may be repeated")
                .action(ArgAction::Append)
                .conflicts_with_all(["add-tag", "remove-tag"]),
        )
        .arg(value("add-tag", "TAG", "One more tag; may be repeated").action(ArgAction::Append))
        .arg(
            value("remove-tag", "TAG", "A tag that it loses; may be repeated")
                .action(ArgAction::Append),
        )
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let request = EditRequest {
        priority: args::priority(arguments)?,
        earliest_start_at: time(arguments, "after")?,
        deadline_at: time(arguments, "deadline")?,
        tags: Some(args::all(arguments, "tag")).filter(|tags| !tags.is_empty()),
    };
    let (added, removed) = (
        args::all(arguments, "add-tag"),
        args::all(arguments, "remove-tag"),
    );
    let retags = !added.is_empty() || !removed.is_empty();
    if request == EditRequest::default() && !retags {
        return Err(CliError::usage("nothing to change is named")
            .hint("write --priority, --after, --deadline, --tag, --add-tag or --remove-tag"));
    }
    let client = context.client()?;
    for id in names::jobs(&client, arguments, "job")? {
        let mut request = request.clone();
        if retags {
            let mut tags = client.job(id)?.tags;
            tags.retain(|tag| !removed.contains(tag));
            tags.extend(added.iter().cloned());
            request.tags = Some(tags);
        }
        let job = client.edit(id, &request)?;
        match context.out.json {
            true => context.out.line(&job)?,
            false => context.out.raw(&show::described(&job, context))?,
        }
    }
    Ok(Exit::OK)
}

/// A time to set, or one to take away; none if it stays.
fn time(arguments: &ArgMatches, name: &str) -> Result<Option<Option<Timestamp>>, CliError> {
    match args::get(arguments, name) {
        None => Ok(None),
        Some(NONE) => Ok(Some(None)),
        Some(text) => {
            let wrong = |wrong| CliError::usage(format!("--{name}: {wrong}, or `{NONE}`"));
            when::time(text, &Zoned::now())
                .map(|at| Some(Some(at)))
                .map_err(wrong)
        }
    }
}
