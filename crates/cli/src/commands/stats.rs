//! `jobtree stats`: how jobs of each type did, and what they declare and use.

use clap::{ArgMatches, Command};
use jiff::Zoned;
use jobtree_protocol::operations::HistoryWindow;
use jobtree_protocol::{HistoryList, HistoryStats};

use crate::args::{self, place, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::out::Align;
use crate::when;

pub fn define(command: Command) -> Command {
    command
        .about("Show how jobs of each type did, and what they declare and use")
        .after_help(
            "DECLARED is the median of the declared cost units, MEASURED the units that 95 % of the measured runs stay \
             below: the part of the machine's CPU that a run uses. FACTOR is what admission charges for a declared unit \
             if the policy says `cost.learn`. CPU, MEMORY and IO are what 95 % of the measured runs stay below. Programs \
             that `jobtree work` and `jobtree serve --runner` run are measured.\n\n\
             Without --since, --until and --node these are all runs on the daemon's machine, also of jobs that are \
             forgotten. With one of them, the jobs that are kept are counted.",
        )
        .arg(place("type", "TYPE", "Only this type of job"))
        .arg(value("since", "TIME", "Only jobs that ended then or later: 2h for two hours ago; or RFC 3339"))
        .arg(value("until", "TIME", "Only jobs that ended before then"))
        .arg(value("node", "NODE", "Only jobs that ran on this machine"))
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let wanted = args::get(arguments, "type");
    let is_wanted = |stats: &HistoryStats| match (&stats.job_type, wanted) {
        (Some(job_type), Some(wanted)) => job_type.as_str() == wanted,
        (job_type, None) => job_type.is_some(),
        (None, Some(_)) => false,
    };
    let now = Zoned::now();
    let time = |name: &str| {
        let read = args::get(arguments, name).map(|text| when::past(text, &now));
        let wrong = |wrong| CliError::usage(format!("--{name}: {wrong}"));
        read.transpose().map_err(wrong)
    };
    let window = HistoryWindow {
        since: time("since")?,
        until: time("until")?,
        node_id: args::read(arguments, "node")?,
    };
    let mut history = context.client()?.history_of(&window)?;
    history.retain(is_wanted);
    if context.out.json {
        context.out.document(&HistoryList { history })?;
        return Ok(Exit::OK);
    }
    let columns = [
        ("ADDON", Align::Left),
        ("TYPE", Align::Left),
        ("ENDED", Align::Right),
        ("DONE", Align::Right),
        ("P95 RUN", Align::Right),
        ("DECLARED", Align::Right),
        ("MEASURED", Align::Right),
        ("FACTOR", Align::Right),
        ("CPU", Align::Right),
        ("MEMORY", Align::Right),
        ("IO", Align::Right),
    ];
    let rows: Vec<_> = history.iter().map(row).collect();
    context.out.table(&columns, &rows)?;
    if rows.is_empty() {
        context
            .out
            .note("none of the jobs that were asked for has ended");
    }
    Ok(Exit::OK)
}

fn row(stats: &HistoryStats) -> Vec<String> {
    let shown = |value: Option<f64>, show: fn(f64) -> String| value.map_or("-".into(), show);
    let units: fn(f64) -> String = |units| format!("{units:.1}");
    let seconds: fn(f64) -> String = |seconds| format!("{seconds:.1} s");
    let megabytes: fn(f64) -> String = |bytes| format!("{:.1} MB", bytes / 1e6);
    let usage = stats.usage.unwrap_or_default();
    vec![
        stats.addon_id.to_string(),
        stats
            .job_type
            .as_ref()
            .map_or("-".into(), ToString::to_string),
        stats.ended.to_string(),
        shown(stats.success_rate, |rate| format!("{:.0} %", rate * 100.0)),
        shown(stats.p95_run_sec, seconds),
        shown(usage.declared_cost, units),
        shown(usage.measured_cost, units),
        shown(usage.cost_factor, |factor| format!("{factor:.2}")),
        shown(usage.cpu_sec, seconds),
        shown(usage.peak_memory_bytes, megabytes),
        shown(usage.io_bytes, megabytes),
    ]
}
