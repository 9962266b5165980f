//! `jobtree submit`: a job for whoever runs its type.

use std::collections::BTreeMap;
use std::io::{self, Read};

use clap::{ArgMatches, Command};
use jobtree_client::protocol::{Each, SubmitAnswer, SubmitManyRequest, SubmitRequest};
use jobtree_protocol::Json;
use serde::Serialize;
use serde::de::IgnoredAny;

use crate::args::{self, described, of_a_job, place, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::on_done;
use crate::out::counted;

/// The cost of a job that does not say it.
const DEFAULT_COST: i64 = 10;
/// Jobs of one request.
const AT_ONCE: usize = 500;

pub fn define(command: Command) -> Command {
    command
        .about("Submit a job; prints its id when it is safely stored")
        .after_help(
            "An addon is an application that submits jobs: any name you choose, such as photos. Its jobs are counted, paused and\n\
             limited together, and a token can be for one addon. A type, such as index, says which handler runs the job:\n\
             `jobtree work --addon photos --type index -- ./index`.\n\n\
             With --file, each line is a whole job as JSON, as the HTTP interface takes it; --cost is for lines without\n\
             cost_units.",
        )
        .arg(
            place("addon", "ADDON", "The application whose job it is [JOBTREE_ADDON]")
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
        let cost = args::read(arguments, "cost")?.unwrap_or(DEFAULT_COST);
        return many(file, cost, context);
    }
    let payload = args::get(arguments, "payload").map(payload).transpose()?;
    let addon: String = args::needed(arguments, "addon")?;
    let job_type: String = args::needed(arguments, "type")?;
    let client = context.client()?;
    let job = described(&client, arguments, &addon, &job_type, payload)?;
    let answer = client.submit(job)?;
    on_done::submit(&client, arguments, &answer)?;
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
        CliError::usage(format!("--payload is not JSON: {error}"))
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
            .note(&format!("already submitted with this key; state: {state}"));
    }
    context.out.print(&answer.job_id.to_string())
}

/// Reads a job of a line. One that does not say its cost has the usual one, as on the command line.
fn job_of(line: &str, cost: i64) -> Result<SubmitRequest, serde_json::Error> {
    let mut job: SubmitRequest = serde_json::from_str(line)?;
    let fields: BTreeMap<&str, IgnoredAny> = serde_json::from_str(line)?;
    if !fields.contains_key("cost_units") {
        job.cost_units = cost;
    }
    Ok(job)
}

fn many(file: &str, cost: i64, context: &Context) -> Result<Exit, CliError> {
    let text = read_all(file)?;
    let shown = if file == "-" { "standard input" } else { file };
    let jobs: Vec<(usize, SubmitRequest)> = text
        .lines()
        .zip(1..)
        .filter(|(line, _)| !line.trim().is_empty())
        .map(|(line, number)| match job_of(line, cost) {
            Ok(job) => Ok((number, job)),
            Err(error) => {
                // Its own line is always the first.
                let error = error
                    .to_string()
                    .replace(" at line 1 column ", " at column ");
                Err(CliError::usage(format!("{shown}:{number}: {error}"))
                    .hint("each line is a job as JSON; nothing was submitted"))
            }
        })
        .collect::<Result<_, _>>()?;
    let client = context.client()?;
    let mut failed = 0_u64;
    for some in jobs.chunks(AT_ONCE) {
        let request = SubmitManyRequest {
            jobs: some.iter().map(|(_, job)| job.clone()).collect(),
        };
        let answers = client.submit_many(request)?.jobs;
        for ((line, _), each) in some.iter().zip(answers) {
            match each {
                Each::Done(answer) if context.out.json => context.out.line(&answer)?,
                Each::Done(answer) => context.out.print(&answer.job_id.to_string())?,
                Each::Refused { error } => {
                    failed += 1;
                    if context.out.json {
                        #[derive(Serialize)]
                        struct Refused<T> {
                            line: usize,
                            error: T,
                        }
                        context.out.line(&Refused {
                            line: *line,
                            error: &error,
                        })?;
                    }
                    context.out.note(&format!("{shown}:{line}: {error}"));
                }
            }
        }
    }
    if failed == 0 {
        return Ok(Exit::OK);
    }
    let refused = counted(failed, "job");
    let taken = jobs.len() as u64 - failed;
    context
        .out
        .note(&format!("{refused} refused, {taken} submitted"));
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
