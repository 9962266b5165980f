//! Offers: how a worker with parked fibers passes a new task to an idle worker that has none.
//!
//! A parked fiber can continue on its own worker alone. If that worker began a long task, the fiber would wait for the end of
//! the task while other workers have nothing to do. So a worker that is about to begin a task offers it to an idle worker
//! on which no fiber is parked, if there is one, unless tasks of this kind are known to be short (`task_lengths.rs`).
//!
//! # Protocol
//!
//! Every worker has one slot:
//!
//! ```text
//!            stand_by                 offer (CAS, by another worker), then notify
//!   CLOSED ------------> STANDS_BY ------------------------------------> a task
//!     ^                      |                                             |
//!     +------ leave (swap) --+------------------- leave (swap) ------------+
//! ```
//!
//! * A worker without work and without parked fibers opens its slot, and scans it with every other queue before it sleeps.
//! * The worker that offers moves the slot from `STANDS_BY` to the task by a compare-and-swap, so an idle worker gets at
//!   most one, and then notifies it. The notice is that of a message in an inbox: it is read, or it wakes (`sleep/README.md`).
//! * The idle worker leaves by a swap, so it learns of a task that was offered at the last moment. If it has found other work
//!   by then, it puts the task into its own queue, where every worker finds it.

use std::cell::Cell;
use std::ptr;

use crate::deque::Entry;
use crate::found::{Found, Work};
use crate::job::JobKind;
use crate::pool::shared::{Shared, Waits};
use crate::raw::{outermost, ticks};
use crate::sync::step::{Step, left_out};
use crate::sync::{AtomicPtr, Ordering};
use crate::task_lengths::SHORT;
use crate::worker::WorkerThread;

/// The slot of a worker; see the module's head.
pub(crate) struct OfferSlot {
    state: AtomicPtr<Entry>,
}

const CLOSED: *mut Entry = ptr::null_mut();

/// Not null, and not the address of an entry, which is aligned.
const STANDS_BY: *mut Entry = ptr::without_provenance_mut(1);

impl OfferSlot {
    pub(crate) fn new() -> OfferSlot {
        OfferSlot {
            state: AtomicPtr::new(CLOSED),
        }
    }

    /// Opens the slot. Owner only.
    pub(crate) fn stand_by(&self) {
        self.state.store(STANDS_BY, Ordering::Release);
    }

    /// Returns `true` if the worker stands by, as far as can be seen.
    #[inline]
    pub(crate) fn stands_by(&self) -> bool {
        self.state.load(Ordering::Relaxed) == STANDS_BY
    }

    /// Returns `true` if a task was offered. Owner only.
    #[inline]
    pub(crate) fn has_task(&self) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        state != CLOSED && state != STANDS_BY
    }

    /// Offers `entry`; `false` if the worker does not stand by. The caller then notifies it.
    pub(crate) fn offer(&self, entry: Entry) -> bool {
        if !self.stands_by() {
            return false;
        }
        // The memory is the pool's, not that of the job on whose stack the worker looks for work.
        let boxed = outermost(|| Box::into_raw(Box::new(entry)));
        let order = Ordering::AcqRel;
        let moved = self
            .state
            .compare_exchange(STANDS_BY, boxed, order, Ordering::Relaxed)
            .is_ok();
        if !moved {
            // SAFETY: made above, and seen by no other thread.
            outermost(|| drop(unsafe { Box::from_raw(boxed) }));
        }
        moved
    }

    /// Closes the slot, and returns the task that was offered. Owner only.
    pub(crate) fn leave(&self) -> Option<Entry> {
        let before = if left_out(Step::OfferLeaveSwap) {
            self.state.store(CLOSED, Ordering::Release);
            CLOSED
        } else {
            self.state.swap(CLOSED, Ordering::AcqRel)
        };
        if before == CLOSED || before == STANDS_BY {
            return None;
        }
        // SAFETY: the address of a box, by `offer`; the swap took it out of the slot.
        Some(outermost(|| *unsafe { Box::from_raw(before) }))
    }
}

