//! Preempted fibers, whose time slice is used up, and when they continue.
//!
//! Preempted fibers must not starve, and must not starve others: neither the fibers that are ready, of which there may
//! always be one, nor the tasks in the worker's own deque. A place in the queue of ready fibers would not do, since fibers
//! that use up one slice after the other would have it among themselves. So they have a queue of their own, and a clock:
//! when a slice was used up, all of them wait until the others had the worker for [`OTHERS`] times the time that the
//! slice took, or have nothing to do. Thus all of them together have at most one twentieth of a worker that others want,
//! however many they are. Where budgets do not limit jobs, it is a third ([`OTHERS_IF_UNLIMITED`]): there all jobs
//! trust each other, and one that computes is as good as one that yields.
//!
//! None starves: the worker is given to a preempted fiber at the latest when the others had it for [`OTHERS`] times
//! the last slice, of which at most [`LONGEST_SLICE`] counts. Among themselves they take turns, first by families, then by age
//! (`fair_share.rs`).
//!
//! A job that makes new tasks could have its slices in many small pieces. So a fiber that yields meanwhile does so for
//! fibers that are ready, and now and then for tasks of jobs that are not over their share; other tasks that have not
//! begun take turns with the preempted fibers. A fiber that waits, instead of yielding, has everything run at once.
//!
//! A future whose slice is used up waits here on the fiber that polls it, then leaves that fiber, and gets its next slice
//! out of another queue. So the clock goes on for a while when no fiber waits here any more: otherwise each slice would be
//! taken for a first one, of which the start is not known.
//!
//! All of it belongs to one worker thread. A worker on which no slice is ever used up pays for one look at a flag.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::fair_share::{OTHERS, OTHERS_IF_UNLIMITED, Share};
use crate::raw::ticks;
use crate::strand::Strand;
use crate::theft::TINY;

/// The number of searches for work, with no fiber waiting here, after which the worker stops the clock.
const LOOKS_UNTIL_FORGOTTEN: u32 = 1024;

/// While the others run tiny tasks, the worker reads the clock, which costs as much as a tenth of such a task, only once in
/// so many looks and one. Should the tasks become long just then, it is noticed as many tasks late.
const MOST_LOOKS_WITHOUT_CLOCK: u32 = 7;

/// The most of a slice that counts: about 20 milliseconds, in [`ticks`]. Longer slices were interrupted by the operating system,
/// or burn their operations so slowly that the preempted fibers would wait far too long for the next one.
const LONGEST_SLICE: u64 = 60_000_000;

/// The least that a slice of a job with a share counts: about 5 microseconds, in [`ticks`]. Letting a preempted fiber run costs
/// the others some time, however short its slice is; more in unoptimized code.
const SHORTEST_SLICE: u64 = if cfg!(debug_assertions) {
    60_000
} else {
    15_000
};

/// The number of the oldest fibers that are compared by their families.
const COMPARED: usize = 16;

/// A fiber whose time slice is used up.
struct Preempted {
    strand: *const Strand,
    /// The share of its job, alive as long as the fiber waits; null if nothing limits the job.
    share: *const Share,
}

/// The preempted fibers of one worker.
pub(crate) struct PreemptedQueue {
    waiting: RefCell<VecDeque<Preempted>>,
    /// `true` if the clock runs.
    is_used: Cell<bool>,
    /// The number of searches after which the clock stops, unless a fiber comes.
    looks_left: Cell<u32>,
    /// The time at which the worker last searched for work and read the clock: the current work began then, or a few tiny tasks
    /// later.
    looked: Cell<u64>,
    /// The number of searches before it reads the clock again.
    looks_without_clock: Cell<u32>,
    /// Set if the current work was let run as one of those that wait here; then it is the time by which the others come first for
    /// longer.
    running: Cell<Option<u64>>,
    /// The time up to which the others come first.
    not_before: Cell<u64>,
    /// `true` if a new task has the next turn.
    task_is_next: Cell<bool>,
}

/// The kind of work that runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Any work: no fiber waits here.
    Unused,
    /// Other work than that of the preempted.
    TooEarly,
    /// A new task, if there is one, else a preempted fiber.
    TimeForTask,
    /// A preempted fiber.
    TimeForStrand,
}

/// Returns the factor by which the others have the worker for longer than a job with this share.
fn others_of(share: *const Share) -> u64 {
    if share.is_null() {
        OTHERS_IF_UNLIMITED
    } else {
        OTHERS
    }
}

impl PreemptedQueue {
    pub(crate) fn new() -> PreemptedQueue {
        PreemptedQueue {
            waiting: RefCell::new(VecDeque::new()),
            is_used: Cell::new(false),
            looks_left: Cell::new(0),
            looked: Cell::new(0),
            looks_without_clock: Cell::new(0),
            running: Cell::new(None),
            not_before: Cell::new(0),
            task_is_next: Cell::new(false),
        }
    }

