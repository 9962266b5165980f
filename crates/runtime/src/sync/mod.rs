//! Locks, permits, notifications and barriers for jobs: a job that waits parks its stack, not its thread, and stops waiting
//! when it is cancelled.
//!
//! They work as well on threads that run no job, and in futures on any executor by the `_async` forms.

mod barrier;
#[cfg(all(test, loom))]
mod models;
mod mutex;
mod notify;
mod owned;
pub(crate) mod permits;
mod rwlock;
mod semaphore;

pub use barrier::{Arrival, Barrier, BarrierWait};
pub use mutex::{Locking, Mutex, MutexGuard};
pub use notify::{Notified, Notify};
pub use owned::{OwnedMutexGuard, OwnedPermit, OwnedRwLockReadGuard, OwnedRwLockWriteGuard};
pub use rwlock::{Reading, RwLock, RwLockReadGuard, RwLockWriteGuard, Writing};
pub use semaphore::{AcquireError, Acquiring, Permit, Semaphore, TryAcquireError};
