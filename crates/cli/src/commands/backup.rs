//! `jobtree backup`: a copy of the database, while it is in use.

use clap::{ArgMatches, Command};
use serde_json::json;

use crate::args::{self, place};
use crate::commands::move_store::spinner;
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;

pub fn define(command: Command) -> Command {
    command
        .about("Copy the database while the daemon uses it; returns when the copy is whole and on disk")
        .after_help("The daemon writes the file, on its own machine. It can be opened as a store: `jobtree audit check FILE`.")
        .arg(place("file", "FILE", "A new file").required(true))
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let file: String = args::needed(arguments, "file")?;
    let path =
        std::path::absolute(&file).map_err(|error| CliError::usage(format!("{file}: {error}")))?;
    let bar = spinner(context);
    bar.set_message("copying");
    let done = context.client()?.backup(&json!({ "path": path }))?;
    bar.finish_and_clear();
    match context.out.json {
        true => context.out.document(&done)?,
        false => context.out.print(&path.display().to_string())?,
    }
    Ok(Exit::OK)
}
