//! The `jobtree` command. One file or folder of `commands/` for each subcommand; this one only finds the right one.
//!
//! Results go to standard output, everything else to standard error. What the exit codes mean stands in `exit.rs`, and
//! in the help.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod args;
mod commands;
mod completion;
mod context;
mod error;
mod exit;
mod filter;
mod names;
mod on_done;
mod out;
mod programs;
mod relay;
mod settings;
#[cfg(test)]
mod shown_commands;
mod signals;
mod stdin;
mod stores;
mod summary;
mod when;
mod why;

use std::process::ExitCode;

use clap::{Arg, ArgAction, Command};
use jobtree_process::{LAUNCH, SUPERVISE, launch, supervise};
use mimalloc::MiMalloc;

use crate::commands::ALL;
use crate::context::Context;

/// The allocator of everything that this executable does, because the daemon runs for months: the system's keeps the
/// most that each thread ever used, which resident memory shows as slow growth while the live heap stays the same.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = hidden() {
        return code;
    }
    completion::answer_shell(command);
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return not_understood(&error),
    };
    let Some((name, arguments)) = matches.subcommand() else {
        unreachable!("clap asks for a subcommand");
    };
    let Some(subcommand) = ALL.iter().find(|subcommand| subcommand.name == name) else {
        unreachable!("clap knows the subcommands from the same list");
    };
    // Global flags are found in the innermost matches, wherever they stood.
    let ended = Context::from(arguments).and_then(|context| {
        let ended = (subcommand.run)(arguments, &context);
        ended.map_err(|error| error.explained(|| context.trouble()))
    });
    match ended {
        Ok(exit) => exit.into(),
        Err(error) => {
            let told = match arguments.get_flag("json") {
                true => error.json(),
                false => Some(error.to_string()).filter(|told| !told.is_empty()),
            };
            if let Some(told) = told {
                eprintln!("{told}");
            }
            error.exit().into()
        }
    }
}

/// Tells what is wrong with the arguments, or prints the help that was asked for.
fn not_understood(error: &clap::Error) -> ExitCode {
    let mut given = std::env::args_os().take_while(|argument| argument != "--");
    if error.use_stderr() && given.any(|argument| argument == "--json") {
        let told = error.to_string();
        let message = told.trim_start_matches("error: ").trim_end().to_owned();
        let told = error::CliError::usage(message).json();
        eprintln!("{}", told.unwrap_or_default());
    } else {
        // If it cannot be printed, the reader has seen enough.
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(exit::Exit::USAGE.0))
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

/// The whole command line.
pub fn command() -> Command {
    let command = Command::new("jobtree")
        .about("One job system, from a nanosecond fork to an overnight batch")
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(exit::HELP)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true);
    global_arguments()
        .into_iter()
        .fold(command, Command::arg)
        .subcommands(
            ALL.iter()
                .map(|subcommand| (subcommand.define)(Command::new(subcommand.name))),
        )
}

fn global_arguments() -> Vec<Arg> {
    let value = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    [
        value("url", "URL", "The daemon's address [JOBTREE_URL]"),
        value(
            "token-file",
            "FILE",
            "A file with the token [JOBTREE_TOKEN_FILE; JOBTREE_TOKEN holds the token itself]",
        ),
        value(
            "ca-file",
            "FILE",
            "Certificates (PEM) that the daemon's is signed by [JOBTREE_CA_FILE]",
        ),
        value("config", "FILE", "The settings' file [JOBTREE_CONFIG]"),
        flag(
            "json",
            "Print JSON: one document, or a line for each entry of a stream",
        ),
        flag("quiet", "Print results alone").short('q'),
        flag("no-color", "No colours [NO_COLOR]"),
    ]
    .map(|argument| argument.global(true).help_heading("For all commands"))
    .into()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::command().debug_assert();
    }
}
