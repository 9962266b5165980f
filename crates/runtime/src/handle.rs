//! The one who waits for a job's value.

use std::fmt;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};
use std::time::Duration;

use jobtree_base::user_code::{Place, drop_user};
use jobtree_pool::raw::outermost;
use jobtree_pool::raw::task::run_if_oldest;
use jobtree_tree::{CancelReason, Cause, Ended, Job, JobError, Outcome, WaitingFor, raw};

use crate::block::{Either, FirstOf, unless_cancelled};
use crate::budget::later::with_limits_of;
use crate::current::checkpoint;
use crate::deadline::Sleep;
use crate::runtime;
use crate::sim;
use crate::task::{Slot, Spawned, task_around};

/// A job and the right to its value. Wait for it with [`join`](JobHandle::join), or await it: it is a future for any
/// executor.
///
/// Dropping it neither cancels the job nor detaches it: its scope still waits for it. The value is then dropped at the end of
/// the job, or with the handle if the job has ended, in both cases outside of any job. A panic of its destructor is recorded
/// ([`user_code`](crate::user_code)), and goes to no caller.
///
/// ```
/// use jobtree_runtime::nursery;
///
/// let answer = nursery(|n| {
///     let handle = n.spawn(|| Ok(6 * 7));
///     Ok(handle.join()?)
/// })?;
/// assert_eq!(answer, 42);
/// # Ok::<(), jobtree_runtime::JobError>(())
/// ```
#[must_use = "the job runs without it, but its value is lost; use `launch` if nobody needs it"]
pub struct JobHandle<T> {
    job: Job,
    slot: NonNull<Slot<T>>,
    /// Entered when it was polled and had to wait.
    ended: Option<Pin<Box<Ended>>>,
}

// SAFETY: it is the right to take a `T` that another thread left.
unsafe impl<T: Send> Send for JobHandle<T> {}
// SAFETY: a shared handle only lends the job.
unsafe impl<T: Send> Sync for JobHandle<T> {}
impl<T> Unpin for JobHandle<T> {}

impl<T> JobHandle<T> {
    #[inline(always)]
    pub(crate) fn new(spawned: Spawned<T>) -> JobHandle<T> {
        JobHandle {
            job: spawned.job,
            slot: spawned.slot,
            ended: None,
        }
    }

    /// The job.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Whether the job has ended, so that [`join`](JobHandle::join) would not wait.
    pub fn is_finished(&self) -> bool {
        self.job.is_ended()
    }

    /// Asks the job to end; `false` if it was asked before or has ended.
    pub fn cancel(&self, reason: impl Into<CancelReason>) -> bool {
        let asked = self.job.cancel(reason);
        sim::point_or_unwind();
        asked
    }

    /// Waits for the job and returns its value. A worker parks the calling stack meanwhile; any other thread sleeps.
    ///
    /// A child of the calling job that nobody has begun may run right here, on the calling stack, as if it were called. So
    /// it should not wait, in a way that no cancellation ends, for something that its parent does after this call.
    ///
    /// # Errors
    /// If the job failed, panicked, timed out or was cancelled. And if the *calling* job is cancelled while it waits:
    /// with its own cancellation, so that `?` ends it as cancelled.
    #[inline(always)]
    pub fn join(self) -> Outcome<T> {
        if !self.job.is_ended()
            && let Err(cancelled) = self.wait()
        {
            return Err(cancelled);
        }
        self.into_outcome()
    }

    /// Waits for the job no longer than `limit`, and returns the handle if that is over first. The job goes on then.
    ///
    /// ```
    /// use jobtree_runtime::{nursery, sleep};
    /// use std::time::Duration;
    ///
    /// nursery(|n| {
    ///     let slow = n.spawn(|| Ok(sleep(Duration::MAX)?));
    ///     let slow = slow.join_timeout(Duration::from_millis(1)).unwrap_err();
    ///     assert!(!slow.is_finished());
    ///     slow.cancel("too slow");
    ///     assert!(slow.join().unwrap_err().is_cancelled());
    ///     Ok(())
    /// })?;
    /// # Ok::<(), jobtree_runtime::JobError>(())
    /// ```
    ///
    /// # Errors
    /// The handle, if the job has not ended in time. Otherwise there is an outcome, as of [`join`](JobHandle::join).
    pub fn join_timeout(self, limit: Duration) -> Result<Outcome<T>, JobHandle<T>> {
        if !self.job.is_ended() {
            let timers = runtime::current().runtime.timers.clone();
            let first = FirstOf(self.job.ended(), Sleep::new(timers, limit));
            match unless_cancelled(first, WaitingFor::Job(self.job.id())) {
                Ok(Either::First(_)) => {}
                Ok(Either::Second(())) => return Err(self),
                Err(cancelled) => return Ok(Err(JobError::Cancelled(cancelled))),
            }
        }
        Ok(self.into_outcome())
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) -> Result<(), JobError> {
        let waiting_for = WaitingFor::Job(self.job.id());
        if self.run_here(waiting_for)? {
            return Ok(());
        }
        unless_cancelled(self.job.ended(), waiting_for).map_err(JobError::Cancelled)
    }

