//! A number of permits, for as many as may do something at the same time.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use jobtree_tree::{Cancelled, WaitingFor};

use crate::current::checkpoint;
use crate::sync::permits::{NoPermits, Permits, Taking};
use crate::withdraw::{OrCancelled, wait_for};

/// Permits that are taken and given back.
///
/// Those who wait get theirs in the order in which they came; who wants many is not passed by those who want few. Waiting
/// parks the stack of a job, and ends when the job is cancelled.
///
/// ```
/// use jobtree_runtime::{nursery, sync::Semaphore};
///
/// let connections = Semaphore::new(2);
/// nursery(|n| {
///     for _ in 0..10 {
///         n.launch(|| {
///             let _permit = connections.acquire(1)?;
///             // At most two at a time.
///             Ok(())
///         });
///     }
///     Ok(())
/// })?;
/// assert_eq!(connections.available(), 2);
/// # Ok::<(), jobtree_runtime::JobError>(())
/// ```
pub struct Semaphore {
    permits: Permits,
}

impl Semaphore {
    /// A semaphore with so many permits.
    pub fn new(permits: usize) -> Semaphore {
        Semaphore {
            permits: Permits::new(permits),
        }
    }

    /// Takes `count` permits, and waits until there are so many. More than there will ever be are waited for for ever.
    ///
    /// # Errors
    /// If the semaphore is closed, or the current job cancelled.
    #[inline]
    pub fn acquire(&self, count: usize) -> Result<Permit<'_>, AcquireError> {
        checkpoint().map_err(AcquireError::Cancelled)?;
        match self.permits.try_take(count) {
            Ok(()) => Ok(self.permit(count)),
            Err(NoPermits::Closed) => Err(AcquireError::Closed),
            Err(NoPermits::Taken) => self.wait(count),
        }
    }

    #[cold]
    fn wait(&self, count: usize) -> Result<Permit<'_>, AcquireError> {
        match wait_for(Taking::new(&self.permits, count), WaitingFor::Lock) {
            Ok(true) => Ok(self.permit(count)),
            Ok(false) => Err(AcquireError::Closed),
            Err(cancelled) => Err(AcquireError::Cancelled(cancelled)),
        }
    }

    /// Takes `count` permits if nobody has to wait for that. It does not look whether the current job is cancelled.
    ///
    /// ```
    /// use jobtree_runtime::sync::{Semaphore, TryAcquireError};
    ///
    /// let semaphore = Semaphore::new(3);
    /// let two = semaphore.try_acquire(2)?;
    /// assert_eq!(semaphore.try_acquire(2).unwrap_err(), TryAcquireError::NoPermits);
    /// drop(two);
    /// assert!(semaphore.try_acquire(3).is_ok());
    /// # Ok::<(), TryAcquireError>(())
    /// ```
    ///
    /// # Errors
    /// If there are not enough, others wait already, or the semaphore is closed.
    #[inline]
    pub fn try_acquire(&self, count: usize) -> Result<Permit<'_>, TryAcquireError> {
        match self.permits.try_take(count) {
            Ok(()) => Ok(self.permit(count)),
            Err(NoPermits::Taken) => Err(TryAcquireError::NoPermits),
            Err(NoPermits::Closed) => Err(TryAcquireError::Closed),
        }
    }

    /// Takes `count` permits as a future does it. Dropped before it is ready, it has taken none.
    ///
    /// # Errors
    /// As [`acquire`](Semaphore::acquire).
    pub fn acquire_async(&self, count: usize) -> Acquiring<'_> {
        Acquiring {
            semaphore: self,
            count,
            taking: OrCancelled::new(Taking::new(&self.permits, count)),
        }
    }

    /// Gives back permits that were taken.
    pub(crate) fn give_back(&self, count: usize) {
        self.permits.give(count);
    }

    /// Counts permits that were taken as gone for ever.
    pub(crate) fn forget_permits(&self, count: usize) {
        self.permits.forget(count);
    }

    fn permit(&self, count: usize) -> Permit<'_> {
        Permit {
            semaphore: self,
            count,
        }
    }

    /// Makes so many new permits.
    ///
    /// # Panics
    /// If there would be more than `usize::MAX`, together with those that were acquired and will come back. Nothing is changed
    /// then.
    pub fn add_permits(&self, count: usize) {
        self.permits.add(count);
    }

    /// How many permits are free.
    pub fn available(&self) -> usize {
        self.permits.free()
    }

    /// How many wait for permits.
    pub fn waiting(&self) -> usize {
        self.permits.waiting()
    }

    /// Nobody gets permits any more, and those who wait are told so; `false` if it was closed before.
    pub fn close(&self) -> bool {
        self.permits.close()
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.permits.is_closed()
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("available", &self.available())
            .field("waiting", &self.waiting())
            .field("is_closed", &self.is_closed())
            .finish()
    }
}

/// Permits of a [`Semaphore`], given back when this is dropped.
#[derive(Debug)]
#[must_use = "dropping it gives the permits back"]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
    count: usize,
}

impl Permit<'_> {
    /// How many.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Does not give them back: they are gone, until somebody [adds](Semaphore::add_permits) others.
    pub fn forget(mut self) {
        self.semaphore.permits.forget(self.count);
        self.count = 0;
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if self.count > 0 {
            self.semaphore.permits.give(self.count);
        }
    }
}

/// Waiting for permits as a future; see [`Semaphore::acquire_async`].
#[must_use = "nothing is acquired unless it is awaited"]
pub struct Acquiring<'a> {
    semaphore: &'a Semaphore,
    count: usize,
    taking: OrCancelled<Taking<'a>>,
}

impl<'a> Future for Acquiring<'a> {
    type Output = Result<Permit<'a>, AcquireError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (semaphore, count) = (self.semaphore, self.count);
        // SAFETY: the field is pinned with the whole.
        let taking = unsafe { self.map_unchecked_mut(|this| &mut this.taking) };
        taking.poll(context).map(|result| match result {
            Ok(true) => Ok(semaphore.permit(count)),
            Ok(false) => Err(AcquireError::Closed),
            Err(cancelled) => Err(AcquireError::Cancelled(cancelled)),
        })
    }
}

impl fmt::Debug for Acquiring<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquiring")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// Why [`Semaphore::acquire`] gave no permits.
#[derive(Clone, Debug)]
pub enum AcquireError {
    /// The semaphore is closed.
    Closed,
    /// The current job was cancelled.
    Cancelled(Cancelled),
}

/// Why [`Semaphore::try_acquire`] gave no permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryAcquireError {
    /// There are not enough at the moment.
    NoPermits,
    /// The semaphore is closed.
    Closed,
}

const CLOSED: &str = "the semaphore is closed and gives no permits any more";

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcquireError::Closed => f.write_str(CLOSED),
            AcquireError::Cancelled(cancelled) => write!(f, "no permits: {cancelled}"),
        }
    }
}

impl fmt::Display for TryAcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryAcquireError::NoPermits => {
                f.write_str("not enough permits now; try again, or wait with `acquire`")
            }
            TryAcquireError::Closed => f.write_str(CLOSED),
        }
    }
}

impl Error for AcquireError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            AcquireError::Cancelled(cancelled) => Some(cancelled),
            AcquireError::Closed => None,
        }
    }
}

impl Error for TryAcquireError {}
