//! Strands that have used up a turn, and when they go on.
//!
//! They must not starve, and must not starve others: neither those that are ready, of which there may always be one,
//! nor the tasks in this worker's own deque. A place in the queue of ready strands would not do, since strands that use
//! up one turn after the other would have it among themselves. So there is a queue of their own, and a clock: when a
//! turn was used up, all of them wait until the others had twice the time that it took, or have nothing to do. Thus all
//! of them together have at most a third of a worker that others want, however many they are, and what they compute
//! is done at last.
//!
//! Who makes new tasks could have its turns in many small pieces. So a strand that gives way of its own accord meanwhile
//! does so for those that are ready, and not for tasks that have not begun; these take turns with the exhausted
//! strands when it is time for them. Whoever waits for something, instead of giving way, has everything run at once.
//!
//! A future that has used up a turn waits here on the strand that polls it, then leaves that strand, and has its next turn
//! out of another queue. So the clock goes on for a while when nobody waits here any more: else each turn would be taken
//! for a first one, of which nobody knows when it began.
//!
//! All of it belongs to one worker thread. A worker that never sees such a strand pays for one look at a flag.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::raw::ticks;
use crate::strand::Strand;
use crate::theft::TINY;

/// How much longer the others have the thread.
const SHARE_OF_OTHERS: u64 = 2;

/// How often the worker looks for work, with nobody waiting here, before it stops the clock.
const LOOKS_UNTIL_FORGOTTEN: u32 = 1024;

/// While the others run tiny tasks, the worker looks at the clock, which costs as much as a tenth of such a task, only once in
/// so many looks and one. Should the tasks become long just then, it is noticed as many tasks late.
const MOST_LOOKS_WITHOUT_CLOCK: u32 = 7;

pub(crate) struct Exhausted {
    waiting: RefCell<VecDeque<*const Strand>>,
    /// Whether there is anything to know here.
    is_used: Cell<bool>,
    /// After how many looks there is not, unless somebody comes.
    looks_left: Cell<u32>,
    /// When the worker last looked for work and at the clock: what runs now began then, or a few tiny tasks later.
    looked: Cell<u64>,
    /// How often it may look for work before it looks at the clock again.
    looks_without_clock: Cell<u32>,
    /// Whether what runs now was let run as one of those that wait here.
    is_one_of_them: Cell<bool>,
    /// Up to then the others come first.
    not_before: Cell<u64>,
    /// Whether it is a new task's turn next.
    task_is_next: Cell<bool>,
}

/// Who comes first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Nobody waits here.
    Unused,
    /// The others.
    TooEarly,
    /// A new task, if there is one, else one of those that wait here.
    TimeForTask,
    /// One of those that wait here.
    TimeForStrand,
}

impl Exhausted {
    pub(crate) fn new() -> Exhausted {
        Exhausted {
            waiting: RefCell::new(VecDeque::new()),
            is_used: Cell::new(false),
            looks_left: Cell::new(0),
            looked: Cell::new(0),
            looks_without_clock: Cell::new(0),
            is_one_of_them: Cell::new(false),
            not_before: Cell::new(0),
            task_is_next: Cell::new(false),
        }
    }

