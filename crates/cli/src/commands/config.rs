//! `jobtree config`: which settings hold, and where they come from.

use clap::{ArgMatches, Command};
use serde::Serialize;

use crate::args::flag;
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::out::Align;

pub fn define(command: Command) -> Command {
    command
        .about("Show the settings")
        .subcommand_required(true)
        .subcommand(
            Command::new("show")
                .about("Show the settings that hold; secrets are hidden")
                .arg(flag("origin", "With where each comes from")),
        )
}

#[derive(Serialize)]
struct Entry {
    value: Option<String>,
    origin: Option<String>,
}

#[derive(Serialize)]
struct Document {
    file: String,
    settings: std::collections::BTreeMap<&'static str, Entry>,
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let origin = arguments
        .subcommand_matches("show")
        .is_some_and(|show| show.get_flag("origin"));
    let shown = context.settings.shown();
    if context.out.json {
        let entries = shown.into_iter().map(|shown| {
            let entry = Entry {
                value: shown.value,
                origin: shown.origin.map(|origin| origin.to_string()),
            };
            (shown.key, entry)
        });
        context.out.document(&Document {
            file: context.settings.file.to_string_lossy().into_owned(),
            settings: entries.collect(),
        })?;
        return Ok(Exit::OK);
    }
    let mut columns = vec![("SETTING", Align::Left), ("VALUE", Align::Left)];
    if origin {
        columns.push(("ORIGIN", Align::Left));
    }
    let rows: Vec<Vec<String>> = shown
        .into_iter()
        .map(|shown| {
            let value = shown.value.unwrap_or_else(|| "-".into());
            let mut row = vec![shown.key.to_owned(), value];
            if origin {
                row.push(
                    shown
                        .origin
                        .map(|origin| origin.to_string())
                        .unwrap_or_default(),
                );
            }
            row
        })
        .collect();
    context.out.table(&columns, &rows)?;
    Ok(Exit::OK)
}
