//! Jobs whose body is part of an async function: the counterpart of `inline.rs`.
//!
//! The future may be dropped at any time. Then the job is cancelled as abandoned, its body is dropped, and what
//! runs below it ends by itself: the job above still waits for all of it.

use std::future::poll_fn;
use std::pin::pin;

use jobtree_base::user_code::{self, drop_user};
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
    let (job, execution) = match place.parent.attach(options.contained().started()) {
        Ok(attached) => attached,
        Err(_) => return Err(JobError::Cancelled(ended_with(&place.parent))),
    };
    // Before the body, so that it is dropped after it.
    let mut abandoned = CancelIfDropped(Some(execution));
    let (value, result) = if job.is_cancelled() {
        // Born cancelled.
        (None, BodyResult::Cancelled)
    } else {
        let mut body = pin!(BodyFuture::new(start(place, job.clone())));
        poll_fn(|context| body.as_mut().poll(&job, context)).await
    };
    if let Some(execution) = abandoned.0.take() {
        execution.end(result);
    }
    if !job.is_ended() {
        job.begin_waiting(WaitingFor::Children);
        job.ended().await;
    }
    match (value, job.error()) {
        (Some(value), None) => Ok(value),
        (value, Some(error)) => {
            // The caller gets the error, so it cannot get the panic of a destructor.
            drop_user(user_code::Place::Value, value);
            Err(error)
        }
        (None, None) => unreachable!("{job:?} has ended without a value or an error"),
    }
}

struct CancelIfDropped(Option<Body>);

impl Drop for CancelIfDropped {
    fn drop(&mut self) {
        if let Some(execution) = self.0.take() {
            execution.job().cancel(Cause::Abandoned.into());
            execution.end(BodyResult::Cancelled);
        }
    }
}
