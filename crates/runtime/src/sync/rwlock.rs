//! A lock that many readers can hold at the same time, or one writer.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll};

use jobtree_tree::{Cancelled, WaitingFor};

use crate::current::checkpoint;
use crate::sync::permits::{Permits, Taking};
use crate::withdraw::{OrCancelled, wait_for};

/// The number of permits. A reader takes one of them, a writer all.
const ALL: usize = usize::MAX;

/// A value that many may read at the same time, or one may change.
///
/// As with a [`Mutex`](crate::sync::Mutex), waiting parks the stack of a job and ends when the job is cancelled, and a guard may
/// be held over waiting of any kind. Those who wait get the lock in the order in which they came: readers that come after a
/// writer wait for it, so none of them starves. A panic while it is held just releases it.
///
/// Who holds it and waits for it once more may wait for itself: a reader, too, if a writer came in between.
///
/// ```
/// use jobtree_runtime::{nursery, sync::RwLock};
///
/// let prices = RwLock::new(vec![3, 4]);
/// nursery(|n| {
///     n.launch(|| {
///         prices.write()?.push(5);
///         Ok(())
///     });
///     for _ in 0..3 {
///         n.launch(|| {
///             let prices = prices.read()?;
///             assert!(prices.iter().sum::<i32>() >= 7);
///             Ok(())
///         });
///     }
///     Ok(())
/// })?;
/// assert_eq!(prices.into_inner(), [3, 4, 5]);
/// # Ok::<(), jobtree_runtime::JobError>(())
/// ```
pub struct RwLock<T: ?Sized> {
    permits: Permits,
    value: UnsafeCell<T>,
}

// SAFETY: the value goes to one writer at a time, on any thread.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: as above; and readers on several threads share the value.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

impl<T> RwLock<T> {
    /// Makes a lock that nobody holds.
    pub fn new(value: T) -> RwLock<T> {
        RwLock {
            permits: Permits::new(ALL),
            value: UnsafeCell::new(value),
        }
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until no writer holds the lock or has waited for longer.
    ///
    /// # Errors
    /// If the current job is cancelled; even if the lock is free.
    #[inline]
    pub fn read(&self) -> Result<RwLockReadGuard<'_, T>, Cancelled> {
        self.take(1)?;
        Ok(RwLockReadGuard { lock: self })
    }

    /// Waits until nobody holds the lock or has waited for longer.
    ///
    /// # Errors
    /// If the current job is cancelled; even if the lock is free.
    #[inline]
    pub fn write(&self) -> Result<RwLockWriteGuard<'_, T>, Cancelled> {
        self.take(ALL)?;
        Ok(RwLockWriteGuard { lock: self })
    }

    #[inline]
    fn take(&self, wanted: usize) -> Result<(), Cancelled> {
        checkpoint()?;
        if self.permits.try_take(wanted).is_err() {
            wait_for(Taking::new(&self.permits, wanted), WaitingFor::Lock)?;
        }
        Ok(())
    }

    /// Takes the lock for reading, if that needs no waiting. It does not look whether the current job is cancelled.
    ///
    /// ```
    /// let lock = jobtree_runtime::sync::RwLock::new(1);
    /// let one = lock.try_read().unwrap();
    /// let other = lock.try_read().unwrap();
    /// assert!(lock.try_write().is_none());
    /// drop((one, other));
    /// *lock.try_write().unwrap() += 1;
    /// assert_eq!(lock.into_inner(), 2);
    /// ```
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.permits.try_take(1).ok()?;
        Some(RwLockReadGuard { lock: self })
    }

    /// Takes the lock for writing, if nobody holds it. It does not look whether the current job is cancelled.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.permits.try_take(ALL).ok()?;
        Some(RwLockWriteGuard { lock: self })
    }

    /// Waits for the lock for reading as a future does it. Dropped before it is ready, it has not locked.
    ///
    /// ```
    /// use jobtree_runtime::{block_on, sync::RwLock};
    ///
    /// let lock = RwLock::new(1);
    /// block_on(async {
    ///     *lock.write_async().await? += 1;
    ///     assert_eq!(*lock.read_async().await?, 2);
    ///     Ok::<(), jobtree_runtime::Cancelled>(())
    /// })??;
    /// # Ok::<(), jobtree_runtime::Cancelled>(())
    /// ```
    ///
    /// # Errors
    /// As [`read`](RwLock::read).
    pub fn read_async(&self) -> Reading<'_, T> {
        Reading {
            lock: self,
            taking: OrCancelled::new(Taking::new(&self.permits, 1)),
        }
    }

    /// Waits for the lock for writing as a future does it. Dropped before it is ready, it has not locked.
    ///
    /// # Errors
    /// As [`write`](RwLock::write).
    pub fn write_async(&self) -> Writing<'_, T> {
        Writing {
            lock: self,
            taking: OrCancelled::new(Taking::new(&self.permits, ALL)),
        }
    }

    /// Returns the value, without a lock: nobody else can have it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Returns the address of the value, which only holders of the lock may follow.
    pub(crate) fn value(&self) -> *mut T {
        self.value.get()
    }

    /// Gives back a lock that was taken for reading.
    pub(crate) fn unlock_reader(&self) {
        self.permits.give(1);
    }

    /// Gives back a lock that was taken for writing.
    pub(crate) fn unlock_writer(&self) {
        self.permits.give(ALL);
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> RwLock<T> {
        RwLock::new(T::default())
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> RwLock<T> {
        RwLock::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("RwLock");
        match self.try_read() {
            Some(guard) => debug.field("value", &&*guard),
            None => debug.field("value", &format_args!("<locked>")),
        };
        debug.finish()
    }
}

/// The right to read the value of a [`RwLock`], until this is dropped. It may go to another thread.
#[must_use = "dropping it unlocks"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
}

