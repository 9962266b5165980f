//! The pool's parts one by one: what fork-join is made of, and what the pool costs while it has nothing to do.

#[cfg(target_os = "linux")]
mod cycle;
mod deque;
#[cfg(target_os = "linux")]
mod idle;
mod park;
#[cfg(target_os = "linux")]
mod ping;
#[cfg(target_os = "linux")]
mod pinged;
#[cfg(unix)]
pub mod switch;
mod wake;

use super::Options;
use crate::harness::Report;

/// Runs every part that was asked for.
pub fn run(options: &Options) -> Report {
    let mut report = Report {
        suite: "primitives",
        seed: options.plan.seed,
        ..Report::default()
    };
    deque::run(options, &mut report);
    #[cfg(unix)]
    switch::run(options, &mut report);
    park::run(options, &mut report);
    #[cfg(target_os = "linux")]
    cycle::run(options, &mut report);
    wake::run(options, &mut report);
    #[cfg(target_os = "linux")]
    {
        ping::run(options, &mut report);
        idle::run(options, &mut report);
    }
    #[cfg(not(target_os = "linux"))]
    eprintln!("  idling, sleep cycles and no-op spawns are not measured: they need Linux's /proc");
    report
}

/// How many workers the pools have here, unless told otherwise.
fn workers(options: &Options) -> usize {
    options.workers.unwrap_or(2)
}
