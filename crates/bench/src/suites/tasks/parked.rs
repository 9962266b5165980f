//! How much memory a task takes that waits and does nothing else, when there are a million of them.
//!
//! A task of ours keeps its stack, of which as many pages are resident as it has ever touched. tokio's keeps what its future
//! needs, and may has room for some ten thousand stacks before the system refuses another mapping.

use std::mem;
use std::sync::mpsc;

use super::Options;
use super::jobs::alone::{PARKED, TOKIO_WAITING, park_jobs};
use crate::alone::{Probe, Quantity};
use crate::harness::Report;
use crate::suites::shared::{Question, our_runtime_on_small_stacks};

/// A page of a stack, and what belongs to the task besides.
const MOST: f64 = 4.6 * 1024.0;

pub const PROBES: &[Probe] = &[PARKED_ON_SMALL_STACKS, MAY_PARKED];

const PARKED_ON_SMALL_STACKS: Probe = Probe {
    name: "jobs-parked-on-small-stacks",
    run: |count| park_jobs(our_runtime_on_small_stacks(2), count),
};

const MAY_PARKED: Probe = Probe {
    name: "may-tasks-parked",
    run: |count| {
        may::config().set_workers(2);
        let (begin, begun) = mpsc::channel();
        for _ in 0..count {
            let begin = begin.clone();
            let task = may::go!(move || {
                begin.send(()).expect("the one who asked waits for it");
                may::coroutine::park();
            });
            mem::forget(task);
        }
        for _ in 0..count {
            begun.recv().expect("every task begins");
        }
    },
};

/// Adds a fact for each side.
pub fn run(options: &Options, report: &mut Report) {
    let count = if options.quick { 200_000 } else { 1_000_000 };
    let questions = [
        Question {
            name: "resident bytes of a parked task, of many: ours, on small stacks",
            quantity: Quantity::ResidentBytes,
            probe: &PARKED_ON_SMALL_STACKS,
            count,
            at_most: Some(MOST),
        },
        Question {
            name: "resident bytes of a parked task, of many: ours, on default stacks",
            quantity: Quantity::ResidentBytes,
            probe: &PARKED,
            count,
            at_most: None,
        },
        Question {
            name: "resident bytes of a waiting task, of many: tokio's, tracked, with token",
            quantity: Quantity::ResidentBytes,
            probe: &TOKIO_WAITING,
            count,
            at_most: None,
        },
        Question {
            name: "resident bytes of a parked task, of 20000: may's",
            quantity: Quantity::ResidentBytes,
            probe: &MAY_PARKED,
            count: 20_000,
            at_most: None,
        },
    ];
    for question in questions {
        question.answer(options, report);
    }
}
