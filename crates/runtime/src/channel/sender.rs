//! The end that sends.

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use jobtree_tree::WaitingFor;

use crate::channel::core::Refused;
use crate::channel::errors::{SendError, SendTimeoutError, TrySendError, Unsent};
use crate::channel::operation::{IsClosed, SendOperation};
use crate::channel::shared::Shared;
use crate::channel::stats::ChannelStats;
use crate::cost::charge_channel_operation;
use crate::current::checkpoint;
use crate::deadline::Sleep;
use crate::runtime;
use crate::select::SendClause;
use crate::withdraw::{OrCancelled, wait_for, wait_until};

/// The end of a channel that sends. Clones send into the same channel; with the last one it is closed.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Sender<T> {
    pub(super) fn new(shared: Arc<Shared<T>>) -> Sender<T> {
        Sender { shared }
    }

    /// For `select!`: sends `value`, or drops it.
    #[doc(hidden)]
    pub fn send_clause(&self, value: T) -> SendClause<'_, T> {
        SendClause::new(&self.shared, Some(value), None)
    }

    /// For `select!`: sends what is in `home`, or leaves it there. It takes no part if there is nothing.
    #[doc(hidden)]
    pub fn send_clause_from<'a>(&'a self, home: &'a mut Option<T>) -> SendClause<'a, T> {
        SendClause::new(&self.shared, home.take(), Some(home))
    }

    /// Sends `value`, and waits for room if there is none; in a rendezvous, for somebody who receives it. The stack of a
    /// job is parked meanwhile.
    ///
    /// ```
    /// use jobtree_runtime::channel;
    ///
    /// let (sender, receiver) = channel::bounded(2);
    /// sender.send("hello")?;
    /// assert_eq!(receiver.recv()?, "hello");
    /// drop(receiver);
    /// assert_eq!(sender.send("lost?").unwrap_err().into_inner(), "lost?");
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    /// If the channel is closed, or the current job cancelled; the value comes back in the error. A cancelled job sends
    /// nothing, even if there is room.
    #[inline]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        charge_channel_operation();
        if let Err(cancelled) = checkpoint() {
            return Err(SendError::Cancelled(Unsent::new(value), cancelled));
        }
        match self.shared.try_send(value) {
            Ok(()) => Ok(()),
            Err(Refused::Closed(value)) => Err(SendError::Closed(Unsent::new(value))),
            Err(Refused::Full(value)) => self.wait_and_send(value),
        }
    }

    #[cold]
    fn wait_and_send(&self, value: T) -> Result<(), SendError<T>> {
        let mut operation = pin!(SendOperation::tried(&self.shared, value));
        let result = wait_for(operation.as_mut(), WaitingFor::Channel);
        match result {
            Ok(Ok(())) => Ok(()),
            Ok(Err(IsClosed)) => Err(SendError::Closed(unsent(operation))),
            Err(cancelled) => Err(SendError::Cancelled(unsent(operation), cancelled)),
        }
    }

    /// Sends `value` if that needs no waiting. It does not look whether the current job is cancelled.
    ///
    /// ```
    /// use jobtree_runtime::channel;
    ///
    /// let (sender, receiver) = channel::bounded(1);
    /// sender.try_send(1)?;
    /// let refused = sender.try_send(2).unwrap_err();
    /// assert!(refused.is_full());
    /// assert_eq!(refused.into_inner(), 2);
    /// # drop(receiver);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    /// If there is no room, or the channel is closed; the value comes back in the error.
    #[inline]
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        charge_channel_operation();
        self.shared
            .try_send(value)
            .map_err(|refused| match refused {
                Refused::Full(value) => TrySendError::Full(Unsent::new(value)),
                Refused::Closed(value) => TrySendError::Closed(Unsent::new(value)),
            })
    }

    /// Sends `value`, and waits for room no longer than `limit`: not at all if that is zero, for ever if it is `None`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use jobtree_runtime::channel;
    ///
    /// let (sender, receiver) = channel::rendezvous();
    /// let refused = sender.send_timeout(7, Some(Duration::from_millis(1))).unwrap_err();
    /// assert!(refused.is_timed_out());
    /// assert_eq!(refused.into_inner(), 7);
    /// # drop::<channel::Receiver<i32>>(receiver);
    /// ```
    ///
    /// # Errors
    /// If the channel is closed, the current job cancelled (which comes before the limit), or the limit over; the value
    /// comes back in the error.
    pub fn send_timeout(
        &self,
        value: T,
        limit: Option<Duration>,
    ) -> Result<(), SendTimeoutError<T>> {
        let Some(limit) = limit else {
            return self.send(value).map_err(SendTimeoutError::from);
        };
        charge_channel_operation();
        if let Err(cancelled) = checkpoint() {
            return Err(SendTimeoutError::Cancelled(Unsent::new(value), cancelled));
        }
        let value = match self.shared.try_send(value) {
            Ok(()) => return Ok(()),
            Err(Refused::Closed(value)) => {
                return Err(SendTimeoutError::Closed(Unsent::new(value)));
            }
            Err(Refused::Full(value)) if limit.is_zero() => {
                return Err(SendTimeoutError::TimedOut(Unsent::new(value)));
            }
            Err(Refused::Full(value)) => value,
        };
        let limit = Sleep::new(runtime::current().runtime.timers.clone(), limit);
        let mut operation = pin!(SendOperation::tried(&self.shared, value));
        let result = wait_until(operation.as_mut(), limit, WaitingFor::Channel);
        match result {
            Ok(Some(Ok(()))) => Ok(()),
            Ok(Some(Err(IsClosed))) => Err(SendTimeoutError::Closed(unsent(operation))),
            Ok(None) => Err(SendTimeoutError::TimedOut(unsent(operation))),
            Err(cancelled) => Err(SendTimeoutError::Cancelled(unsent(operation), cancelled)),
        }
    }

    /// Sends `value` as a future does it. Dropped before it is ready, it has sent or drops the value.
    ///
    /// ```
    /// use jobtree_runtime::{block_on, channel};
    ///
    /// let (sender, receiver) = channel::bounded(1);
    /// block_on(async {
    ///     sender.send_async(1).await.unwrap();
    ///     assert_eq!(receiver.recv_async().await.unwrap(), 1);
    /// })?;
    /// # Ok::<(), jobtree_runtime::Cancelled>(())
    /// ```
    ///
    /// # Errors
    /// As [`send`](Sender::send).
    pub fn send_async(&self, value: T) -> Sending<'_, T> {
        Sending {
            operation: OrCancelled::new(SendOperation::new(&self.shared, value)),
        }
    }

    /// Nothing can be sent any more; receivers get what is there. `false` if it was closed before.
    pub fn close(&self) -> bool {
        self.shared.close()
    }

    /// Whether it is closed. There may still be something to receive.
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// How many values lie in it.
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Whether no value lies in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many values may lie in it; 0 in a rendezvous, `None` if there is no bound.
    pub fn capacity(&self) -> Option<usize> {
        self.shared.capacity()
    }

    /// What it has counted.
    pub fn stats(&self) -> ChannelStats {
        self.shared.stats()
    }

    /// Whether both belong to the same channel.
    pub fn same_channel(&self, other: &Sender<T>) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

/// The value of an operation that is over without having sent it.
fn unsent<T>(operation: Pin<&mut SendOperation<'_, T>>) -> Unsent<T> {
    match operation.take_value() {
        Some(value) => Unsent::new(value),
        None => unreachable!("what was not sent is still there"),
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.shared.add_sender();
        Sender {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.shared.drop_sender();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

/// A send as a future; see [`Sender::send_async`].
#[must_use = "nothing is sent unless it is awaited"]
pub struct Sending<'a, T> {
    operation: OrCancelled<SendOperation<'a, T>>,
}

impl<T> Future for Sending<'_, T> {
    type Output = Result<(), SendError<T>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the field is pinned with the whole.
        let mut operation = unsafe { self.map_unchecked_mut(|this| &mut this.operation) };
        operation.as_mut().poll(context).map(|result| match result {
            Ok(Ok(())) => Ok(()),
            Ok(Err(IsClosed)) => Err(SendError::Closed(unsent(operation.operation()))),
            Err(cancelled) => {
                let value = unsent(operation.operation());
                Err(SendError::Cancelled(value, cancelled))
            }
        })
    }
}

impl<T> fmt::Debug for Sending<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sending").finish_non_exhaustive()
    }
}
