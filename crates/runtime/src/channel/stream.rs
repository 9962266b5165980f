//! Receivers as streams, for code that is written for the `Stream` of the crate `futures`.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use crate::channel::{Receiver, RecvError};

type Received<T> = (Receiver<T>, Result<T, RecvError>);

/// The values of a channel as a stream; see [`Receiver::into_stream`].
#[must_use = "a stream does nothing unless it is polled"]
pub struct ReceiverStream<'a, T> {
    /// The next receive, which has the receiver; `None` when there is nothing more.
    next: Option<Pin<Box<dyn Future<Output = Received<T>> + Send + 'a>>>,
}

fn receive<'a, T: Send + 'a>(
    receiver: Receiver<T>,
) -> Pin<Box<dyn Future<Output = Received<T>> + Send + 'a>> {
    Box::pin(async move {
        let received = receiver.recv_async().await;
        (receiver, received)
    })
}

impl<T: Send> Receiver<T> {
    /// Makes a stream of the values, which ends when the channel is closed and empty or the current job is cancelled. Dropped, it
    /// leaves the values to other receivers. (Feature `stream`.)
    pub fn into_stream<'a>(self) -> ReceiverStream<'a, T>
    where
        T: 'a,
    {
        ReceiverStream {
            next: Some(receive(self)),
        }
    }
}

impl<'a, T: Send + 'a> Stream for ReceiverStream<'a, T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let Some(next) = &mut self.next else {
            return Poll::Ready(None);
        };
        let (receiver, received) = ready!(next.as_mut().poll(context));
        self.next = received.is_ok().then(|| receive(receiver));
        Poll::Ready(received.ok())
    }
}

impl<T> fmt::Debug for ReceiverStream<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiverStream")
            .field("is_over", &self.next.is_none())
            .finish()
    }
}
