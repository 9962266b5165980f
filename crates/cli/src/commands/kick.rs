//! `jobtree kick`: the scheduler looks now.

use clap::{ArgMatches, Command};

use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;

pub fn define(command: Command) -> Command {
    command.about("Run a scheduling pass now instead of waiting for the next sample")
}

pub fn run(_: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    context.client()?.kick()?;
    context.out.note("scheduling pass done");
    Ok(Exit::OK)
}
