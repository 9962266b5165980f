//! Structured jobs: what it costs that a job belongs to somebody, against what one builds of tokio's parts for it.
//!
//! tokio has no job that is cancelled with its parent and waited for by it. Its users put it together from a
//! `TaskTracker`, which waits, and a child `CancellationToken`, which is cancelled along; that is what ours is compared
//! with. Rows about the tree alone need no runtime and run on the calling thread.

mod alone;
mod cancel;
mod create;
mod join;
mod spawn;
mod timers;
mod waiters;

use std::time::Duration;

pub use self::alone::PROBES;
use super::Options;
use crate::harness::{Contender, Contest, Goal, Plan, Report};

/// The peer of every row.
const PEER: &str = "tokio";

/// Runs every row that was asked for.
pub fn run(options: &Options) -> Report {
    let mut report = Report {
        suite: "jobs",
        seed: options.plan.seed,
        ..Report::default()
    };
    create::run(options, &mut report);
    spawn::run(options, &mut report);
    join::run(options, &mut report);
    cancel::run(options, &mut report);
    waiters::run(options, &mut report);
    timers::run(options, &mut report);
    alone::run(options, &mut report);
    // One table for each number of workers.
    report.rows.sort_by_key(|row| row.workers);
    report
}

/// A row whose sides keep what they work on themselves.
struct Spec {
    name: String,
    workers: usize,
    unit: &'static str,
    units: u64,
    goal: Option<Goal>,
}

impl Spec {
    fn on_one_thread(name: impl Into<String>, unit: &'static str, units: u64) -> Self {
        Self {
            name: name.into(),
            workers: 1,
            unit,
            units,
            goal: None,
        }
    }

    fn goal(mut self, goal: Option<Goal>) -> Self {
        self.goal = goal;
        self
    }

    fn run(self, plan: &Plan, contenders: Vec<Contender<'_, ()>>, report: &mut Report) {
        let contest = Contest {
            name: self.name,
            workers: self.workers,
            unit: self.unit,
            units: self.units as f64,
            goal: self.goal,
            input: (),
            digest: |(), result| result,
            contenders,
        };
        report.rows.push(contest.run(plan));
    }
}

/// For rows that prepare much longer than they measure: a tenth of the time on the clock, so that the rest is bearable.
/// Their iterations are long enough for the clock.
fn with_less_time(plan: &Plan) -> Plan {
    Plan {
        side_time: plan.side_time / 10,
        ..plan.clone()
    }
}

/// tokio's usual runtime.
///
/// # Panics
///
/// If the system does not give us the threads.
fn tokio_runtime(workers: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_time()
        .build()
        .expect("tokio's runtime starts")
}

/// Our runtime.
///
/// # Panics
///
/// If the system does not give us the threads.
fn our_runtime(workers: usize) -> jobtree_runtime::Runtime {
    jobtree_runtime::Runtime::builder()
        .workers(workers)
        .build()
        .expect("our runtime starts")
}

/// Ends a runtime before the next one starts, so that no row runs beside the threads of another.
fn end(runtime: &jobtree_runtime::Runtime) {
    if let Err(error) = runtime.shutdown(Duration::from_secs(10)) {
        eprintln!("  warning: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As short as a row can be: each side runs, and disagreement panics.
    pub fn shortest(filter: &str) -> Options {
        Options {
            plan: Plan {
                rounds: 1,
                side_time: Duration::from_micros(1),
                ..Plan::quick()
            },
            quick: true,
            workers: None,
            filter: Some(filter.into()),
        }
    }

    #[test]
    fn rows_come_by_their_number_of_workers_each_once() {
        let report = run(&shortest("child:"));
        let rows: Vec<_> = report
            .rows
            .iter()
            .map(|row| (row.name.as_str(), row.workers))
            .collect();
        assert_eq!(
            rows,
            [(create::NAME, 1), (spawn::NAME, 1), (spawn::NAME, 2)]
        );
    }

    #[test]
    fn a_filter_that_fits_nothing_runs_nothing() {
        let report = run(&shortest("no such row"));
        assert!(report.rows.is_empty() && report.facts.is_empty());
    }
}
