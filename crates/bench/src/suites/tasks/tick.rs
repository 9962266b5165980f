//! What a loop pays for letting others have their turn: one tick a round, most of which only count down.
//!
//! The loop without a tick is shown beside it, since it is part of every figure here. tokio's counterpart is a future that
//! takes one unit of the task's budget and lets it wait when nothing is left of that.

use std::hint::black_box;

use jobtree_runtime::tick;

use super::{Options, TOKIO};
use crate::alone::{Probe, Quantity};
use crate::harness::{Contender, Report, Role, timed};
use crate::suites::shared::{
    Question, Spec, end, in_our_task, in_tokio, our_runtime, repeat, tokio_runtime,
};

const NAME: &str = "tick in a loop";

/// How many rounds one iteration's loop has.
const TICKS: u64 = 10_000;

pub const PROBES: &[Probe] = &[TICKING, EMPTY_LOOP];

const TICKING: Probe = Probe {
    name: "ticks",
    run: |count| {
        in_our_task(&our_runtime(1), move || with_ticks(count));
    },
};

const EMPTY_LOOP: Probe = Probe {
    name: "no-ticks",
    run: |count| {
        in_our_task(&our_runtime(1), move || without(count));
    },
};

const QUESTIONS: &[Question] = &[
    Question {
        name: "instructions of a round of a loop: with a tick",
        quantity: Quantity::Instructions,
        probe: &TICKING,
        count: 1_000_000,
        at_most: None,
    },
    Question {
        name: "instructions of a round of a loop: without a tick",
        quantity: Quantity::Instructions,
        probe: &EMPTY_LOOP,
        count: 1_000_000,
        at_most: None,
    },
];

/// Adds the row and the facts.
pub fn run(options: &Options, report: &mut Report) {
    for question in QUESTIONS {
        question.answer(options, report);
    }
    if !options.wants(NAME) {
        return;
    }
    let (ours, tokio) = (our_runtime(1), tokio_runtime(1));
    let side = |rounds: fn(u64) -> u64| {
        let ours = &ours;
        move |(): &mut (), iterations| {
            in_our_task(ours, move || timed(&mut (), iterations, |()| rounds(TICKS)))
        }
    };
    let contenders = vec![
        Contender::new("ours", Role::Ours, side(with_ticks)),
        Contender::new("ours again", Role::Control, side(with_ticks)),
        Contender::new("no tick", Role::Limit, side(without)),
        Contender::new(TOKIO, Role::Peer, |(), iterations| {
            in_tokio(&tokio, repeat(iterations, || in_tokio_task(TICKS)))
        }),
    ];
    Spec::on_one_thread(NAME, "tick", TICKS).run(&options.plan, contenders, report);
    end(&ours);
}

fn with_ticks(count: u64) -> u64 {
    for round in 0..count {
        black_box(round);
        tick();
    }
    count
}

fn without(count: u64) -> u64 {
    for round in 0..count {
        black_box(round);
    }
    count
}

async fn in_tokio_task(count: u64) -> u64 {
    for round in 0..count {
        black_box(round);
        tokio::task::consume_budget().await;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::shared::shortest;

    #[test]
    fn every_side_has_all_its_rounds() {
        let mut report = Report::default();
        // A side that left some out would disagree with the others and panic.
        run(&shortest(NAME), &mut report);
        let sides = &report.rows[0].sides;
        assert_eq!(sides.len(), 4);
    }
}
