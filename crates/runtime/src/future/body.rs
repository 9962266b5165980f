//! A future as the body of a job: what one poll of it means.
//!
//! A job that is cancelled has its future polled once more: whatever of ours it waits for is then ready with the
//! cancellation, so the future can put things in order and return it. A future that still waits afterwards waits for
//! something that knows nothing of jobs, and is dropped; unless it is inside of a shield, which is let alone
//! until it ends.

use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll};

use jobtree_base::user_code::{Place, call_user};
use jobtree_tree::{BodyResult, BoxError, CancelRequested, Job, raw};

use crate::budget::later::{Limits, within};
use crate::current::{in_job, result_of};

/// See the module's head. Dropped before it was ready, it drops the future in the job, too.
pub(crate) struct BodyFuture<F> {
    future: Option<F>,
    /// Entered when the future first has to wait.
    cancelled: Option<CancelRequested>,
    /// Whether whoever polls it is told of a cancellation anyway.
    is_told: bool,
}

impl<F> BodyFuture<F> {
    pub(crate) fn new(future: F) -> BodyFuture<F> {
        BodyFuture {
            future: Some(future),
            cancelled: None,
            is_told: false,
        }
    }

    /// A body that is a task of its own, which is woken when its job is cancelled.
    pub(crate) fn of_task(future: F) -> BodyFuture<F> {
        BodyFuture {
            is_told: true,
            ..BodyFuture::new(future)
        }
    }

    /// Drops the future, if it is still there, with the limits of the current job, whose body it is; a panic of its destructor
    /// is recorded.
    pub(crate) fn discard(self: Pin<&mut Self>) {
        // SAFETY: the future is dropped where it is, and the registration, too.
        let this = unsafe { self.get_unchecked_mut() };
        this.cancelled = None;
        raw::with_current(|job| {
            let limits = job.and_then(Limits::of);
            within(limits.as_ref(), || {
                call_user(Place::Captured, || this.future = None);
            });
        });
    }
}

impl<F, T> BodyFuture<F>
where
    F: Future<Output = Result<T, BoxError>>,
{
    /// Polls the future in `job`. Not to be called again after it was ready.
    pub(crate) fn poll(
        mut self: Pin<&mut Self>,
        job: &Job,
        context: &mut Context<'_>,
    ) -> Poll<(Option<T>, BodyResult)> {
        loop {
            let was_cancelled = job.is_cancelled();
            let polled = self.as_mut().poll_future(job, context);
            let result = match polled {
                Ok(Poll::Pending) if was_cancelled => {
                    if raw::is_sheltered(job) {
                        return Poll::Pending;
                    }
                    (None, BodyResult::Cancelled)
                }
                Ok(Poll::Pending) => {
                    if self.as_mut().poll_cancelled(job, context).is_pending() {
                        return Poll::Pending;
                    }
                    // It was not told yet.
                    continue;
                }
                Ok(Poll::Ready(result)) => result_of(job, Ok(result)),
                Err(payload) => result_of(job, Err(payload)),
            };
            in_job(job, || self.as_mut().discard());
            return Poll::Ready(result);
        }
    }

    fn poll_future(
        self: Pin<&mut Self>,
        job: &Job,
        context: &mut Context<'_>,
    ) -> std::thread::Result<Poll<F::Output>> {
        // SAFETY: nothing is moved; the future is pinned with the whole.
        let future = unsafe { self.map_unchecked_mut(|this| &mut this.future) }.as_pin_mut();
        let future = future.expect("a body is not polled after its end");
        panic::catch_unwind(AssertUnwindSafe(|| in_job(job, || future.poll(context))))
    }

    fn poll_cancelled(self: Pin<&mut Self>, job: &Job, context: &mut Context<'_>) -> Poll<()> {
        if self.is_told {
            return Poll::Pending;
        }
        // SAFETY: nothing is moved; the registration is pinned with the whole, and dropped in its place.
        let cancelled = unsafe { self.map_unchecked_mut(|this| &mut this.cancelled) };
        // SAFETY: as above.
        let place = unsafe { cancelled.get_unchecked_mut() };
        let registration = place.get_or_insert_with(|| job.cancel_requested());
        // SAFETY: it stays in its place, which is pinned.
        unsafe { Pin::new_unchecked(registration) }.poll(context)
    }
}
