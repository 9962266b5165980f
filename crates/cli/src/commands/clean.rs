//! `jobtree clean`: forgets ended jobs now.

use clap::{ArgAction, ArgMatches, Command};
use jobtree_client::protocol::CleanRequest;
use jobtree_protocol::JobState;

use crate::args::{self, flag, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::out::counted;
use crate::when;

pub fn define(command: Command) -> Command {
    command
        .about("Forget ended jobs now: those older than the policy keeps them, or than --older-than")
        .after_help(
            "The daemon does this by itself, some minutes late: the policy's section [retention] says how long jobs that are done,\n\
             failed and canceled are kept, and events, keys and leases. Their logs and payloads go with the jobs.\n\n\
             For example: jobtree clean --older-than 7d --state done",
        )
        .arg(value(
            "older-than",
            "DURATION",
            "Jobs that ended longer ago than this, instead of those that the policy names",
        ))
        .arg(
            value("state", "STATE", "Only these: done, failed or canceled; may be repeated")
                .action(ArgAction::Append)
                .value_parser(["done", "failed", "canceled"])
                .requires("older-than"),
        )
        .arg(flag("all", "Every job that has ended").conflicts_with("older-than"))
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let older = match args::get(arguments, "older-than") {
        Some(text) => {
            let wrong = |wrong| CliError::usage(format!("--older-than: {wrong}"));
            let seconds = when::seconds(text).map_err(wrong)?;
            Some(u32::try_from(seconds).unwrap_or(u32::MAX))
        }
        None => arguments.get_flag("all").then_some(0),
    };
    let states = args::all(arguments, "state");
    let request = CleanRequest {
        older_than_sec: older,
        state: JobState::all_with(|state| state.is_ended())
            .into_iter()
            .filter(|state| states.contains(&state.as_str().to_lowercase()))
            .collect(),
    };
    let answer = context.client()?.clean(&request)?;
    match context.out.json {
        true => context.out.document(&answer)?,
        false => context.out.print(&format!(
            "forgot {}, {}, {} and {}",
            counted(answer.jobs, "job"),
            counted(answer.events, "event"),
            counted(answer.keys, "key"),
            counted(answer.leases, "lease"),
        ))?,
    }
    Ok(Exit::OK)
}
