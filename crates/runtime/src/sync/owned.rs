//! Permits and locks that keep what they belong to: for tasks and structures that borrow nothing.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use jobtree_tree::Cancelled;

use crate::sync::{AcquireError, Mutex, RwLock, Semaphore, TryAcquireError};

/// Permits of a [`Semaphore`] in an [`Arc`], given back when this is dropped; see [`Semaphore::acquire_owned`].
#[derive(Debug)]
#[must_use = "dropping it gives the permits back"]
pub struct OwnedPermit {
    semaphore: Arc<Semaphore>,
    count: usize,
}

impl Semaphore {
    /// Takes `count` permits as [`acquire`](Semaphore::acquire) does; what is returned keeps the semaphore.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use jobtree_runtime::{Runtime, sync::Semaphore};
    ///
    /// let downloads = Arc::new(Semaphore::new(4));
    /// let permit = downloads.acquire_owned(1)?;
    /// let job = Runtime::global().spawn(move || {
    ///     let _permit = permit;
    ///     Ok("done")
    /// });
    /// job.join()?;
    /// assert_eq!(downloads.available(), 4);
    /// # Ok::<(), jobtree_runtime::BoxError>(())
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Semaphore::acquire).
    pub fn acquire_owned(self: &Arc<Self>, count: usize) -> Result<OwnedPermit, AcquireError> {
        self.acquire(count).map(ManuallyDrop::new)?;
        Ok(self.owned_permit(count))
    }

    /// Takes `count` permits as [`try_acquire`](Semaphore::try_acquire) does; what is returned keeps the semaphore.
    ///
    /// # Errors
    /// As [`try_acquire`](Semaphore::try_acquire).
    pub fn try_acquire_owned(
        self: &Arc<Self>,
        count: usize,
    ) -> Result<OwnedPermit, TryAcquireError> {
        self.try_acquire(count).map(ManuallyDrop::new)?;
        Ok(self.owned_permit(count))
    }

    /// Takes `count` permits as [`acquire_async`](Semaphore::acquire_async) does; what the future gives keeps the semaphore.
    ///
    /// # Errors
    /// As [`acquire`](Semaphore::acquire).
    pub async fn acquire_owned_async(
        self: Arc<Self>,
        count: usize,
    ) -> Result<OwnedPermit, AcquireError> {
        self.acquire_async(count).await.map(ManuallyDrop::new)?;
        Ok(self.owned_permit(count))
    }

    /// The owner of permits that were taken and not given back.
    fn owned_permit(self: &Arc<Self>, count: usize) -> OwnedPermit {
        OwnedPermit {
            semaphore: self.clone(),
            count,
        }
    }
}

impl OwnedPermit {
    /// Returns the number of permits.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Does not give them back: they are gone, until others are [added](Semaphore::add_permits).
    pub fn forget(mut self) {
        self.semaphore.forget_permits(self.count);
        self.count = 0;
    }
}

impl Drop for OwnedPermit {
    fn drop(&mut self) {
        if self.count > 0 {
            self.semaphore.give_back(self.count);
        }
    }
}

/// Defines a guard that keeps its lock. `$unlock` is called with the lock when the guard is dropped.
macro_rules! owned_guard {
    ($(#[$doc:meta])* $guard:ident of $lock:ident, $send:ident, $unlock:ident) => {
        $(#[$doc])*
        #[must_use = "dropping it unlocks"]
        pub struct $guard<T: ?Sized> {
            lock: Arc<$lock<T>>,
        }

        // SAFETY: a shared guard lends the value.
        unsafe impl<T: ?Sized + Send + Sync> Sync for $guard<T> {}
        // SAFETY: the lock belongs to no thread; the guard is a right to the value, and may be the last owner of it.
        unsafe impl<T: ?Sized + Send + $send> Send for $guard<T> {}

        impl<T: ?Sized> Deref for $guard<T> {
            type Target = T;

            fn deref(&self) -> &T {
                // SAFETY: the guard has the lock.
                unsafe { &*self.lock.value() }
            }
        }

        impl<T: ?Sized> Drop for $guard<T> {
            fn drop(&mut self) {
                self.lock.$unlock();
            }
        }

        impl<T: ?Sized + fmt::Debug> fmt::Debug for $guard<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }
    };
}

owned_guard! {
    /// The right to use the value of a [`Mutex`] in an [`Arc`]; see [`Mutex::lock_owned`].
    OwnedMutexGuard of Mutex, Send, unlock
}
owned_guard! {
    /// The right to read the value of a [`RwLock`] in an [`Arc`]; see [`RwLock::read_owned`].
    OwnedRwLockReadGuard of RwLock, Sync, unlock_reader
}
owned_guard! {
    /// The right to change the value of a [`RwLock`] in an [`Arc`]; see [`RwLock::write_owned`].
    OwnedRwLockWriteGuard of RwLock, Send, unlock_writer
}

impl<T: ?Sized> DerefMut for OwnedMutexGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard has the lock, and is the only one.
        unsafe { &mut *self.lock.value() }
    }
}

