//! `jobtree backup`: a copy of the database, while it is in use.

use clap::{ArgMatches, Command};
use jobtree_protocol::BackupRequest;

use crate::args::{self, place};
use crate::commands::move_store::spinner;
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;

pub fn define(command: Command) -> Command {
    command
        .about(
            "Copy the database while the daemon uses it; prints where the copy is when it is on disk",
        )
        .after_help(
            "The daemon writes it on its own machine, into the folder `backups` of its data directory. The copy is a store:\n\
             `jobtree audit check FILE` checks it, `jobtree serve --data-dir` on a folder with it as jobs.db serves it.",
        )
        .arg(place("name", "NAME", "What the file is called [the time]"))
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let bar = spinner(context);
    bar.set_message("copying");
    let done = context.client()?.backup(&BackupRequest {
        name: args::get(arguments, "name").map(str::to_owned),
    });
    bar.finish_and_clear();
    let done = done?;
    match context.out.json {
        true => context.out.document(&done)?,
        false => {
            context.out.note(&format!("{} bytes", done.bytes));
            context.out.print(&done.path)?;
        }
    }
    Ok(Exit::OK)
}
