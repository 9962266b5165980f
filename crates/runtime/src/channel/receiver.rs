//! The end that receives.

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use jobtree_tree::WaitingFor;

use crate::channel::core::Nothing;
use crate::channel::errors::{RecvError, RecvTimeoutError, TryRecvError};
use crate::channel::operation::{IsClosed, RecvOperation};
use crate::channel::shared::Shared;
use crate::channel::stats::ChannelStats;
use crate::cost::charge_channel_operation;
use crate::current::checkpoint;
use crate::deadline::Sleep;
use crate::runtime;
use crate::select::RecvClause;
use crate::withdraw::{OrCancelled, wait_for, wait_until};

/// The end of a channel that receives. Clones receive from the same channel, each value going to one of them; with the
/// last one the channel is closed, and what lies in it is dropped.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Receiver<T> {
    pub(super) fn new(shared: Arc<Shared<T>>) -> Receiver<T> {
        Receiver { shared }
    }

    /// For `select!`.
    #[doc(hidden)]
    pub fn recv_clause(&self) -> RecvClause<'_, T> {
        RecvClause::new(&self.shared)
    }

    /// Receives a value, and waits for one if there is none. The stack of a job is parked meanwhile.
    ///
    /// ```
    /// use jobtree_runtime::{channel, nursery};
    ///
    /// let (sender, receiver) = channel::rendezvous();
    /// let answer = nursery(|n| {
    ///     n.launch(move || Ok(sender.send(42)?));
    ///     Ok(receiver.recv()?)
    /// })?;
    /// assert_eq!(answer, 42);
    /// # Ok::<(), jobtree_runtime::JobError>(())
    /// ```
    ///
    /// # Errors
    /// If the channel is closed and empty, or the current job cancelled. A cancelled job receives nothing, even if
    /// something is there.
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
        charge_channel_operation();
        checkpoint().map_err(RecvError::Cancelled)?;
        match self.shared.try_recv() {
            Ok(value) => Ok(value),
            Err(Nothing::Closed) => Err(RecvError::Closed),
            Err(Nothing::Empty) => self.wait_and_receive(),
        }
    }

    #[cold]
    fn wait_and_receive(&self) -> Result<T, RecvError> {
        let operation = pin!(RecvOperation::tried(&self.shared));
        match wait_for(operation, WaitingFor::Channel) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(IsClosed)) => Err(RecvError::Closed),
            Err(cancelled) => Err(RecvError::Cancelled(cancelled)),
        }
    }

    /// Receives a value if there is one. It does not look whether the current job is cancelled.
    ///
    /// ```
    /// use jobtree_runtime::channel::{self, TryRecvError};
    ///
    /// let (sender, receiver) = channel::unbounded::<i32>();
    /// assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    /// drop(sender);
    /// assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
    /// ```
    ///
    /// # Errors
    /// If there is nothing, or the channel is closed as well.
    #[inline]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        charge_channel_operation();
        self.shared.try_recv().map_err(|nothing| match nothing {
            Nothing::Empty => TryRecvError::Empty,
            Nothing::Closed => TryRecvError::Closed,
        })
    }

    /// Receives a value, and waits for one no longer than `limit`: not at all if that is zero, for ever if it is `None`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use jobtree_runtime::channel;
    ///
    /// let (sender, receiver) = channel::bounded::<i32>(1);
    /// let nothing = receiver.recv_timeout(Some(Duration::from_millis(1))).unwrap_err();
    /// assert!(nothing.is_timed_out());
    /// # drop(sender);
    /// ```
    ///
    /// # Errors
    /// If the channel is closed and empty, the current job cancelled (which comes before the limit), or the limit over.
    pub fn recv_timeout(&self, limit: Option<Duration>) -> Result<T, RecvTimeoutError> {
        let Some(limit) = limit else {
            return self.recv().map_err(RecvTimeoutError::from);
        };
        charge_channel_operation();
        checkpoint().map_err(RecvTimeoutError::Cancelled)?;
        match self.shared.try_recv() {
            Ok(value) => return Ok(value),
            Err(Nothing::Closed) => return Err(RecvTimeoutError::Closed),
            Err(Nothing::Empty) if limit.is_zero() => return Err(RecvTimeoutError::TimedOut),
            Err(Nothing::Empty) => {}
        }
        let limit = Sleep::new(runtime::current().runtime.timers.clone(), limit);
        let operation = pin!(RecvOperation::tried(&self.shared));
        match wait_until(operation, limit, WaitingFor::Channel) {
            Ok(Some(Ok(value))) => Ok(value),
            Ok(Some(Err(IsClosed))) => Err(RecvTimeoutError::Closed),
            Ok(None) => Err(RecvTimeoutError::TimedOut),
            Err(cancelled) => Err(RecvTimeoutError::Cancelled(cancelled)),
        }
    }

    /// Receives a value as a future does it. Dropped before it is ready, it leaves the value to others.
    ///
    /// ```
    /// use jobtree_runtime::{block_on, channel};
    ///
    /// let (sender, receiver) = channel::unbounded();
    /// sender.send("hello").unwrap();
    /// let received = block_on(async { receiver.recv_async().await })?;
    /// assert_eq!(received.unwrap(), "hello");
    /// # Ok::<(), jobtree_runtime::Cancelled>(())
    /// ```
    ///
    /// # Errors
    /// As [`recv`](Receiver::recv).
    pub fn recv_async(&self) -> Receiving<'_, T> {
        Receiving {
            operation: OrCancelled::new(RecvOperation::new(&self.shared)),
        }
    }

    /// Receives until the channel is closed and empty, or the current job cancelled.
    ///
    /// ```
    /// use jobtree_runtime::channel;
    ///
    /// let (sender, receiver) = channel::unbounded();
    /// for number in 1..=3 {
    ///     sender.send(number).unwrap();
    /// }
    /// drop(sender);
    /// assert_eq!(receiver.iter().sum::<i32>(), 6);
    /// ```
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }

    /// Nothing can be sent any more; what is there can still be received. `false` if it was closed before.
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
    pub fn same_channel(&self, other: &Receiver<T>) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.shared.add_receiver();
        Receiver {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.drop_receiver();
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

/// A receive as a future; see [`Receiver::recv_async`].
#[must_use = "nothing is received unless it is awaited"]
pub struct Receiving<'a, T> {
    operation: OrCancelled<RecvOperation<'a, T>>,
}

impl<T> Future for Receiving<'_, T> {
    type Output = Result<T, RecvError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the field is pinned with the whole.
        let operation = unsafe { self.map_unchecked_mut(|this| &mut this.operation) };
        operation.poll(context).map(|result| match result {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(IsClosed)) => Err(RecvError::Closed),
            Err(cancelled) => Err(RecvError::Cancelled(cancelled)),
        })
    }
}

impl<T> fmt::Debug for Receiving<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiving").finish_non_exhaustive()
    }
}

/// What is received from a borrowed end, until there is nothing more; see [`Receiver::iter`].
#[derive(Debug)]
pub struct Iter<'a, T> {
    receiver: &'a Receiver<T>,
}

impl<T> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// What is received from an end of one's own, until there is nothing more.
#[derive(Debug)]
pub struct IntoIter<T> {
    receiver: Receiver<T>,
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter { receiver: self }
    }
}
