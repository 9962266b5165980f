//! Atomics, the lock and guarded memory, so that the same code runs on the machine and under loom.

#[cfg(not(loom))]
mod real {
    pub(crate) use std::cell::UnsafeCell;
    pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

    pub(crate) fn spin_pause() {
        std::hint::spin_loop();
    }

    pub(crate) fn give_way() {
        std::thread::yield_now();
    }

    /// Returns `true` if destructors must leave everything as it is.
    #[inline(always)]
    pub(crate) fn model_has_failed() -> bool {
        false
    }
}

#[cfg(loom)]
mod real {
    pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

    /// Under loom a spinning thread must let others run, or the model never ends.
    pub(crate) fn spin_pause() {
        loom::thread::yield_now();
    }

    pub(crate) fn give_way() {
        loom::thread::yield_now();
    }

    /// A model that fails unwinds: destructors that went on with it would panic again, and hide what failed.
    pub(crate) fn model_has_failed() -> bool {
        std::thread::panicking()
    }

    /// The cell whose accesses loom orders; looked at when a pointer to it is asked for.
    pub(crate) struct UnsafeCell<T>(loom::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell(loom::cell::UnsafeCell::new(value))
        }

        pub(crate) fn get(&self) -> *mut T {
            self.0.with_mut(|pointer| pointer)
        }
    }
}

pub(crate) use real::*;

use crate::step::{Step, left_out};

/// A lock for a few instructions: a word, so that a job stays small. It is held over no call of anybody
/// else's code.
pub struct SpinLock(AtomicU32);

/// Pauses before the thread gives way: who holds the lock may have been interrupted.
const PAUSES: u32 = 64;

impl SpinLock {
    /// A lock that no thread holds.
    #[expect(
        clippy::new_without_default,
        reason = "loom's words cannot be made anywhere"
    )]
    pub fn new() -> SpinLock {
        SpinLock(AtomicU32::new(0))
    }

    /// Returns when the caller holds it.
    #[inline]
    pub fn acquire(&self) {
        if left_out(Step::Lock) {
            return;
        }
        if !self.try_acquire() {
            self.acquire_slowly();
        }
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        self.0
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn acquire_slowly(&self) {
        let mut pauses = 0;
        while self.0.load(Ordering::Relaxed) != 0 || !self.try_acquire() {
            if pauses < PAUSES {
                pauses += 1;
                spin_pause();
            } else {
                give_way();
            }
        }
    }

    /// Must follow [`SpinLock::acquire`] on the same thread.
    #[inline]
    pub fn release(&self) {
        self.0.store(0, Ordering::Release);
    }
}
