//! The steal policy: a thief learns from the tasks that it stole last whether it is worth while to steal more.
//!
//! A task that was stolen costs both sides some hundreds of nanoseconds more: its memory, the queue and whatever
//! counts its end are in the other one's cache. If it runs for less than that, the thief only keeps its victim from
//! getting on. So a thief whose last tasks were tiny leaves others' tasks alone, until it would have to sleep: then it
//! takes some all the same, because the worker that posted them may count on it, and learns anew.
//!
//! A task that waits stays with its thief, since stacks do not move, and what it does afterwards may be long. So of those
//! that are tiny until they wait, a thief takes as many as make it even with its victim: both then have the same number
//! of them to go on with.
//!
//! It does not come to a sleep, and the thief goes on looking, for [`LEFT_ALONE`] at most, while the number of tasks there
//! changes from look to look: those who have them get on. A task that is not tiny waits as long behind those that are.

use std::cell::Cell;

use crate::raw::ticks;

/// The time below which a task is tiny: some 0.7 µs, in [`ticks`].
pub(crate) const TINY: u64 = 1_600;

/// The time that tiny tasks are left to their owner before some of them are tried again: some 0.25 ms, in [`ticks`].
const LEFT_ALONE: u64 = 600_000;

/// The tasks of other workers that a thief takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Appetite {
    All,
    /// Tasks of a worker that has more before it than the thief: fibers that wait, and tasks.
    ToBeEven,
    Nothing,
}

impl Appetite {
    /// Returns `true` if a thief takes tasks of a victim with `theirs` before it, fibers that wait and tasks, when it has `own`.
    #[inline]
    pub(crate) fn is_for_tasks_of(self, theirs: impl FnOnce() -> u64, own: u64) -> bool {
        match self {
            Appetite::All => true,
            Appetite::ToBeEven => theirs() > own,
            Appetite::Nothing => false,
        }
    }
}

/// The knowledge of a worker about the tasks that it stole last.
pub(crate) struct StolenTasks {
    /// The number of tasks stolen since the time below; 0 when the worker has learnt from them.
    count: Cell<u32>,
    since: Cell<u64>,
    were_tiny: Cell<bool>,
    /// `true` if one of them has waited, or still does.
    some_waited: Cell<bool>,
    /// The number of tasks that others had to give at this worker's last scan, to see whether their owners make progress.
    seen: Cell<usize>,
}

impl StolenTasks {
    pub(crate) fn new() -> StolenTasks {
        StolenTasks {
            count: Cell::new(0),
            since: Cell::new(0),
            were_tiny: Cell::new(false),
            some_waited: Cell::new(false),
            seen: Cell::new(0),
        }
    }

    /// Notes that `count` tasks have been stolen, and run from now on.
    pub(crate) fn begin(&self, count: usize) {
        self.count.set(count as u32);
        self.some_waited.set(false);
        self.since.set(ticks());
    }

    /// One of those that were stolen was as much as `more` others besides.
    pub(crate) fn counts_as_more(&self, more: u32) {
        let count = self.count.get();
        if count > 0 {
            self.count.set(count.saturating_add(more));
        }
    }

    /// A fiber of this worker waits, perhaps one of those that were stolen: the rest of it will run here, too.
    #[cfg_attr(not(jobtree_stacks), allow(dead_code))]
    #[inline]
    pub(crate) fn one_waits(&self) {
        self.some_waited.set(true);
    }

    /// Returns the tasks that the worker may as well steal; to be called when it has nothing left to do.
    #[inline]
    pub(crate) fn appetite(&self) -> Appetite {
        let count = self.count.take();
        if count > 0 {
            let each = ticks().saturating_sub(self.since.get()) / u64::from(count);
            self.were_tiny.set(each < TINY);
        }
        match (self.were_tiny.get(), self.some_waited.get()) {
            (false, _) => Appetite::All,
            (true, true) => Appetite::ToBeEven,
            (true, false) => Appetite::Nothing,
        }
    }

    /// Returns `true` if the tasks stolen last were tiny, as far as that has been learnt.
    #[inline]
    pub(crate) fn were_tiny(&self) -> bool {
        self.were_tiny.get()
    }

    /// Returns `true` if the owners of tasks, so many of them now, make progress, and it is not time to try some again.
    pub(crate) fn are_left_alone(&self, there: usize) -> bool {
        let before = self.seen.replace(there);
        there > 0 && there != before && ticks().saturating_sub(self.since.get()) < LEFT_ALONE
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// As if this had been learnt just now.
    fn of_tiny_ones() -> StolenTasks {
        let stolen = StolenTasks::new();
        stolen.begin(1_000_000);
        assert_eq!(stolen.appetite(), Appetite::Nothing);
        stolen
    }

    #[test]
    fn tiny_tasks_are_left_alone_while_their_number_changes() {
        let stolen = of_tiny_ones();
        assert!(stolen.were_tiny());
        // No time passes, however slow the machine is.
        stolen.since.set(u64::MAX);
        assert!(stolen.are_left_alone(5));
        assert!(!stolen.are_left_alone(5), "their owner does not get on");
        assert!(stolen.are_left_alone(4));
        assert!(!stolen.are_left_alone(0), "there are none");
    }

    #[test]
    fn they_are_tried_again_after_a_while() {
        let stolen = of_tiny_ones();
        stolen.since.set(ticks().saturating_sub(LEFT_ALONE));
        assert!(!stolen.are_left_alone(5));
    }

    #[test]
    fn of_tiny_ones_that_wait_a_thief_takes_as_many_as_make_it_even() {
        let stolen = of_tiny_ones();
        stolen.one_waits();
        let appetite = stolen.appetite();
        assert_eq!(appetite, Appetite::ToBeEven);
        assert!(appetite.is_for_tasks_of(|| 4, 3));
        assert!(!appetite.is_for_tasks_of(|| 3, 3));
    }

    #[test]
    fn long_ones_are_taken_whether_they_wait_or_not() {
        let stolen = of_tiny_ones();
        stolen.begin(1);
        stolen.since.set(ticks().saturating_sub(2 * TINY));
        stolen.one_waits();
        assert_eq!(stolen.appetite(), Appetite::All);
        assert!(Appetite::All.is_for_tasks_of(|| 0, 3));
    }

    #[test]
    fn a_wait_is_forgotten_with_the_next_theft() {
        let stolen = of_tiny_ones();
        stolen.one_waits();
        stolen.begin(1_000_000);
        assert_eq!(stolen.appetite(), Appetite::Nothing);
    }
}
