//! Tasks that ran on a worker, gave way, and want to run again: first in, first out, apart from the deque,
//! whose owner's end is last in, first out.
//!
//! The owner puts one in between two others, so a lock that is free nearly always costs it one locked
//! instruction, half as much as the deque's dance. A push wakes no worker: its worker is about
//! to look for work itself. If more is left then, it wakes another (`search.rs`).

use std::collections::VecDeque;

use crate::deque::Entry;
use crate::sync::step::{Step, left_out, order_at};
use crate::sync::{AtomicBool, AtomicUsize, Ordering, Spinners, UnsafeCell};

#[cfg(all(test, loom))]
#[path = "requeued_models.rs"]
pub(crate) mod models;

/// See the module's head.
pub(crate) struct Requeued {
    is_locked: AtomicBool,
    spinners: Spinners,
    /// Written under the lock; a hint to all other threads.
    len: AtomicUsize,
    entries: UnsafeCell<VecDeque<Entry>>,
}

// SAFETY: the entries are touched only under the lock, and may be sent.
unsafe impl Send for Requeued {}
// SAFETY: as above.
unsafe impl Sync for Requeued {}

impl Requeued {
    pub(crate) fn new() -> Requeued {
        Requeued {
            is_locked: AtomicBool::new(false),
            spinners: Spinners::new(),
            len: AtomicUsize::new(0),
            entries: UnsafeCell::new(VecDeque::new()),
        }
    }

    #[inline]
    pub(crate) fn looks_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Puts an entry behind all others.
    pub(crate) fn push(&self, entry: Entry) {
        self.lock_and(|entries| entries.push_back(entry));
    }

    /// Puts an entry behind all others and takes the oldest out, at one go.
    pub(crate) fn exchange(&self, entry: Entry) -> Entry {
        if self.looks_empty() {
            return entry;
        }
        self.lock_and(|entries| match entries.pop_front() {
            Some(oldest) => {
                if !left_out(Step::YieldQueueKeeps) {
                    entries.push_back(entry);
                }
                oldest
            }
            None => entry,
        })
    }

    /// The oldest entry, for the owner.
    #[inline]
    pub(crate) fn pop(&self) -> Option<Entry> {
        if self.looks_empty() {
            return None;
        }
        self.lock_and(VecDeque::pop_front)
    }

    /// Takes out the oldest entry that `suits`, for another worker than the owner.
    ///
    /// Waits for the lock: a thief about to sleep that took a locked queue for an empty one would leave the second
    /// entry to a worker that may be busy for long, and the worker that holds the lock counts on the thief, which still
    /// searches, and wakes no other.
    pub(crate) fn steal(&self, suits: impl Fn(&Entry) -> bool) -> Option<Entry> {
        if self.looks_empty() {
            return None;
        }
        if left_out(Step::YieldQueueThiefWaits) && self.is_locked.load(Ordering::Relaxed) {
            return None;
        }
        self.lock_and(|entries| {
            let position = entries.iter().position(suits)?;
            entries.remove(position)
        })
    }

    fn try_lock(&self) -> bool {
        let acquire = order_at(Step::YieldQueueAcquire, Ordering::Acquire);
        // Not a swap: loom may order the write of one that fails after the holder's unlock.
        let taken = self
            .is_locked
            .compare_exchange(false, true, acquire, Ordering::Relaxed);
        taken.is_ok() || left_out(Step::YieldQueueLock)
    }

    fn lock_and<R>(&self, change: impl FnOnce(&mut VecDeque<Entry>) -> R) -> R {
        while !self.try_lock() {
            self.spinners.wait_while(&self.is_locked);
        }
        self.locked(change)
    }

    /// The caller has just locked it.
    fn locked<R>(&self, change: impl FnOnce(&mut VecDeque<Entry>) -> R) -> R {
        // SAFETY: under the lock, which is given back below; the closures above do not panic.
        let entries = unsafe { &mut *self.entries.get() };
        let result = change(entries);
        if !left_out(Step::YieldQueueLength) {
            self.len.store(entries.len(), Ordering::Relaxed);
        }
        let release = order_at(Step::YieldQueueRelease, Ordering::Release);
        self.is_locked.store(false, release);
        self.spinners.unlocked();
        result
    }
}
