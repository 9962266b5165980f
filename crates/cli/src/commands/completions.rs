//! `jobtree completions`: what shells load to complete the command line.

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;

pub fn define(command: Command) -> Command {
    command
        .about("Print completions for a shell")
        .after_help("For example: jobtree completions bash > ~/.local/share/bash-completion/completions/jobtree")
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(value_parser!(Shell))
                .help("Which shell"),
        )
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let mut text = Vec::new();
    if let Some(&shell) = arguments.get_one::<Shell>("shell") {
        clap_complete::generate(shell, &mut crate::command(), "jobtree", &mut text);
    }
    context.out.raw(&String::from_utf8_lossy(&text))?;
    Ok(Exit::OK)
}
