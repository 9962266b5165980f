//! `jobtree simulate`: recorded load and jobs against a policy file: what would have run when.
//!
//! The dispatcher that runs in the daemon runs here, over recorded measurements and a clock that jumps from event to event.
//! Nothing is asked or changed anywhere.

mod recorded;
mod world;

use std::sync::Arc;

use clap::{ArgMatches, Command};
use jobtree_queue::policy::Policy;
use serde::Serialize;

use self::recorded::{ignored_in, jobs_in, samples_in};
use self::world::{Outcome, simulate};
use crate::args::{self, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::out::{Align, counted};
use crate::when::{length, since};

pub fn define(command: Command) -> Command {
    command
        .about("Tell what would have run when, under another policy")
        .after_help(
            "Load is recorded by GET /api/system/scheduler/load or `jobtree watch --json`, jobs by `jobtree ls --all --json`,\n\
             one entry a line. A job runs as long as it ran, else as long as it was expected to, else a minute.",
        )
        .arg(value("policy", "FILE", "The policy, as TOML [the built-in one]"))
        .arg(value(
            "load",
            "FILE",
            "Measurements, one a line [load.ndjson of the data directory]",
        ))
        .arg(value("jobs", "FILE", "Jobs, one a line").required(true))
}

#[derive(Serialize)]
struct Document<'a> {
    jobs: &'a [Outcome],
    /// What is recorded and has no effect here.
    ignored: &'a [String],
    started: usize,
    never_started: usize,
    average_wait_sec: Option<f64>,
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let read_file = |path: &str| {
        let read = std::fs::read_to_string(path);
        read.map_err(|error| CliError::usage(format!("{path} cannot be read: {error}")))
    };
    let policy = match context.settings.get("policy") {
        Some(path) => Policy::from_toml(&read_file(path)?),
        None => Ok(Policy::default()),
    };
    let policy = policy.map_err(|error| CliError::usage(error.to_string()))?;
    for warning in policy.warnings() {
        context.out.note(&format!("warning: {warning}"));
    }
    let load = match args::get(arguments, "load") {
        Some(path) => path.into(),
        None => context.settings.data_dir().join("load.ndjson"),
    };
    let load_text = read_file(&load.to_string_lossy())?;
    let jobs_text = read_file(&args::needed::<String>(arguments, "jobs")?)?;
    let samples = samples_in(&load_text).map_err(CliError::usage)?;
    let jobs = jobs_in(&jobs_text).map_err(CliError::usage)?;
    let ignored = ignored_in(&jobs_text, &load_text);
    let Some(first) = samples.first() else {
        return Err(CliError::usage(
            "there is no measurement in the file of the load",
        ));
    };
    context.out.note(&format!(
        "{} over {} of load",
        counted(jobs.len() as u64, "job"),
        length(since(first.at, samples[samples.len() - 1].at))
    ));
    if !ignored.is_empty() {
        context
            .out
            .note(&format!("ignored: {}", ignored.join(", ")));
    }
    let outcomes = simulate(Arc::new(policy), &samples, &jobs);

    let waits: Vec<f64> = outcomes
        .iter()
        .filter_map(|outcome| outcome.waited_sec)
        .collect();
    let average = waits.iter().sum::<f64>() / waits.len() as f64;
    if context.out.json {
        context.out.document(&Document {
            jobs: &outcomes,
            ignored: &ignored,
            started: waits.len(),
            never_started: outcomes.len() - waits.len(),
            average_wait_sec: (!waits.is_empty()).then_some(average),
        })?;
        return Ok(Exit::OK);
    }
    let columns = [
        ("JOB", Align::Left),
        ("ADDON", Align::Left),
        ("TYPE", Align::Left),
        ("SUBMITTED", Align::Left),
        ("STARTED", Align::Left),
        ("WAITED", Align::Right),
        ("ENDED", Align::Left),
        ("WHY NOT", Align::Left),
    ];
    let time = |at: Option<jiff::Timestamp>| at.map_or("never".into(), crate::when::shown);
    let rows: Vec<_> = outcomes
        .iter()
        .map(|outcome| {
            let waited = outcome.waited_sec.map(std::time::Duration::from_secs_f64);
            vec![
                outcome.job_id.to_string(),
                outcome.addon_id.to_string(),
                outcome.job_type.to_string(),
                time(Some(outcome.submitted_at)),
                time(outcome.started_at),
                waited.map_or("-".into(), length),
                time(outcome.ended_at),
                outcome.denied.clone().unwrap_or_default(),
            ]
        })
        .collect();
    context.out.table(&columns, &rows)?;
    if !waits.is_empty() {
        let average = length(std::time::Duration::from_secs_f64(average));
        let (started, all) = (waits.len(), outcomes.len());
        context.out.note(&format!(
            "{started} of {all} would have started, after {average} on average"
        ));
    }
    Ok(Exit::OK)
}