    /// Whether any strand waits here, or did a while ago.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.get()
    }

    /// The running strand has used up its turn: to be called before the worker looks for something else.
    pub(crate) fn end_turn(&self) {
        if self.is_used.get() {
            self.charge(ticks());
        }
    }

    /// Has `strand`, which has used up its turn, wait here.
    pub(crate) fn push(&self, strand: *const Strand) {
        self.waiting.borrow_mut().push_back(strand);
        self.is_used.set(true);
        self.looks_left.set(LOOKS_UNTIL_FORGOTTEN);
    }

    /// Whether it is too early for those that wait here, or nobody does, as far as that is known without the clock.
    /// Counts as a look if it is so.
    #[inline]
    pub(crate) fn leaves_the_others_alone(&self) -> bool {
        let looks = self.looks_without_clock.get();
        if looks > 0 {
            self.looks_without_clock.set(looks - 1);
        }
        looks > 0 || !self.is_used.get()
    }

    /// To be called whenever the worker looks for work.
    #[inline]
    pub(crate) fn moment(&self) -> Moment {
        if self.is_used.get() {
            self.moment_if_used()
        } else {
            Moment::Unused
        }
    }

    fn moment_if_used(&self) -> Moment {
        let now = ticks();
        if self.is_one_of_them.get() {
            self.charge(now);
        }
        let since_last_look = now.saturating_sub(self.looked.replace(now));
        if self.waiting.borrow().is_empty() {
            let looks_left = self.looks_left.get().saturating_sub(1);
            self.looks_left.set(looks_left);
            self.is_used.set(looks_left > 0);
            return Moment::Unused;
        }
        let not_before = self.not_before.get();
        if now < not_before {
            let are_tiny = since_last_look < u64::from(MOST_LOOKS_WITHOUT_CLOCK) * TINY;
            if are_tiny && not_before - now > u64::from(MOST_LOOKS_WITHOUT_CLOCK) * TINY {
                self.looks_without_clock.set(MOST_LOOKS_WITHOUT_CLOCK);
            }
            return Moment::TooEarly;
        }
        let task_is_next = self.task_is_next.get();
        self.task_is_next.set(!task_is_next);
        if task_is_next {
            Moment::TimeForTask
        } else {
            Moment::TimeForStrand
        }
    }

    /// What ran since the last look has had its share.
    fn charge(&self, now: u64) {
        self.looks_without_clock.set(0);
        self.is_one_of_them.set(false);
        let took = now.saturating_sub(self.looked.replace(now));
        self.not_before.set(now + took * SHARE_OF_OTHERS);
    }

    /// What was found runs at the expense of those that wait here.
    pub(crate) fn begin_turn(&self) {
        self.is_one_of_them.set(true);
    }

    /// The strand whose turn it is among those that wait here.
    #[inline]
    pub(crate) fn next(&self) -> Option<*const Strand> {
        if !self.is_used.get() {
            return None;
        }
        let next = self.waiting.borrow_mut().pop_front()?;
        self.begin_turn();
        Some(next)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// One strand waits, and the others have the thread for as long.
    fn with_one_that_waits_for(time: u64) -> Exhausted {
        let exhausted = Exhausted::new();
        exhausted.push(std::ptr::dangling());
        exhausted.looked.set(ticks());
        exhausted.not_before.set(ticks() + time);
        exhausted
    }

    fn looks_at_once(exhausted: &Exhausted) -> u32 {
        let mut looks = 0;
        while exhausted.leaves_the_others_alone() {
            looks += 1;
        }
        looks
    }

    /// However long the test is interrupted.
    fn look_right_after_the_last_one(exhausted: &Exhausted) {
        exhausted.looked.set(u64::MAX);
        assert!(exhausted.moment() == Moment::TooEarly);
    }

    /// So long that no test is interrupted for more.
    const AN_AGE: u64 = 1 << 50;

    #[test]
    fn the_clock_is_left_alone_while_tasks_are_tiny() {
        let exhausted = with_one_that_waits_for(AN_AGE);
        assert_eq!(looks_at_once(&exhausted), 0, "nothing is known yet");
        look_right_after_the_last_one(&exhausted);
        assert_eq!(looks_at_once(&exhausted), MOST_LOOKS_WITHOUT_CLOCK);
    }

    #[test]
    fn the_clock_is_looked_at_when_tasks_are_long_or_it_is_nearly_time() {
        let exhausted = with_one_that_waits_for(AN_AGE);
        exhausted.looked.set(0);
        assert!(exhausted.moment() == Moment::TooEarly);
        assert_eq!(looks_at_once(&exhausted), 0, "the last one was long");

        let exhausted = with_one_that_waits_for(TINY);
        assert!(exhausted.moment() != Moment::Unused);
        assert_eq!(looks_at_once(&exhausted), 0, "it is nearly time");
    }

    #[test]
    fn a_turn_that_is_used_up_is_seen_at_once() {
        let exhausted = with_one_that_waits_for(AN_AGE);
        look_right_after_the_last_one(&exhausted);
        exhausted.end_turn();
        assert_eq!(looks_at_once(&exhausted), 0);
    }
}
