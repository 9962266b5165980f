//! A runtime's clock, for those who keep time by it and do not keep the runtime.

use std::fmt;
use std::pin::pin;
use std::time::{Duration, Instant};

use jobtree_tree::{Cancelled, WaitingFor};

use crate::block::{Either, FirstOf, unless_cancelled, until_ready_or_unwound};
use crate::deadline::Sleep;
use crate::timers::Timers;

/// The clock of a [`Runtime`](crate::Runtime): in a simulation it stands still until nobody can do anything. When the
/// runtime has gone it still tells the time, but nobody is woken by it.
///
/// ```
/// use std::time::Duration;
/// use jobtree_runtime::Runtime;
///
/// let clock = Runtime::global().clock();
/// let began = clock.now();
/// let never = std::future::pending::<()>();
/// assert_eq!(clock.wait_at_most(Duration::from_millis(1), never)?, None);
/// assert!(clock.now() - began >= Duration::from_millis(1));
/// # Ok::<(), jobtree_runtime::Cancelled>(())
/// ```
#[derive(Clone)]
pub struct Clock {
    timers: Timers,
}

impl Clock {
    pub(crate) fn new(timers: Timers) -> Clock {
        Clock { timers }
    }

    /// The time.
    #[inline]
    pub fn now(&self) -> Instant {
        self.timers.now()
    }

    /// The time as a number: nanoseconds since some moment in the past. Cheaper than [`now`](Clock::now).
    #[inline]
    pub fn nanos(&self) -> u64 {
        self.timers.nanos()
    }

    /// Waits for a future, but no longer than `limit`; `None` if that was over first. The stack of a job is parked
    /// meanwhile. The future is polled on the calling thread, in whatever job the caller is in.
    ///
    /// # Errors
    /// If the current job is cancelled first.
    pub fn wait_at_most<F: Future>(
        &self,
        limit: Duration,
        future: F,
    ) -> Result<Option<F::Output>, Cancelled> {
        let patience = Sleep::new(self.timers.clone(), limit);
        unless_cancelled(FirstOf(future, patience), WaitingFor::Future).map(first)
    }

    /// A future that is ready after `duration`, by this clock, wherever it is polled.
    ///
    /// ```
    /// use std::time::Duration;
    /// use jobtree_runtime::{Runtime, block_on};
    ///
    /// let clock = Runtime::global().clock();
    /// let began = clock.now();
    /// block_on(clock.sleep(Duration::from_millis(1)))?;
    /// assert!(clock.now() - began >= Duration::from_millis(1));
    /// # Ok::<(), jobtree_runtime::Cancelled>(())
    /// ```
    pub fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + use<> {
        Sleep::new(self.timers.clone(), duration)
    }

    /// [`wait_at_most`](Clock::wait_at_most), even if the current job is cancelled: for the end of things.
    pub fn wait_regardless<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        let patience = Sleep::new(self.timers.clone(), limit);
        first(until_ready_or_unwound(pin!(FirstOf(future, patience))))
    }
}

fn first<T>(either: Either<T, ()>) -> Option<T> {
    match either {
        Either::First(output) => Some(output),
        Either::Second(()) => None,
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("now", &self.now()).finish()
    }
}
