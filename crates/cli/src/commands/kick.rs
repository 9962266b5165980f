//! `jobtree kick`: the scheduler looks now.

use clap::{ArgMatches, Command};

use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;

pub fn define(command: Command) -> Command {
    command.about("Make the scheduler look now, instead of with its next measurement")
}

pub fn run(_: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    context.client()?.kick()?;
    context.out.note("it looked");
    Ok(Exit::OK)
}
