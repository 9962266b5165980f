//! Receiving from whichever of several channels has something first.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use crate::block_on;
use crate::channel::{Receiver, Receiving, RecvError};

/// The number of calls, so that each begins its look at another receiver.
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// Waits until one of `receivers` has a value, and returns its place and the value. The stack of a job is parked meanwhile. For
/// a number of channels that is known when the program is written, there is [`select!`](crate::select).
///
/// Receivers whose channel is closed and empty are passed over. None comes first all the time.
///
/// ```
/// use jobtree_runtime::channel::{self, recv_any};
///
/// let (senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| channel::unbounded()).unzip();
/// senders[2].send("third").unwrap();
/// assert_eq!(recv_any(&receivers)?, (2, "third"));
/// drop(senders);
/// assert!(recv_any(&receivers).is_err());
/// # Ok::<(), channel::RecvError>(())
/// ```
///
/// # Errors
/// If all channels are closed and empty, or there is none, or the current job is cancelled.
pub fn recv_any<T>(receivers: &[Receiver<T>]) -> Result<(usize, T), RecvError> {
    block_on(recv_any_async(receivers)).map_err(RecvError::Cancelled)?
}

/// Waits until one of `receivers` has a value as a future does it: [`recv_any`]. Dropped before it is ready, it leaves all values
/// to others.
///
/// # Errors
/// As [`recv_any`].
pub async fn recv_any_async<T>(receivers: &[Receiver<T>]) -> Result<(usize, T), RecvError> {
    let mut waits: Vec<Option<Pin<Box<Receiving<'_, T>>>>> = receivers
        .iter()
        .map(|receiver| Some(Box::pin(receiver.recv_async())))
        .collect();
    let count = waits.len();
    let first = CALLS.fetch_add(1, Ordering::Relaxed) % count.max(1);
    poll_fn(move |context| {
        let mut is_open = false;
        for place in (first..count).chain(0..first) {
            let Some(wait) = &mut waits[place] else {
                continue;
            };
            match wait.as_mut().poll(context) {
                Poll::Ready(Ok(value)) => return Poll::Ready(Ok((place, value))),
                Poll::Ready(Err(RecvError::Closed)) => waits[place] = None,
                Poll::Ready(Err(cancelled)) => return Poll::Ready(Err(cancelled)),
                Poll::Pending => is_open = true,
            }
        }
        match is_open {
            true => Poll::Pending,
            false => Poll::Ready(Err(RecvError::Closed)),
        }
    })
    .await
}
