//! `jobtree pause`: an addon, or a type of it, is skipped; what runs goes on.

use clap::{ArgMatches, Command};
use jobtree_protocol::PauseRequest;
use serde::Serialize;

use crate::args::{self, place, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::names;
use crate::out::Align;
use crate::when::shown;

pub fn define(command: Command) -> Command {
    command
        .about("Pause an addon's jobs, or a run, until `resume`; without an addon, list what is paused")
        .after_help(
            "An addon that is paused starts nothing; what runs goes on. --job pauses a run: a command of `jobtree run` and a program of\n\
             `jobtree work` stand still with all that they started, after ten seconds at most; a handler in a worker's own process is\n\
             told to checkpoint. The time still counts for --max-runtime. A run that ends, or whose daemon restarts, is no longer paused.",
        )
        .arg(place("addon", "ADDON", "Which"))
        .arg(value("job", "JOB", "Pause the run of this job").conflicts_with("addon"))
        .arg(value("type", "TYPE", "Only this type of it").conflicts_with("job"))
        .arg(value("reason", "TEXT", "Why"))
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let client = context.client()?;
    if let Some(job) = names::job_of(&client, arguments, "job")? {
        let answer = client.pause_job(job, args::get(arguments, "reason"))?;
        context.out.note(&format!("pausing the run of {job}"));
        if context.out.json {
            context.out.document(&answer)?;
        }
        return Ok(Exit::OK);
    }
    match request(arguments)? {
        Some(request) => {
            client.pause(&request)?;
            context.out.note(&format!("paused {}", named(&request)));
            if context.out.json {
                context.out.document(&request)?;
            }
        }
        None => {
            let pauses = client.pauses()?;
            if context.out.json {
                #[derive(Serialize)]
                struct Document<T> {
                    pauses: T,
                }
                context.out.document(&Document { pauses })?;
                return Ok(Exit::OK);
            }
            let columns = [
                ("ADDON", Align::Left),
                ("TYPE", Align::Left),
                ("SINCE", Align::Left),
                ("REASON", Align::Left),
            ];
            let rows: Vec<_> = pauses
                .into_iter()
                .map(|pause| {
                    vec![
                        pause.addon_id.to_string(),
                        pause.job_type.map_or("all".into(), |kind| kind.to_string()),
                        shown(pause.since),
                        pause.reason.unwrap_or_default(),
                    ]
                })
                .collect();
            context.out.table(&columns, &rows)?;
            if rows.is_empty() {
                context.out.note("nothing is paused");
            }
        }
    }
    Ok(Exit::OK)
}

/// Which addon and type were named.
pub fn request(arguments: &ArgMatches) -> Result<Option<PauseRequest>, CliError> {
    let Some(addon_id) = args::read(arguments, "addon")? else {
        if args::get(arguments, "type").is_some() {
            return Err(CliError::usage("--type needs an addon before it"));
        }
        return Ok(None);
    };
    Ok(Some(PauseRequest {
        addon_id,
        job_type: args::read(arguments, "type")?,
        reason: args::get(arguments, "reason").map(str::to_owned),
    }))
}

/// As it is told.
pub fn named(request: &PauseRequest) -> String {
    match &request.job_type {
        Some(kind) => format!("{}/{kind}", request.addon_id),
        None => request.addon_id.to_string(),
    }
}
