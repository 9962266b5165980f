//! `jobtree policy`: the numbers that admission, order and dispatch go by.

use std::io::Read;

use clap::{ArgMatches, Command};
use jobtree_queue::policy::Policy;
use serde::Serialize;

use crate::args::{self, flag, place};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;

pub fn define(command: Command) -> Command {
    let file = || place("file", "FILE", "A TOML file; - is standard input").required(true);
    command
        .about("Show, set and check the policy")
        .subcommand_required(true)
        .subcommand(
            Command::new("show")
                .about("Print the policy in force, as TOML")
                .arg(flag("default", "The one that is built in; needs no daemon")),
        )
        .subcommand(
            Command::new("set")
                .about("Put another policy in force; returns when it is")
                .arg(file()),
        )
        .subcommand(
            Command::new("validate")
                .about("Check a file; needs no daemon")
                .arg(file()),
        )
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    match arguments.subcommand() {
        Some(("set", arguments)) => {
            let text = read(arguments)?;
            check(&text)?;
            context.client()?.put_policy(&text)?;
            context.out.note("it is in force");
        }
        Some(("validate", arguments)) => {
            check(&read(arguments)?)?;
            context.out.note("it is a policy");
        }
        Some((_, arguments)) if arguments.get_flag("default") => {
            let text = toml::to_string_pretty(&Policy::default());
            show(
                &text.map_err(|error| CliError::failed(error.to_string()))?,
                context,
            )?;
        }
        _ => show(&context.client()?.policy()?, context)?,
    }
    Ok(Exit::OK)
}

fn show(text: &str, context: &Context) -> Result<(), CliError> {
    if !context.out.json {
        return context.out.raw(text);
    }
    #[derive(Serialize)]
    struct Document {
        policy: Policy,
    }
    let policy = Policy::from_toml(text).map_err(|error| CliError::failed(error.to_string()))?;
    context.out.document(&Document { policy })
}

fn check(text: &str) -> Result<(), CliError> {
    let read = Policy::from_toml(text).map(drop);
    read.map_err(|error| CliError::usage(error.to_string()))
}

fn read(arguments: &ArgMatches) -> Result<String, CliError> {
    let file: String = args::needed(arguments, "file")?;
    let mut text = String::new();
    let read = match file.as_str() {
        "-" => std::io::stdin().read_to_string(&mut text).map(|_| text),
        path => std::fs::read_to_string(path),
    };
    read.map_err(|error| CliError::usage(format!("{file} cannot be read: {error}")))
}