    /// Runs the job right here, if it is a child of the calling job that nobody has begun and it is its turn; says whether
    /// it has ended.
    ///
    /// # Errors
    /// If the calling job was cancelled meanwhile, and the child with it.
    fn run_here(&self, waiting_for: WaitingFor) -> Result<bool, JobError> {
        raw::with_current(|caller| {
            let may_run =
                |caller: &&Job| self.job.is_cancelled_with(caller) && !caller.is_cancelled();
            let Some(caller) = caller.filter(may_run) else {
                return Ok(false);
            };
            caller.begin_waiting(waiting_for);
            let has_run = run_if_oldest(task_around(self.slot));
            caller.end_waiting(waiting_for);
            if has_run
                && self.job.is_cancelled()
                && let Some(cancelled) = caller.cancellation()
            {
                return Err(JobError::Cancelled(cancelled));
            }
            Ok(has_run && self.job.is_ended())
        })
    }

    /// What came of a job that has ended.
    #[inline(always)]
    fn into_outcome(self) -> Outcome<T> {
        // SAFETY: it has ended, and this handle is the only one that may take the value, which was written
        // before the end. A job that did not complete has none.
        match unsafe { self.slot.as_ref().take() } {
            Some(value) => {
                // Not `drop`: there is no value left to lose interest in.
                let mut this = ManuallyDrop::new(self);
                // SAFETY: each field is dropped once: `this` is forgotten.
                unsafe {
                    std::ptr::drop_in_place(&mut this.job);
                    std::ptr::drop_in_place(&mut this.ended);
                }
                // The value goes straight to where the caller wants it.
                Ok(value)
            }
            None => Err(outcome_error(&self.job)),
        }
    }

    /// Cancels the job when what is returned is dropped before the job has ended: for an executor that drops the
    /// tasks it cancels.
    pub fn cancel_on_drop(self) -> CancelOnDrop<T> {
        CancelOnDrop { handle: self }
    }
}

#[cold]
fn outcome_error(job: &Job) -> JobError {
    match job.error() {
        Some(error) => error,
        None => unreachable!("{job:?} has ended without a value or an error"),
    }
}

impl<T> Future for JobHandle<T> {
    type Output = Outcome<T>;

    /// In a job that is cancelled, it is ready with that job's cancellation, as [`join`](JobHandle::join) is.
    ///
    /// # Panics
    /// If it is polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome<T>> {
        if !self.job.is_ended()
            && let Err(cancelled) = checkpoint()
        {
            return Poll::Ready(Err(JobError::Cancelled(cancelled)));
        }
        self.poll_end(context)
    }
}

impl<T> JobHandle<T> {
    /// Does what `poll` does, whether the current job is cancelled or not.
    pub(crate) fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Outcome<T>> {
        if !self.job.is_ended() {
            let entered = self.ended.take();
            let mut ended = entered.unwrap_or_else(|| Box::pin(self.job.ended()));
            if ended.as_mut().poll(context).is_pending() {
                self.ended = Some(ended);
                return Poll::Pending;
            }
        }
        self.ended = None;
        // SAFETY: as in `into_outcome`.
        match unsafe { self.slot.as_ref().take() } {
            Some(value) => Poll::Ready(Ok(value)),
            None => {
                let error = self.job.error();
                Poll::Ready(Err(
                    error.expect("a handle is not polled after it was ready")
                ))
            }
        }
    }
}

impl<T> Drop for JobHandle<T> {
    fn drop(&mut self) {
        // What needs no destructor need not be dropped, and the job need not know.
        if std::mem::needs_drop::<T>() && raw::lose_interest(&self.job) {
            // SAFETY: it has ended, and the value is ours.
            let value = unsafe { self.slot.as_ref().take() };
            // As if the job had dropped it, which was a matter of timing.
            outermost(|| with_limits_of(&self.job, || drop_user(Place::Value, value)));
        }
    }
}

impl<T> fmt::Debug for JobHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JobHandle").field(&self.job).finish()
    }
}

/// A [`JobHandle`] whose job is cancelled when this is dropped; see [`JobHandle::cancel_on_drop`].
#[derive(Debug)]
#[must_use = "dropping it cancels the job"]
pub struct CancelOnDrop<T> {
    handle: JobHandle<T>,
}

impl<T> CancelOnDrop<T> {
    /// The job.
    pub fn job(&self) -> &Job {
        self.handle.job()
    }
}

impl<T> Future for CancelOnDrop<T> {
    type Output = Outcome<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome<T>> {
        Pin::new(&mut self.handle).poll(context)
    }
}

impl<T> Drop for CancelOnDrop<T> {
    fn drop(&mut self) {
        self.handle.cancel(Cause::Abandoned);
    }
}
