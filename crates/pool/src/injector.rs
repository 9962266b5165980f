//! The queue through which work enters a pool from outside: first in, first out, so that no caller's
//! work starves behind later arrivals.
//!
//! Beside it there is a second queue, for tasks that were made inside an isolation (`isolation.rs`), the thread that makes them.
//! A worker that waits inside has to find them wherever they are, and so must not have to search among others.
//!
//! # Protocol
//!
//! A mutex guards the queues; `length` repeats their size so that workers can look without the lock.
//! `length` is raised while the lock is held and before the poster's fence in `Sleep::new_work`;
//! a worker that announced itself sleepy reads `length` after its own fence. So either the worker
//! sees the job or the poster sees the worker. In the same way `isolated_length` is raised before the poster's fence in
//! `Sleep::wake_alone`, and read after its own fence by a worker that is about to sleep alone.

use std::collections::VecDeque;

use crate::deque::Entry;
use crate::isolation::Isolation;
use crate::sync::step::{Step, left_out};
use crate::sync::{AtomicUsize, Mutex, Ordering, lock};

/// See the module's head.
pub(crate) struct Injector {
    queues: Mutex<Queues>,
    /// The length of both queues.
    length: AtomicUsize,
    /// The length of the second one.
    isolated_length: AtomicUsize,
}

#[derive(Default)]
struct Queues {
    ordinary: VecDeque<Entry>,
    isolated: VecDeque<Entry>,
}

impl Injector {
    pub(crate) fn new() -> Injector {
        Injector {
            queues: Mutex::new(Queues::default()),
            length: AtomicUsize::new(0),
            isolated_length: AtomicUsize::new(0),
        }
    }

    /// Adds `entry` at the end. The caller then tells `Sleep`.
    pub(crate) fn push(&self, entry: Entry) {
        let mut queues = lock(&self.queues);
        if entry.context.isolation().is_none() {
            queues.ordinary.push_back(entry);
        } else {
            queues.isolated.push_back(entry);
        }
        if !left_out(Step::InjectorLength) {
            self.show_lengths(&queues);
        }
    }

    /// Takes the oldest entry, of those inside isolations first: a worker that can do nothing else waits for them.
    pub(crate) fn pop(&self) -> Option<Entry> {
        if self.is_empty() {
            return None;
        }
        let mut queues = lock(&self.queues);
        let entry = match queues.isolated.pop_front() {
            Some(entry) => Some(entry),
            None => queues.ordinary.pop_front(),
        };
        self.show_lengths(&queues);
        entry
    }

    /// Takes the oldest entry inside `isolation`.
    pub(crate) fn pop_inside(&self, isolation: Isolation) -> Option<Entry> {
        if self.isolated_length.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut queues = lock(&self.queues);
        let position = queues.position_inside(isolation)?;
        let entry = queues.isolated.remove(position);
        self.show_lengths(&queues);
        entry
    }

    /// Returns `true` if there is an entry inside `isolation`.
    pub(crate) fn has_work_inside(&self, isolation: Isolation) -> bool {
        self.isolated_length.load(Ordering::Acquire) != 0
            && lock(&self.queues).position_inside(isolation).is_some()
    }

    fn show_lengths(&self, queues: &Queues) {
        let isolated = queues.isolated.len();
        self.isolated_length.store(isolated, Ordering::Release);
        let length = queues.ordinary.len() + isolated;
        self.length.store(length, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.length.load(Ordering::Acquire) == 0
    }
}

impl Queues {
    fn position_inside(&self, isolation: Isolation) -> Option<usize> {
        let mut entries = self.isolated.iter();
        entries.position(|entry| entry.context.isolation().is_within(isolation))
    }
}