impl Shared {
    /// Offers `entry` to a worker that stands by, beginning after number `from`; `false` if there is none.
    pub(crate) fn offer(&self, from: usize, entry: Entry) -> bool {
        let count = self.workers.len();
        let taker = (1..count)
            .map(|step| (from + step) % count)
            .find(|index| self.workers[*index].offers.offer(entry));
        if let Some(taker) = taker
            && !left_out(Step::OfferNotify)
        {
            self.sleep.notify(taker);
        }
        taker.is_some()
    }
}

/// A task of which the worker wants to know how long it runs.
#[derive(Clone, Copy)]
pub(crate) struct Measured {
    kind: &'static JobKind,
    /// The time at which it began; 0 before that.
    since: u64,
}

/// One in so many tasks of a kind that is known to be short is measured again.
const SHORT_TASKS_BETWEEN_MEASUREMENTS: u32 = 64;

impl WorkerThread {
    /// Passes a task that the search has found to an idle worker, if fibers that are parked here would have to wait for its end,
    /// and returns `true`. `waiters` is 1 if the running fiber is about to be parked, else 0.
    #[inline(always)]
    pub(crate) fn passes_on(&self, found: Found, waiters: u64) -> bool {
        found.is_task()
            && self.shared().stats.waiting.read() + waiters > 0
            && self.pool.sleep.somebody_is_idle()
            && self.passes_on_if_long(found)
    }

    #[inline(never)]
    fn passes_on_if_long(&self, found: Found) -> bool {
        let Work::Task(entry) = found.work() else {
            return false;
        };
        if found.is_bound()
            || !entry.context.isolation().is_none()
            || self.pool.waits() != Waits::Park
        {
            return false;
        }
        // SAFETY: found, so ours, and not yet run.
        let kind = unsafe { entry.job.as_ref() }.kind;
        if !self.is_simulated && self.pool.lengths.are_short(kind) {
            let is_due = self
                .dispatches
                .get()
                .is_multiple_of(SHORT_TASKS_BETWEEN_MEASUREMENTS);
            if is_due {
                self.measure(kind);
            }
            return false;
        }
        if self.pool.offer(self.index, entry) {
            self.shared().stats.passed_on.add(1);
            return true;
        }
        self.measure(kind);
        false
    }

    /// Has the next task measured, which is of `kind`.
    fn measure(&self, kind: &'static JobKind) {
        // The time of a simulation is no measure, and the real one must not be looked at.
        if !self.is_simulated {
            self.measured.set(Some(Measured { kind, since: 0 }));
        }
    }

    /// A task begins.
    #[inline(always)]
    pub(crate) fn begin_measurement(&self) {
        if let Some(measured) = self.measured.get() {
            let since = ticks();
            self.measured.set(Some(Measured { since, ..measured }));
        }
    }

    /// The task that was begun last has ended, or waits.
    #[inline(always)]
    pub(crate) fn end_measurement(&self) {
        if let Some(measured) = self.measured.get()
            && measured.since > 0
        {
            self.learn(&self.measured, measured);
        }
    }

    #[cold]
    #[inline(never)]
    fn learn(&self, cell: &Cell<Option<Measured>>, measured: Measured) {
        cell.set(None);
        let took = ticks().saturating_sub(measured.since);
        self.pool.lengths.learn(measured.kind, took < SHORT);
    }

    /// Opens this worker's slot for offers, if no fiber is parked here.
    pub(crate) fn stand_by(&self) {
        let own = self.shared();
        if own.stats.waiting.read() == 0 && self.pool.waits() == Waits::Park {
            own.offers.stand_by();
        }
    }

    /// Ends [`stand_by`](WorkerThread::stand_by): returns what the worker runs, which is `found` or else the task that was
    /// offered. If there are both, the task goes into the worker's queue.
    pub(crate) fn stop_standing_by(&self, found: Option<Found>) -> Option<Found> {
        let Some(entry) = self.shared().offers.leave() else {
            return found;
        };
        if found.is_some() {
            self.put_back(entry);
            return found;
        }
        // SAFETY: taken out of the slot, so ours, and not yet run.
        self.measure(unsafe { entry.job.as_ref() }.kind);
        Some(Found::task(entry))
    }
}

#[cfg(all(test, loom))]
#[path = "offer_models.rs"]
pub(crate) mod models;
