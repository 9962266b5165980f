//! The durable queue in process, on SQLite, synced before each answer: submissions by some callers and in bulk, and claim
//! and completion one by one and in batches; then the same beside a long history and beside a long queue.
//!
//! The limit is SQLite itself in the same run: rows of the same size in tables like ours, by prepared statements, with the
//! same settings, and as many a commit as there are callers or jobs in a batch. What ours does beyond that (rules, events,
//! answers, wake-ups) is the difference.
//!
//! effectum, the nearest peer, cannot be linked here: its version of `rusqlite` brings another `libsqlite3-sys`, and only
//! one may be in a program. Its figures, taken in a program of its own, are in the project's notes.
//!
//! A disk is too noisy for pairs that must agree within some percent, so these are facts: the median of rounds in which
//! the sides take turns. Goals are in microseconds a job: 20 are 50 000 a second. The files lie beside the program, since
//! a temporary folder may be in memory, where a sync costs nothing.

mod files;
mod growth;
mod ours;
mod raw;

use self::files::Folder;
use self::ours::Ours;
pub use self::ours::PROBES;
use self::raw::Raw;
use super::Options;
use crate::alone::Quantity;
use crate::harness::{Fact, Report, quantile};
use crate::suites::shared::Question;

/// In one call.
const BULK: usize = 1000;
/// Under one lease.
const BATCH: usize = 500;

/// One row: what is done, and how much it may cost.
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
    ProcessOneByOne { callers: usize },
    ProcessBatches,
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
        goal: Some(1e6 / 50_000.0),
    },
    Row {
        name: "submit 1000 a call",
        work: Work::Bulk,
        goal: Some(1e6 / 200_000.0),
    },
    Row {
        name: "claim and complete one by one, 64 callers",
        work: Work::ProcessOneByOne { callers: 64 },
        goal: None,
    },
    Row {
        name: "claim and complete 500 a lease",
        work: Work::ProcessBatches,
        goal: Some(1e6 / 80_000.0),
    },
];

/// Runs every row that was asked for.
pub fn run(options: &Options) -> Report {
    let mut report = Report {
        suite: "queue",
        seed: options.plan.seed,
        ..Report::default()
    };
    let wanted = || ROWS.iter().filter(|row| options.wants(row.name));
    if wanted().next().is_some() {
        let folder = Folder::new("queue");
        let mut ours = Ours::open(&folder.file("ours.db"));
        let mut raw = Raw::open(&folder.file("raw.db"));
        for row in wanted() {
            compare(options, row, &mut ours, &mut raw, &mut report);
        }
    }
    growth::run(options, &mut report);
    for question in QUESTIONS {
        question.answer(options, &mut report);
    }
    report
}

/// How many rounds: a disk is slow, and a quick look takes some seconds.
fn rounds(options: &Options) -> usize {
    if options.quick { 3 } else { 15 }
}

fn jobs(options: &Options, work: Work) -> usize {
    let full = match work {
        Work::Submit { callers: 1 } => 200,
        Work::Submit { .. } | Work::ProcessOneByOne { .. } => 6_400,
        Work::Bulk | Work::ProcessBatches => 40_000,
    };
    if options.quick { full / 4 } else { full }
}

fn compare(options: &Options, row: &Row, ours: &mut Ours, raw: &mut Raw, report: &mut Report) {
    eprintln!("  {}", row.name);
    let count = jobs(options, row.work);
    let (mut our_times, mut raw_times, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds(options) {
        let (of_ours, of_raw) = if round % 2 == 0 {
            let of_ours = ours.micros_each(row.work, count);
            (of_ours, raw.micros_each(row.work, count))
        } else {
            let of_raw = raw.micros_each(row.work, count);
            (ours.micros_each(row.work, count), of_raw)
        };
        // The first round warms both up.
        if round > 0 {
            our_times.push(of_ours);
            raw_times.push(of_raw);
            ratios.push(of_ours / of_raw);
        }
    }
    for (what, figures, unit, at_most) in [
        ("ours", &our_times, "µs a job", row.goal),
        ("SQLite itself", &raw_times, "µs a job", None),
        ("ours / SQLite itself", &ratios, "times", None),
    ] {
        report.facts.push(Fact {
            name: format!("{}: {what}", row.name),
            value: quantile(figures, 0.5),
            unit,
            at_most,
        });
    }
}

const QUESTIONS: &[Question] = &[
    Question {
        name: "instructions a job, submitted by 64 callers",
        quantity: Quantity::Instructions,
        probe: &ours::SUBMITTED,
        count: 6_400,
        at_most: None,
    },
    Question {
        name: "instructions a job, submitted 1000 a call",
        quantity: Quantity::Instructions,
        probe: &ours::SUBMITTED_IN_BULK,
        count: 10_000,
        at_most: None,
    },
    Question {
        name: "instructions a job, submitted 1000 a call, claimed and completed 500 a lease",
        quantity: Quantity::Instructions,
        probe: &ours::PROCESSED,
        count: 10_000,
        at_most: None,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_do_every_kind_of_work() {
        let folder = Folder::new("queue-test");
        let mut ours = Ours::open(&folder.file("ours.db"));
        let mut raw = Raw::open(&folder.file("raw.db"));
        for row in ROWS {
            let count = match row.work {
                Work::Bulk | Work::ProcessBatches => 1000,
                Work::Submit { callers } | Work::ProcessOneByOne { callers } => callers * 2,
            };
            // Each checks that as many jobs were taken, or ended, as were asked for.
            assert!(ours.micros_each(row.work, count) > 0.0, "{}", row.name);
            assert!(raw.micros_each(row.work, count) > 0.0, "{}", row.name);
        }
    }
}
