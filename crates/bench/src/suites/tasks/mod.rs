//! Tasks: what it costs to start one, to wait for it, to let another run, to talk to it, and to keep it waiting.
//!
//! Ours come in two kinds. A *task* has a stack, and may wait in the middle of any call; a *future* is polled, as tokio's
//! tasks are. Both are jobs: they belong to a scope that waits for them and cancels them. may has tasks with stacks too,
//! which belong to nobody.
//!
//! Every side takes its time on a worker of its own runtime. may has one scheduler a process, so it runs in another
//! process ([`crate::servant`]).

mod channels;
mod may;
mod parked;
mod pending;
mod scoped;
mod skynet;
mod spawn;
mod tick;
mod wake;
mod yields;

pub use self::may::SERVICES;
pub use self::parked::PROBES;
pub use self::tick::PROBES as TICK_PROBES;
#[cfg(unix)]
use super::primitives;
use super::{Options, jobs};
use crate::harness::{Goal, Report};

const TOKIO: &str = "tokio";

/// Runs every row that was asked for.
pub fn run(options: &Options) -> Report {
    let mut report = Report {
        suite: "tasks",
        seed: options.plan.seed,
        ..Report::default()
    };
    spawn::run(options, &mut report);
    pending::run(options, &mut report);
    scoped::run(options, &mut report);
    jobs::spawn::add(
        options,
        &mut report,
        workers(options),
        Goal::side(TOKIO, 0.25),
    );
    jobs::create::run(options, &mut report);
    jobs::join::run(options, &mut report);
    yields::run(options, &mut report);
    #[cfg(unix)]
    primitives::switch::run(options, &mut report);
    tick::run(options, &mut report);
    channels::run(options, &mut report);
    skynet::run(options, &mut report);
    wake::run(options, &mut report);
    parked::run(options, &mut report);
    // One table for each number of workers.
    report.rows.sort_by_key(|row| row.workers);
    report
}

/// How many workers a row has that needs two, unless told otherwise.
fn workers(options: &Options) -> usize {
    options.workers.unwrap_or(2)
}
