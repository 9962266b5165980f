//! Waiting for something that must not be lost when the waiter gives up: operations that say, when they are given up,
//! whether they had come to their end after all.
//!
//! A future that is simply dropped cannot say that. A sender that is cancelled has to know whether its value is gone or
//! still its own, and a receiver whether it was handed one. So whoever gives up an [`Operation`] withdraws it first.
//!
//! A cancelled job begins no operation, whether that would have to wait or not. An operation that came to its end before
//! it heard of the cancellation has come to its end.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use jobtree_tree::{CancelRequested, Cancelled, Job, WaitingFor};

use crate::block::poll_unless_cancelled;
use crate::current::checkpoint;
use crate::deadline::Sleep;
use crate::future::task::is_told_of_cancellation;

/// A future that can be given up without losing what it was given.
pub(crate) trait Operation: Future {
    /// Stops waiting: nobody will take effect on it any more. Returns what came of it if that was decided before; else it
    /// must not be polled again.
    fn withdraw(self: Pin<&mut Self>) -> Option<Self::Output>;
}

impl<F: Operation> Operation for Pin<&mut F> {
    fn withdraw(self: Pin<&mut Self>) -> Option<F::Output> {
        // SAFETY: nothing is moved: this is `Pin::as_deref_mut`.
        unsafe { self.get_unchecked_mut() }.as_mut().withdraw()
    }
}

/// An operation that ends, too, when the job is cancelled that is current while it is polled. Outside of a job it just
/// waits.
pub(crate) struct OrCancelled<F> {
    operation: F,
    has_begun: bool,
    /// The job whose cancellation is waited for.
    cancel: Option<(Job, CancelRequested)>,
}

impl<F> OrCancelled<F> {
    pub(crate) fn new(operation: F) -> OrCancelled<F> {
        OrCancelled {
            operation,
            has_begun: false,
            cancel: None,
        }
    }

    /// The operation alone, which has not begun: nobody has pinned it.
    pub(crate) fn into_operation(self) -> F {
        self.operation
    }

    pub(crate) fn operation(self: Pin<&mut Self>) -> Pin<&mut F> {
        // SAFETY: the field is pinned with the whole.
        unsafe { self.map_unchecked_mut(|this| &mut this.operation) }
    }

    /// Enters itself with the current job; ready if that is cancelled.
    fn poll_cancelled(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Cancelled> {
        if is_told_of_cancellation(context.waker()) {
            // So it only has to look.
            return match checkpoint() {
                Ok(()) => Poll::Pending,
                Err(cancelled) => Poll::Ready(cancelled),
            };
        }
        // SAFETY: the future in `cancel` is not moved; it is replaced in place, which drops it where it lies.
        let cancel = unsafe { &mut self.get_unchecked_mut().cancel };
        let Some(job) = Job::current() else {
            *cancel = None;
            return Poll::Pending;
        };
        if cancel.as_ref().is_none_or(|(entered, _)| *entered != job) {
            *cancel = None;
            *cancel = Some((job.clone(), job.cancel_requested()));
        }
        if let Some((_, requested)) = cancel {
            // SAFETY: pinned with the whole.
            let requested = unsafe { Pin::new_unchecked(requested) };
            if requested.poll(context).is_ready()
                && let Some(cancelled) = job.cancellation()
            {
                return Poll::Ready(cancelled);
            }
        }
        Poll::Pending
    }
}

impl<F: Operation> Future for OrCancelled<F> {
    type Output = Result<F::Output, Cancelled>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.has_begun {
            checkpoint()?;
            // SAFETY: a flag, which nobody has pinned.
            unsafe { self.as_mut().get_unchecked_mut() }.has_begun = true;
        }
        if let Poll::Ready(output) = self.as_mut().operation().poll(context) {
            return Poll::Ready(Ok(output));
        }
        match self.as_mut().poll_cancelled(context) {
            Poll::Ready(cancelled) => Poll::Ready(match self.operation().withdraw() {
                Some(output) => Ok(output),
                None => Err(cancelled),
            }),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// An operation that ends with `None` when something else comes first, such as a moment.
struct Unless<S, F> {
    sooner: S,
    operation: F,
}

impl<S, F> Unless<S, F> {
    fn fields(self: Pin<&mut Self>) -> (Pin<&mut S>, Pin<&mut F>) {
        // SAFETY: both fields are pinned with the whole, and nothing is moved.
        unsafe {
            let this = self.get_unchecked_mut();
            (
                Pin::new_unchecked(&mut this.sooner),
                Pin::new_unchecked(&mut this.operation),
            )
        }
    }
}

impl<S: Future<Output = ()>, F: Operation> Future for Unless<S, F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (sooner, mut operation) = self.fields();
        if let Poll::Ready(output) = operation.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        match sooner.poll(context) {
            Poll::Ready(()) => Poll::Ready(operation.withdraw()),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: Future<Output = ()>, F: Operation> Operation for Unless<S, F> {
    fn withdraw(self: Pin<&mut Self>) -> Option<Self::Output> {
        self.fields().1.withdraw().map(Some)
    }
}

/// Blocks until `operation` has come to its end, or the current job is cancelled. A dump shows what the job waits for.
///
/// The caller has looked whether the job was cancelled before.
#[cold]
#[inline(never)]
pub(crate) fn wait_for<F: Operation>(
    operation: F,
    waiting_for: WaitingFor,
) -> Result<F::Output, Cancelled> {
    let mut operation = pin!(operation);
    match poll_unless_cancelled(waiting_for, |context| operation.as_mut().poll(context)) {
        Ok(output) => Ok(output),
        // What had come to its end before it heard of the cancellation has come to its end.
        Err(cancelled) => operation.withdraw().ok_or(cancelled),
    }
}

/// As [`wait_for`], with a limit of time; `None` if that was over first. A cancellation comes before that.
#[cold]
#[inline(never)]
pub(crate) fn wait_until<F: Operation>(
    operation: F,
    limit: Sleep,
    waiting_for: WaitingFor,
) -> Result<Option<F::Output>, Cancelled> {
    let limited = Unless {
        sooner: limit,
        operation,
    };
    let output = wait_for(limited, waiting_for)?;
    if output.is_none() {
        checkpoint()?;
    }
    Ok(output)
}
