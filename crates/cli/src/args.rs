//! Arguments that several commands have.

use std::str::FromStr;

use clap::{Arg, ArgAction, ArgMatches};
use jiff::Zoned;
use jobtree_client::Client;
use jobtree_process::{AdviceSignal, UnknownSignal};
use jobtree_protocol::{
    Backoff, Json, OnDependencyFailure, Priority, Start, SubmitRequest, TraceParent,
};

use crate::error::CliError;
use crate::names;
use crate::when;

/// The help of an argument that names a job, and of one that names several; see [`names`].
pub const JOB: &str = "Its id, the first or last characters of it, or `last`";
pub const JOBS: &str = "Their ids, the first or last characters of them, or `last`";

/// `--name VALUE`.
pub fn value(name: &'static str, value_name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value_name).help(help)
}

/// `--name`.
pub fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .action(ArgAction::SetTrue)
        .help(help)
}

/// A value without a flag.
pub fn place(name: &'static str, value_name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).value_name(value_name).help(help)
}

/// One or more values without a flag.
pub fn places(name: &'static str, value_name: &'static str, help: &'static str) -> Arg {
    place(name, value_name, help).num_args(1..).required(true)
}

/// What was given. A command need not have the argument: some leave out a part of those that others have.
pub fn get<'a>(arguments: &'a ArgMatches, name: &str) -> Option<&'a str> {
    let given = arguments.try_get_one::<String>(name).ok().flatten();
    given.map(String::as_str)
}

/// Whether a flag was given.
pub fn has(arguments: &ArgMatches, name: &str) -> bool {
    let given = arguments.try_get_one::<bool>(name).ok().flatten();
    given.copied().unwrap_or(false)
}

/// All that was given.
pub fn all(arguments: &ArgMatches, name: &str) -> Vec<String> {
    let given = arguments.try_get_many::<String>(name).ok().flatten();
    given.unwrap_or_default().cloned().collect()
}

/// A value of a kind that can be read.
pub fn read<T>(arguments: &ArgMatches, name: &str) -> Result<Option<T>, CliError>
where
    T: FromStr,
    T::Err: ToString,
{
    get(arguments, name)
        .map(|text| parsed(name, text))
        .transpose()
}

/// Reads one value, or says which it was.
pub fn parsed<T>(name: &str, text: &str) -> Result<T, CliError>
where
    T: FromStr,
    T::Err: ToString,
{
    text.parse().map_err(|error: T::Err| {
        CliError::usage(format!(
            "{name}: {text:?} is not valid: {}",
            error.to_string()
        ))
    })
}

/// A value that was required.
pub fn needed<T>(arguments: &ArgMatches, name: &str) -> Result<T, CliError>
where
    T: FromStr,
    T::Err: ToString,
{
    read(arguments, name)?.ok_or_else(|| CliError::usage(format!("{name} is missing")))
}

/// A duration behind a flag.
pub fn duration(
    arguments: &ArgMatches,
    name: &str,
) -> Result<Option<std::time::Duration>, CliError> {
    let read = get(arguments, name).map(when::duration).transpose();
    read.map_err(|wrong| CliError::usage(format!("--{name}: {wrong}")))
}

