//! `jobtree man`: manual pages, one for the command and one for each subcommand.

use std::path::Path;

use clap::{ArgMatches, Command};

use crate::args::{self, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;

pub fn define(command: Command) -> Command {
    command.about("Write manual pages").arg(value(
        "out",
        "DIR",
        "Where to; without it, the page of jobtree itself is printed",
    ))
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let command = crate::command();
    let Some(folder) = args::get(arguments, "out") else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        context.out.raw(&String::from_utf8_lossy(&page))?;
        return Ok(Exit::OK);
    };
    let folder = Path::new(folder);
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(command, folder))
        .map_err(|error| {
            CliError::failed(format!("{} cannot be written: {error}", folder.display()))
        })?;
    context
        .out
        .note(&format!("the pages are in {}", folder.display()));
    Ok(Exit::OK)
}
