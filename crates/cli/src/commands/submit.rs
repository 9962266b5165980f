//! `jobtree submit`: a job for whoever runs its type.

use std::io::{self, Read};

use clap::{ArgMatches, Command};
use jobtree_client::protocol::{Each, SubmitAnswer, SubmitManyRequest, SubmitRequest};
use jobtree_protocol::Json;
use serde::Serialize;

use crate::args::{self, described, of_a_job, place, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;

/// Jobs of one request.
const AT_ONCE: usize = 500;

pub fn define(command: Command) -> Command {
    command
        .about("Submit a job; prints its id when it is safely stored")
        .after_help(
            "With --file, each line is a whole job as JSON, as the HTTP interface takes it.",
        )
        .arg(
            place("addon", "ADDON", "Whose job it is [JOBTREE_ADDON]")
                .required_unless_present("file"),
        )
        .arg(place("type", "TYPE", "Which handler runs it").required_unless_present("file"))
        .arg(
            value(
                "payload",
                "JSON",
                "Its input; - reads it from standard input",
            )
            .allow_hyphen_values(true),
        )
        .arg(
            value("file", "FILE", "Many jobs, one a line; - is standard input")
                .conflicts_with_all(["addon", "type", "payload"]),
        )
        .args(of_a_job())
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    if let Some(file) = args::get(arguments, "file") {
        return many(file, context);
    }
    let payload = args::get(arguments, "payload").map(payload).transpose()?;
    let addon: String = args::needed(arguments, "addon")?;
    let job_type: String = args::needed(arguments, "type")?;
    let job = described(arguments, &addon, &job_type, payload)?;
    let answer = context.client()?.submit(job)?;
    tell(&answer, context)?;
    Ok(Exit::OK)
}

/// The text of an argument or of standard input, as JSON.
fn payload(text: &str) -> Result<Json, CliError> {
    let text = match text {
        "-" => read_all("-")?,
        text => text.to_owned(),
    };
    Json::from_text(text.trim().to_owned()).map_err(|error| {
        CliError::usage(format!("--payload is no JSON: {error}"))
            .hint("a text needs quotation marks of its own: --payload '\"text\"'")
    })
}

fn tell(answer: &SubmitAnswer, context: &Context) -> Result<(), CliError> {
    if context.out.json {
        return context.out.document(answer);
    }
    if answer.duplicate {
        let state = answer.state;
        context
            .out
            .note(&format!("it was there before, and is {state}"));
    }
    context.out.print(&answer.job_id.to_string())
}

fn many(file: &str, context: &Context) -> Result<Exit, CliError> {
    let text = read_all(file)?;
    let jobs: Vec<SubmitRequest> = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(number, line)| {
            serde_json::from_str(line)
                .map_err(|error| CliError::usage(format!("line {} is no job: {error}", number + 1)))
        })
        .collect::<Result<_, _>>()?;
    let client = context.client()?;
    let mut failed = 0_usize;
    let mut jobs = jobs.into_iter().peekable();
    while jobs.peek().is_some() {
        let request = SubmitManyRequest {
            jobs: jobs.by_ref().take(AT_ONCE).collect(),
        };
        for each in client.submit_many(request)?.jobs {
            match each {
                Each::Done(answer) if context.out.json => context.out.line(&answer)?,
                Each::Done(answer) => context.out.print(&answer.job_id.to_string())?,
                Each::Refused { error } => {
                    failed += 1;
                    if context.out.json {
                        #[derive(Serialize)]
                        struct Refused<T> {
                            error: T,
                        }
                        context.out.line(&Refused { error: &error })?;
                    }
                    context.out.note(&format!("not taken: {error}"));
                }
            }
        }
    }
    if failed == 0 {
        return Ok(Exit::OK);
    }
    context.out.note(&format!("{failed} jobs were not taken"));
    Ok(Exit::FAILED)
}

fn read_all(file: &str) -> Result<String, CliError> {
    let mut text = String::new();
    let read = match file {
        "-" => io::stdin().lock().read_to_string(&mut text).map(drop),
        path => std::fs::read_to_string(path).map(|read| text = read),
    };
    read.map_err(|error| CliError::usage(format!("{file} cannot be read: {error}")))?;
    Ok(text)
}