/// A number of bytes: `500`, `500M`, `2G`.
pub fn bytes(name: &str, text: &str) -> Result<u64, CliError> {
    let wrong = || {
        CliError::usage(format!("--{name}: {text:?} is not a number of bytes"))
            .hint("write 500M or 2G")
    };
    let (digits, unit) = match text.find(|c: char| !c.is_ascii_digit()) {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// How a program takes advice: what `jobtree work` and `jobtree run` share.
pub fn of_advice() -> [Arg; 2] {
    [
        value(
            "advice-signal",
            "SIGNAL",
            "Signal it when the advice changes: HUP, USR1, USR2 or WINCH [none]",
        ),
        value(
            "yield-grace",
            "DURATION",
            "Between the advice to yield and TERM; or `never` [30s]",
        ),
    ]
}

/// The signal that a program wants.
pub fn advice_signal(arguments: &ArgMatches) -> Result<Option<AdviceSignal>, CliError> {
    let read = get(arguments, "advice-signal").map(str::parse).transpose();
    read.map_err(|wrong: UnknownSignal| CliError::usage(format!("--advice-signal: {wrong}")))
}

/// How long a program may go on after it was told to yield.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum YieldGrace {
    After(std::time::Duration),
    Never,
}

/// The time between the advice to yield and TERM, if it was given.
pub fn yield_grace(arguments: &ArgMatches) -> Result<Option<YieldGrace>, CliError> {
    match get(arguments, "yield-grace") {
        Some("never") => Ok(Some(YieldGrace::Never)),
        _ => Ok(duration(arguments, "yield-grace")?.map(YieldGrace::After)),
    }
}

/// What can be said of any job that is submitted, beside its type and payload.
pub fn of_a_job() -> Vec<Arg> {
    let heading = |arguments: Vec<Arg>| {
        let with = arguments
            .into_iter()
            .map(|argument| argument.help_heading("The job"));
        with.collect()
    };
    heading(vec![
        value(
            "cost",
            "UNITS",
            "Its share of the capacity while it runs, 1 to 100 [10]",
        ),
        value("priority", "CLASS", "low, normal or high [normal]"),
        flag(
            "now",
            "Start in QUIET, NORMAL and BUSY, without waiting for a streak or a cool-down; not in PANIC",
        ),
        flag(
            "ignore-load",
            "Start in PANIC too, whatever the load is; needs an admin's token",
        )
        .conflicts_with("now"),
        value(
            "after",
            "TIME",
            "Not before: 2h, 22:00, \"tomorrow 22:00\", RFC 3339",
        ),
        value(
            "deadline",
            "TIME",
            "Done by then; the nearer, the less quiet it waits for",
        ),
        flag("drop-late", "Fail, rather than start behind the deadline"),
        value("expect", "DURATION", "How long it probably runs"),
        value("max-runtime", "DURATION", "Stopped if it runs longer"),
        value(
            "attempts",
            "N",
            "How many runs may fail before the job does [1]",
        ),
        value(
            "backoff",
            "DURATION",
            "The wait after the first run that fails [5s]",
        ),
        value(
            "backoff-factor",
            "N",
            "What each further failure multiplies the wait by, 1 to 10 [2]",
        ),
        value(
            "backoff-max",
            "DURATION",
            "The longest wait between attempts [1h]",
        ),
        value(
            "backoff-jitter",
            "SHARE",
            "The share of the wait that is drawn, 0 to 1 [0.2]",
        ),
        value("tag", "TAG", "To find it by; may be repeated").action(ArgAction::Append),
        value(
            "key",
            "KEY",
            "A second submission with this key is this job",
        ),
        value("unique", "KEY", "Only one of these at a time is not ended"),
        value("group", "KEY", "Of these, --group-limit at a time run"),
        value("group-limit", "N", "How many of a group at a time [1]"),
        value(
            "depends-on",
            "JOB",
            "Starts when that is done; may be repeated",
        )
        .action(ArgAction::Append),
        value(
            "on-dependency-failure",
            "WHAT",
            "cancel it, or run it all the same [cancel]",
        )
        .value_parser(["cancel", "run"]),
        value(
            "heavy",
            "WHAT",
            "Leans on: cpu, disk, network, memory; may be repeated",
        )
        .action(ArgAction::Append)
        .value_parser(["cpu", "disk", "network", "memory"]),
        value(
            "on-done",
            "SHELL",
            "Run this when the job has ended, however: `sh -c SHELL` by a runner, with JOBTREE_ENDED_JOB",
        ),
        value("node", "NODE", "The one machine that may run it"),
        value(
            "label",
            "LABEL",
            "A label its machine must have; may be repeated",
        )
        .action(ArgAction::Append),
    ])
}

/// The class that was named.
pub fn priority(arguments: &ArgMatches) -> Result<Option<Priority>, CliError> {
    let read = get(arguments, "priority").map(|text| {
        Priority::parse(text).ok_or_else(|| {
            CliError::usage(format!(
                "--priority: {text:?} is none: write low, normal or high"
            ))
        })
    });
    read.transpose()
}

/// The wait between attempts, if a part of it was named: the rest is as usual.
fn backoff(arguments: &ArgMatches) -> Result<Option<Backoff>, CliError> {
    let named = ["backoff", "backoff-factor", "backoff-max", "backoff-jitter"];
    if named.iter().all(|name| get(arguments, name).is_none()) {
        return Ok(None);
    }
    let usual = Backoff::default();
    let seconds =
        |name: &str| Ok::<_, CliError>(duration(arguments, name)?.map(|time| time.as_secs_f64()));
    let initial_sec = seconds("backoff")?.unwrap_or(usual.initial_sec);
    Ok(Some(Backoff {
        initial_sec,
        factor: read(arguments, "backoff-factor")?.unwrap_or(usual.factor),
        max_sec: seconds("backoff-max")?.unwrap_or(usual.max_sec.max(initial_sec)),
        jitter: read(arguments, "backoff-jitter")?.unwrap_or(usual.jitter),
    }))
}

/// The trace that this command is a step of, as whoever started it says. What is none is as good as none.
fn traceparent() -> Option<String> {
    let named = std::env::var("TRACEPARENT").ok();
    named.filter(|named| named.parse::<TraceParent>().is_ok())
}

/// The job that those arguments describe.
pub fn described(
    client: &Client,
    arguments: &ArgMatches,
    addon: &str,
    job_type: &str,
    payload: Option<Json>,
) -> Result<SubmitRequest, CliError> {
    let now = Zoned::now();
    let time = |name: &str| {
        let read = get(arguments, name).map(|text| when::time(text, &now));
        let wrong = |wrong| CliError::usage(format!("--{name}: {wrong}"));
        read.transpose().map_err(wrong)
    };
    let seconds = |name: &str| {
        let read = get(arguments, name).map(when::seconds).transpose();
        read.map_err(|wrong| CliError::usage(format!("--{name}: {wrong}")))
    };
    let owned = |name: &str| get(arguments, name).map(str::to_owned);
    let priority = priority(arguments)?.unwrap_or_default();
    // With a key, a delay is sent as one: the same command typed again means the same job.
    let delay = |name: &str| {
        let text = get(arguments, name).filter(|_| get(arguments, "key").is_some());
        text.and_then(when::delay)
    };
    let (after_sec, deadline_sec) = (delay("after"), delay("deadline"));
    let mut job = SubmitRequest {
        payload,
        priority,
        start: match (has(arguments, "now"), has(arguments, "ignore-load")) {
            (_, true) => Start::IgnoreLoad,
            (true, false) => Start::Now,
            (false, false) => Start::WhenQuiet,
        },
        earliest_start_at: time("after")?.filter(|_| after_sec.is_none()),
        earliest_start_in_sec: after_sec,
        deadline_at: time("deadline")?.filter(|_| deadline_sec.is_none()),
        deadline_in_sec: deadline_sec,
        expected_duration_sec: seconds("expect")?,
        max_runtime_sec: seconds("max-runtime")?,
        max_attempts: read(arguments, "attempts")?,
        backoff: backoff(arguments)?,
        tags: all(arguments, "tag"),
        idempotency_key: owned("key"),
        unique_key: owned("unique"),
        concurrency_key: owned("group"),
        concurrency_limit: read(arguments, "group-limit")?,
        depends_on: names::jobs(client, arguments, "depends-on")?,
        required_node: owned("node"),
        required_labels: all(arguments, "label"),
        traceparent: traceparent(),
        ..SubmitRequest::new(addon, job_type, 10)
    };
    if let Some(cost) = read(arguments, "cost")? {
        job.cost_units = cost;
    }
    if has(arguments, "drop-late") {
        job.late = jobtree_protocol::Late::Fail;
    }
    if let Some(what) = get(arguments, "on-dependency-failure") {
        job.on_dependency_failure = match what {
            "run" => OnDependencyFailure::Run,
            _ => OnDependencyFailure::Cancel,
        };
    }
    for heavy in all(arguments, "heavy") {
        match heavy.as_str() {
            "cpu" => job.constraints.cpu_heavy = true,
            "disk" => job.constraints.disk_write_heavy = true,
            "network" => job.constraints.network_heavy = true,
            _ => job.constraints.memory_heavy = true,
        }
    }
    Ok(job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        assert_eq!(bytes("memory", "500").unwrap(), 500);
        assert_eq!(bytes("memory", "2G").unwrap(), 2 << 30);
        assert_eq!(bytes("memory", "16kib").unwrap(), 16 << 10);
        for wrong in ["", "G", "2T", "99999999999G", "-1"] {
            assert!(bytes("memory", wrong).is_err(), "{wrong}");
        }
    }
}
