//! The counters and events of one tree of jobs: counters are always on, events are for subscribers.
//!
//! Counting must cost next to nothing, since every job counts when it is made and when it ends. So each
//! thread has its own line of counters in each monitor and writes it alone: a load and a store. Which line
//! that is, [`threads`] says; what happens to a line when its thread ends is proved there, too.
//!
//! A monitor is no part of the protocol between jobs: no code decides anything by it. Its atomics are
//! therefore always std's, and models do not see them.

mod events;
#[cfg(feature = "tracing")]
pub(crate) mod spans;
mod threads;

#[cfg(all(test, not(loom)))]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use events::trace;
pub use events::{Event, EventKind, Lacking, Recorded};
pub(crate) use threads::next_id;

use events::Recorder;
use threads::OWN_LINES;

use crate::error::JobId;
use crate::tree::Watcher;

/// The counters. [`Monitor::counters`] relies on their order: a count that follows from another one comes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// A job was made. Must be counted before the job can end.
    Created,
    /// A job was asked to end, by a call, a deadline or the cancellation of a job above, and had not been before.
    CancelRequests,
    /// A job ended with a value.
    Completed,
    /// A job ended because its body or a child failed.
    Failed,
    /// A job ended because it was cancelled.
    Cancelled,
    /// A job ended because its time was over.
    TimedOut,
    /// Waiters that were registered. Must be counted before the waiter can be woken.
    WaitersRegistered,
    /// Waiters that were woken.
    WaitersWoken,
}

const COUNTERS: usize = Counter::WaitersWoken as usize + 1;

/// The counts of a tree of jobs since it was made.
///
/// Each number is exact, but they are not read at one moment. Even so, no more jobs have ended than were
/// created, and no more waiters were woken than registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Jobs made.
    pub created: u64,
    /// Jobs asked to end, by a call, a deadline or the cancellation of a job above; each counts once. A job that fails asks the
    /// jobs below it, and not itself.
    pub cancel_requests: u64,
    /// Jobs that ended with a value.
    pub completed: u64,
    /// Jobs that ended because their body or a child failed.
    pub failed: u64,
    /// Jobs that ended because they were cancelled.
    pub cancelled: u64,
    /// Jobs that ended because their time was over.
    pub timed_out: u64,
    /// Times a waiter began to wait for a job.
    pub waiters_registered: u64,
    /// Times a waiter was woken.
    pub waiters_woken: u64,
}

/// One thread's counters, alone on their cache lines. 128 bytes, since processors fetch lines in pairs.
#[repr(align(128))]
struct Line([AtomicU64; COUNTERS]);

impl Line {
    const fn new() -> Line {
        Line([const { AtomicU64::new(0) }; COUNTERS])
    }
}

/// See the module's head. Some 8 KiB: one for a tree, not one for a job.
pub(crate) struct Monitor {
    /// Each is written by the thread that has its index, and by no other.
    own: [Line; OWN_LINES],
    /// Written by all threads that have no index.
    shared: Line,
    recorder: Recorder,
}

impl Monitor {
    #[cfg(all(test, not(loom)))]
    pub(crate) fn new() -> Monitor {
        Monitor::watched_by(None)
    }

    /// A monitor that tells `watcher` of every event.
    pub(crate) fn watched_by(watcher: Option<Watcher>) -> Monitor {
        Monitor {
            own: [const { Line::new() }; OWN_LINES],
            shared: Line::new(),
            recorder: Recorder::new(watcher),
        }
    }

    /// Counts one.
    #[inline]
    pub(crate) fn count(&self, counter: Counter) {
        match self.own.get(threads::own_line()) {
            Some(line) => {
                let count = &line.0[counter as usize];
                // No other thread writes it, so nothing comes in between. Release: see `counters`.
                count.store(count.load(Ordering::Relaxed) + 1, Ordering::Release);
            }
            None => self.count_without_line(counter),
        }
    }

    #[cold]
    #[inline(never)]
    fn count_without_line(&self, counter: Counter) {
        if threads::claim_line() {
            return self.count(counter);
        }
        self.shared.0[counter as usize].fetch_add(1, Ordering::Release);
    }

    /// A reading of all counters.
    pub(crate) fn counters(&self) -> Counters {
        let lines = || self.own.iter().chain([&self.shared]);
        let mut totals = [0; COUNTERS];
        // Backwards: the thread that reads that a job ended acquires what its thread knew when it counted that,
        // and it knew that the job was created, so the later reading counts it.
        for counter in (0..COUNTERS).rev() {
            totals[counter] = lines()
                .map(|line| line.0[counter].load(Ordering::Acquire))
                .sum();
        }
        let total = |counter: Counter| totals[counter as usize];
        Counters {
            created: total(Counter::Created),
            cancel_requests: total(Counter::CancelRequests),
            completed: total(Counter::Completed),
            failed: total(Counter::Failed),
            cancelled: total(Counter::Cancelled),
            timed_out: total(Counter::TimedOut),
            waiters_registered: total(Counter::WaitersRegistered),
            waiters_woken: total(Counter::WaitersWoken),
        }
    }

    /// Notifies the subscribers. With the feature `tracing` this may run a subscriber's code: no lock may be
    /// held.
    #[inline]
    pub(crate) fn event(&self, job: JobId, kind: EventKind) {
        events::trace(job, kind);
        self.record(job, kind);
    }

    /// Returns `true` if a subscriber wants to know of events.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        cfg!(feature = "tracing") || self.recorder.records()
    }

    /// The half of [`Monitor::event`] that may be done while a job's lock is held; [`trace`] must follow when it
    /// is not.
    #[inline]
    pub(crate) fn record(&self, job: JobId, kind: EventKind) {
        self.recorder.record(job, kind);
    }

    /// Keeps the newest `capacity` events from now on; 0 stops. What was recorded before stays, as far as
    /// there is room.
    pub(crate) fn record_events(&self, capacity: usize) {
        self.recorder.set_capacity(capacity);
    }

    /// Takes what was recorded since the last time.
    pub(crate) fn take_events(&self) -> Recorded {
        self.recorder.take()
    }
}
