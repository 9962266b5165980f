//! A signal that some token or session is no longer accepted, for what outlasts the check of one request: event streams.

use std::sync::Arc;

use tokio::sync::watch;

/// The signal. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Revocations(Arc<watch::Sender<u64>>);

impl Revocations {
    /// Wakes everything that rests on a token or a session, to check it again.
    pub(crate) fn tell(&self) {
        self.0.send_modify(|count| *count += 1);
    }

    /// Returns a receiver that changes with each revocation from now on.
    pub(crate) fn listen(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}
