//! `jobtree resume`: what was paused is skipped no longer.

use clap::{ArgMatches, Command};

use crate::args::{self, place, value};
use crate::commands::pause::{named, request};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::names;

pub fn define(command: Command) -> Command {
    command
        .about("Resume an addon's jobs, or a run")
        .arg(place("addon", "ADDON", "Which").required_unless_present("job"))
        .arg(value("job", "JOB", "Resume the run of this job").conflicts_with("addon"))
        .arg(value("type", "TYPE", "Only this type of it").conflicts_with("job"))
        .arg(value("reason", "TEXT", "Why"))
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let client = context.client()?;
    if let Some(job) = names::job_of(&client, arguments, "job")? {
        let answer = client.resume_job(job, args::get(arguments, "reason"))?;
        context.out.note(&format!("resuming the run of {job}"));
        if context.out.json {
            context.out.document(&answer)?;
        }
        return Ok(Exit::OK);
    }
    let Some(request) = request(arguments)? else {
        return Err(CliError::usage("the addon is missing"));
    };
    let resumed = client.resume(&request)?;
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
