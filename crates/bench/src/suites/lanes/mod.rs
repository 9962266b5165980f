//! The job manager: what it costs to schedule a job and have it run, however many wait, and how much of a frame it takes.
//!
//! tokio has neither priorities nor lanes nor a bound; what it is compared with is what a program would do without
//! them: spawn, and await.

mod frame;
mod noop;
mod queued;

pub use self::queued::PROBES;
use super::Options;
use crate::harness::Report;
use jobtree_lanes::JobManager;
use jobtree_runtime::Runtime;

/// Runs every row that was asked for.
pub fn run(options: &Options) -> Report {
    let mut report = Report {
        suite: "lanes",
        seed: options.plan.seed,
        ..Report::default()
    };
    noop::run(options, &mut report);
    queued::run(options, &mut report);
    frame::run(options, &mut report);
    report
}

/// A manager that may use all workers of a runtime, and is otherwise as it comes.
fn manager(runtime: &Runtime, workers: usize) -> JobManager {
    JobManager::builder()
        .runtime(runtime)
        .workers(workers)
        .build()
        .expect("a manager is made")
}
