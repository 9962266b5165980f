//! Why nothing was sent or received.
//!
//! A value that was not sent comes back with the error. Errors that tell of a cancellation have it as their source, so
//! that a body which returns one through `?` ends as cancelled, and not as failed.

use std::error::Error;
use std::fmt;

use jobtree_tree::Cancelled;

/// A value that was not sent.
///
/// It can only be taken, not looked at; therefore errors with it may go everywhere, even if the value may not be shared.
pub struct Unsent<T>(T);

// SAFETY: a shared `Unsent` gives no access to the value: it is taken by value only.
unsafe impl<T: Send> Sync for Unsent<T> {}

impl<T> Unsent<T> {
    pub(crate) fn new(value: T) -> Unsent<T> {
        Unsent(value)
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> fmt::Debug for Unsent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unsent(..)")
    }
}

const CLOSED_FOR_SENDERS: &str = "the channel is closed, so nothing can be sent; stop sending";
const CLOSED_FOR_RECEIVERS: &str = "the channel is closed and empty; stop receiving";

/// Why [`Sender::send`](crate::channel::Sender::send) did not send.
pub enum SendError<T> {
    /// The channel is closed.
    Closed(Unsent<T>),
    /// The current job was cancelled.
    Cancelled(Unsent<T>, Cancelled),
}

/// Why [`Sender::try_send`](crate::channel::Sender::try_send) did not send.
pub enum TrySendError<T> {
    /// There is no room, or in a rendezvous nobody who waits for the value.
    Full(Unsent<T>),
    /// The channel is closed.
    Closed(Unsent<T>),
}

/// Why [`Sender::send_timeout`](crate::channel::Sender::send_timeout) did not send.
pub enum SendTimeoutError<T> {
    /// The time was over.
    TimedOut(Unsent<T>),
    /// The channel is closed.
    Closed(Unsent<T>),
    /// The current job was cancelled.
    Cancelled(Unsent<T>, Cancelled),
}

/// Why [`Receiver::recv`](crate::channel::Receiver::recv) received nothing.
#[derive(Clone, Debug)]
pub enum RecvError {
    /// The channel is closed, and everything in it was received.
    Closed,
    /// The current job was cancelled.
    Cancelled(Cancelled),
}

/// Why [`Receiver::try_recv`](crate::channel::Receiver::try_recv) received nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// There is nothing at the moment.
    Empty,
    /// The channel is closed, and everything in it was received.
    Closed,
}

/// Why [`Receiver::recv_timeout`](crate::channel::Receiver::recv_timeout) received nothing.
#[derive(Clone, Debug)]
pub enum RecvTimeoutError {
    /// The time was over.
    TimedOut,
    /// The channel is closed, and everything in it was received.
    Closed,
    /// The current job was cancelled.
    Cancelled(Cancelled),
}

impl<T> SendError<T> {
    /// The value that was not sent.
    pub fn into_inner(self) -> T {
        match self {
            SendError::Closed(unsent) | SendError::Cancelled(unsent, _) => unsent.into_inner(),
        }
    }

    /// Whether the channel is closed.
    pub fn is_closed(&self) -> bool {
        matches!(self, SendError::Closed(_))
    }

    /// Whether the current job was cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, SendError::Cancelled(..))
    }
}

impl<T> TrySendError<T> {
    /// The value that was not sent.
    pub fn into_inner(self) -> T {
        match self {
            TrySendError::Full(unsent) | TrySendError::Closed(unsent) => unsent.into_inner(),
        }
    }

    /// Whether there was no room.
    pub fn is_full(&self) -> bool {
        matches!(self, TrySendError::Full(_))
    }

    /// Whether the channel is closed.
    pub fn is_closed(&self) -> bool {
        matches!(self, TrySendError::Closed(_))
    }
}

impl<T> SendTimeoutError<T> {
    /// The value that was not sent.
    pub fn into_inner(self) -> T {
        match self {
            SendTimeoutError::TimedOut(unsent)
            | SendTimeoutError::Closed(unsent)
            | SendTimeoutError::Cancelled(unsent, _) => unsent.into_inner(),
        }
    }

    /// Whether the time was over.
    pub fn is_timed_out(&self) -> bool {
        matches!(self, SendTimeoutError::TimedOut(_))
    }

    /// Whether the channel is closed.
    pub fn is_closed(&self) -> bool {
        matches!(self, SendTimeoutError::Closed(_))
    }

