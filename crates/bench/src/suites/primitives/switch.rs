//! The switch between two stacks, without a search, a latch or a queue: there and back.
//!
//! Ours runs on a stack of our supply, with the switch that the pool is built with; the other is corosensei's on a stack
//! of its own, which stands for what is possible.

use std::time::{Duration, Instant};

use corosensei::Coroutine;
use jobtree_pool::bench_support::resume_and_suspend;

use super::Options;
use crate::harness::{Contender, Contest, Report, Role};

const NAME: &str = "resume and suspend a stack";
const LIMIT: &str = "corosensei";

/// How many round trips one iteration makes. Both sides make their stack anew for each measurement, which a few
/// thousand iterations of this size drown.
const TRIPS: u64 = 1000;

/// Adds the row.
pub fn run(options: &Options, report: &mut Report) {
    if !options.wants(NAME) {
        return;
    }
    let ours = |(): &mut (), iterations| timed_trips(iterations, resume_and_suspend);
    let contest = Contest {
        name: NAME.into(),
        workers: 1,
        unit: "round trip",
        units: TRIPS as f64,
        // None: with the other side inlined to a few instructions, it says little about a switch between tasks, which
        // the rows of yields are about.
        goal: None,
        input: (),
        digest: |(), result| result,
        contenders: vec![
            Contender::new("ours", Role::Ours, ours),
            Contender::new("ours again", Role::Control, ours),
            Contender::new(LIMIT, Role::Limit, |(), iterations| {
                timed_trips(iterations, on_its_own_stack)
            }),
        ],
    };
    report.rows.push(contest.run(&options.plan));
}

fn timed_trips(iterations: u64, trips: fn(u64)) -> (Duration, u64) {
    let start = Instant::now();
    trips(iterations * TRIPS);
    (start.elapsed(), TRIPS)
}

fn on_its_own_stack(times: u64) {
    let mut coroutine = Coroutine::new(|yielder, mut more: bool| {
        while more {
            more = yielder.suspend(());
        }
    });
    for _ in 0..times {
        coroutine.resume(true);
    }
    coroutine.resume(false);
}
