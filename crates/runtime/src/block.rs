//! Waiting: on a worker the stack is parked, any other thread sleeps.
//!
//! Everything one can wait for is a future; a waker that opens a latch turns it into a call that blocks.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use jobtree_pool::raw::wait_with_waker;
use jobtree_tree::{Cancelled, Job, WaitingFor};

use crate::sim;

/// Polls `future` until it is ready. A worker that waits first helps with tasks of `helped`, if given: tasks without
/// whose end the future cannot be ready.
pub(crate) fn until_ready<F: Future>(
    mut future: Pin<&mut F>,
    helped: Option<*const ()>,
) -> F::Output {
    wait_with_waker(helped, |waker| {
        match future.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    })
}

/// A future that is ready with the first of two, with preference for the first.
pub(crate) struct FirstOf<A, B>(pub(crate) A, pub(crate) B);

/// Which of two was ready.
pub(crate) enum Either<A, B> {
    First(A),
    Second(B),
}

impl<A: Future, B: Future> Future for FirstOf<A, B> {
    type Output = Either<A::Output, B::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: both fields are pinned with the whole, and nothing is moved.
        let (first, second) = unsafe {
            let this = self.get_unchecked_mut();
            (
                Pin::new_unchecked(&mut this.0),
                Pin::new_unchecked(&mut this.1),
            )
        };
        if let Poll::Ready(output) = first.poll(context) {
            return Poll::Ready(Either::First(output));
        }
        second.poll(context).map(Either::Second)
    }
}

/// Waits for `future`, unless the current job is cancelled first. A dump shows what the job waits for.
pub(crate) fn unless_cancelled<F: Future>(
    future: F,
    waiting_for: WaitingFor,
) -> Result<F::Output, Cancelled> {
    sim::point();
    let Some(job) = Job::current() else {
        return Ok(until_ready(pin!(future), None));
    };
    job.begin_waiting(waiting_for);
    let result = until_ready(pin!(FirstOf(future, job.cancel_requested())), None);
    job.end_waiting(waiting_for);
    match result {
        Either::First(output) => Ok(output),
        Either::Second(()) => match job.cancellation() {
            Some(cancelled) => Err(cancelled),
            None => unreachable!("told of a cancellation that is none"),
        },
    }
}

/// Waits for a future of anybody's; the stack of a job is parked meanwhile, and its worker does something else.
///
/// The future is polled on the calling thread. If it needs a runtime of its own (tokio's timers and sockets do), enter
/// that first.
///
/// ```
/// use jobtree_runtime::block_on;
///
/// assert_eq!(block_on(async { 6 * 7 })?, 42);
/// # Ok::<(), jobtree_runtime::Cancelled>(())
/// ```
///
/// # Errors
/// If the current job is cancelled first; the future is dropped then.
pub fn block_on<F: Future>(future: F) -> Result<F::Output, Cancelled> {
    unless_cancelled(future, WaitingFor::Future)
}
