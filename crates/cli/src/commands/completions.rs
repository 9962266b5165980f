//! `jobtree completions`: what shells load to complete the command line.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command};
use clap_complete::env::Shells;

use crate::args;
use crate::completion;
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;

pub fn define(command: Command) -> Command {
    command
        .about("Print completions for a shell")
        .after_help(
            "The shell then asks jobtree for each completion, and gets jobs, addons, types and states as the daemon knows them.\n\n\
             bash  echo 'source <(jobtree completions bash)' >> ~/.bashrc\n\
             zsh   echo 'source <(jobtree completions zsh)' >> ~/.zshrc\n\
             fish  echo 'jobtree completions fish | source' >> ~/.config/fish/completions/jobtree.fish",
        )
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(PossibleValuesParser::new(Shells::builtins().names()))
                .help("Which shell"),
        )
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let name: String = args::needed(arguments, "shell")?;
    let mut script = Vec::new();
    if let Some(shell) = Shells::builtins().completer(&name) {
        let variable = completion::VARIABLE;
        shell.write_registration(variable, "jobtree", "jobtree", "jobtree", &mut script)?;
    }
    context.out.raw(&String::from_utf8_lossy(&script))?;
    Ok(Exit::OK)
}
