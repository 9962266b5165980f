//! Time: limits on how long something may take, and waiting for a moment.

use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use jobtree_tree::{
    BoxError, CancelCallback, Cancelled, Cause, Job, JobOptions, Outcome, WaitingFor,
};

use crate::block::unless_cancelled;
use crate::current::checkpoint;
use crate::inline;
use crate::runtime::{self, Inner, Place};
use crate::timers::{Expiry, Timer, Timers};
use crate::withdraw::Operation;

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
    let limit = TimeLimit::new(&place, limit);
    inline::run(&place.parent, limit.options(), |job| {
        let _timer = limit.start(&place, job);
        let result = body();
        limit.check(&place, job);
        result
    })
}

/// How long a piece of code may take, from now on.
pub(crate) struct TimeLimit {
    /// `None` is never.
    deadline: Option<Instant>,
}

impl TimeLimit {
    pub(crate) fn new(place: &Place, limit: Duration) -> TimeLimit {
        TimeLimit {
            deadline: place.runtime.timers.now().checked_add(limit),
        }
    }

    /// For the job of that code.
    pub(crate) fn options(&self) -> JobOptions {
        match self.deadline {
            Some(deadline) => JobOptions::new().deadline(deadline),
            None => JobOptions::new(),
        }
    }

    /// The deadline, unless an outer one comes first, which ends this, too.
    fn own(&self, place: &Place) -> Option<Instant> {
        let outer = place.parent.deadline();
        self.deadline
            .filter(|own| outer.is_none_or(|outer| *own < outer))
    }

    /// Lets the time of `job` run until what is returned is dropped.
    pub(crate) fn start(&self, place: &Place, job: &Job) -> Option<Timer> {
        let timers = &place.runtime.timers;
        self.own(place)
            .map(|own| timers.add(own, Expiry::Cancel(job.clone())))
    }

    /// The code is done: the thread that keeps deadlines may be late, the limit is not.
    pub(crate) fn check(&self, place: &Place, job: &Job) {
        let now = place.runtime.timers.now();
        if self.own(place).is_some_and(|own| now >= own) {
            job.cancel(Cause::Timeout);
        }
    }
}

/// Runs `body` so that a cancellation from above does not reach it, but from the moment of that cancellation on for no
/// longer than `limit`: for what must be put in order before one ends.
///
/// Also for what must not be left by unwinding, as a cancelled job leaves its forks and loops: the initialiser of a `LazyLock` or a
/// `Once`, which would be poisoned for good, and code that holds a `std::sync::Mutex`.
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
        let _limited = ShieldLimit::new(&place, job, limit);
        body()
    })
}

/// How long a shield holds after a cancellation from above.
pub(crate) struct ShieldLimit {
    /// First, so that it is not called any more when the timer goes.
    _callback: CancelCallback,
    _timer: mpsc::Receiver<Timer>,
}

impl ShieldLimit {
    /// The limit of the shield `job`, from the cancellation of the job around it on.
    pub(crate) fn new(place: &Place, job: &Job, limit: Duration) -> ShieldLimit {
        let (timers, shielded) = (place.runtime.timers.clone(), job.clone());
        let (keep_timer, timer) = mpsc::channel::<Timer>();
        let callback = place.parent.on_cancel(move |_| {
            if let Some(end) = timers.now().checked_add(limit) {
                let _ = keep_timer.send(timers.add(end, Expiry::Cancel(shielded)));
            }
        });
        ShieldLimit {
            _callback: callback,
            _timer: timer,
        }
    }
}

/// Waits for `duration`; the stack of a job is parked meanwhile.
///
/// If the system has no room for the thread that keeps deadlines, workers keep them: then all of them are late by up to a
/// millisecond and the longest time that a task runs on a worker without waiting, yielding or ending. The runtime says so
/// in [`Statistics::timer_thread_failures`](crate::budget::Statistics::timer_thread_failures), by an event
/// [`Degraded`](crate::EventKind::Degraded) and in [`dump_tree`](crate::Runtime::dump_tree). Wakers and callbacks of the
/// program's that a deadline calls do not delay it, even if they block their thread.
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
    checkpoint()?;
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
        let expiry = Expiry::wake(context.waker());
        self.timer = Some(self.timers.add(deadline, expiry));
        Poll::Pending
    }
}

/// It is given nothing that could be lost.
impl Operation for Sleep {
    fn withdraw(self: Pin<&mut Self>) -> Option<()> {
        None
    }
}

/// The limit of a spawned job, as the timer that keeps it.
pub(crate) fn limit_of(runtime: &Inner, deadline: Option<Instant>, job: &Job) -> Option<Timer> {
    let deadline = deadline?;
    Some(runtime.timers.add(deadline, Expiry::Cancel(job.clone())))
}
