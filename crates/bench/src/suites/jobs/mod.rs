//! Structured jobs: what it costs that a job belongs to somebody, against what one builds of tokio's parts for it.
//!
//! tokio has no job that is cancelled with its parent and waited for by it. Its users put it together from a
//! `TaskTracker`, which waits, and a child `CancellationToken`, which is cancelled along; that is what ours is compared
//! with. Rows about the tree alone need no runtime and run on the calling thread.

pub mod alone;
mod cancel;
pub mod create;
pub mod join;
pub mod spawn;
mod timers;
mod waiters;

pub use self::alone::PROBES;
use super::Options;
use super::shared::{Spec, end, our_runtime, tokio_runtime, with_less_time};
use crate::harness::Report;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::shared::shortest;

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
