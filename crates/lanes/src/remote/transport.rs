//! What carries requests to a peer.

use std::pin::Pin;
use std::time::Duration;

use jobtree_runtime::future;

use super::waiting::{First, first_of};
use super::{RemoteError, RemoteRequest, RemoteResponse};

/// The answer to come; see [`RemoteTransport::send`].
pub type Answer = Pin<Box<dyn Future<Output = Result<RemoteResponse, RemoteError>> + Send>>;

/// Carries requests to a peer, and answers back.
///
/// What every transport promises:
/// * A request is handed to the peer at most once.
/// * An id that waits for its answer already is refused with [`DuplicateId`](RemoteError::DuplicateId).
/// * An answer that is not for the request's sender is ignored, and counted.
/// * The future is ready at the request's timeout at the latest, by the clock of the runtime in which it is awaited.
/// * Dropped before, it tells the peer that nobody waits any more.
pub trait RemoteTransport: Send + Sync {
    /// Whether a request could be sent now.
    fn is_connected(&self) -> bool;

    /// Sends a request. The id counts as pending from this call on, not from the first poll.
    ///
    /// An answer that tells of a failure is an `Ok`; an `Err` is what kept the answer away.
    fn send(&self, request: RemoteRequest) -> Answer;

    /// Cancels what is pending, and sends nothing any more.
    fn close(&self);
}

impl<T: RemoteTransport + ?Sized> RemoteTransport for std::sync::Arc<T> {
    fn is_connected(&self) -> bool {
        (**self).is_connected()
    }

    fn send(&self, request: RemoteRequest) -> Answer {
        (**self).send(request)
    }

    fn close(&self) {
        (**self).close();
    }
}

/// Waits for `work`, but no longer than `limit` and not beyond the cancellation of the job in which this is awaited.
pub(super) async fn within<T>(
    limit: Option<Duration>,
    too_late: impl FnOnce() -> RemoteError,
    work: impl Future<Output = Result<T, RemoteError>>,
) -> Result<T, RemoteError> {
    match first_of(work, future::sleep(limit.unwrap_or(Duration::MAX))).await {
        First::One(result) => result,
        First::Other(Ok(())) => Err(too_late()),
        First::Other(Err(_)) => Err(RemoteError::Cancelled),
    }
}
