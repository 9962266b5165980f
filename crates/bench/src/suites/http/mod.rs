//! The daemon over HTTP, on SQLite or PostgreSQL, synced before each answer: submissions by some callers and in bulk, claim and
//! completion in batches, the way from a submission to a waiting worker, and how many can be held waiting.
//!
//! Callers and server share the machine, and the callers' side is as small as it can be: a request that was written down
//! before, and an answer of which the head and the length are read. A disk is too noisy for pairs, so these are facts, the
//! median of rounds. Goals are in microseconds a job: 66.7 are 15 000 a second.

mod caller;
mod crowd;
mod daemon;
mod on_postgres;
mod peers;
mod start;

use std::time::Instant;

use self::daemon::Daemon;
use super::Options;
use crate::harness::{Fact, Report, quantile};

/// In one call.
const BULK: usize = 1000;
/// Under one lease.
const BATCH: usize = 500;

struct Row {
    name: &'static str,
    work: Work,
    /// In microseconds a job.
    goal: Option<f64>,
}

#[derive(Clone, Copy)]
enum Work {
    Submit { callers: usize },
    Bulk,
    Process { callers: usize },
}

const ROWS: &[Row] = &[
    Row {
        name: "submit, 1 caller",
        work: Work::Submit { callers: 1 },
        goal: None,
    },
    Row {
        name: "submit, 16 callers",
        work: Work::Submit { callers: 16 },
        goal: None,
    },
    Row {
        name: "submit, 64 callers",
        work: Work::Submit { callers: 64 },
        goal: Some(1e6 / 15_000.0),
    },
    Row {
        name: "submit 1000 a call",
        work: Work::Bulk,
        goal: Some(1e6 / 100_000.0),
    },
    Row {
        name: "claim and complete 500 a lease, 2 workers",
        work: Work::Process { callers: 2 },
        goal: Some(1e6 / 40_000.0),
    },
];

/// Runs every row that was asked for.
pub fn run(options: &Options) -> Report {
    let mut report = Report {
        suite: "http",
        seed: options.plan.seed,
        ..Report::default()
    };
    if options.on_postgres {
        on_postgres::run(options, &mut report);
        return report;
    }
    for row in ROWS.iter().filter(|row| options.wants(row.name)) {
        eprintln!("  {}", row.name);
        let daemon = Daemon::start();
        let count = jobs(options, row.work);
        let mut micros = Vec::new();
        for round in 0..=rounds(options) {
            let taken = each(&daemon, row.work, count);
            // The first round warms it up.
            if round > 0 {
                micros.push(taken);
            }
        }
        report.facts.push(Fact {
            name: row.name.to_owned(),
            value: quantile(&micros, 0.5),
            unit: "µs a job",
            at_most: row.goal,
        });
    }
    start::run(options, &mut report);
    crowd::run(options, &mut report);
    report
}

fn rounds(options: &Options) -> usize {
    if options.quick { 3 } else { 11 }
}

fn jobs(options: &Options, work: Work) -> usize {
    let full = match work {
        Work::Submit { callers: 1 } => 400,
        Work::Submit { .. } => 12_800,
        Work::Bulk | Work::Process { .. } => 40_000,
    };
    if options.quick { full / 4 } else { full }
}

fn each(daemon: &Daemon, work: Work, count: usize) -> f64 {
    provide(daemon, work, count);
    timed(daemon, work, count)
}

/// Submits what is to be processed, before the time is taken.
fn provide(daemon: &Daemon, work: Work, count: usize) {
    if let Work::Process { .. } = work {
        daemon.submit_in_bulk(count);
    }
}

/// Does the work and returns the microseconds that a job took.
fn timed(daemon: &Daemon, work: Work, count: usize) -> f64 {
    let start = Instant::now();
    match work {
        Work::Submit { callers } => daemon.submit(count, callers),
        Work::Bulk => daemon.submit_in_bulk(count),
        Work::Process { callers } => daemon.process(count, callers),
    }
    start.elapsed().as_secs_f64() * 1e6 / count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_work_is_done() {
        let daemon = Daemon::start();
        for row in ROWS {
            // Each checks that as many jobs were taken, or ended, as were asked for.
            assert!(each(&daemon, row.work, 2 * BULK) > 0.0, "{}", row.name);
        }
    }
}
