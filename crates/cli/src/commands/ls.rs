//! `jobtree ls`: the jobs that a filter finds.

use clap::{ArgMatches, Command};
use jiff::Timestamp;
use jobtree_client::Client;
use jobtree_client::protocol::operations::RecentQuery;
use jobtree_protocol::{JobList, JobQuery, JobState, JobView};

use crate::args::{self, flag, places, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::filter;
use crate::names;
use crate::out::{Align, cell};
use crate::summary;
use crate::when::{length, since};
use crate::why;

/// Jobs shown if nothing is said.
const SOME: u32 = 50;

pub fn define(command: Command) -> Command {
    command
        .about("List jobs: those that have not ended, then the last that have")
        .after_help(
            "The filter is words that must all hold:\n  \
             state:queued,running   states; or waiting, open, ended\n  \
             addon:photos           of this addon\n  \
             type:index             of this type\n  \
             tag:nightly            with this tag; tag:\"two words\"\n  \
             quarantined            that took too many workers with them\n  \
             ended:1h               that ended in the last hour; or since a time (RFC 3339)\n  \
             any words              that hold this text\n\n\
             Jobs that have not ended come first, the oldest at the top; then those that have ended, the newest at the top.\n\
             With --all and --after, all are in the order of their submission. With --json and --all, one job a line.",
        )
        .arg(places("filter", "FILTER", "Which; all if absent").required(false))
        .arg(value("limit", "N", "At most so many [50]"))
        .arg(value("after", "JOB", "Behind this one: the next page"))
        .arg(flag(
            "whole-ids",
            "Show ids whole, not their last 8 characters",
        ))
        .arg(flag("all", "Every one, however many").conflicts_with("limit"))
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let mut query = filter::parse(&args::all(arguments, "filter")).map_err(|wrong| {
        CliError::usage(wrong).hint("`jobtree ls --help` shows what can be written")
    })?;
    let limit: u32 = args::read(arguments, "limit")?.unwrap_or(SOME);
    query.limit = Some(limit.min(500));
    let client = context.client()?;
    query.after = names::job_of(&client, arguments, "after")?;
    let whole_ids = arguments.get_flag("whole-ids");
    if arguments.get_flag("all") {
        query.limit = Some(500);
        let mut jobs = Vec::new();
        for job in client.all_jobs(query) {
            let job = job?;
            match context.out.json {
                true => context.out.line(&job)?,
                false => jobs.push(job),
            }
        }
        show(&client, &jobs, whole_ids, context)?;
        return Ok(Exit::OK);
    }
    let list = match query.after {
        Some(_) => in_order(&client, query, limit)?,
        None => open_then_recent(&client, query, limit)?,
    };
    if context.out.json {
        context.out.document(&list)?;
        return Ok(Exit::OK);
    }
    show(&client, &list.jobs, whole_ids, context)?;
    match (&list.jobs[..], list.next) {
        ([], _) => context.out.note("no jobs found"),
        (_, Some(next)) => context
            .out
            .note(&format!("there are more: --after {next}, or --all")),
        (jobs, None) if jobs.len() as u64 >= u64::from(limit) => context
            .out
            .note("there may be more: --all, or a greater --limit"),
        _ => {}
    }
    Ok(Exit::OK)
}

/// Jobs in the order of their ids, page by page.
fn in_order(client: &Client, mut query: JobQuery, limit: u32) -> Result<JobList, CliError> {
    let mut list = JobList::default();
    loop {
        let left = limit.saturating_sub(u32::try_from(list.jobs.len()).unwrap_or(u32::MAX));
        if left == 0 {
            return Ok(list);
        }
        query.limit = Some(left.min(500));
        let page = client.jobs(&query)?;
        list.jobs.extend(page.jobs);
        list.next = page.next;
        if list.next.is_none() {
            return Ok(list);
        }
        query.after = list.next;
    }
}

/// Jobs that have not ended, the oldest first, and behind them those that have, the newest first. Whoever looks wants to know
/// what goes on, and what came of the last.
fn open_then_recent(client: &Client, query: JobQuery, limit: u32) -> Result<JobList, CliError> {
    let asked_for = |state: &JobState| query.state.is_empty() || query.state.contains(state);
    let states = JobState::ALL.into_iter().filter(asked_for);
    let (ended, open): (Vec<_>, Vec<_>) = states.partition(|state| state.is_ended());
    let mut list = JobList::default();
    if !open.is_empty() {
        let query = JobQuery {
            state: open,
            ..query.clone()
        };
        list = in_order(client, query, limit)?;
    }
    let left = limit.saturating_sub(u32::try_from(list.jobs.len()).unwrap_or(u32::MAX));
    if left > 0 && !ended.is_empty() {
        let recent = client.recent_jobs(&RecentQuery {
            id: None,
            state: ended,
            addon_id: query.addon_id,
            job_type: query.job_type,
            tag: query.tag,
            text: query.text,
            quarantined: query.quarantined,
            ended_since: query.ended_since,
            before: None,
            limit: Some(left.min(500)),
        })?;
        list.jobs.extend(recent.jobs);
    }
    Ok(list)
}

const COLUMNS: &[(&str, Align)] = &[
    ("JOB", Align::Left),
    ("STATE", Align::Left),
    ("ADDON", Align::Left),
    ("TYPE", Align::Left),
    ("PRIO", Align::Left),
    ("COST", Align::Right),
    ("AGE", Align::Right),
    ("WHAT", Align::Left),
    ("WHY", Align::Left),
];

fn show(
    client: &Client,
    jobs: &[JobView],
    whole_ids: bool,
    context: &Context,
) -> Result<(), CliError> {
    let (now, reasons) = (Timestamp::now(), why::of_jobs(client, jobs));
    let rows = jobs.iter().map(|job| {
        let why = reasons.get(&job.job_id).map_or("", String::as_str);
        row(job, why, now, whole_ids, context)
    });
    let rows: Vec<_> = rows.collect();
    context.out.table(COLUMNS, &rows)
}

fn row(
    job: &JobView,
    why: &str,
    now: Timestamp,
    whole_ids: bool,
    context: &Context,
) -> Vec<String> {
    vec![
        match whole_ids {
            true => job.job_id.to_string(),
            false => names::short(job.job_id),
        },
        context.out.state(job.state),
        job.addon_id.to_string(),
        job.job_type.to_string(),
        job.priority.to_string(),
        job.cost_units.to_string(),
        length(since(job.created_at, now)),
        cell(&summary::what(job), 60),
        cell(why, 100),
    ]
}
