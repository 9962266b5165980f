//! The one who waits for a job of the manager.

use std::fmt;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use jobtree_runtime::{CancelReason, Job, JobError, JobHandle, JobId, JobState, Outcome, block_on};

use crate::Priority;
use crate::bodies::JobBody;
use crate::dependencies::{Dependency, On};
use crate::header::{JobHeader, subscribe};
use crate::job::LaneJob;
use crate::lane::Lane;
use crate::progress::Payload;

/// A job that was scheduled, and the right to its value. Wait for it with [`join`](LaneHandle::join), or await it.
///
/// Dropping it neither cancels the job nor loses it.
///
/// ```
/// use std::time::Duration;
/// use jobtree_lanes::{JobManager, LaneJob, Step};
///
/// let manager = JobManager::builder().build()?;
/// let waits = manager.schedule(LaneJob::steps([
///     Step::progress(0.5),
///     Step::wait(std::future::pending()),
/// ]));
/// assert!(waits.wait_timeout(Duration::from_millis(1)).is_none());
/// waits.cancel("nobody needs it");
/// assert!(waits.wait().is_err());
/// assert!(waits.is_canceled() && !waits.is_faulted());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the job runs without it, but its value is lost; use `drop` if nobody needs it"]
pub struct LaneHandle<T> {
    pub(crate) handle: JobHandle<T>,
    pub(crate) header: JobHeader,
}

impl<T> LaneHandle<T> {
    /// Waits until the job has ended. A worker parks the calling stack meanwhile; any other thread sleeps. The value stays
    /// for [`join`](LaneHandle::join).
    ///
    /// Not on the thread that pumps the job's lane: nobody would run it.
    ///
    /// # Errors
    /// If the job did not complete; and if the *calling* job is cancelled while it waits.
    pub fn wait(&self) -> Outcome<()> {
        if !self.is_finished() {
            block_on(self.job().ended()).map_err(JobError::Cancelled)?;
        }
        self.job().error().map_or(Ok(()), Err)
    }

    /// [`wait`](LaneHandle::wait), but no longer than `limit`; `None` if that was over first.
    pub fn wait_timeout(&self, limit: Duration) -> Option<Outcome<()>> {
        if !self.is_finished() {
            let clock = &self.header.shared.clock;
            match clock.wait_at_most(limit, self.job().ended()) {
                Ok(ended) => ended?,
                Err(cancelled) => return Some(Err(JobError::Cancelled(cancelled))),
            }
        }
        Some(self.job().error().map_or(Ok(()), Err))
    }

    /// Waits for the job and returns its value.
    ///
    /// # Errors
    /// As [`wait`](LaneHandle::wait).
    pub fn join(self) -> Outcome<T> {
        self.handle.join()
    }

    /// Asks the job to end; `false` if it was asked before or has ended. One that waits is told at once; on a pumped lane
    /// it ends in the next pump, since its code runs nowhere else.
    pub fn cancel(&self, reason: impl Into<CancelReason>) -> bool {
        self.handle.cancel(reason)
    }

    /// The job in the tree.
    pub fn job(&self) -> &Job {
        self.handle.job()
    }

    /// Its name for as long as the program runs.
    pub fn id(&self) -> JobId {
        self.job().id()
    }

    /// What reports and dumps call it.
    pub fn label(&self) -> String {
        self.job().label()
    }

    /// What sort of job it is.
    pub fn kind(&self) -> &str {
        self.header.kind()
    }

    /// How urgent it is.
    pub fn priority(&self) -> Priority {
        self.header.priority
    }

    /// Where it runs.
    pub fn lane(&self) -> Lane {
        self.header.shared.cell(&self.header.lane).lane.clone()
    }

    /// Where it is in its life.
    pub fn state(&self) -> JobState {
        self.job().state()
    }

    /// Whether it has ended, in whatever way.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Whether it has ended with a value.
    pub fn is_completed(&self) -> bool {
        self.state() == JobState::Completed
    }

    /// Whether it was cancelled and has ended.
    pub fn is_canceled(&self) -> bool {
        self.state() == JobState::Cancelled
    }

    /// Whether it failed, panicked or timed out.
    pub fn is_faulted(&self) -> bool {
        matches!(self.state(), JobState::Failed | JobState::TimedOut)
    }

    /// How far it is, from 0 to 1; 1 when it has completed.
    pub fn progress(&self) -> f32 {
        self.header.progress()
    }

    /// What it showed last.
    pub fn payload(&self) -> Option<Payload> {
        self.header.payload()
    }

    /// Is called when it has completed; at once, if it has. There may be any number of callbacks. They are called where the job's others
    /// are ([`LaneJob::callbacks_on`]).
    ///
    /// ```
    /// use jobtree_lanes::{JobManager, LaneJob};
    ///
    /// let manager = JobManager::builder().build()?;
    /// let handle = manager.schedule(LaneJob::action(|| Ok(42)));
    /// let (said, heard) = std::sync::mpsc::channel();
    /// for name in ["first", "second"] {
    ///     let said = said.clone();
    ///     handle.on_completed(move || said.send(name).unwrap());
    /// }
    /// assert_eq!(handle.join()?, 42);
    /// assert_eq!(heard.iter().take(2).count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_completed(&self, callback: impl FnOnce() + Send + 'static) {
        subscribe(&self.header, |ends| ends.completed.push(Box::new(callback)));
    }

    /// Is called when it was cancelled and has ended; as [`on_completed`](LaneHandle::on_completed).
    pub fn on_canceled(&self, callback: impl FnOnce() + Send + 'static) {
        subscribe(&self.header, |ends| ends.cancelled.push(Box::new(callback)));
    }

    /// Is called when it failed, panicked or timed out; as [`on_completed`](LaneHandle::on_completed).
    pub fn on_faulted(&self, callback: impl FnOnce(&JobError) + Send + 'static) {
        subscribe(&self.header, |ends| ends.faulted.push(Box::new(callback)));
    }

    /// That this job has completed, as something that others come after.
    pub fn dependency(&self) -> Dependency {
        Dependency::new(self.job(), On::Success)
    }

    /// Schedules a job that comes after this one, if it ends in the way of `on`; else it is cancelled. As
    /// [`schedule`](crate::JobManager::schedule) does, it waits for a slot.
    ///
    /// ```
    /// use jobtree_lanes::{JobManager, LaneJob, On};
    ///
    /// let manager = JobManager::builder().build()?;
    /// let first = manager.schedule(LaneJob::action(|| Ok(())));
    /// let then = first.then(On::Success, LaneJob::action(|| Ok("afterwards")));
    /// let never = first.then(On::Failure, LaneJob::action(|| Ok("if it failed")));
    /// assert_eq!(then.join()?, "afterwards");
    /// assert!(never.join().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn then<U, B>(&self, on: On, job: LaneJob<U, B>) -> LaneHandle<U>
    where
        B: JobBody<U>,
        U: Send + 'static,
    {
        let job = job.after([&self.dependency().on(on)]);
        self.header.shared.schedule(job)
    }
}

impl<T> Future for LaneHandle<T> {
    type Output = Outcome<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Outcome<T>> {
        Pin::new(&mut self.handle).poll(context)
    }
}

impl<T> fmt::Debug for LaneHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneHandle")
            .field("job", self.job())
            .field("lane", &self.lane())
            .field("priority", &self.priority())
            .field("progress", &self.progress())
            .finish()
    }
}
