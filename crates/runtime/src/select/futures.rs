//! The clauses that are polled: `future`, `join` and `after`.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::deadline::Sleep;
use crate::handle::JobHandle;
use crate::runtime;
use crate::select::clause::{Clause, Kind};

/// `future(future)` and what is made of it.
pub struct FutureClause<F: Future> {
    future: F,
    output: Option<F::Output>,
}

impl<F: Future> FutureClause<F> {
    /// A clause that wins when the future is ready.
    pub fn new(future: impl IntoFuture<IntoFuture = F>) -> FutureClause<F> {
        FutureClause {
            future: future.into_future(),
            output: None,
        }
    }

    /// What the future was ready with, if it has won.
    pub fn take_output(self: Pin<&mut Self>) -> Option<F::Output> {
        // SAFETY: the output is not pinned, and the future is not moved.
        unsafe { self.get_unchecked_mut() }.output.take()
    }
}

impl<F: Future> Clause for FutureClause<F> {
    fn kind(&self) -> Kind {
        Kind::Future
    }

    fn attempt(self: Pin<&mut Self>, context: &mut Context<'_>) -> bool {
        // SAFETY: the future is pinned with the clause, and not moved.
        let (future, output) = unsafe {
            let this = self.get_unchecked_mut();
            (Pin::new_unchecked(&mut this.future), &mut this.output)
        };
        match future.poll(context) {
            Poll::Ready(ready) => {
                *output = Some(ready);
                true
            }
            Poll::Pending => false,
        }
    }
}

/// `join(handle)`.
pub fn join<T>(handle: &mut JobHandle<T>) -> FutureClause<&mut JobHandle<T>> {
    FutureClause::new(handle)
}

/// `after(duration)`.
pub fn after(duration: Duration) -> FutureClause<Moment> {
    let timers = runtime::current().runtime.timers.clone();
    FutureClause::new(Moment(Sleep::new(timers, duration)))
}

/// A future that is ready at a moment.
pub struct Moment(Sleep);

impl Future for Moment {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // SAFETY: the field is pinned with the whole.
        unsafe { self.map_unchecked_mut(|this| &mut this.0) }.poll(context)
    }
}
