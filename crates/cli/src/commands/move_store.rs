//! `jobtree move-store`: everything goes into another store.

use std::io::IsTerminal;

use clap::{ArgMatches, Command};
use indicatif::{ProgressBar, ProgressStyle};
use jobtree_store::{Moved, move_store};
use serde::Serialize;

use crate::args::{self, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::out::counted;
use crate::stores;

pub fn define(command: Command) -> Command {
    command
        .about("Move all jobs to another store; the daemon must be stopped")
        .after_help("Ids and places in the trail stay. The source is left as it is; the target must be new.")
        .arg(value("from", "WHERE", stores::WHERE).required(true))
        .arg(value("to", "WHERE", stores::WHERE).required(true))
}

#[derive(Serialize)]
struct Document {
    jobs: u64,
    events: u64,
    leases: u64,
    keys: u64,
    logs: u64,
    schedules: u64,
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let from = stores::open(&args::needed::<String>(arguments, "from")?, false)?;
    let to = stores::open(&args::needed::<String>(arguments, "to")?, true)?;
    let bar = spinner(context);
    let moved = move_store(&from, &to, |Moved { jobs, events, .. }| {
        bar.set_message(format!(
            "{}, {}",
            counted(jobs, "job"),
            counted(events, "event")
        ));
        bar.tick();
    });
    bar.finish_and_clear();
    let moved = moved.map_err(|error| CliError::failed(error.to_string()))?;
    let document = Document {
        jobs: moved.jobs,
        events: moved.events,
        leases: moved.leases,
        keys: moved.keys,
        logs: moved.logs,
        schedules: moved.schedules,
    };
    match context.out.json {
        true => context.out.document(&document)?,
        false => context.out.print(&format!(
            "moved {}, {}, {}, {}, {} and {}",
            counted(moved.jobs, "job"),
            counted(moved.events, "event"),
            counted(moved.leases, "lease"),
            counted(moved.keys, "key"),
            counted(moved.logs, "log"),
            counted(moved.schedules, "schedule")
        ))?,
    }
    Ok(Exit::OK)
}

/// For work of which nobody knows how much there is.
pub fn spinner(context: &Context) -> ProgressBar {
    if context.out.is_quiet() || context.out.json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{elapsed:>5} {msg}") {
        bar.set_style(style);
    }
    bar
}
