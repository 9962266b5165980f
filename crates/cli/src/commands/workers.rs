//! `jobtree workers`: the processes that run jobs, as they reported last.

use clap::{ArgMatches, Command};
use jiff::Timestamp;
use jobtree_protocol::WorkerView;
use serde::Serialize;

use crate::args::{self, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::out::{Align, cell};
use crate::when::{length, since};

pub fn define(command: Command) -> Command {
    command
        .about("List workers: the processes that run jobs")
        .after_help(
            "A worker reports some seconds after its start, and then every few seconds; one that is silent for 90 s is left out.\n\
             Programs that speak HTTP themselves and send no reports are not listed.",
        )
        .arg(value("addon", "ADDON", "Only this addon's"))
}

#[derive(Serialize)]
struct Document {
    workers: Vec<WorkerView>,
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let mut workers = context.client()?.workers()?;
    if let Some(addon) = args::get(arguments, "addon") {
        workers.retain(|worker| worker.report.addon_id.as_str() == addon);
    }
    if context.out.json {
        context.out.document(&Document { workers })?;
        return Ok(Exit::OK);
    }
    let columns = [
        ("ADDON", Align::Left),
        ("TYPES", Align::Left),
        ("PROGRAM", Align::Left),
        ("PID", Align::Right),
        ("SLOTS", Align::Right),
        ("JOBS", Align::Right),
        ("NODE", Align::Left),
        ("SEEN", Align::Right),
    ];
    let now = Timestamp::now();
    let rows: Vec<_> = workers.iter().map(|worker| row(worker, now)).collect();
    context.out.table(&columns, &rows)?;
    if rows.is_empty() {
        context.out.note(
            "no worker has reported; start one with `jobtree work` or `jobtree serve --runner`",
        );
    }
    Ok(Exit::OK)
}

fn row(worker: &WorkerView, now: Timestamp) -> Vec<String> {
    let report = &worker.report;
    let types: Vec<&str> = report.job_types.iter().map(AsRef::as_ref).collect();
    let types = match &types[..] {
        [] => "all".to_owned(),
        types => types.join(","),
    };
    let program = match report.draining {
        true => format!("{} (draining)", report.program),
        false => report.program.clone(),
    };
    vec![
        report.addon_id.to_string(),
        cell(&types, 30),
        cell(&program, 40),
        report.pid.map_or("-".into(), |pid| pid.to_string()),
        report.slots.to_string(),
        worker.jobs.len().to_string(),
        report
            .node_id
            .as_ref()
            .map_or("-".into(), ToString::to_string),
        format!("{} ago", length(since(worker.seen_at, now))),
    ]
}
