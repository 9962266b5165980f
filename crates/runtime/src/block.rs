//! Waiting: on a worker the stack is parked, any other thread sleeps.
//!
//! Everything one can wait for is a future; a waker that opens a latch turns it into a call that blocks.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use jobtree_pool::raw::sim::unwind_if_ending;
use jobtree_pool::raw::{Bell, wait_with_waker, wait_with_waker_breakably, with_bell};
use jobtree_tree::raw::{self, CancelWatch, StackName};
use jobtree_tree::{Cancelled, Job, WaitingFor};

use crate::sim;

/// Polls `future` until it is ready. A worker that waits first helps with tasks of `helped`, if given: tasks without
/// whose end the future cannot be ready.
pub(crate) fn until_ready<F: Future>(
    mut future: Pin<&mut F>,
    helped: Option<*const ()>,
) -> F::Output {
    wait_with_waker(helped, |waker| {
        ready_value(future.as_mut().poll(&mut Context::from_waker(waker)))
    })
}

/// Polls `future` until it is ready. If a simulation ends first, the calling stack is unwound: not for a wait for what
/// borrows from the caller.
pub(crate) fn until_ready_or_unwound<F: Future>(mut future: Pin<&mut F>) -> F::Output {
    wait_with_waker_breakably(|waker| {
        ready_value(future.as_mut().poll(&mut Context::from_waker(waker)))
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
    let mut future = pin!(future);
    poll_unless_cancelled(waiting_for, |context| future.as_mut().poll(context))
}

/// Calls `poll` until it is ready, or the current job is cancelled; between two calls the caller is parked.
pub(crate) fn poll_unless_cancelled<R>(
    waiting_for: WaitingFor,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<R>,
) -> Result<R, Cancelled> {
    raw::with_current(|job| {
        let Some(job) = job else {
            let ready = |waker: &Waker| ready_value(poll(&mut Context::from_waker(waker)));
            return Ok(wait_with_waker_breakably(ready));
        };
        job.begin_waiting(waiting_for);
        let result = with_bell(|bell| {
            if !raw::is_woken_on(job, StackName::new(bell.stack())) {
                return wait_watching(bell, job, poll);
            }
            // The bell rings when the job is cancelled: a look is enough.
            bell.wait(None, || {
                match poll(&mut Context::from_waker(bell.waker())) {
                    Poll::Ready(output) => Some(Some(output)),
                    Poll::Pending => job.is_cancelled().then_some(None),
                }
            })
        });
        job.end_waiting(waiting_for);
        match result {
            Some(output) => Ok(output),
            None => {
                unwind_if_ending();
                match job.cancellation() {
                    Some(cancelled) => Err(cancelled),
                    None => unreachable!("told of a cancellation that is none"),
                }
            }
        }
    })
}

/// Calls `poll` until it is ready, or `job` is cancelled, which does not ring the bell by itself: then there is nothing.
#[cold]
#[inline(never)]
fn wait_watching<R>(
    bell: &Bell<'_>,
    job: &Job,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<R>,
) -> Option<R> {
    let mut cancelled = pin!(CancelWatch::new(job));
    bell.wait(None, || {
        if let Poll::Ready(output) = poll(&mut Context::from_waker(bell.waker())) {
            return Some(Some(output));
        }
        // SAFETY: the bell, and so its waker, stays until after the watch is dropped.
        let is_uncancelled = unsafe { cancelled.as_mut().enter(bell.waker()) };
        (!is_uncancelled).then_some(None)
    })
}

fn ready_value<R>(poll: Poll<R>) -> Option<R> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Waits for a future of anybody's; the stack of a job is parked meanwhile, and its worker does something else.
///
/// The future is polled on the calling thread. If it needs a runtime of its own (tokio's timers and sockets do), use `tokio::block_on`
/// (feature `tokio`), which enters that for each poll. Entering it here and then waiting would leave it entered for other jobs.
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
