//! `jobtree ls`: the jobs that a filter finds.

use clap::{ArgMatches, Command};
use jiff::Timestamp;
use jobtree_protocol::{JobList, JobView};

use crate::args::{self, flag, places, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::filter;
use crate::out::{Align, cell};
use crate::when::{length, since};

/// Jobs shown if nothing is said.
const SOME: u32 = 50;

pub fn define(command: Command) -> Command {
    command
        .about("List jobs, the oldest first")
        .after_help(
            "The filter is words that must all hold:\n  \
             state:queued,running   states; or waiting, open, ended\n  \
             addon:photos           of this addon\n  \
             type:index             of this type\n  \
             tag:nightly            with this tag; tag:\"two words\"\n  \
             quarantined            that took too many workers with them\n  \
             any words              that hold this text\n\n\
             With --json and --all, one job a line.",
        )
        .arg(places("filter", "FILTER", "Which; all if absent").required(false))
        .arg(value("limit", "N", "At most so many [50]"))
        .arg(value("after", "JOB", "Behind this one: the next page"))
        .arg(flag("all", "Every one, however many").conflicts_with("limit"))
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let mut query = filter::parse(&args::all(arguments, "filter")).map_err(|wrong| {
        CliError::usage(wrong).hint("`jobtree ls --help` shows what can be written")
    })?;
    query.after = args::get(arguments, "after")
        .map(args::job_id)
        .transpose()?;
    let limit: u32 = args::read(arguments, "limit")?.unwrap_or(SOME);
    query.limit = Some(limit.min(500));
    let client = context.client()?;
    let now = Timestamp::now();
    if arguments.get_flag("all") {
        query.limit = Some(500);
        let mut rows = Vec::new();
        for job in client.all_jobs(query) {
            let job = job?;
            match context.out.json {
                true => context.out.line(&job)?,
                false => rows.push(row(&job, now, context)),
            }
        }
        context.out.table(COLUMNS, &rows)?;
        return Ok(Exit::OK);
    }
    let mut list = JobList::default();
    loop {
        let page = client.jobs(&query)?;
        list.jobs.extend(page.jobs);
        list.next = page.next;
        let left = limit.saturating_sub(u32::try_from(list.jobs.len()).unwrap_or(u32::MAX));
        if left == 0 || list.next.is_none() {
            break;
        }
        (query.after, query.limit) = (list.next, Some(left.min(500)));
    }
    if context.out.json {
        context.out.document(&list)?;
        return Ok(Exit::OK);
    }
    let rows: Vec<_> = list.jobs.iter().map(|job| row(job, now, context)).collect();
    context.out.table(COLUMNS, &rows)?;
    match (&list.jobs[..], list.next) {
        ([], _) => context.out.note("no job is like that"),
        (_, Some(next)) => context
            .out
            .note(&format!("there are more: --after {next}, or --all")),
        _ => {}
    }
    Ok(Exit::OK)
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
];

fn row(job: &JobView, now: Timestamp, context: &Context) -> Vec<String> {
    vec![
        job.job_id.to_string(),
        context.out.state(job.state),
        job.addon_id.to_string(),
        job.job_type.to_string(),
        job.priority.to_string(),
        job.cost_units.to_string(),
        length(since(job.created_at, now)),
        cell(&what(job), 60),
    ]
}

/// The one thing about it that is worth a cell.
fn what(job: &JobView) -> String {
    if let Some(error) = job.last_error.as_ref().filter(|_| job.result.is_none()) {
        return error.clone();
    }
    if job.state.is_ended() {
        return job.tags.join(" ");
    }
    if job.cancel_requested {
        return "is asked to stop".into();
    }
    match &job.progress {
        Some(progress) => {
            let percent = progress
                .fraction
                .map(|share| format!("{:.0} %", share * 100.0));
            let message = progress.message.clone();
            percent
                .into_iter()
                .chain(message)
                .collect::<Vec<_>>()
                .join(" ")
        }
        None => job.tags.join(" "),
    }
}
