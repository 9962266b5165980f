//! Small programs that random ones come upon rarely, each of them about one moment at which things cross.

use crate::model::Awaited;
use crate::program::{Ending, How, Op, ScopeKind, Step, Why};
use crate::run::run_given;
use crate::told::Id;

fn one(op: Op) -> Step {
    vec![op]
}

fn detach(child: Id) -> Step {
    one(Op::Detach { child })
}

fn open(strand: Id, scope: Id, kind: ScopeKind) -> Step {
    one(Op::Open {
        strand,
        scope,
        kind,
    })
}

fn spawn(strand: Id, child: Id) -> Step {
    one(Op::Spawn {
        strand,
        child,
        how: How::Plain,
        then_cancel: None,
    })
}

/// `handle.join()?`
fn join(strand: Id, target: Id) -> Step {
    one(Op::Join {
        strand,
        target,
        or_return: true,
    })
}

fn wait(waiter: usize, job: Id, awaited: Awaited) -> Step {
    one(Op::Wait {
        waiter,
        job,
        awaited,
    })
}

fn leave(strand: Id, ending: Ending) -> Step {
    one(Op::Return { strand, ending })
}

#[test]
fn a_callback_hears_of_a_failure_that_is_the_end() {
    run_given(&[
        detach(0),
        wait(0, 0, Awaited::Cancellation),
        leave(0, Ending::Error(100)),
    ]);
}

#[test]
fn a_callback_hears_of_the_failure_of_the_last_child() {
    run_given(&[
        detach(0),
        open(0, 1, ScopeKind::Nursery),
        spawn(0, 2),
        wait(0, 1, Awaited::Cancellation),
        leave(0, Ending::Value),
        leave(2, Ending::Error(100)),
    ]);
}

/// Job 2 hears of its cancellation and ends; who joins it may hear of that before its own cancellation has come down to
/// it, and must not count as failed.
#[test]
fn a_cancellation_that_comes_through_a_join_first_is_no_failure() {
    run_given(&[
        detach(0),
        open(0, 1, ScopeKind::Nursery),
        spawn(0, 2),
        spawn(0, 3),
        detach(4),
        // Wakers are slow: this one holds up the cancellation after job 2 was told.
        wait(0, 2, Awaited::Cancellation),
        join(2, 4),
        open(3, 5, ScopeKind::Limit),
        join(3, 2),
        one(Op::Cancel {
            job: 1,
            why: Why::Said(1),
        }),
    ]);
}

/// Job 3 passes on the failure of job 2; the nursery must hear of job 2 first.
#[test]
fn a_failure_comes_before_those_that_follow_from_it() {
    run_given(&[
        detach(0),
        open(0, 1, ScopeKind::Nursery),
        spawn(0, 2),
        spawn(0, 3),
        // Holds up the end of job 2 after the join has heard of it.
        wait(0, 2, Awaited::End),
        join(3, 2),
        leave(2, Ending::Error(100)),
    ]);
}

/// A nursery whose body has returned still takes children from those that it has.
#[test]
fn a_nursery_whose_body_has_returned_takes_children() {
    run_given(&[
        detach(0),
        open(0, 1, ScopeKind::Nursery),
        spawn(0, 2),
        leave(0, Ending::Value),
        spawn(2, 3),
        spawn(3, 4),
        leave(2, Ending::Value),
        spawn(4, 5),
        leave(3, Ending::Error(100)),
        spawn(4, 6),
    ]);
}
