//! What two peers say to each other.

use std::time::Duration;

use super::{RemoteError, RemoteRequest, RemoteResponse};

/// What both sides say first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    /// Who speaks.
    pub(super) id: String,
    /// It says something at least this often.
    pub(super) heartbeat: Duration,
    /// The largest frame it takes, in bytes.
    pub(super) max_frame: u32,
}

/// One message; [`codec`](super::codec) has the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// First word of whoever connects.
    Hello(Greeting),
    /// First word of whoever was connected to.
    Welcome(Greeting),
    /// There will be no conversation. Nothing follows.
    Refused(RemoteError),
    /// A request, and the number of this call. The answer brings the number back: the id of a request is its sender's to
    /// choose, and may come again while the answer to an earlier one is still on its way.
    Request(u64, RemoteRequest),
    Response(u64, RemoteResponse),
    /// Nobody waits any more for the answer to this call.
    Cancel(u64),
    /// Somebody is there.
    Ping,
    /// Nothing follows.
    Goodbye,
}
