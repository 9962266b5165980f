//! What one job takes, apart from time: instructions to make and end it, and bytes while it is there.

use std::mem;
use std::sync::mpsc;
use std::thread;

use jobtree_runtime::{CancelToken, Runtime, block_on};

use super::create::{OurParent, TokioParent, attach};
use super::{Options, our_runtime, tokio_runtime};
use crate::alone::{Probe, Quantity};
use crate::harness::Report;
use crate::suites::shared::Question;

/// What the program can be told to do alone.
pub const PROBES: &[Probe] = &[
    MADE_AND_ENDED,
    TOKIO_MADE_AND_DROPPED,
    ATTACHED,
    TOKIO_TOKENS,
    NOT_BEGUN,
    TOKIO_NOT_BEGUN,
    PARKED,
    TOKIO_WAITING,
];

const QUESTIONS: &[Question] = &[
    Question {
        name: "instructions a job, attached and ended: ours",
        quantity: Quantity::Instructions,
        probe: &MADE_AND_ENDED,
        count: 10_000,
        at_most: None,
    },
    Question {
        name: "instructions a job, attached and ended: tokio",
        quantity: Quantity::Instructions,
        probe: &TOKIO_MADE_AND_DROPPED,
        count: 10_000,
        at_most: None,
    },
    Question {
        name: "bytes a job, attached: ours",
        quantity: Quantity::HeapBytes,
        probe: &ATTACHED,
        count: 100_000,
        at_most: Some(128.0),
    },
    Question {
        name: "bytes a job, attached: tokio's child token",
        quantity: Quantity::HeapBytes,
        probe: &TOKIO_TOKENS,
        count: 100_000,
        at_most: None,
    },
    Question {
        name: "bytes a job, spawned and not begun: ours",
        quantity: Quantity::HeapBytes,
        probe: &NOT_BEGUN,
        count: 100_000,
        at_most: None,
    },
    Question {
        name: "bytes a job, spawned and not begun: tokio's, tracked, with token",
        quantity: Quantity::HeapBytes,
        probe: &TOKIO_NOT_BEGUN,
        count: 100_000,
        at_most: None,
    },
    // With what the allocator adds, and where there is no valgrind.
    Question {
        name: "resident bytes a job, attached: ours",
        quantity: Quantity::ResidentBytes,
        probe: &ATTACHED,
        count: 100_000,
        at_most: None,
    },
    Question {
        name: "resident bytes a job, attached: tokio's child token",
        quantity: Quantity::ResidentBytes,
        probe: &TOKIO_TOKENS,
        count: 100_000,
        at_most: None,
    },
    // Ours waits in the middle of any call, and keeps its stack for it; tokio's keeps what the future needs.
    Question {
        name: "resident bytes a job, waiting: ours, parked with its stack",
        quantity: Quantity::ResidentBytes,
        probe: &PARKED,
        count: 10_000,
        at_most: None,
    },
    Question {
        name: "resident bytes a job, waiting: tokio's, tracked, with token",
        quantity: Quantity::ResidentBytes,
        probe: &TOKIO_WAITING,
        count: 10_000,
        at_most: None,
    },
];

/// Adds a fact for each question that was asked and can be answered here.
pub fn run(options: &Options, report: &mut Report) {
    for question in QUESTIONS {
        question.answer(options, report);
    }
}

const MADE_AND_ENDED: Probe = Probe {
    name: "jobs-made-and-ended",
    run: |count| {
        OurParent::new().make_and_end_children(count);
    },
};

const TOKIO_MADE_AND_DROPPED: Probe = Probe {
    name: "tokio-tokens-made-and-dropped",
    run: |count| {
        TokioParent::new().make_and_drop_children(count);
    },
};

const ATTACHED: Probe = Probe {
    name: "jobs-attached",
    run: |count| {
        let parent = OurParent::new();
        for _ in 0..count {
            mem::forget(attach(&parent.job));
        }
        mem::forget(parent);
    },
};

const TOKIO_TOKENS: Probe = Probe {
    name: "tokio-tokens",
    run: |count| {
        let parent = TokioParent::new();
        for _ in 0..count {
            mem::forget((parent.token.child_token(), parent.tracker.token()));
        }
        mem::forget(parent);
    },
};

/// The only worker is kept busy, so that everything after that stays where spawning put it.
const NOT_BEGUN: Probe = Probe {
    name: "jobs-not-begun",
    run: |count| {
        let runtime = our_runtime(1);
        let (wait, begun) = until_the_end();
        let busy = move || {
            wait();
            Ok(())
        };
        mem::forget(runtime.spawn(busy));
        begun.recv().expect("the worker begins");
        for value in 0..count {
            mem::forget(runtime.spawn(move || Ok(value)));
        }
        mem::forget(runtime);
    },
};

pub const TOKIO_NOT_BEGUN: Probe = Probe {
    name: "tokio-tasks-not-begun",
    run: |count| {
        let runtime = tokio_runtime(1);
        let parent = TokioParent::new();
        let (wait, begun) = until_the_end();
        mem::forget(runtime.spawn(async move { wait() }));
        begun.recv().expect("the worker begins");
        for value in 0..count {
            let cancelled = parent.token.child_token();
            let task = async move {
                let _cancelled = cancelled;
                value
            };
            mem::forget(parent.tracker.spawn_on(task, runtime.handle()));
        }
        mem::forget((runtime, parent));
    },
};

/// A function that says that it has begun, and then blocks its thread for as long as the process lives.
fn until_the_end() -> (impl FnOnce() + Send, mpsc::Receiver<()>) {
    let (begin, begun) = mpsc::channel();
    let (never, comes) = mpsc::channel::<()>();
    let wait = move || {
        begin.send(()).expect("the one who asked waits for it");
        let _ = comes.recv();
    };
    mem::forget(never);
    (wait, begun)
}

pub const PARKED: Probe = Probe {
    name: "jobs-parked",
    run: |count| park_jobs(our_runtime(2), count),
};

/// Has so many jobs wait, each in the middle of a call, for as long as the process lives.
pub fn park_jobs(runtime: Runtime, count: u64) {
    let never = CancelToken::new();
    let handles: Vec<_> = (0..count)
        .map(|_| {
            let never = never.clone();
            runtime.spawn(move || Ok(block_on(never.cancelled())?))
        })
        .collect();
    for handle in &handles {
        while handle.job().waiting_for().is_none() {
            thread::yield_now();
        }
    }
    mem::forget((runtime, handles));
}

pub const TOKIO_WAITING: Probe = Probe {
    name: "tokio-tasks-waiting",
    run: |count| {
        let runtime = tokio_runtime(2);
        let parent = TokioParent::new();
        let (begin, begun) = mpsc::channel();
        for _ in 0..count {
            let (cancelled, begin) = (parent.token.child_token(), begin.clone());
            let task = async move {
                let _ = begin.send(());
                cancelled.cancelled().await;
            };
            mem::forget(parent.tracker.spawn_on(task, runtime.handle()));
        }
        for _ in 0..count {
            begun.recv().expect("every task begins");
        }
        mem::forget((runtime, parent));
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_has_a_probe_that_the_program_knows_and_a_name_of_its_own() {
        for (index, question) in QUESTIONS.iter().enumerate() {
            assert!(
                PROBES.iter().any(|probe| probe.name == question.probe.name),
                "{} is not in the list",
                question.probe.name
            );
            assert!(
                QUESTIONS[..index]
                    .iter()
                    .all(|other| other.name != question.name),
                "{} is there twice",
                question.name
            );
        }
    }
}
