//! What others know of an actor.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jobtree_tree::{CancelReason, Job};

use crate::channel::{ChannelStats, SendError, SendTimeoutError, Sender, Sending, TrySendError};

/// Where messages for an actor are sent to. Clones are the same address; when the last one is dropped, the actor handles
/// what it was sent, and ends.
///
/// It stays valid when a supervisor restarts the actor: the messages wait for the new one.
pub struct Address<M> {
    sender: Sender<M>,
    about: Arc<About>,
}

/// What is known of an actor beside its mailbox.
#[derive(Default)]
pub(crate) struct About {
    /// The job that runs it; the newest, if it was restarted.
    job: Mutex<Option<Job>>,
    lost: AtomicU64,
}

impl About {
    pub(crate) fn set_job(&self, job: &Job) {
        let mut known = self.job.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.replace(job.clone());
        drop(known);
        drop(before);
    }

    fn job(&self) -> Option<Job> {
        let known = self.job.lock().unwrap_or_else(PoisonError::into_inner);
        known.clone()
    }

    pub(crate) fn count_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }
}

impl<M> Address<M> {
    pub(crate) fn new(sender: Sender<M>, about: Arc<About>) -> Address<M> {
        Address { sender, about }
    }

    pub(crate) fn about(&self) -> &About {
        &self.about
    }

    /// Sends a message, and waits for room in the mailbox.
    ///
    /// # Errors
    /// If the actor is done, or the current job cancelled; the message comes back in the error.
    pub fn send(&self, message: M) -> Result<(), SendError<M>> {
        self.sender.send(message)
    }

    /// Sends a message if there is room.
    ///
    /// # Errors
    /// If there is none, or the actor is done; the message comes back in the error.
    pub fn try_send(&self, message: M) -> Result<(), TrySendError<M>> {
        self.sender.try_send(message)
    }

    /// Sends a message, and waits for room no longer than `limit`.
    ///
    /// # Errors
    /// If there was none, the actor is done, or the current job cancelled; the message comes back in the error.
    pub fn send_timeout(&self, message: M, limit: Duration) -> Result<(), SendTimeoutError<M>> {
        self.sender.send_timeout(message, Some(limit))
    }

    /// Sends a message as a future does it.
    ///
    /// # Errors
    /// As [`send`](Address::send).
    pub fn send_async(&self, message: M) -> Sending<'_, M> {
        self.sender.send_async(message)
    }

    /// Nothing can be sent any more; the actor handles what it was sent, and completes. `false` if it was closed before.
    pub fn close(&self) -> bool {
        self.sender.close()
    }

    /// Whether nothing can be sent any more. The actor may still be busy with what it was sent.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Asks the actor to end now: it is told in the middle of a message, if it looks, and handles no other. `false` if it
    /// was asked before or has ended. Under a supervisor, this ends the running one; whether there will be another is for
    /// the restart policy to say.
    pub fn cancel(&self, reason: impl Into<CancelReason>) -> bool {
        self.job().is_some_and(|job| job.cancel(reason))
    }

    /// The job that runs the actor; the newest, if it was restarted. `None` if a supervisor has not started it yet.
    pub fn job(&self) -> Option<Job> {
        self.about.job()
    }

    /// How many messages wait.
    pub fn len(&self) -> usize {
        self.sender.len()
    }

    /// Whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.sender.is_empty()
    }

    /// How many messages were taken out of the mailbox and not handled to their end, because the actor failed, panicked or
    /// was cancelled in the middle. Nobody handles them again, even after a restart.
    pub fn lost(&self) -> u64 {
        self.about.lost.load(Ordering::Relaxed)
    }

    /// What the mailbox has counted.
    pub fn stats(&self) -> ChannelStats {
        self.sender.stats()
    }
}

impl<M> Clone for Address<M> {
    fn clone(&self) -> Address<M> {
        Address {
            sender: self.sender.clone(),
            about: Arc::clone(&self.about),
        }
    }
}

impl<M> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("job", &self.job())
            .field("mailbox", &self.sender)
            .finish()
    }
}
