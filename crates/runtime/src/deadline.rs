//! Time: limits on how long something may take, and waiting for a moment.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use jobtree_tree::{BoxError, Cancelled, JobOptions, Outcome, WaitingFor};

use crate::block::unless_cancelled;
use crate::inline;
use crate::runtime::{self, Inner};
use crate::timers::{Expiry, Timer, Timers};

/// Runs `body`, which is cancelled when `limit` is over.
///
/// The body and everything below it are asked to end; the call returns when they have. Of nested limits the nearest one
/// comes first, and only the call whose limit it was reports it as its own.
///
/// ```
/// use std::time::Duration;
/// use jobtree_runtime::{JobError, sleep, with_timeout};
///
/// let outcome = with_timeout(Duration::from_millis(1), || {
///     sleep(Duration::from_secs(3600))?;
///     Ok(())
/// });
/// assert!(matches!(outcome, Err(JobError::TimedOut(_))));
/// ```
///
/// # Errors
/// `TimedOut` if the limit was over before the body had ended, even if it still returned a value; else what the body
/// returned.
pub fn with_timeout<T>(limit: Duration, body: impl FnOnce() -> Result<T, BoxError>) -> Outcome<T> {
    let place = runtime::current();
    let deadline = place.runtime.timers.now().checked_add(limit);
    let options = match deadline {
        Some(deadline) => JobOptions::new().deadline(deadline),
        None => JobOptions::new(),
    };
    // An outer one that comes first ends this, too.
    let own = deadline.filter(|own| place.parent.deadline().is_none_or(|outer| *own < outer));
    inline::run(&place.parent, options, |job| {
        let _timer = own.map(|own| place.runtime.timers.add(own, Expiry::Cancel(job.clone())));
        let result = body();
        if own.is_some_and(|own| place.runtime.timers.now() >= own) {
            // The thread that keeps deadlines may be late; the limit is not.
            job.cancel(jobtree_tree::Cause::Timeout.into());
        }
        result
    })
}

/// Runs `body` so that a cancellation from above does not reach it, but from the moment of that cancellation on for no
/// longer than `limit`: for what must be put in order before one ends.
///
/// ```
/// use std::time::Duration;
/// use jobtree_runtime::{checkpoint, nursery, shield};
///
/// nursery(|n| {
///     n.cancel("enough");
///     assert!(checkpoint().is_err());
///     shield(Duration::from_secs(5), || {
///         checkpoint()?; // Fine: write the last state, close the file.
///         Ok(())
///     })?;
///     assert!(checkpoint().is_err());
///     Ok(())
/// })
/// .unwrap_err();
/// ```
///
/// # Errors
/// `TimedOut` if the limit was over; else what the body returned.
pub fn shield<T>(limit: Duration, body: impl FnOnce() -> Result<T, BoxError>) -> Outcome<T> {
    let place = runtime::current();
    let options = JobOptions::new().shielded().label("shield");
    inline::run(&place.parent, options, |job| {
        let (timers, shielded) = (place.runtime.timers.clone(), job.clone());
        let (keep_timer, timer) = std::sync::mpsc::channel::<Timer>();
        let callback = place.parent.on_cancel(move |_| {
            if let Some(end) = timers.now().checked_add(limit) {
                let _ = keep_timer.send(timers.add(end, Expiry::Cancel(shielded)));
            }
        });
        let result = body();
        drop(callback);
        drop(timer);
        result
    })
}

/// Waits for `duration`; the stack of a job is parked meanwhile.
///
/// ```
/// use std::time::Duration;
///
/// jobtree_runtime::sleep(Duration::from_millis(1))?;
/// # Ok::<(), jobtree_runtime::Cancelled>(())
/// ```
///
/// # Errors
/// If the current job is cancelled first.
pub fn sleep(duration: Duration) -> Result<(), Cancelled> {
    let timers = runtime::current().runtime.timers.clone();
    unless_cancelled(Sleep::new(timers, duration), WaitingFor::Time)
}

/// A future that is ready at a moment.
pub(crate) struct Sleep {
    timers: Timers,
    /// `None` is never.
    deadline: Option<Instant>,
    timer: Option<Timer>,
}

impl Sleep {
    pub(crate) fn new(timers: Timers, duration: Duration) -> Sleep {
        Sleep {
            deadline: timers.now().checked_add(duration),
            timers,
            timer: None,
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.deadline else {
            return Poll::Pending;
        };
        if self.timers.now() >= deadline {
            return Poll::Ready(());
        }
        let expiry = Expiry::Wake(context.waker().clone());
        self.timer = Some(self.timers.add(deadline, expiry));
        Poll::Pending
    }
}

/// The limit of a spawned job, as the timer that keeps it.
pub(crate) fn limit_of(
    runtime: &Inner,
    deadline: Option<Instant>,
    job: &jobtree_tree::Job,
) -> Option<Timer> {
    let expiry = Expiry::Cancel(job.clone());
    deadline.map(|deadline| runtime.timers.add(deadline, expiry))
}
