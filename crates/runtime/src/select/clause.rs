//! What a `select!` can wait for, seen by the one that waits: clauses, and a set of them.

use std::pin::Pin;
use std::task::{Context, Waker};

use jobtree_tree::raw::SpinLock;

use crate::claim::Claim;

/// How a clause takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It enters a channel, whose counterparts may win it.
    Channel,
    /// It is polled.
    Future,
    /// Not at all: it never wins.
    Off,
}

/// One of the things that a `select!` waits for. Once it has won, its output lies in it.
pub trait Clause {
    /// How it takes part.
    fn kind(&self) -> Kind;

    /// Tries it without waiting; `true` if it has won. A future will wake the context.
    fn attempt(self: Pin<&mut Self>, context: &mut Context<'_>) -> bool;

    /// The lock of its channel.
    fn lock_word(&self) -> Option<&SpinLock> {
        None
    }

    /// As [`attempt`](Clause::attempt), of a channel; to be followed by [`after_unlock`](Clause::after_unlock).
    ///
    /// # Safety
    /// The caller holds the lock.
    unsafe fn attempt_locked(self: Pin<&mut Self>) -> bool {
        false
    }

    /// Does what a successful [`attempt_locked`](Clause::attempt_locked) left to do without the lock.
    fn after_unlock(self: Pin<&mut Self>) {}

    /// Enters its channel.
    ///
    /// # Safety
    /// The caller holds the lock. `claim` stays where it is until the clause has left or collected.
    unsafe fn enter_locked(self: Pin<&mut Self>, _: Waker, _: &Claim, _clause: u32) {}

    /// Leaves its channel, if it has entered.
    fn leave(self: Pin<&mut Self>) {}

    /// Waits for a counterpart that is about to finish with it.
    fn settle(&self) {}

    /// A counterpart has finished with it: what came of that becomes its output.
    fn collect(self: Pin<&mut Self>) {}
}

/// All clauses of a `select!`: pairs of a clause and the others.
pub trait ClauseSet {
    /// How many.
    const COUNT: usize;

    /// The one with that number.
    fn get(&mut self, index: usize) -> Pin<&mut dyn Clause>;
}

impl ClauseSet for () {
    const COUNT: usize = 0;

    fn get(&mut self, _: usize) -> Pin<&mut dyn Clause> {
        unreachable!("the number of a clause is below their count")
    }
}

impl<C: Clause, R: ClauseSet> ClauseSet for (Pin<&mut C>, R) {
    const COUNT: usize = 1 + R::COUNT;

    #[inline]
    fn get(&mut self, index: usize) -> Pin<&mut dyn Clause> {
        match index {
            0 => self.0.as_mut(),
            _ => self.1.get(index - 1),
        }
    }
}
