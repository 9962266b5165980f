//! `jobtree stats`: how jobs of each type did, and what they declare and use.

use clap::{ArgMatches, Command};
use jobtree_protocol::{HistoryList, HistoryStats};

use crate::args::{self, place};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::out::Align;

pub fn define(command: Command) -> Command {
    command
        .about("Show how jobs of each type did, and what they declare and use")
        .after_help(
            "DECLARED is the median of the declared cost units, MEASURED the units that 95 % of the measured runs stay \
             below: the part of the machine's CPU that a run uses. FACTOR is what admission charges for a declared unit \
             if the policy says `cost.learn`. CPU, MEMORY and IO are what 95 % of the measured runs stay below. Programs \
             that `jobtree work` and `jobtree serve --runner` run are measured.",
        )
        .arg(place("type", "TYPE", "Only this type of job"))
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let wanted = args::get(arguments, "type");
    let is_wanted = |stats: &HistoryStats| match (&stats.job_type, wanted) {
        (Some(job_type), Some(wanted)) => job_type.as_str() == wanted,
        (job_type, None) => job_type.is_some(),
        (None, Some(_)) => false,
    };
    let mut history = context.client()?.history()?;
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
