//! Why a remote request has no answer, or why the answer is none to be glad about.

use std::error::Error;
use std::fmt;

/// Why a remote request failed.
///
/// Whether the peer has done something is told by [`surely_not_executed`](RemoteError::surely_not_executed): nothing is
/// ever sent twice, so a request that is *not* known to be untouched may have been carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoteError {
    /// There is no transport.
    NoTransport,
    /// No connection came about before the time was over; with the last reason why.
    NotConnected(String),
    /// A request with this id waits for its answer already.
    DuplicateId(u64),
    /// The answer did not come in time.
    TimedOut,
    /// The request was cancelled, or the transport closed.
    Cancelled,
    /// The peer knows no operation of this name.
    UnknownOperation(String),
    /// The request was for somebody else than the peer.
    WrongTarget(String),
    /// A message is larger than allowed.
    TooLarge {
        /// How large it is, in bytes.
        size: u64,
        /// How large it may be.
        limit: u64,
    },
    /// The connection ended while the answer was waited for.
    ConnectionLost(String),
    /// The peer does not speak as it should.
    Protocol(String),
    /// The peer does as much as it may at a time.
    Busy,
    /// The runtime has no blocking thread left for the connection.
    NoThread,
    /// A file or socket could not be used.
    Io(String),
    /// The operation failed at the peer, with this message.
    Remote(String),
}

impl RemoteError {
    /// Whether the operation has certainly not begun, so that asking again does nothing twice.
    pub fn surely_not_executed(&self) -> bool {
        !matches!(
            self,
            RemoteError::TimedOut
                | RemoteError::Cancelled
                | RemoteError::ConnectionLost(_)
                | RemoteError::Remote(_)
                // Of the answer, perhaps.
                | RemoteError::TooLarge { .. }
                | RemoteError::Protocol(_)
        )
    }
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemoteError::NoTransport => {
                f.write_str("no transport is set; give the manager one with `remote(transport)`")
            }
            RemoteError::NotConnected(why) => {
                write!(f, "not connected ({why}); see whether the peer runs, or allow more time")
            }
            RemoteError::DuplicateId(id) => write!(
                f,
                "request {id} waits for its answer already; give each request an id of its own"
            ),
            RemoteError::TimedOut => {
                f.write_str("no answer in time; the peer may still have done it: allow more time, or ask it")
            }
            RemoteError::Cancelled => f.write_str("cancelled before the answer came"),
            RemoteError::UnknownOperation(operation) => {
                write!(f, "the peer knows no operation {operation:?}; register it there with `handle`")
            }
            RemoteError::WrongTarget(target) => {
                write!(f, "the request is for {target:?}, which is not the peer; connect to that one")
            }
            RemoteError::TooLarge { size, limit } => write!(
                f,
                "{size} bytes, but a message may have {limit}; send less at a time, or raise `max_frame` on both sides"
            ),
            RemoteError::ConnectionLost(why) => write!(
                f,
                "the connection was lost ({why}); the peer may still have done it: ask it before trying again"
            ),
            RemoteError::Protocol(what) => {
                write!(f, "the peer broke the protocol ({what}); see that both sides are of the same version")
            }
            RemoteError::Busy => f.write_str("the peer does as much as it may at a time; try again later"),
            RemoteError::NoThread => f.write_str(
                "no blocking thread is free for the connection; raise `RuntimeBuilder::blocking_threads`",
            ),
            RemoteError::Io(error) => write!(f, "a socket could not be used: {error}"),
            RemoteError::Remote(message) => write!(f, "failed at the peer: {message}"),
        }
    }
}

impl Error for RemoteError {}

impl From<std::io::Error> for RemoteError {
    fn from(error: std::io::Error) -> RemoteError {
        RemoteError::Io(error.to_string())
    }
}
