//! `jobtree show`: everything about a job.

use std::time::Duration;

use clap::{ArgMatches, Command};
use jiff::Timestamp;
use jobtree_protocol::{
    Backoff, Constraints, EventEntry, JobId, JobView, Late, OnDependencyFailure, Start, TreeView,
};
use serde::Serialize;

use crate::args::{self, JOB, flag, place};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::names;
use crate::out::cell;
use crate::summary;
use crate::when::{length, localized, shown, since};

pub fn define(command: Command) -> Command {
    command
        .about("Show a job")
        .arg(place("job", "JOB", JOB).required(true))
        .arg(flag("events", "With what happened to it"))
        .arg(flag(
            "tree",
            "With the jobs below it in its worker, as last reported",
        ))
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    job: &'a JobView,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<&'a [EventEntry]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tree: Option<&'a TreeView>,
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let client = context.client()?;
    let id = names::job(&client, &args::needed::<String>(arguments, "job")?)?;
    let job = client.job(id)?;
    let mut events = None;
    if arguments.get_flag("events") {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = client.job_events(id, after)?;
            all.extend(page.events);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        events = Some(all);
    }
    let tree = match arguments.get_flag("tree") {
        true => Some(client.tree(id)?),
        false => None,
    };
    if context.out.json {
        context.out.document(&Document {
            job: &job,
            events: events.as_deref(),
            tree: tree.as_ref(),
        })?;
        return Ok(Exit::OK);
    }
    context.out.raw(&described(&job, context))?;
    if let Some(events) = events {
        context.out.print("\nevents")?;
        for EventEntry { event, .. } in events {
            let at = shown(event.at);
            let reason = localized(&event.reason.unwrap_or_default());
            let line = format!("  {at}  {:<16} {}", event.kind.as_str(), cell(&reason, 100));
            context.out.print(line.trim_end())?;
        }
    }
    if let Some(TreeView { tree, .. }) = tree {
        context.out.print("\ntree")?;
        for node in &tree.nodes {
            let indent = "  ".repeat(node.depth as usize + 1);
            let waits = node.waiting_for.as_ref();
            let waits = waits
                .map(|what| format!(", waits for {what}"))
                .unwrap_or_default();
            context
                .out
                .print(&format!("{indent}{} ({}{waits})", node.label, node.state))?;
        }
        if tree.left_out > 0 {
            context
                .out
                .print(&format!("  … and {} more", tree.left_out))?;
        }
    }
    Ok(Exit::OK)
}

/// What a job leans on.
pub fn heavy(constraints: &Constraints) -> String {
    let all = [
        (constraints.cpu_heavy, "cpu"),
        (constraints.disk_write_heavy, "disk"),
        (constraints.network_heavy, "network"),
        (constraints.memory_heavy, "memory"),
    ];
    let named = all.iter().filter(|(is, _)| *is).map(|(_, name)| *name);
    named.collect::<Vec<_>>().join(", ")
}

/// How long a job waits between attempts.
pub fn backoff(backoff: &Backoff) -> String {
    let seconds = |count: f64| length(Duration::from_secs_f64(count.clamp(0.0, 1e9)));
    format!(
        "{}, times {} after each failure, {} at most, {:.0} % of it drawn",
        seconds(backoff.initial_sec),
        backoff.factor,
        seconds(backoff.max_sec),
        backoff.jitter * 100.0
    )
}

/// A name and a value a line; what is not there is left out.
pub fn described(job: &JobView, context: &Context) -> String {
    let now = Timestamp::now();
    let mut text = String::new();
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            let mut lines = value.lines();
            text.push_str(&format!(
                "{name:<12} {}\n",
                lines.next().unwrap_or_default()
            ));
            lines.for_each(|more| text.push_str(&format!("{:<12} {more}\n", "")));
        }
    };
    let time = |at: Option<Timestamp>| at.map(shown);
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    line("job", Some(job.job_id.to_string()));
    line("state", Some(context.out.state(job.state)));
    line("addon", Some(job.addon_id.to_string()));
    line("type", Some(job.job_type.to_string()));
    line("command", summary::command_line(job));
    line("priority", Some(job.priority.to_string()));
    line("cost", Some(job.cost_units.to_string()));
    line("heavy on", Some(heavy(&job.constraints)));
    line("tags", Some(job.tags.join(", ")));
    line("created", time(Some(job.created_at)));
    line("schedule", job.schedule_id.map(|id| id.to_string()));
    line("not before", time(job.next_earliest_start_at));
    line(
        "starts",
        match job.start {
            Start::WhenQuiet => job
                .time_sensitive
                .then(|| "without waiting for quiet while the machine is used normally".to_owned()),
            Start::Now => Some("in every state but PANIC (--now)".to_owned()),
            Start::IgnoreLoad => Some("whatever the load is (--ignore-load)".to_owned()),
        },
    );
    line(
        "deadline",
        time(job.deadline_at).map(|at| match job.deadline_at_risk {
            true => format!("{at} (will probably be missed)"),
            false => at,
        }),
    );
    line(
        "if late",
        (job.late == Late::Fail).then(|| "it fails instead of starting behind its deadline".into()),
    );
    let seconds = |count: u32| length(Duration::from_secs(count.into()));
    line("expected", job.expected_duration_sec.map(seconds));
    line("max runtime", job.max_runtime_sec.map(seconds));
    line("key", job.idempotency_key.clone());
    line("unique", job.unique_key.clone());
    let group = |key: &String| format!("{key}, {} at a time", job.concurrency_limit.unwrap_or(1));
    line("group", job.concurrency_key.as_ref().map(group));
    line(
        "needs node",
        job.required_node.as_ref().map(ToString::to_string),
    );
    line("needs label", Some(job.required_labels.join(", ")));
    line("started", time(job.started_at));
    line("ended", time(job.ended_at));
    let ran = job
        .started_at
        .map(|from| since(from, job.ended_at.unwrap_or(now)));
    line("ran for", ran.map(length));
    line(
        "attempts",
        Some(format!("{} of {}", job.attempts, job.max_attempts)),
    );
    line(
        "backoff",
        (job.max_attempts > 1).then(|| backoff(&job.backoff)),
    );
    line(
        "rescues",
        (job.rescues > 0).then(|| job.rescues.to_string()),
    );
    line("node", job.node_id.as_ref().map(ToString::to_string));
    line("lease", job.lease_id.as_ref().map(ToString::to_string));
    let progress = job.progress.as_ref().map(|progress| {
        let message = progress.message.clone();
        let parts = progress.fraction.map(percent).into_iter().chain(message);
        parts.collect::<Vec<_>>().join(" ")
    });
    line("progress", progress);
    line(
        "waits for",
        Some(
            job.waiting_for
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", "),
        ),
    );
    let ids = |ids: &[JobId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
    line("depends on", Some(ids(&job.depends_on).join("\n")));
    line(
        "if one fails",
        (job.on_dependency_failure == OnDependencyFailure::Run)
            .then(|| "it runs all the same".into()),
    );
    line("asked", job.cancel_requested.then(|| "to stop".into()));
    line(
        "quarantined",
        job.quarantined
            .then(|| "it took too many workers with it; `jobtree redrive` tries it again".into()),
    );
    line(
        "payload",
        job.payload.as_ref().map(|json| cell(json.text(), 200)),
    );
    line(
        "result",
        job.result.as_ref().map(|json| cell(json.text(), 200)),
    );
    line("error", job.last_error.clone());
    text
}
