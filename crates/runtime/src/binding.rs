//! What bindings to other languages need, and Rust programs have better forms of: scopes and jobs that lifetimes
//! say nothing about.
//!
//! Hidden from the documentation: it may change with the bindings of this workspace, which are its only users.

use std::time::Duration;

use jobtree_tree::{BoxError, Job, JobOptions};

use crate::deadline::limit_of;
use crate::dispatcher::Dispatcher;
use crate::future::{JobPlace, Nursery};
use crate::handle::JobHandle;
use crate::runtime::{Runtime, current, runtime_of};
use crate::task::TaskStack;

pub use crate::owned::OwnedNursery;
pub use jobtree_pool::{BuildError, Stopped, yield_now};

/// The current job as a scope: what is started in it is under that job, which ends after it. `None` outside of a job.
pub fn current_nursery() -> Option<Nursery> {
    Job::current()?;
    let place = current();
    Some(Nursery::new(place.parent, place.runtime))
}

/// A job as a scope. `None` if it has ended.
pub fn nursery_of(job: &Job) -> Option<Nursery> {
    if job.is_ended() {
        return None;
    }
    Some(Nursery::new(job.clone(), runtime_of(job)?))
}

/// The root of a runtime as a scope: what is started in it belongs to nobody, and fails alone.
pub fn root_nursery(runtime: &Runtime) -> Nursery {
    runtime.root_nursery()
}

/// What is said about a job before it starts.
#[derive(Clone, Debug, Default)]
pub struct JobDescription {
    /// What reports and dumps call it.
    pub label: Option<String>,
    /// How long it may take.
    pub limit: Option<Duration>,
    /// Whether a stack of 64 KiB is enough for it.
    pub small_stack: bool,
    /// Where it runs.
    pub dispatcher: Dispatcher,
}

/// Ends the threads of a dispatcher that nobody will use any more, as soon as they have nothing left to do; `false` if
/// `limit` was over first.
pub fn end_threads(dispatcher: &Dispatcher, limit: Duration) -> bool {
    dispatcher.end_threads(limit)
}

/// Starts a job in `nursery`. Under one that is cancelled or has ended it is born cancelled: `body` is dropped and never
/// runs.
pub fn spawn<F, T>(nursery: &Nursery, description: JobDescription, body: F) -> JobHandle<T>
where
    F: FnOnce() -> Result<T, BoxError> + Send + 'static,
    T: Send + 'static,
{
    let runtime = nursery.runtime();
    let now = runtime.timers.now();
    let deadline = description.limit.and_then(|limit| now.checked_add(limit));
    let mut options = JobOptions::new();
    if let Some(label) = description.label {
        options = options.label(label);
    }
    if let Some(deadline) = deadline {
        options = options.deadline(deadline);
    }
    let place = match description.dispatcher.queue(runtime) {
        Some(queue) => JobPlace::ThreadOf(queue),
        None if description.small_stack => JobPlace::Worker(TaskStack::Small),
        None => JobPlace::Worker(runtime.task_stack),
    };
    nursery.spawn_limited(place, options, |job| limit_of(runtime, deadline, job), body)
}
