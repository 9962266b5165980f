//! `jobtree status`: how things stand, on one screen.

use clap::{ArgMatches, Command};
use jiff::Timestamp;
use jobtree_client::protocol::operations::RecentQuery;
use jobtree_protocol::{
    AddonStatus, JobState, JobView, NodeStatus, PauseView, StatusView, WorkerView,
};
use serde::Serialize;

use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::names;
use crate::out::{cell, counted};
use crate::summary;
use crate::when::{length, since};

/// Failed jobs that are shown.
const FAILED: u32 = 5;

pub fn define(command: Command) -> Command {
    command
        .about("Show machines, jobs, addons, workers and recent failures on one screen")
        .after_help("To follow it live: jobtree top. To see all jobs: jobtree ls --all.")
}

#[derive(Serialize)]
struct Document {
    #[serde(flatten)]
    status: StatusView,
    workers: Vec<WorkerView>,
    pauses: Vec<PauseView>,
    /// The newest first.
    recent_failures: Vec<JobView>,
}

pub fn run(_: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let client = context.client()?;
    let recent = RecentQuery {
        state: vec![JobState::Failed],
        limit: Some(FAILED),
        ..RecentQuery::default()
    };
    let document = Document {
        status: client.status()?,
        workers: client.workers()?,
        pauses: client.pauses()?,
        recent_failures: client.recent_jobs(&recent)?.jobs,
    };
    match context.out.json {
        true => context.out.document(&document)?,
        false => context.out.raw(&screen(&document, Timestamp::now()))?,
    }
    Ok(Exit::OK)
}

fn screen(document: &Document, now: Timestamp) -> String {
    let Document {
        status,
        workers,
        pauses,
        recent_failures,
    } = document;
    let mut text = String::new();
    let mut section = |name: &str, lines: Vec<String>| {
        for (number, line) in lines.iter().enumerate() {
            let name = if number == 0 { name } else { "" };
            text += &format!("{name:<9} {line}\n");
        }
    };
    let nodes = status.nodes.iter().map(|node| machine(node, now));
    section("machine", nodes.collect());
    section("jobs", vec![jobs(status)]);
    let addons = status.addons.iter();
    let addons = addons.map(|(name, addon)| format!("{name}: {}", work_of(addon)));
    section("addons", addons.collect());
    let paused = pauses.iter().map(|pause| {
        let of_type = pause.job_type.as_ref().map(|kind| format!("/{kind}"));
        let reason = pause.reason.as_ref().map(|reason| format!(": {reason}"));
        let time = length(since(pause.since, now));
        format!(
            "{}{} for {time}{}",
            pause.addon_id,
            of_type.unwrap_or_default(),
            reason.unwrap_or_default()
        )
    });
    section("paused", paused.collect());
    let each = workers.iter().map(|worker| {
        let report = &worker.report;
        let busy = format!(
            "{} of {}",
            worker.jobs.len(),
            counted(report.slots.into(), "slot")
        );
        format!("{}: {busy} in use, {}", report.addon_id, report.program)
    });
    let each: Vec<_> = each.collect();
    let none = "none has reported; start one with `jobtree work` or `jobtree serve --runner`";
    section(
        "workers",
        if each.is_empty() {
            vec![none.to_owned()]
        } else {
            each
        },
    );
    let failed = recent_failures.iter().map(|job| {
        let ago = length(since(job.ended_at.unwrap_or(job.created_at), now));
        let about = cell(&summary::what(job), 60);
        format!(
            "{}  {}/{}  {ago} ago  {about}",
            names::short(job.job_id),
            job.addon_id,
            job.job_type
        )
    });
    section("failed", failed.collect());
    text
}

fn machine(node: &NodeStatus, now: Timestamp) -> String {
    let state = format!("{:?}", node.state).to_uppercase();
    let time = length(since(node.since, now));
    let stale = if node.stale {
        ", measurements too old"
    } else {
        ""
    };
    let (id, busy, used, capacity) = (&node.node_id, node.busy, node.used, node.capacity);
    format!(
        "{id}: {state} for {time}, busy {busy:.1} of 10, {used} of {capacity} units used{stale}"
    )
}

fn jobs(status: &StatusView) -> String {
    let counts = status.jobs.iter().filter(|(_, count)| **count > 0);
    let counts: Vec<_> = counts
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    let oldest = status.oldest_queued_sec.map(|seconds| {
        let time = length(std::time::Duration::from_secs_f64(seconds.max(0.0)));
        format!("; the oldest that could start waits for {time}")
    });
    match counts.is_empty() {
        true => "none".to_owned(),
        false => counts.join(", ") + &oldest.unwrap_or_default(),
    }
}

fn work_of(addon: &AddonStatus) -> String {
    let (queued, running) = (addon.queued + addon.dispatching, addon.running);
    let paused = if addon.paused { ", paused" } else { "" };
    format!("{queued} waiting, {running} running{paused}")
}