impl<T: ?Sized> DerefMut for OwnedRwLockWriteGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only guard, and it is borrowed mutably.
        unsafe { &mut *self.lock.value() }
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock as [`lock`](Mutex::lock) does; what is returned keeps the mutex.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use jobtree_runtime::{Runtime, sync::Mutex};
    ///
    /// let total = Arc::new(Mutex::new(1));
    /// let mut guard = total.lock_owned()?;
    /// let job = Runtime::global().spawn(move || {
    ///     *guard += 1;
    ///     Ok(())
    /// });
    /// job.join()?;
    /// assert_eq!(*total.lock()?, 2);
    /// # Ok::<(), jobtree_runtime::BoxError>(())
    /// ```
    ///
    /// # Errors
    /// As [`lock`](Mutex::lock).
    pub fn lock_owned(self: &Arc<Self>) -> Result<OwnedMutexGuard<T>, Cancelled> {
        self.lock().map(ManuallyDrop::new)?;
        Ok(OwnedMutexGuard { lock: self.clone() })
    }

    /// Takes the lock if it is free, as [`try_lock`](Mutex::try_lock) does; what is returned keeps the mutex.
    pub fn try_lock_owned(self: &Arc<Self>) -> Option<OwnedMutexGuard<T>> {
        self.try_lock().map(ManuallyDrop::new)?;
        Some(OwnedMutexGuard { lock: self.clone() })
    }

    /// Waits for the lock as [`lock_async`](Mutex::lock_async) does; what the future gives keeps the mutex.
    ///
    /// # Errors
    /// As [`lock`](Mutex::lock).
    pub async fn lock_owned_async(self: Arc<Self>) -> Result<OwnedMutexGuard<T>, Cancelled> {
        self.lock_async().await.map(ManuallyDrop::new)?;
        Ok(OwnedMutexGuard { lock: self })
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits for the lock as [`read`](RwLock::read) does; what is returned keeps it.
    ///
    /// # Errors
    /// As [`read`](RwLock::read).
    pub fn read_owned(self: &Arc<Self>) -> Result<OwnedRwLockReadGuard<T>, Cancelled> {
        self.read().map(ManuallyDrop::new)?;
        Ok(OwnedRwLockReadGuard { lock: self.clone() })
    }

    /// Waits for the lock as [`write`](RwLock::write) does; what is returned keeps it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use jobtree_runtime::sync::RwLock;
    ///
    /// let prices = Arc::new(RwLock::new(vec![1]));
    /// let mut writing = prices.write_owned()?;
    /// assert!(prices.try_read().is_none());
    /// writing.push(2);
    /// drop(writing);
    /// assert_eq!(*prices.read_owned()?, [1, 2]);
    /// # Ok::<(), jobtree_runtime::Cancelled>(())
    /// ```
    ///
    /// # Errors
    /// As [`write`](RwLock::write).
    pub fn write_owned(self: &Arc<Self>) -> Result<OwnedRwLockWriteGuard<T>, Cancelled> {
        self.write().map(ManuallyDrop::new)?;
        Ok(OwnedRwLockWriteGuard { lock: self.clone() })
    }

    /// Waits for the lock as [`read_async`](RwLock::read_async) does; what the future gives keeps it.
    ///
    /// # Errors
    /// As [`read`](RwLock::read).
    pub async fn read_owned_async(self: Arc<Self>) -> Result<OwnedRwLockReadGuard<T>, Cancelled> {
        self.read_async().await.map(ManuallyDrop::new)?;
        Ok(OwnedRwLockReadGuard { lock: self })
    }

    /// Waits for the lock as [`write_async`](RwLock::write_async) does; what the future gives keeps it.
    ///
    /// # Errors
    /// As [`write`](RwLock::write).
    pub async fn write_owned_async(self: Arc<Self>) -> Result<OwnedRwLockWriteGuard<T>, Cancelled> {
        self.write_async().await.map(ManuallyDrop::new)?;
        Ok(OwnedRwLockWriteGuard { lock: self })
    }
}
