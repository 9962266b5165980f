//! Jobs whose body is part of an async function: the counterpart of `inline.rs`.
//!
//! The future may be dropped at any time. Then the job is cancelled as abandoned, its body is dropped, and what
//! runs below it ends by itself: the job above still waits for all of it.
//!
//! The future may also be kept and not polled any more, by code that outlives the job above. That job must end all the same. So
//! the right to end the body lies beside the job while the future is not being polled ([`Suspended`]). When the body
//! of the job above returns, it takes that right: the scope is cancelled as abandoned, and its body counts as returned. A poll
//! that comes later drops the body and is ready with the cancellation. If the future is being polled at that moment, elsewhere,
//! the end of that poll does the same.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use jobtree_base::user_code::{self, drop_user};
use jobtree_tree::raw::{Attached, Beside, attach_beside, has_parent_returned};
use jobtree_tree::{
    Body, BodyResult, BoxError, Cause, Job, JobError, JobOptions, Outcome, WaitingFor,
};

use super::body::BodyFuture;
use crate::inline::ended_with;
use crate::runtime::Place;

/// Runs what `start` makes as a job under the one of `place`, and waits for everything below it.
pub(crate) async fn run<T, F>(
    place: Place,
    options: JobOptions,
    start: impl FnOnce(Place, Job) -> F,
) -> Outcome<T>
where
    F: Future<Output = Result<T, BoxError>>,
{
    run_or_finish(place, options, || false, start).await
}

/// Runs what `start` makes as a job under the one of `place`, and waits for everything below it. If `is_finished` holds then,
/// the outcome is the value of the body, even if the job was cancelled.
pub(crate) async fn run_or_finish<T, F>(
    place: Place,
    options: JobOptions,
    is_finished: impl FnOnce() -> bool,
    start: impl FnOnce(Place, Job) -> F,
) -> Outcome<T>
where
    F: Future<Output = Result<T, BoxError>>,
{
    let options = options.contained().started();
    let attached = match attach_beside(&place.parent, options, Suspended::default()) {
        Ok(attached) => attached,
        Err(_) => return Err(JobError::Cancelled(ended_with(&place.parent))),
    };
    // Before the body, so that it is dropped after it.
    let mut scope = Scope::new(attached);
    let job = scope.job.clone();
    let (value, result) = if job.is_cancelled() {
        // Born cancelled.
        (None, BodyResult::Cancelled)
    } else {
        let mut body = pin!(BodyFuture::new(start(place, job.clone())));
        poll_fn(|context| scope.poll(body.as_mut(), context)).await
    };
    if let Some(execution) = scope.execution.take() {
        execution.end(result);
    }
    if !job.is_ended() {
        job.begin_waiting(WaitingFor::Children);
        job.ended().await;
    }
    match (value, job.error()) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if is_finished() => Ok(value),
        (value, Some(error)) => {
            // The caller gets the error, so it cannot get the panic of a destructor.
            drop_user(user_code::Place::Value, value);
            Err(error)
        }
        (None, None) => unreachable!("{job:?} has ended without a value or an error"),
    }
}

/// Lies beside the job: the right to end its body, while the future is not being polled.
#[derive(Default)]
struct Suspended(Mutex<Option<Body>>);

impl Suspended {
    fn lock(&self) -> MutexGuard<'_, Option<Body>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Body> {
        self.lock().take()
    }
}

// SAFETY: there is no value, and a `Body` may be dropped on any thread.
unsafe impl Beside for Suspended {
    fn discard_value(&self) {}

    const WANTS_PARENTS_RETURN: bool = true;

    fn parent_returned(&self) {
        if let Some(execution) = self.take() {
            abandon(execution);
        }
    }
}

fn abandon(execution: Body) {
    execution.job().cancel(Cause::Abandoned);
    execution.end(BodyResult::Cancelled);
}

/// A scope as its future knows it. Dropped before its body has returned, it is abandoned.
struct Scope {
    job: Job,
    /// Alive by the job.
    suspended: NonNull<Suspended>,
    /// There while the future is being polled, until the body has returned.
    execution: Option<Body>,
}

// SAFETY: what the pointer leads to is `Sync`, and alive by the job.
unsafe impl Send for Scope {}
// SAFETY: as above.
unsafe impl Sync for Scope {}

impl Scope {
    fn new(attached: Attached<Suspended>) -> Scope {
        Scope {
            job: attached.job,
            suspended: attached.beside,
            execution: Some(attached.body),
        }
    }

    fn suspended(&self) -> &Suspended {
        // SAFETY: it lies beside the job, which is alive by its handle; it is only ever shared.
        unsafe { self.suspended.as_ref() }
    }

    /// One poll of the body.
    fn poll<F, T>(
        &mut self,
        mut body: Pin<&mut BodyFuture<F>>,
        context: &mut Context<'_>,
    ) -> Poll<(Option<T>, BodyResult)>
    where
        F: Future<Output = Result<T, BoxError>>,
    {
        if self.execution.is_none() {
            self.execution = self.suspended().take();
        }
        if self.execution.is_some() {
            let polled = body.as_mut().poll(&self.job, context);
            if polled.is_ready() || self.suspend() {
                return polled;
            }
        }
        // The job above waits for the body no longer.
        body.discard();
        Poll::Ready((None, BodyResult::Cancelled))
    }

    /// Lets the job above end the body from now on; `false` if that job's body has returned, and this has ended instead.
    fn suspend(&mut self) -> bool {
        let Some(execution) = self.execution.take() else {
            return false;
        };
        {
            // A parent looks here after it has returned. So it finds the right, or it has been here before; then it is seen.
            let mut suspended = self.suspended().lock();
            if !has_parent_returned(&execution) {
                *suspended = Some(execution);
                return true;
            }
        }
        abandon(execution);
        false
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        let execution = self.execution.take();
        if let Some(execution) = execution.or_else(|| self.suspended().take()) {
            abandon(execution);
        }
    }
}