    /// Whether the current job was cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, SendTimeoutError::Cancelled(..))
    }
}

impl RecvError {
    /// Whether the channel is closed.
    pub fn is_closed(&self) -> bool {
        matches!(self, RecvError::Closed)
    }

    /// Whether the current job was cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, RecvError::Cancelled(_))
    }
}

impl RecvTimeoutError {
    /// Whether the time was over.
    pub fn is_timed_out(&self) -> bool {
        matches!(self, RecvTimeoutError::TimedOut)
    }

    /// Whether the channel is closed.
    pub fn is_closed(&self) -> bool {
        matches!(self, RecvTimeoutError::Closed)
    }

    /// Whether the current job was cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, RecvTimeoutError::Cancelled(_))
    }
}

impl<T> From<SendError<T>> for SendTimeoutError<T> {
    fn from(error: SendError<T>) -> SendTimeoutError<T> {
        match error {
            SendError::Closed(unsent) => SendTimeoutError::Closed(unsent),
            SendError::Cancelled(unsent, cancelled) => {
                SendTimeoutError::Cancelled(unsent, cancelled)
            }
        }
    }
}

impl From<RecvError> for RecvTimeoutError {
    fn from(error: RecvError) -> RecvTimeoutError {
        match error {
            RecvError::Closed => RecvTimeoutError::Closed,
            RecvError::Cancelled(cancelled) => RecvTimeoutError::Cancelled(cancelled),
        }
    }
}

/// Without the value, which need not be printable.
macro_rules! debug_without_value {
    ($($error:ident { $($variant:ident),* })*) => {$(
        impl<T> fmt::Debug for $error<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($error::$variant(..) => f.write_str(concat!(stringify!($variant), "(..)")),)*
                }
            }
        }
    )*};
}

debug_without_value! {
    SendError { Closed, Cancelled }
    TrySendError { Full, Closed }
    SendTimeoutError { TimedOut, Closed, Cancelled }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::Closed(_) => f.write_str(CLOSED_FOR_SENDERS),
            SendError::Cancelled(_, cancelled) => write!(f, "nothing was sent: {cancelled}"),
        }
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrySendError::Full(_) => {
                f.write_str("the channel has no room now; try again, or wait with `send`")
            }
            TrySendError::Closed(_) => f.write_str(CLOSED_FOR_SENDERS),
        }
    }
}

impl<T> fmt::Display for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendTimeoutError::TimedOut(_) => f.write_str(
                "the channel had no room within the time; wait longer, or see why nobody receives",
            ),
            SendTimeoutError::Closed(_) => f.write_str(CLOSED_FOR_SENDERS),
            SendTimeoutError::Cancelled(_, cancelled) => {
                write!(f, "nothing was sent: {cancelled}")
            }
        }
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecvError::Closed => f.write_str(CLOSED_FOR_RECEIVERS),
            RecvError::Cancelled(cancelled) => write!(f, "nothing was received: {cancelled}"),
        }
    }
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryRecvError::Empty => {
                f.write_str("the channel is empty now; try again, or wait with `recv`")
            }
            TryRecvError::Closed => f.write_str(CLOSED_FOR_RECEIVERS),
        }
    }
}

impl fmt::Display for RecvTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecvTimeoutError::TimedOut => f.write_str(
                "nothing was sent within the time; wait longer, or see why nobody sends",
            ),
            RecvTimeoutError::Closed => f.write_str(CLOSED_FOR_RECEIVERS),
            RecvTimeoutError::Cancelled(cancelled) => {
                write!(f, "nothing was received: {cancelled}")
            }
        }
    }
}

impl<T> Error for SendError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            SendError::Cancelled(_, cancelled) => Some(cancelled),
            SendError::Closed(_) => None,
        }
    }
}

impl<T> Error for TrySendError<T> {}

impl<T> Error for SendTimeoutError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            SendTimeoutError::Cancelled(_, cancelled) => Some(cancelled),
            SendTimeoutError::TimedOut(_) | SendTimeoutError::Closed(_) => None,
        }
    }
}

impl Error for RecvError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            RecvError::Cancelled(cancelled) => Some(cancelled),
            RecvError::Closed => None,
        }
    }
}

impl Error for TryRecvError {}

impl Error for RecvTimeoutError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            RecvTimeoutError::Cancelled(cancelled) => Some(cancelled),
            RecvTimeoutError::TimedOut | RecvTimeoutError::Closed => None,
        }
    }
}
