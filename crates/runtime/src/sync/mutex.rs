//! A lock that jobs can hold while they wait for something else.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll};

use jobtree_tree::{Cancelled, WaitingFor};

use crate::current::checkpoint;
use crate::sync::permits::{Permits, Taking};
use crate::withdraw::{OrCancelled, wait_for};

/// A value that one at a time may use.
///
/// Unlike a lock of the standard library it parks the stack of a job that waits for it, and not its thread, and it may be
/// held over waiting of any kind. The wait ends when the job is cancelled. Those who wait get the lock in the order in which
/// they came, handed over by the one who had it; nobody else gets in between. That is fair, and has its price: a lock that
/// is fought over changes hands at the pace at which waiters are woken. A panic while it is held just releases it.
///
/// Who locks it twice in the same job waits for itself, until cancelled.
///
/// ```
/// use jobtree_runtime::{nursery, sync::Mutex};
///
/// let total = Mutex::new(0);
/// nursery(|n| {
///     for number in 1..=4 {
///         let total = &total;
///         n.launch(move || {
///             *total.lock()? += number;
///             Ok(())
///         });
///     }
///     Ok(())
/// })?;
/// assert_eq!(total.into_inner(), 10);
/// # Ok::<(), jobtree_runtime::JobError>(())
/// ```
pub struct Mutex<T: ?Sized> {
    /// One, or none while it is locked.
    permits: Permits,
    value: UnsafeCell<T>,
}

// SAFETY: the value goes to one at a time, on any thread.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// A lock that nobody holds.
    pub fn new(value: T) -> Mutex<T> {
        Mutex {
            permits: Permits::new(1),
            value: UnsafeCell::new(value),
        }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    ///
    /// # Errors
    /// If the current job is cancelled; even if the lock is free.
    #[inline]
    pub fn lock(&self) -> Result<MutexGuard<'_, T>, Cancelled> {
        checkpoint()?;
        if self.permits.try_take(1).is_err() {
            wait_for(Taking::new(&self.permits, 1), WaitingFor::Lock)?;
        }
        Ok(MutexGuard { mutex: self })
    }

    /// Takes the lock if it is free. It does not look whether the current job is cancelled.
    ///
    /// ```
    /// let mutex = jobtree_runtime::sync::Mutex::new(1);
    /// let guard = mutex.try_lock().unwrap();
    /// assert!(mutex.try_lock().is_none());
    /// drop(guard);
    /// assert!(mutex.try_lock().is_some());
    /// ```
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.permits.try_take(1).ok()?;
        Some(MutexGuard { mutex: self })
    }

    /// Waits for the lock as a future does it. Dropped before it is ready, it has not locked.
    ///
    /// ```
    /// use jobtree_runtime::{block_on, sync::Mutex};
    ///
    /// let mutex = Mutex::new(1);
    /// block_on(async {
    ///     *mutex.lock_async().await? += 1;
    ///     Ok::<(), jobtree_runtime::Cancelled>(())
    /// })??;
    /// assert_eq!(mutex.into_inner(), 2);
    /// # Ok::<(), jobtree_runtime::Cancelled>(())
    /// ```
    ///
    /// # Errors
    /// As [`lock`](Mutex::lock).
    pub fn lock_async(&self) -> Locking<'_, T> {
        Locking {
            mutex: self,
            taking: OrCancelled::new(Taking::new(&self.permits, 1)),
        }
    }

    /// The value, without a lock: nobody else can have it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Whether somebody holds it, at this moment.
    pub fn is_locked(&self) -> bool {
        self.permits.free() == 0
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Returns the address of the value, which only the holder of the lock may follow.
    pub(crate) fn value(&self) -> *mut T {
        self.value.get()
    }

    /// Gives back a lock that was taken.
    pub(crate) fn unlock(&self) {
        self.permits.give(1);
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Mutex<T> {
        Mutex::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Mutex");
        match self.try_lock() {
            Some(guard) => debug.field("value", &&*guard),
            None => debug.field("value", &format_args!("<locked>")),
        };
        debug.finish()
    }
}

/// The right to use the value of a [`Mutex`], until this is dropped. It may go to another thread.
#[must_use = "dropping it unlocks"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
}

// SAFETY: a shared guard lends the value.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}
// SAFETY: the lock belongs to no thread; the guard is the right to the value.
unsafe impl<T: ?Sized + Send> Send for MutexGuard<'_, T> {}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: whoever has the guard has the lock.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: whoever has the guard has the lock, and this is the only guard.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.permits.give(1);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Waiting for a lock as a future; see [`Mutex::lock_async`].
#[must_use = "nothing is locked unless it is awaited"]
pub struct Locking<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    taking: OrCancelled<Taking<'a>>,
}

impl<'a, T: ?Sized> Future for Locking<'a, T> {
    type Output = Result<MutexGuard<'a, T>, Cancelled>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mutex = self.mutex;
        // SAFETY: the field is pinned with the whole.
        let taking = unsafe { self.map_unchecked_mut(|this| &mut this.taking) };
        // Nobody closes the permits of a lock, so whatever comes of it is the lock.
        taking
            .poll(context)
            .map(|result| result.map(|_| MutexGuard { mutex }))
    }
}

impl<T: ?Sized> fmt::Debug for Locking<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locking").finish_non_exhaustive()
    }
}