    /// Returns `true` if any fiber waits here, or did a while ago.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.get()
    }

    /// The running fiber, of a job with `share`, has used up its slice, or owes the time `owed` for earlier ones, in ticks: to be
    /// called before the worker looks for something else.
    ///
    /// # Safety
    /// The share is null or alive.
    pub(crate) unsafe fn end_slice(&self, share: *const Share, owed: u64) {
        if self.is_used.get() || owed > 0 {
            // SAFETY: by contract.
            unsafe { self.end_slice_at(share, owed, ticks()) };
        }
    }

    /// # Safety
    /// The share is null or alive.
    unsafe fn end_slice_at(&self, share: *const Share, owed: u64, now: u64) {
        if !self.is_used.get() {
            // It is not known when the slice began.
            self.looked.set(now);
        }
        let took = self.charge(now, owed, others_of(share));
        // SAFETY: by contract.
        if let Some(share) = unsafe { share.as_ref() } {
            share.was_served(now, took);
        }
    }

    /// Has `strand`, which has used up its slice and whose job has `share`, wait here.
    ///
    /// # Safety
    /// The share is null, or alive as long as the fiber waits here.
    pub(crate) unsafe fn push(&self, strand: *const Strand, share: *const Share) {
        // SAFETY: by contract.
        if let Some(share) = unsafe { share.as_ref() } {
            share.begin_preempted();
        }
        let preempted = Preempted { strand, share };
        self.waiting.borrow_mut().push_back(preempted);
        self.is_used.set(true);
        self.looks_left.set(LOOKS_UNTIL_FORGOTTEN);
    }

    /// Returns `true` if it is too early for those that wait here, or none does, as far as that is known without the
    /// clock. Counts as a look if it is so.
    #[inline]
    pub(crate) fn leaves_the_others_alone(&self) -> bool {
        let looks = self.looks_without_clock.get();
        if looks > 0 {
            self.looks_without_clock.set(looks - 1);
        }
        looks > 0 || !self.is_used.get()
    }

    /// Returns `true` if a fiber that could run a task of its own choice must look for work first: it is time for a preempted fiber, or
    /// the calling fiber is one.
    #[inline]
    pub(crate) fn comes_before_task(&self) -> bool {
        self.is_used.get()
            && (self.running.get().is_some()
                || (ticks() >= self.not_before.get() && !self.waiting.borrow().is_empty()))
    }

    /// Says what runs next; to be called whenever the worker looks for work.
    #[inline]
    pub(crate) fn moment(&self) -> Moment {
        if self.is_used.get() {
            self.moment_at(ticks())
        } else {
            Moment::Unused
        }
    }

    fn moment_at(&self, now: u64) -> Moment {
        if let Some(others) = self.running.get() {
            self.charge(now, 0, others);
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

    /// Has the others come first for `others` times the time that passed since the last look, or `owed` if that is more;
    /// returns that time.
    fn charge(&self, now: u64, owed: u64, others: u64) -> u64 {
        self.looks_without_clock.set(0);
        self.running.set(None);
        let took = now.saturating_sub(self.looked.replace(now));
        let least = if others == OTHERS { SHORTEST_SLICE } else { 0 };
        let counts = took.max(owed).clamp(least, LONGEST_SLICE);
        self.not_before.set(now + counts * others);
        counts
    }

    /// A task runs at the expense of those that wait here.
    pub(crate) fn begin_task(&self) {
        // Whose it is, is not known before it runs; but it takes turns with those that wait here.
        let first = self.waiting.borrow().front().map(|first| first.share);
        self.running
            .set(Some(others_of(first.unwrap_or(std::ptr::null()))));
    }

    /// The fiber whose turn it is among those that wait here.
    #[inline]
    pub(crate) fn next(&self) -> Option<*const Strand> {
        if !self.is_used.get() {
            return None;
        }
        self.take_next()
    }

    fn take_next(&self) -> Option<*const Strand> {
        let mut waiting = self.waiting.borrow_mut();
        let mut first = 0;
        for candidate in 1..waiting.len().min(COMPARED) {
            // SAFETY: null, or alive as long as the fibers wait here.
            let shares = unsafe {
                (
                    waiting[candidate].share.as_ref(),
                    waiting[first].share.as_ref(),
                )
            };
            if let (Some(candidates), Some(firsts)) = shares
                && candidates.precedes(firsts)
            {
                first = candidate;
            }
        }
        let next = waiting.remove(first)?;
        // SAFETY: as above.
        if let Some(share) = unsafe { next.share.as_ref() } {
            share.end_preempted();
        }
        self.running.set(Some(others_of(next.share)));
        Some(next.strand)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
