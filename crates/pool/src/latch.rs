//! The latch that a fiber waits for: a word that is set once and wakes its waiter.
//!
//! # Protocol
//!
//! ```text
//!   UNSET --register--> waiter --set--> SET       (the setter wakes the waiter)
//!     \-----------------set-----------> SET       (no waiter; register then says so)
//! ```
//!
//! The setter's swap is its last access to the latch: the waiter may see SET and free it at once. The
//! waiter's name is therefore read out of the word by that very swap, and points to a fiber, which
//! lives as long as its pool. A setter from another pool must keep the waiter's pool alive itself.
//!
//! A waiter registers in one of two ways: by mail (the fiber can be parked; it learns that the latch
//! is set from its worker's inbox and never looks at the latch again), or by notice (the fiber stays
//! on its thread, is only kept from sleeping, and looks at the latch itself).

use std::ptr;

use crate::raw::before_sleep::before_sleep;
use crate::strand::Strand;
use crate::sync::step::{Step, left_out, order_at};
use crate::sync::{AtomicPtr, Futex, Ordering};

/// The way in which a waiter is notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// Sends a message to its worker's inbox.
    ByMail,
    /// Wakes the waiter's worker, which then looks at the latch.
    ByNotice,
}

/// See the module's head.
pub(crate) struct Latch {
    state: AtomicPtr<Strand>,
}

/// Fibers are aligned to far more than two bytes, so the lowest bit of their address is free.
const NOTICE_BIT: usize = 1;

fn set_mark() -> *mut Strand {
    // Not null, not a fiber: fibers are aligned to cache lines.
    ptr::without_provenance_mut(2)
}

impl Latch {
    pub(crate) fn new() -> Latch {
        Latch {
            state: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Returns `true` if the latch is set; then everything written before `set` is visible.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.state.load(Ordering::Acquire) == set_mark()
    }

    /// Makes it as new, and shows everything written before it was set, if it was. Only for the one who waits
    /// for it, and not while that waits by mail.
    ///
    /// A swap, not a store: the setter first changes something, then sets the latch; the thread that resets it and then
    /// finds nothing changed must not have wiped out that very `set`. One that was not set yet need not be: whatever is
    /// set later stays so.
    #[inline]
    pub(crate) fn reset(&self) {
        if self.state.load(Ordering::Relaxed).is_null() {
            return;
        }
        self.state.swap(
            ptr::null_mut(),
            order_at(Step::LatchResetAcquire, Ordering::AcqRel),
        );
    }

    /// Sets it, in place of its one waiter; no thread is woken. A swap for the same reason.
    pub(crate) fn leave_set(&self) {
        self.state.swap(set_mark(), Ordering::AcqRel);
    }

    /// Names `strand` as the one to wake; `false` if the latch is already set.
    pub(crate) fn register(&self, strand: &Strand, wake: Wake) -> bool {
        let mut name = ptr::from_ref(strand).cast_mut();
        if wake == Wake::ByNotice {
            name = name.map_addr(|address| address | NOTICE_BIT);
        }
        if left_out(Step::LatchRegisterCheck) {
            self.state.swap(name, Ordering::AcqRel);
            return true;
        }
        match self.state.compare_exchange(
            ptr::null_mut(),
            name,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => true,
            Err(seen) => {
                debug_assert!(seen == set_mark() || seen == name, "two waiters on a latch");
                seen == name
            }
        }
    }

    /// Sets the latch and wakes the waiter, if there is one.
    ///
    /// # Safety
    /// `this` is alive until this call changes it (afterwards it may be gone), and the waiter's pool
    /// stays alive during the call.
    pub(crate) unsafe fn set(this: *const Latch) {
        let order = order_at(Step::LatchSetRelease, Ordering::AcqRel);
        // SAFETY: alive by contract up to and including the swap.
        let before = unsafe { (*this).state.swap(set_mark(), order) };
        if before.is_null() || before == set_mark() {
            return;
        }
        let wake = if before.addr() & NOTICE_BIT != 0 {
            Wake::ByNotice
        } else {
            Wake::ByMail
        };
        let strand = before.map_addr(|address| address & !NOTICE_BIT);
        // SAFETY: fibers live as long as their pool, which is alive by contract; the waiter is woken
        // once, since only one swap sees its name.
        unsafe { (*strand).wake(wake) };
    }
}

/// The latch that a thread waits for that is no worker.
pub(crate) struct ThreadLatch {
    state: Futex,
}

const UNSET: u32 = 0;
const WAITING: u32 = 1;
const SET: u32 = 2;

impl ThreadLatch {
    pub(crate) fn new() -> ThreadLatch {
        ThreadLatch {
            state: Futex::new(UNSET),
        }
    }

    /// Makes it as new. Only for the one who waits for it; as [`Latch::reset`].
    pub(crate) fn reset(&self) {
        self.state.word().swap(UNSET, Ordering::AcqRel);
    }

    /// Sets it, in place of its one waiter; no thread is woken.
    pub(crate) fn leave_set(&self) {
        self.state.word().swap(SET, Ordering::AcqRel);
    }

    /// Sets the latch.
    ///
    /// # Safety
    /// `this` is alive until this call changes it.
    pub(crate) unsafe fn set(this: *const ThreadLatch) {
        // SAFETY: alive by contract.
        let before = unsafe { (*this).state.word().swap(SET, Ordering::AcqRel) };
        if before == WAITING {
            // SAFETY: only the address is computed here, and `wake_one` only uses the address.
            Futex::wake_one(unsafe { &raw const (*this).state });
        }
    }

    /// Sleeps until the latch is set. Does not unwind: others may know the latch, and with it the caller's frame. Who must
    /// not sleep here is refused before that, by [`refuse_to_sleep`](crate::sim::refuse_to_sleep).
    pub(crate) fn wait(&self) {
        before_sleep();
        let word = self.state.word();
        if left_out(Step::ThreadLatchCheck) {
            word.swap(WAITING, Ordering::AcqRel);
        } else {
            let _ = word.compare_exchange(UNSET, WAITING, Ordering::Acquire, Ordering::Acquire);
        }
        while word.load(Ordering::Acquire) != SET {
            self.state.wait(WAITING);
        }
    }
}

#[cfg(all(test, loom))]
#[path = "latch_models.rs"]
pub(crate) mod models;
