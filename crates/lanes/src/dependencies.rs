//! Waiting for other jobs before the first step.
//!
//! A job that comes after others is scheduled like any other. In its first dispatch it looks at them, and if it has to
//! wait, it is in no queue until they have ended.

use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, ready};

use jobtree_runtime::{BoxError, CancelReason, Job, JobState};

/// Of a job that another one waits for: how it has to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum On {
    /// With a value.
    #[default]
    Success,
    /// With an error or a panic, or cancelled.
    Failure,
    /// In any way.
    Always,
}

/// A job that another one comes after; see [`LaneJob::after`](crate::LaneJob::after). It may be any job of the tree.
///
/// ```
/// use jobtree_lanes::{Dependency, JobManager, LaneJob, On};
///
/// let manager = JobManager::builder().build()?;
/// let load = manager.schedule(LaneJob::action(|| Err::<(), _>("no such file".into())));
/// let other = manager.runtime().spawn(|| Ok(()));
/// let after = [load.dependency().on(On::Always), Dependency::new(other.job(), On::Success)];
/// let tidy_up = manager.schedule(LaneJob::action(|| Ok("tidy")).after(&after));
/// assert_eq!(tidy_up.join()?, "tidy");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Dependency {
    pub(crate) job: Job,
    on: On,
}

impl Dependency {
    /// That `job` has ended in the way of `on`.
    pub fn new(job: &Job, on: On) -> Dependency {
        Dependency {
            job: job.clone(),
            on,
        }
    }

    /// The same job, but ended in another way.
    pub fn on(mut self, on: On) -> Dependency {
        self.on = on;
        self
    }

    /// Whether it ended as it has to.
    fn is_met(&self) -> bool {
        match self.on {
            On::Success => self.job.state() == JobState::Completed,
            On::Failure => self.job.state() != JobState::Completed,
            On::Always => true,
        }
    }
}

/// Waits for one after the other; which is the same as for all.
pub(crate) struct Prelude {
    left: Vec<Dependency>,
    waiting: Option<Pin<Box<jobtree_runtime::Ended>>>,
}

impl Prelude {
    /// `None` if there is nothing to wait for.
    pub(crate) fn new(after: Vec<Dependency>) -> Option<Box<Prelude>> {
        if after.is_empty() {
            return None;
        }
        Some(Box::new(Prelude {
            left: after,
            waiting: None,
        }))
    }
}

/// Ready when all of `prelude` have ended as they have to. If one has not, the calling job is cancelled.
pub(crate) fn poll_prelude(
    prelude: &mut Option<Box<Prelude>>,
    context: &mut TaskContext<'_>,
) -> Poll<Result<(), BoxError>> {
    let Some(waiting_for) = prelude else {
        return Poll::Ready(Ok(()));
    };
    while let Some(dependency) = waiting_for.left.last() {
        if !dependency.job.is_ended() {
            let ended = waiting_for
                .waiting
                .get_or_insert_with(|| Box::pin(dependency.job.ended()));
            ready!(ended.as_mut().poll(context));
        }
        waiting_for.waiting = None;
        if !dependency.is_met() {
            let reason = format!(
                "it comes after {}, which ended as {:?}",
                dependency.job.label(),
                dependency.job.state()
            );
            return Poll::Ready(Err(cancel_self(reason)));
        }
        waiting_for.left.pop();
    }
    *prelude = None;
    Poll::Ready(Ok(()))
}

/// Cancels the calling job, and returns what ends its body.
pub(crate) fn cancel_self(reason: impl Into<CancelReason>) -> BoxError {
    let Some(job) = Job::current() else {
        unreachable!("the code of a job runs in it");
    };
    job.cancel(reason);
    match job.cancellation() {
        Some(cancelled) => cancelled.into(),
        None => unreachable!("{job:?} was cancelled just now"),
    }
}
