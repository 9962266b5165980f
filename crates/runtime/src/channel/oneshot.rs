//! A channel for one value: an answer, or the result of something that is done elsewhere.
//!
//! It is a channel with room for one value, whose ends are used up by sending and receiving. So sending never waits.

use std::fmt;
use std::time::Duration;

use crate::channel::{
    Receiver, RecvError, RecvTimeoutError, SendError, Sender, TryRecvError, TrySendError, bounded,
};
use crate::select::RecvClause;

/// Makes a channel for one value.
///
/// ```
/// use jobtree_runtime::channel::{self, OneshotSender};
/// use jobtree_runtime::nursery;
///
/// let (requests, received) = channel::bounded::<(u64, OneshotSender<u64>)>(8);
/// let squared = nursery(|n| {
///     n.launch(|| {
///         for (number, answer) in received {
///             // Whoever asked may be gone, which is no error of the server.
///             answer.send(number * number).ok();
///         }
///         Ok(())
///     });
///     let (answer, answered) = channel::oneshot();
///     requests.send((7, answer))?;
///     drop(requests);
///     Ok(answered.recv()?)
/// })?;
/// assert_eq!(squared, 49);
/// # Ok::<(), jobtree_runtime::JobError>(())
/// ```
///
/// # Panics
/// If the current job may not have a channel with room for one value: see [`try_new`](crate::channel::try_new).
#[track_caller]
pub fn oneshot<T>() -> (OneshotSender<T>, OneshotReceiver<T>) {
    let (sender, receiver) = bounded(1);
    (OneshotSender { sender }, OneshotReceiver { receiver })
}

/// The end of a [`oneshot`] channel that sends.
pub struct OneshotSender<T> {
    sender: Sender<T>,
}

impl<T> OneshotSender<T> {
    /// Sends `value`. It never waits, and does not look whether the current job is cancelled: an answer that is there is given.
    ///
    /// # Errors
    /// If the receiver is gone or was closed; the value comes back in the error.
    pub fn send(self, value: T) -> Result<(), SendError<T>> {
        self.sender
            .try_send(value)
            .map_err(|refused| match refused {
                TrySendError::Closed(unsent) => SendError::Closed(unsent),
                TrySendError::Full(_) => unreachable!("there is room for the only value"),
            })
    }

    /// Returns `true` if nobody will receive the value, so that there is no need to make it.
    ///
    /// ```
    /// let (answer, answered) = jobtree_runtime::channel::oneshot::<u32>();
    /// assert!(!answer.is_closed());
    /// drop(answered);
    /// assert!(answer.is_closed());
    /// assert_eq!(answer.send(1).unwrap_err().into_inner(), 1);
    /// ```
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

impl<T> fmt::Debug for OneshotSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneshotSender")
            .field("is_closed", &self.is_closed())
            .finish()
    }
}

/// The end of a [`oneshot`] channel that receives. It takes part in [`select!`](crate::select) as a
/// [`Receiver`] does.
pub struct OneshotReceiver<T> {
    receiver: Receiver<T>,
}

impl<T> OneshotReceiver<T> {
    /// For `select!`.
    #[doc(hidden)]
    pub fn recv_clause(&self) -> RecvClause<'_, T> {
        self.receiver.recv_clause()
    }

    /// Waits for the value. The stack of a job is parked meanwhile.
    ///
    /// # Errors
    /// If the sender was dropped without sending ([`RecvError::Closed`]), or the current job is cancelled.
    pub fn recv(self) -> Result<T, RecvError> {
        self.receiver.recv()
    }

    /// Waits for the value as a future does it.
    ///
    /// ```
    /// use jobtree_runtime::{block_on, channel};
    ///
    /// let (answer, answered) = channel::oneshot();
    /// answer.send("yes").unwrap();
    /// assert_eq!(block_on(answered.recv_async())?.unwrap(), "yes");
    /// # Ok::<(), jobtree_runtime::Cancelled>(())
    /// ```
    ///
    /// # Errors
    /// As [`recv`](OneshotReceiver::recv).
    pub async fn recv_async(self) -> Result<T, RecvError> {
        self.receiver.recv_async().await
    }

    /// Waits for the value no longer than `limit`: not at all if that is zero, for ever if it is `None`. It can be tried again.
    ///
    /// # Errors
    /// As [`recv`](OneshotReceiver::recv), or if the limit is over first.
    pub fn recv_timeout(&self, limit: Option<Duration>) -> Result<T, RecvTimeoutError> {
        self.receiver.recv_timeout(limit)
    }

    /// Returns the value if it is there. It does not look whether the current job is cancelled.
    ///
    /// ```
    /// use jobtree_runtime::channel::{self, TryRecvError};
    ///
    /// let (answer, answered) = channel::oneshot();
    /// assert_eq!(answered.try_recv(), Err(TryRecvError::Empty));
    /// answer.send(1).unwrap();
    /// assert_eq!(answered.try_recv(), Ok(1));
    /// assert_eq!(answered.try_recv(), Err(TryRecvError::Closed));
    /// ```
    ///
    /// # Errors
    /// If it is not there yet ([`TryRecvError::Empty`]), was received, or will never come ([`TryRecvError::Closed`]).
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.receiver.try_recv()
    }

    /// Tells the sender that nobody waits any more; a value that was sent before can still be received. Returns `false` if it
    /// was closed before.
    pub fn close(&self) -> bool {
        self.receiver.close()
    }
}

impl<T> fmt::Debug for OneshotReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneshotReceiver")
            .field("has_value", &!self.receiver.is_empty())
            .finish()
    }
}
