//! Locks and permits for jobs: who waits parks its stack, not its thread, and stops waiting when it is cancelled.
//!
//! They work as well on threads that run no job, and in futures on any executor by the `_async` forms.

mod mutex;
mod permits;
mod semaphore;

pub use mutex::{Locking, Mutex, MutexGuard};
pub use semaphore::{AcquireError, Acquiring, Permit, Semaphore, TryAcquireError};
