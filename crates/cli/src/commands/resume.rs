//! `jobtree resume`: what was paused is skipped no longer.

use clap::{ArgMatches, Command};

use crate::args::{place, value};
use crate::commands::pause::{named, request};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;

pub fn define(command: Command) -> Command {
    command
        .about("Resume an addon's jobs")
        .arg(place("addon", "ADDON", "Which").required(true))
        .arg(value("type", "TYPE", "Only this type of it"))
        .arg(value("reason", "TEXT", "Why"))
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let Some(request) = request(arguments)? else {
        return Err(CliError::usage("the addon is missing"));
    };
    let resumed = context.client()?.resume(&request)?;
    let name = named(&request);
    match resumed {
        true => context.out.note(&format!("resumed {name}")),
        false => context.out.note(&format!("{name} was not paused")),
    }
    if context.out.json {
        context.out.document(&request)?;
    }
    Ok(if resumed { Exit::OK } else { Exit::CONFLICT })
}
