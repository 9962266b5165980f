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
    section("machine", machines(status));
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

/// A line for each machine. Where there are several, each says its version, and the others when they were seen.
fn machines(status: &StatusView) -> Vec<String> {
    let several = status.nodes.len() > 1;
    let nodes = status.nodes.iter().enumerate();
    let line = |(place, node): (usize, &NodeStatus)| {
        let seen = node.last_seen.filter(|_| place > 0 && !node.silent);
        let mut line = machine(node, status.at);
        if !node.labels.is_empty() {
            line += &format!(", labels {}", node.labels.join(" "));
        }
        if several && !node.version.is_empty() {
            line += &format!(", version {}", node.version);
        }
        if let Some(seen) = seen {
            line += &format!(", seen {} ago", length(since(seen, status.at)));
        }
        line
    };
    nodes.map(line).collect()
}

fn machine(node: &NodeStatus, now: Timestamp) -> String {
    let id = &node.node_id;
    if node.silent {
        // Its numbers are those of the time when it was seen.
        let time = node.last_seen.map_or(String::new(), |seen| {
            format!(" for {}", length(since(seen, now)))
        });
        let leases = counted(node.active_leases.into(), "lease");
        return format!("{id}: SILENT{time}: off, or without the database; it held {leases}");
    }
    let state = format!("{:?}", node.state).to_uppercase();
    let time = length(since(node.since, now));
    let stale = if node.stale {
        ", measurements too old"
    } else {
        ""
    };
    let (busy, used, capacity) = (node.busy, node.used, node.capacity);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn status(nodes: &[serde_json::Value]) -> StatusView {
        let status = serde_json::json!({
            "at": "2026-11-15T12:00:40Z", "node_id": "n1", "version": "2.0.0", "nodes": nodes, "jobs": {}, "addons": {},
        });
        serde_json::from_value(status).expect("a status")
    }

    fn node(name: &str, version: &str) -> serde_json::Value {
        serde_json::json!({
            "node_id": name, "busy": 1.0, "state": "QUIET", "since": "2026-11-15T11:00:40Z", "capacity": 100, "used": 20,
            "active_leases": 3, "version": version, "last_seen": "2026-11-15T12:00:35Z",
        })
    }

    #[test]
    fn one_machine_is_told_in_a_short_line() {
        assert_eq!(
            machines(&status(&[node("n1", "2.0.0")])),
            ["n1: QUIET for 1h00m, busy 1.0 of 10, 20 of 100 units used"]
        );
    }

    #[test]
    fn other_machines_have_a_version_labels_and_a_time_and_a_dead_one_does_not_look_alive() {
        let mut labelled = node("n2", "1.9.0");
        labelled["labels"] = serde_json::json!(["gpu", "ssd"]);
        let mut dead = node("n3", "2.0.0");
        dead["silent"] = true.into();
        dead["last_seen"] = "2026-11-15T11:58:40Z".into();
        assert_eq!(
            machines(&status(&[node("n1", "2.0.0"), labelled, dead])),
            [
                "n1: QUIET for 1h00m, busy 1.0 of 10, 20 of 100 units used, version 2.0.0",
                "n2: QUIET for 1h00m, busy 1.0 of 10, 20 of 100 units used, labels gpu ssd, version 1.9.0, seen 5s ago",
                "n3: SILENT for 2m00s: off, or without the database; it held 3 leases, version 2.0.0",
            ]
        );
    }
}
