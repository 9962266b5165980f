//! The blocking threads of connections: the runtime's, which are bounded.
//!
//! A connection holds two of them as long as it lasts, one that reads and one that writes; a server holds one more, which
//! accepts. If none becomes free in time, the connection does not come about ([`RemoteError::NoThread`]): it must not wait
//! behind connections that may last for ever.

use std::time::Duration;

use jobtree_runtime::channel::{self, RecvTimeoutError};
use jobtree_runtime::{BoxError, Dispatcher, JobHandle, Nursery, checkpoint};

use super::RemoteError;

/// Runs `body` on a blocking thread, and returns when it has begun.
///
/// # Errors
/// If it has not begun within `limit`. Then it never does.
pub(super) fn on_thread<'scope, 'env, F, T>(
    nursery: &'scope Nursery<'scope, 'env>,
    label: &'static str,
    limit: Duration,
    body: F,
) -> Result<JobHandle<T>, RemoteError>
where
    F: FnOnce() -> Result<T, BoxError> + Send + 'scope,
    T: Send + 'scope,
{
    let (begins, begun) = channel::bounded(1);
    let handle = nursery
        .job_options()
        .label(label)
        .on(&Dispatcher::io())
        .spawn(move || {
            // Whoever gave up in this very moment has cancelled it.
            checkpoint()?;
            let _ = begins.try_send(());
            drop(begins);
            body()
        });
    match begun.recv_timeout(Some(limit)) {
        Ok(()) => Ok(handle),
        Err(RecvTimeoutError::TimedOut) => {
            handle.cancel("no blocking thread was free in time");
            Err(RemoteError::NoThread)
        }
        Err(RecvTimeoutError::Closed | RecvTimeoutError::Cancelled(_)) => {
            handle.cancel("whoever wanted it has gone");
            Err(RemoteError::Cancelled)
        }
    }
}
