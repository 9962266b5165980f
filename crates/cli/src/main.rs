//! The `jobtree` command. One file or folder of `commands/` for each subcommand; this one only finds the right one.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 for success, 1 if the command
//! could not do its job, 2 if it was asked for something that makes no sense (arguments, variables).

#![forbid(unsafe_code)]

mod commands;
mod error;

use std::process::ExitCode;

use clap::Command;
use jobtree_process::{LAUNCH, SUPERVISE, launch, supervise};

use crate::commands::ALL;

fn main() -> ExitCode {
    if let Some(code) = hidden() {
        return code;
    }
    let matches = command().get_matches();
    let Some((name, arguments)) = matches.subcommand() else {
        unreachable!("clap asks for a subcommand");
    };
    let Some(subcommand) = ALL.iter().find(|subcommand| subcommand.name == name) else {
        unreachable!("clap knows the subcommands from the same list");
    };
    match (subcommand.run)(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            error.exit_code()
        }
    }
}

/// This executable also stands between a worker and the programs it runs; see `jobtree_process`.
fn hidden() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next()?.to_str()? {
        SUPERVISE => Some(supervise()),
        LAUNCH => Some(launch(arguments)),
        _ => None,
    }
}

fn command() -> Command {
    Command::new("jobtree")
        .about("One job system, from a nanosecond fork to an overnight batch")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(
            ALL.iter()
                .map(|subcommand| (subcommand.define)(Command::new(subcommand.name))),
        )
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::command().debug_assert();
    }
}
