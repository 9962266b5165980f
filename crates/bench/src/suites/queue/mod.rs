//! The durable queue in process, on SQLite, synced before each answer: submissions by some callers and in bulk, and claim
//! and completion one by one and in batches; then the same beside a long history and beside a long queue.
//!
//! The limit is SQLite itself in the same run: rows of the same size in tables like ours, by prepared statements, with the
//! same settings, and as many a commit as there are callers or jobs in a batch. What ours does beyond that (rules, events,
//! answers, wake-ups) is the difference.
//!
//! effectum, the nearest peer, cannot be linked here: its version of `rusqlite` brings another `libsqlite3-sys`, and only
//! one may be in a program. It runs in a program of its own, and takes its turn in some of the rounds. As it comes it
//! keeps a rollback journal and `synchronous=NORMAL`.
//!
//! A disk is too noisy for pairs that must agree within some percent, so these are facts: the median of rounds in which
//! the sides take turns. Goals are in microseconds a job: 20 are 50 000 a second. The files lie beside the program, since
//! a temporary folder may be in memory, where a sync costs nothing.
//!
//! With `--store postgres` the same rows run against a PostgreSQL server of their own; see `postgres`.

mod dispatching;
mod effectum;
mod files;
mod growth;
mod ours;
mod postgres;
mod raw;
mod workers;

pub use self::dispatching::PROBES as DISPATCH_PROBES;
use self::effectum::Effectum;
pub use self::files::Folder;
use self::ours::Ours;
pub use self::ours::PROBES;
use self::raw::Raw;
use self::workers::Workers;
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
        name: "claim and complete one by one, 1 caller",
        work: Work::ProcessOneByOne { callers: 1 },
        goal: None,
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
    if options.on_postgres {
        postgres::run(options, &mut report);
        return report;
    }
    let wanted = || ROWS.iter().filter(|row| options.wants(row.name));
    if wanted().next().is_some() {
        let folder = Folder::new("queue");
        let mut ours = Ours::open(&folder.file("ours.db"));
        let mut raw = Raw::open(&folder.file("raw.db"));
        let mut effectum = Effectum::start(&folder.file("effectum.db"))
            .inspect_err(|error| eprintln!("  effectum: left out: {error}"))
            .ok();
        for row in wanted() {
            let sides = (&mut ours, &mut raw, effectum.as_mut());
            compare(options, row, sides, &mut report);
        }
    }
    work(options, &mut report);
    growth::run(options, &mut report);
    // A million jobs under valgrind take minutes.
    let in_a_hurry = |question: &&Question| !(options.quick && question.name.contains("1 000 000"));
    for question in QUESTIONS.iter().filter(in_a_hurry) {
        question.answer(options, &mut report);
    }
    flat(&mut report);
    report
}

/// What a dispatch costs may not depend on how many wait.
fn flat(report: &mut Report) {
    let figure = |queued: &str| {
        let name = format!("instructions a dispatch, {queued} queued");
        let fact = report.facts.iter().find(|fact| fact.name == name);
        fact.map(|fact| fact.value)
    };
    if let Some((few, many)) = figure("1 000").zip(figure("1 000 000")) {
        report.facts.push(Fact {
            name: "instructions a dispatch, 1 000 000 against 1 000 queued".into(),
            value: many / few,
            unit: "times",
            at_most: Some(1.15),
        });
    }
}

/// How many rounds: a disk is slow, and a quick look takes some seconds.
fn rounds(options: &Options) -> usize {
    if options.quick { 3 } else { 15 }
}

fn jobs(options: &Options, work: Work) -> usize {
    let full = match work {
        Work::Submit { callers: 1 } | Work::ProcessOneByOne { callers: 1 } => 200,
        Work::Submit { .. } | Work::ProcessOneByOne { .. } => 6_400,
        Work::Bulk | Work::ProcessBatches => 40_000,
    };
    if options.quick { full / 4 } else { full }
}

type Sides<'a> = (&'a mut Ours, &'a mut Raw, Option<&'a mut Effectum>);

fn compare(options: &Options, row: &Row, sides: Sides<'_>, report: &mut Report) {
    eprintln!("  {}", row.name);
    let (ours, raw, mut effectum) = sides;
    let count = jobs(options, row.work);
    let (mut our_times, mut raw_times, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut peer_times, mut peer_ratios) = (Vec::new(), Vec::new());
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
            let in_turn = round % effectum::EACH == 1;
            let peer = effectum.as_mut().filter(|_| in_turn);
            if let Some(of_peer) = peer.and_then(|peer| peer.micros_each(row.work, count)) {
                peer_times.push(of_peer);
                peer_ratios.push(of_ours / of_peer);
            }
        }
    }
    for (what, figures, unit, at_most) in [
        ("ours", &our_times, "µs a job", row.goal),
        ("SQLite itself", &raw_times, "µs a job", None),
        ("ours / SQLite itself", &ratios, "times", None),
        ("effectum", &peer_times, "µs a job", None),
        ("ours / effectum", &peer_ratios, "times", None),
    ] {
        if figures.is_empty() {
            continue;
        }
        report.facts.push(Fact {
            name: format!("{}: {what}", row.name),
            value: quantile(figures, 0.5),
            unit,
            at_most,
        });
    }
}

/// A worker with handlers, which has no counterpart in SQLite itself.
fn work(options: &Options, report: &mut Report) {
    const NAME: &str = "a worker's handlers, 500 a lease";
    if !options.wants(NAME) {
        return;
    }
    eprintln!("  {NAME}");
    let folder = Folder::new("queue-workers");
    let mut workers = Workers::open(&folder.file("workers.db"));
    let count = jobs(options, Work::ProcessBatches);
    workers.micros_each(count / 4);
    let times: Vec<f64> = (0..rounds(options))
        .map(|_| workers.micros_each(count))
        .collect();
    report.facts.push(Fact {
        name: format!("{NAME}: ours"),
        value: quantile(&times, 0.5),
        unit: "µs a job",
        at_most: None,
    });
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
    Question {
        name: "instructions a dispatch, 1 000 queued",
        quantity: Quantity::Instructions,
        probe: &dispatching::BESIDE_FEW,
        count: 10_000,
        at_most: None,
    },
    Question {
        name: "instructions a dispatch, 1 000 000 queued",
        quantity: Quantity::Instructions,
        probe: &dispatching::BESIDE_MANY,
        count: 10_000,
        at_most: None,
    },
    Question {
        name: "memory of a job that waits, in the dispatcher",
        quantity: Quantity::ResidentBytes,
        probe: &dispatching::WAITING,
        count: 200_000,
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
