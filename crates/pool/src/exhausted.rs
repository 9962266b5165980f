//! Strands that have used up a turn, and when they go on.
//!
//! They must not starve, and must not starve others: neither those that are ready, of which there may always be one,
//! nor the tasks in this worker's own deque. A place in the queue of ready strands would not do, since strands that use
//! up one turn after the other would have it among themselves. So there is a queue of their own, and a clock: when one
//! of them has had the thread for some time, none of them gets it before the others had twice that time, or have
//! nothing to do. Thus all of them together have at most a third of a worker that others want, however many they are,
//! and what they compute is done at last.
//!
//! All of it belongs to one worker thread.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::raw::ticks;
use crate::strand::Strand;

/// How much longer the others have the thread: a worker that does nothing but give way to two kinds of work would give
/// each half.
const SHARE_OF_OTHERS: u64 = 2;

pub(crate) struct Exhausted {
    waiting: RefCell<VecDeque<*const Strand>>,
    /// Whether there is anything to know here: one look for all workers that never see such a strand.
    is_used: Cell<bool>,
    /// When the one that runs now was let run.
    began: Cell<Option<u64>>,
    /// Up to then the others come first.
    not_before: Cell<u64>,
}

impl Exhausted {
    pub(crate) fn new() -> Exhausted {
        Exhausted {
            waiting: RefCell::new(VecDeque::new()),
            is_used: Cell::new(false),
            began: Cell::new(None),
            not_before: Cell::new(0),
        }
    }

    /// `strand` has used up its turn.
    pub(crate) fn push(&self, strand: *const Strand) {
        self.waiting.borrow_mut().push_back(strand);
        self.is_used.set(true);
    }

    /// Whenever the worker looks for work: the strand to let run before all others, if it is time for one.
    #[inline]
    pub(crate) fn next_if_due(&self) -> Option<*const Strand> {
        if !self.is_used.get() {
            return None;
        }
        self.next_if(|now| now >= self.not_before.get())
    }

    /// The strand to let run because there is nothing else to do.
    #[inline]
    pub(crate) fn next(&self) -> Option<*const Strand> {
        if !self.is_used.get() {
            return None;
        }
        self.next_if(|_| true)
    }

    fn next_if(&self, is_due: impl FnOnce(u64) -> bool) -> Option<*const Strand> {
        let now = ticks();
        // The one that ran, if there was one, does not any more: its worker looks for something else.
        if let Some(began) = self.began.take() {
            let took = now.saturating_sub(began);
            self.not_before.set(now + took * SHARE_OF_OTHERS);
        }
        if !is_due(now) {
            return None;
        }
        let next = self.waiting.borrow_mut().pop_front();
        match next {
            Some(_) => self.began.set(Some(now)),
            None => self.is_used.set(false),
        }
        next
    }
}