/// The right to change the value of a [`RwLock`], until this is dropped. It may go to another thread.
#[must_use = "dropping it unlocks"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
}

// SAFETY: the guard lends the value, and the lock belongs to no thread.
unsafe impl<T: ?Sized + Sync> Sync for RwLockReadGuard<'_, T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Send for RwLockReadGuard<'_, T> {}
// SAFETY: a shared guard lends the value.
unsafe impl<T: ?Sized + Sync> Sync for RwLockWriteGuard<'_, T> {}
// SAFETY: the lock belongs to no thread; the guard is the right to the value.
unsafe impl<T: ?Sized + Send> Send for RwLockWriteGuard<'_, T> {}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: as long as there is a guard for reading, there is none for writing.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this is the only guard.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only guard, and it is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.permits.give(1);
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.permits.give(ALL);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Waiting for a lock for reading as a future; see [`RwLock::read_async`].
#[must_use = "nothing is locked unless it is awaited"]
pub struct Reading<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    taking: OrCancelled<Taking<'a>>,
}

/// Waiting for a lock for writing as a future; see [`RwLock::write_async`].
#[must_use = "nothing is locked unless it is awaited"]
pub struct Writing<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    taking: OrCancelled<Taking<'a>>,
}

impl<'a, T: ?Sized> Future for Reading<'a, T> {
    type Output = Result<RwLockReadGuard<'a, T>, Cancelled>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let lock = self.lock;
        // SAFETY: the field is pinned with the whole.
        let taking = unsafe { self.map_unchecked_mut(|this| &mut this.taking) };
        // Nobody closes the permits of a lock, so whatever comes of it is the lock.
        taking
            .poll(context)
            .map(|result| result.map(|_| RwLockReadGuard { lock }))
    }
}

impl<'a, T: ?Sized> Future for Writing<'a, T> {
    type Output = Result<RwLockWriteGuard<'a, T>, Cancelled>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let lock = self.lock;
        // SAFETY: the field is pinned with the whole.
        let taking = unsafe { self.map_unchecked_mut(|this| &mut this.taking) };
        // Nobody closes the permits of a lock, so whatever comes of it is the lock.
        taking
            .poll(context)
            .map(|result| result.map(|_| RwLockWriteGuard { lock }))
    }
}

impl<T: ?Sized> fmt::Debug for Reading<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").finish_non_exhaustive()
    }
}

impl<T: ?Sized> fmt::Debug for Writing<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writing").finish_non_exhaustive()
    }
}
