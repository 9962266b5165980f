//! Atomics, guarded memory and the lock of channels, so that the same code runs on the machine and under loom.

use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};

use jobtree_tree::raw::SpinLock;

#[cfg(not(loom))]
mod real {
    pub(crate) use std::cell::UnsafeCell;
    pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};
    pub(crate) use std::sync::{Mutex, MutexGuard};

    /// Whether destructors must leave everything as it is.
    #[inline(always)]
    pub(crate) fn model_has_failed() -> bool {
        false
    }
}

#[cfg(loom)]
mod real {
    pub(crate) use loom::sync::RwLockWriteGuard as MutexGuard;
    pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};
    use std::sync::LockResult;

    /// loom's own mutex, 0.7.2, prints a line whenever it is locked, millions in a model. Its lock for writers does not,
    /// and is a mutex if nobody reads.
    pub(crate) struct Mutex<T>(loom::sync::RwLock<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::RwLock::new(value))
        }

        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            self.0.write()
        }
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

/// A state behind a lock for a few instructions. While it is held, nobody else's code is called: no destructor, no
/// waker.
///
/// The lock can also be taken without the state, by those who need several at once; see [`Guarded::lock_word`].
pub(crate) struct Guarded<S> {
    lock: SpinLock,
    state: UnsafeCell<S>,
}

// SAFETY: the state is reached only by whoever holds the lock.
unsafe impl<S: Send> Sync for Guarded<S> {}

// Nothing that is done under the lock panics half-way.
impl<S> UnwindSafe for Guarded<S> {}
impl<S> RefUnwindSafe for Guarded<S> {}

impl<S> Guarded<S> {
    pub(crate) fn new(state: S) -> Guarded<S> {
        Guarded {
            lock: SpinLock::new(),
            state: UnsafeCell::new(state),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Held<'_, S> {
        self.lock.acquire();
        Held { guarded: self }
    }

    /// The lock alone. Several are taken in the order of their addresses.
    pub(crate) fn lock_word(&self) -> &SpinLock {
        &self.lock
    }

    /// # Safety
    /// The caller holds the lock, and uses the reference only as long, with no other beside it.
    #[expect(clippy::mut_from_ref, reason = "the lock makes it unique")]
    pub(crate) unsafe fn state_while_held(&self) -> &mut S {
        // SAFETY: by contract.
        unsafe { &mut *self.state.get() }
    }
}

/// The state while the lock is held.
pub(crate) struct Held<'a, S> {
    guarded: &'a Guarded<S>,
}

impl<S> Deref for Held<'_, S> {
    type Target = S;

    #[inline]
    fn deref(&self) -> &S {
        // SAFETY: we hold the lock.
        unsafe { &*self.guarded.state.get() }
    }
}

impl<S> DerefMut for Held<'_, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut S {
        // SAFETY: we hold the lock, and this is the only way to the state.
        unsafe { &mut *self.guarded.state.get() }
    }
}

impl<S> Drop for Held<'_, S> {
    #[inline]
    fn drop(&mut self) {
        if !model_has_failed() {
            self.guarded.lock.release();
        }
    }
}
