//! Latches for all threads: set or counted down by any thread, waited for by any number of threads.
//!
//! A worker that waits parks its stack and does other work; any other thread sleeps.
//!
//! # Cancellation
//!
//! To wait for a latch is no cancellation point: it ends when the latch is open, and not before. A latch is what other
//! waits are made of, and what code uses that lends its frame to others until they have told it so: to leave early would
//! leave them a frame that is gone. Nor could `wait` say why it returned. A job that was cancelled meanwhile learns of it at
//! its next suspension point, or by asking. For a wait that ends with the job there are channels, semaphores and the
//! handles of jobs.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::latch::{Latch, ThreadLatch};
use crate::pool::shared::Shared;
use crate::sim;
use crate::sync::{AtomicBool, AtomicUsize, Ordering};
use crate::wait::WaitFor;
use crate::worker::Worker;

/// Opens once and stays open.
///
/// ```
/// use std::sync::Arc;
/// use jobtree_pool::OnceLatch;
///
/// let ready = Arc::new(OnceLatch::new());
/// let waiter = { let ready = ready.clone(); std::thread::spawn(move || ready.wait()) };
/// ready.set();
/// waiter.join().unwrap();
/// assert!(ready.is_set());
/// ```
#[derive(Default)]
pub struct OnceLatch {
    is_set: AtomicBool,
    waiters: Mutex<Waiters>,
}

/// Mostly one: it needs no memory of its own.
#[derive(Default)]
struct Waiters {
    first: Option<Waiter>,
    others: Vec<Waiter>,
}

impl Waiters {
    /// Takes out the worker that waits by `latch`.
    fn take(&mut self, latch: *const Latch) -> Option<Waiter> {
        let is_it = |waiter: &Waiter| matches!(waiter, Waiter::Worker(by, _) if *by == latch);
        if let Some(first) = self.first.take_if(|first| is_it(first)) {
            return Some(first);
        }
        let position = self.others.iter().position(is_it)?;
        Some(self.others.remove(position))
    }
}

/// One who waits, with a latch in its own frame, which it leaves only after that is set.
enum Waiter {
    Worker(*const Latch, Arc<Shared>),
    Thread(*const ThreadLatch),
}

// SAFETY: the pointers are to latches whose frames wait for them; latches are set from any thread.
unsafe impl Send for Waiter {}

impl Waiter {
    fn wake(self) {
        match self {
            // SAFETY: the waiter's frame waits for its latch, and we hold its pool.
            Waiter::Worker(latch, _pool) => unsafe { Latch::set(latch) },
            // SAFETY: the waiter's frame waits for its latch.
            Waiter::Thread(latch) => unsafe { ThreadLatch::set(latch) },
        }
    }
}

impl OnceLatch {
    /// A latch that is not set.
    pub fn new() -> OnceLatch {
        OnceLatch::default()
    }

    /// Opens it, and lets every waiter continue. Setting it again does nothing.
    pub fn set(&self) {
        let waiters = {
            let mut waiters = self.lock();
            self.is_set.store(true, Ordering::Release);
            std::mem::take(&mut *waiters)
        };
        for waiter in waiters.first.into_iter().chain(waiters.others) {
            waiter.wake();
        }
    }

    /// Returns `true` if the latch is open.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Returns when it is open, and not before: a job that is cancelled meanwhile goes on waiting. If it must not, it waits
    /// for something that can be cancelled, such as a channel.
    ///
    /// # Panics
    /// In a simulation that is over ([`Stopped`](crate::Stopped)), and in callbacks of its clock.
    pub fn wait(&self) {
        self.wait_for(WaitFor::Latch);
    }

    /// Returns when it is open. A worker first helps along `what` it waits for.
    pub(crate) fn wait_for(&self, what: WaitFor<'_>) {
        if self.is_set() {
            return;
        }
        Worker::with_current(|worker| match worker {
            Some(worker) => {
                let latch = Latch::new();
                if self.enter(Waiter::Worker(&latch, worker.thread().pool.clone())) {
                    match what {
                        WaitFor::Latch if worker.thread().is_simulated => {
                            let break_off = || self.break_off(&latch);
                            sim::wait_breakably(&break_off, || worker.wait_until(&latch, what));
                        }
                        _ => worker.wait_until(&latch, what),
                    }
                }
            }
            None => {
                // Before others know the latch in this frame.
                sim::refuse_to_sleep();
                let latch = ThreadLatch::new();
                if self.enter(Waiter::Thread(&latch)) {
                    latch.wait();
                }
            }
        });
    }

    /// Adds a waiter; `false` if there is nothing to wait for any more.
    fn enter(&self, waiter: Waiter) -> bool {
        let mut waiters = self.lock();
        // Looked at under the lock, so that `set` either sees the waiter or has been seen.
        if self.is_set() {
            return false;
        }
        match waiters.first {
            None => waiters.first = Some(waiter),
            Some(_) => waiters.others.push(waiter),
        }
        true
    }

    /// Lets the worker that waits by `latch` continue although this is not open; `false` if it is being told just now.
    fn break_off(&self, latch: *const Latch) -> bool {
        let waiter = self.lock().take(latch);
        // Taken out by us, so told by us alone.
        waiter.map(Waiter::wake).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for OnceLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceLatch")
            .field("is_set", &self.is_set())
            .finish_non_exhaustive()
    }
}

/// Opens when it has been counted down to zero.
///
/// ```
/// use jobtree_pool::CountLatch;
///
/// let latch = CountLatch::new(2);
/// latch.count_down();
/// assert!(!latch.is_set());
/// latch.count_down();
/// latch.wait();
/// ```
#[derive(Debug)]
pub struct CountLatch {
    count: AtomicUsize,
    zero: OnceLatch,
}

impl CountLatch {
    /// A latch that opens after `count` countdowns; with 0 it is open.
    pub fn new(count: usize) -> CountLatch {
        let latch = CountLatch {
            count: AtomicUsize::new(count),
            zero: OnceLatch::new(),
        };
        if count == 0 {
            latch.zero.set();
        }
        latch
    }

    /// Asks for one more countdown.
    ///
    /// # Panics
    /// If it is open already: who counts up must hold a count of its own. And if it waits for `usize::MAX` countdowns. It is
    /// as before then.
    pub fn increment(&self) {
        let mut count = self.count.load(Ordering::Relaxed);
        loop {
            assert!(count != 0, "a CountLatch that is open cannot be counted up");
            let Some(more) = count.checked_add(1) else {
                panic!("a CountLatch cannot wait for more than usize::MAX countdowns");
            };
            match self
                .count
                .compare_exchange_weak(count, more, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => count = now,
            }
        }
    }

    /// Counts down by one; the last one opens it.
    ///
    /// # Panics
    /// If it is open already.
    pub fn count_down(&self) {
        let mut count = self.count.load(Ordering::Relaxed);
        loop {
            assert!(
                count != 0,
                "a CountLatch was counted down more often than up"
            );
            match self.count.compare_exchange_weak(
                count,
                count - 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => count = now,
            }
        }
        if count == 1 {
            self.zero.set();
        }
    }

    /// Returns `true` if the latch is open.
    pub fn is_set(&self) -> bool {
        self.zero.is_set()
    }

    /// Returns when it is open, and not before, as [`OnceLatch::wait`].
    pub fn wait(&self) {
        self.zero.wait();
    }
}
