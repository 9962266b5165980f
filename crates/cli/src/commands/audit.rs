//! `jobtree audit`: whether a store's trail and its records agree.

use clap::{ArgMatches, Command};
use jobtree_store::audit;
use serde::Serialize;

use crate::args::{self, place};
use crate::commands::move_store::spinner;
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::out::counted;
use crate::stores;

pub fn define(command: Command) -> Command {
    command
        .about("Check a store")
        .subcommand_required(true)
        .subcommand(
        Command::new("check")
            .about("Check every invariant over the whole event log; exits with 1 if one is broken")
            .after_help(
                "A store has one user: stop the daemon, or check a copy made by `jobtree backup`.",
            )
            .arg(place(
                "store",
                "WHERE",
                "A file, a data directory, or postgres://… [the data directory]",
            )),
    )
}

#[derive(Serialize)]
struct Document {
    events: u64,
    jobs: u64,
    pruned: bool,
    found: u64,
    violations: Vec<String>,
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let given = arguments
        .subcommand_matches("check")
        .and_then(|check| args::get(check, "store"));
    let place = given.or(context.settings.get("store"));
    let place = place.filter(|place| *place != "file");
    let store = stores::open(place.unwrap_or(context.settings.value("data_dir")), false)?;
    let bar = spinner(context);
    let report = audit(&store, |so_far| {
        let (events, jobs) = (counted(so_far.events, "event"), counted(so_far.jobs, "job"));
        bar.set_message(format!("{events}, {jobs}"));
        bar.tick();
    });
    bar.finish_and_clear();
    let report = report.map_err(|error| CliError::failed(error.to_string()))?;
    let violations: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
    let clean = report.is_clean();
    if context.out.json {
        context.out.document(&Document {
            events: report.events,
            jobs: report.jobs,
            pruned: report.pruned,
            found: report.found,
            violations,
        })?;
    } else {
        for violation in &violations {
            context.out.print(violation)?;
        }
        let (events, jobs) = (counted(report.events, "event"), counted(report.jobs, "job"));
        context.out.note(&match report.found {
            0 => format!("{events} and {jobs} agree"),
            found => format!("{} in {events} and {jobs}", counted(found, "violation")),
        });
    }
    Ok(if clean { Exit::OK } else { Exit::FAILED })
}
