//! Jobs whose body is part of the calling code: nurseries, deadlines, shields, locals.
//!
//! The caller gets the outcome, so the parent is not told of a failure: `?` tells it, or not. On every way
//! out, a panic too, the call returns only when everything below the job has ended.

use std::pin::pin;

use jobtree_base::user_code::{Place, drop_user};
use jobtree_pool::raw::current_stack_with_bell;
use jobtree_tree::raw::{StackName, name_stack};
use jobtree_tree::{
    BodyResult, BoxError, Cancelled, Job, JobError, JobLocal, JobOptions, Outcome, ParentEnded,
    WaitingFor,
};

use crate::block::until_ready;
use crate::current::run_body;
use crate::{runtime, sim};

/// Runs `body` as a job under `parent`, and waits for everything below it.
pub(crate) fn run<T>(
    parent: &Job,
    options: JobOptions,
    body: impl FnOnce(&Job) -> Result<T, BoxError>,
) -> Outcome<T> {
    run_or_finish(parent, options, || false, body)
}

/// Runs `body` as a job under `parent`, and waits for everything below it. If `is_finished` holds then, the outcome is the value of
/// the body, even if the job was cancelled.
pub(crate) fn run_or_finish<T>(
    parent: &Job,
    options: JobOptions,
    is_finished: impl FnOnce() -> bool,
    body: impl FnOnce(&Job) -> Result<T, BoxError>,
) -> Outcome<T> {
    match attach_and_run(parent, options, is_finished, body) {
        Ok(outcome) => outcome,
        Err(ParentEnded) => {
            sim::point_or_unwind();
            Err(JobError::Cancelled(ended_with(parent)))
        }
    }
}

/// Runs `body` as a job under `parent`, unless that has ended, and waits for everything below it.
pub(crate) fn try_run<T>(
    parent: &Job,
    options: JobOptions,
    body: impl FnOnce(&Job) -> Result<T, BoxError>,
) -> Result<Outcome<T>, ParentEnded> {
    attach_and_run(parent, options, || false, body)
}

fn attach_and_run<T>(
    parent: &Job,
    options: JobOptions,
    is_finished: impl FnOnce() -> bool,
    body: impl FnOnce(&Job) -> Result<T, BoxError>,
) -> Result<Outcome<T>, ParentEnded> {
    let (job, execution) = parent.attach(options.contained().started())?;
    if let Some(stack) = StackName::new(current_stack_with_bell()) {
        name_stack(&execution, stack);
    }
    let is_born_cancelled = job.is_cancelled();
    let (value, result) = if is_born_cancelled {
        drop_user(Place::Captured, body);
        (None, BodyResult::Cancelled)
    } else {
        run_body(&job, || body(&job))
    };
    execution.end(result);
    if !job.is_ended() {
        wait_for_children(&job);
    }
    if is_born_cancelled {
        // In a loop that does not heed its cancellation nothing else may be a point.
        sim::point_or_unwind();
    }
    Ok(match (value, job.error()) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if is_finished() => Ok(value),
        (value, Some(error)) => {
            // The caller gets the error, so it cannot get the panic of a destructor.
            drop_user(Place::Value, value);
            Err(error)
        }
        (None, None) => unreachable!("{job:?} has ended without a value or an error"),
    })
}

#[cold]
fn wait_for_children(job: &Job) {
    let caller = Job::current();
    let waiting_for = WaitingFor::Job(job.id());
    if let Some(caller) = &caller {
        caller.begin_waiting(waiting_for);
    }
    job.begin_waiting(WaitingFor::Children);
    until_ready(pin!(job.ended()), Some(job.as_ptr()));
    if let Some(caller) = &caller {
        caller.end_waiting(waiting_for);
    }
}

/// Why nothing can be made under a job that has ended.
pub(crate) fn ended_with(parent: &Job) -> Cancelled {
    match parent.cancellation() {
        Some(cancelled) => cancelled,
        // Only the current job and the root of a runtime get here. The first has not ended, the second does
        // so only when it is cancelled.
        None => unreachable!("{parent:?} has ended, but was not cancelled"),
    }
}

/// Runs `body` with `value` under `key` for it and all jobs made in it.
///
/// ```
/// use jobtree_runtime::{JobLocal, nursery, with_local};
///
/// static REQUEST: JobLocal<u64> = JobLocal::new();
///
/// let seen = with_local(&REQUEST, 42, || {
///     let seen = nursery(|n| Ok(n.spawn(|| Ok(REQUEST.get())).join()?))?;
///     Ok(seen)
/// })?;
/// assert_eq!(seen.as_deref(), Some(&42));
/// assert_eq!(REQUEST.get(), None);
/// # Ok::<(), jobtree_runtime::JobError>(())
/// ```
///
/// # Errors
/// What `body` returns, or the cancellation of a job above.
pub fn with_local<V, T>(
    key: &'static JobLocal<V>,
    value: V,
    body: impl FnOnce() -> Result<T, BoxError>,
) -> Outcome<T>
where
    V: Send + Sync + 'static,
{
    let place = runtime::current();
    let options = JobOptions::new().local(key, value);
    run(&place.parent, options, |_| body())
}
