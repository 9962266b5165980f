//! `jobtree simulate`: recorded load and jobs against a policy file: what would have run when.
//!
//! What was recorded is read from files here; `jobtree_queue::simulate` does the rest.

mod recorded;

use std::sync::Arc;

use clap::{ArgMatches, Command};
use jobtree_queue::policy::Policy;
use jobtree_queue::simulate::{Outcome, simulate};
use serde::Serialize;

use self::recorded::{ignored_in, jobs_in, samples_in};
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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn load(minutes: std::ops::Range<u32>, cpu: f64) -> String {
        let mut text = String::new();
        for second in minutes.start * 60..minutes.end * 60 {
            let at = Timestamp::from_second(1_767_225_600 + i64::from(second)).unwrap();
            text.push_str(&format!(
                "{{\"at\":\"{at}\",\"busy\":0,\"state\":\"QUIET\",\"capacity\":0,\"used\":0,\"foreign_cpu\":{cpu}}}\n"
            ));
        }
        text
    }

    #[test]
    fn a_job_starts_when_the_machine_has_become_quiet_and_not_before() {
        let text = load(0..10, 0.95) + &load(10..60, 0.0);
        let jobs = r#"{"addon_id":"a","job_type":"t","cost_units":20,"created_at":"2026-01-01T00:00:30Z","expected_duration_sec":60}"#;
        let (samples, jobs) = (samples_in(&text).unwrap(), jobs_in(jobs).unwrap());
        let run = || simulate(Arc::new(Policy::default()), &samples, &jobs);
        let outcome = run().remove(0);
        let started = outcome.started_at.expect("it starts in the quiet part");
        assert!(
            started > "2026-01-01T00:10:00Z".parse().unwrap(),
            "{outcome:?}"
        );
        assert_eq!(
            outcome.ended_at.unwrap().duration_since(started).as_secs(),
            60
        );
        assert_eq!(run()[0].started_at, Some(started));
    }

    #[test]
    fn a_measurement_a_minute_is_enough() {
        let minutes: String = load(0..60, 0.0)
            .lines()
            .step_by(60)
            .map(|line| format!("{line}\n"))
            .collect();
        let jobs = r#"{"addon_id":"a","job_type":"t","cost_units":20,"created_at":"2026-01-01T00:10:30Z"}"#;
        let samples = samples_in(&minutes).unwrap();
        assert_eq!(samples.len(), 60);
        let outcome = simulate(
            Arc::new(Policy::default()),
            &samples,
            &jobs_in(jobs).unwrap(),
        )
        .remove(0);
        assert!(
            outcome.waited_sec.is_some_and(|sec| sec < 1.0),
            "{outcome:?}"
        );
    }

    #[test]
    fn a_machine_that_stays_busy_starts_nothing_and_says_why() {
        let jobs = r#"{"addon_id":"a","job_type":"t","cost_units":20,"created_at":"2026-01-01T00:00:30Z"}"#;
        let samples = samples_in(&load(0..20, 0.99)).unwrap();
        let outcome = simulate(
            Arc::new(Policy::default()),
            &samples,
            &jobs_in(jobs).unwrap(),
        )
        .remove(0);
        assert_eq!(outcome.started_at, None);
        assert!(outcome.denied.is_some(), "{outcome:?}");
    }
}
