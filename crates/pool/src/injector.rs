//! The queue through which work enters a pool from outside: first in, first out, so that nobody's
//! work starves behind later arrivals.
//!
//! # Protocol
//!
//! A mutex guards the queue; `length` repeats its size so that workers can look without the lock.
//! `length` is raised while the lock is held and before the poster's fence in `Sleep::new_work`;
//! a worker that announced itself sleepy reads `length` after its own fence. So either the worker
//! sees the job or the poster sees the worker.

use std::collections::VecDeque;

use crate::deque::Entry;
use crate::sync::step::{Step, left_out};
use crate::sync::{AtomicUsize, Mutex, Ordering, lock};

/// See the module's head.
pub(crate) struct Injector {
    queue: Mutex<VecDeque<Entry>>,
    length: AtomicUsize,
}

impl Injector {
    pub(crate) fn new() -> Injector {
        Injector {
            queue: Mutex::new(VecDeque::new()),
            length: AtomicUsize::new(0),
        }
    }

    /// Adds `entry` at the end. The caller then tells `Sleep`.
    pub(crate) fn push(&self, entry: Entry) {
        let mut queue = lock(&self.queue);
        queue.push_back(entry);
        if !left_out(Step::InjectorLength) {
            self.length.store(queue.len(), Ordering::Release);
        }
    }

    /// Takes the oldest entry.
    pub(crate) fn pop(&self) -> Option<Entry> {
        if self.is_empty() {
            return None;
        }
        let mut queue = lock(&self.queue);
        let entry = queue.pop_front();
        self.length.store(queue.len(), Ordering::Release);
        entry
    }

    /// Takes the oldest entry that `is_wanted`.
    pub(crate) fn pop_where(&self, is_wanted: impl Fn(Entry) -> bool) -> Option<Entry> {
        if self.is_empty() {
            return None;
        }
        let mut queue = lock(&self.queue);
        let position = queue.iter().position(|entry| is_wanted(*entry))?;
        let entry = queue.remove(position);
        self.length.store(queue.len(), Ordering::Release);
        entry
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.length.load(Ordering::Acquire) == 0
    }
}
