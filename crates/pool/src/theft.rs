//! Whether it is worth while to steal tasks: a thief learns it from those that it stole last.
//!
//! A task that was stolen costs both sides some hundreds of nanoseconds more: its memory, the queue and whatever
//! counts its end are in the other one's cache. If it runs for less than that, the thief only keeps its victim from
//! getting on. So a thief whose last tasks were tiny leaves others' tasks alone, until it would have to sleep: then it
//! takes some all the same, because whoever posted them may count on it, and learns anew.

use std::cell::Cell;

use crate::raw::ticks;

/// Below this a task is tiny: some 0.7 µs, in [`ticks`].
const TINY: u64 = 1_600;

/// What a worker knows of the tasks that it stole last.
pub(crate) struct StolenTasks {
    /// How many have been stolen since the time below; 0 when it has been learnt from them.
    count: Cell<u32>,
    since: Cell<u64>,
    were_tiny: Cell<bool>,
}

impl StolenTasks {
    pub(crate) fn new() -> StolenTasks {
        StolenTasks {
            count: Cell::new(0),
            since: Cell::new(0),
            were_tiny: Cell::new(false),
        }
    }

    /// As many have been stolen, and run from now on.
    pub(crate) fn begin(&self, count: usize) {
        self.count.set(count as u32);
        self.since.set(ticks());
    }

    /// One of those that were stolen was as much as `more` others besides.
    pub(crate) fn counts_as_more(&self, more: u32) {
        let count = self.count.get();
        if count > 0 {
            self.count.set(count.saturating_add(more));
        }
    }

    /// One of those that were stolen waits: the rest of it will run here, too, so it is not tiny.
    #[cfg_attr(not(jobtree_stacks), allow(dead_code))]
    #[inline]
    pub(crate) fn one_waits(&self) {
        self.count.set(0);
        self.were_tiny.set(false);
    }

    /// To be asked when the worker has nothing left to do: whether it may as well steal more.
    #[inline]
    pub(crate) fn are_worth_while(&self) -> bool {
        let count = self.count.take();
        if count > 0 {
            let each = ticks().saturating_sub(self.since.get()) / u64::from(count);
            self.were_tiny.set(each < TINY);
        }
        !self.were_tiny.get()
    }
}
