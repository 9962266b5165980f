//! Messages that want an answer.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use jobtree_tree::Cancelled;

use super::Address;
use crate::channel::{self, RecvError, RecvTimeoutError, SendError, SendTimeoutError, Sender};
use crate::runtime;

/// The right to answer, once; a part of the message. Dropped without an answer, whoever asked is told that there is none.
#[must_use = "somebody waits for the answer"]
pub struct Reply<R> {
    sender: Sender<R>,
}

impl<R> Reply<R> {
    /// Answers; `false` if nobody waits for it any more.
    pub fn send(self, answer: R) -> bool {
        // There is room for one, so this never waits: an actor that is cancelled may still answer.
        self.sender.try_send(answer).is_ok()
    }
}

impl<R> fmt::Debug for Reply<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}

impl<M> Address<M> {
    /// Sends the message that `message` makes, and waits for the answer.
    ///
    /// ```
    /// use jobtree_runtime::actor::{self, ActorOptions, Reply};
    /// use jobtree_runtime::nursery;
    ///
    /// let answer = nursery(|n| {
    ///     let double = actor::from_fn(|(number, reply): (u64, Reply<u64>), _| {
    ///         reply.send(2 * number);
    ///         Ok(())
    ///     });
    ///     let double = n.actor(ActorOptions::new(), double);
    ///     Ok(double.ask(|reply| (21, reply))?)
    /// })?;
    /// assert_eq!(answer, 42);
    /// # Ok::<(), jobtree_runtime::JobError>(())
    /// ```
    ///
    /// # Errors
    /// If the actor is done, does not answer (because it fails, for one), or the current job is cancelled. An actor that
    /// asks itself waits for ever.
    pub fn ask<R>(&self, message: impl FnOnce(Reply<R>) -> M) -> Result<R, AskError> {
        let (sender, answer) = channel::bounded(1);
        self.send(message(Reply { sender }))?;
        Ok(answer.recv()?)
    }

    /// [`ask`](Address::ask), but no longer than `limit`, for room in the mailbox and the answer together.
    ///
    /// # Errors
    /// As [`ask`](Address::ask); and if the limit was over.
    pub fn ask_timeout<R>(
        &self,
        message: impl FnOnce(Reply<R>) -> M,
        limit: Duration,
    ) -> Result<R, AskError> {
        let timers = runtime::current().runtime.timers.clone();
        let began = timers.now();
        let (sender, answer) = channel::bounded(1);
        self.send_timeout(message(Reply { sender }), limit)?;
        let left = limit.saturating_sub(timers.now().saturating_duration_since(began));
        Ok(answer.recv_timeout(Some(left))?)
    }

    /// [`ask`](Address::ask) as a future.
    ///
    /// # Errors
    /// As [`ask`](Address::ask).
    pub async fn ask_async<R>(&self, message: impl FnOnce(Reply<R>) -> M) -> Result<R, AskError> {
        let (sender, answer) = channel::bounded(1);
        self.send_async(message(Reply { sender })).await?;
        Ok(answer.recv_async().await?)
    }
}

/// Why there is no answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AskError {
    /// The actor is done; it was not asked.
    Closed,
    /// It was asked, and did not answer: it failed or was cancelled, or dropped the [`Reply`].
    NoReply,
    /// The time was over.
    TimedOut,
    /// The current job was cancelled.
    Cancelled(Cancelled),
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskError::Closed => f.write_str("the actor is done and was not asked; stop asking it"),
            AskError::NoReply => f.write_str(
                "the actor did not answer: it failed, was cancelled, or dropped the reply; ask again only if that does \
                 no harm",
            ),
            AskError::TimedOut => f.write_str(
                "the actor did not answer in time; give it longer, or look what keeps it busy",
            ),
            AskError::Cancelled(cancelled) => cancelled.fmt(f),
        }
    }
}

impl Error for AskError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            AskError::Cancelled(cancelled) => Some(cancelled),
            _ => None,
        }
    }
}

impl<M> From<SendError<M>> for AskError {
    fn from(error: SendError<M>) -> AskError {
        match error {
            SendError::Closed(_) => AskError::Closed,
            SendError::Cancelled(_, cancelled) => AskError::Cancelled(cancelled),
        }
    }
}

impl<M> From<SendTimeoutError<M>> for AskError {
    fn from(error: SendTimeoutError<M>) -> AskError {
        match error {
            SendTimeoutError::TimedOut(_) => AskError::TimedOut,
            SendTimeoutError::Closed(_) => AskError::Closed,
            SendTimeoutError::Cancelled(_, cancelled) => AskError::Cancelled(cancelled),
        }
    }
}

impl From<RecvError> for AskError {
    fn from(error: RecvError) -> AskError {
        match error {
            RecvError::Closed => AskError::NoReply,
            RecvError::Cancelled(cancelled) => AskError::Cancelled(cancelled),
        }
    }
}

impl From<RecvTimeoutError> for AskError {
    fn from(error: RecvTimeoutError) -> AskError {
        match error {
            RecvTimeoutError::TimedOut => AskError::TimedOut,
            RecvTimeoutError::Closed => AskError::NoReply,
            RecvTimeoutError::Cancelled(cancelled) => AskError::Cancelled(cancelled),
        }
    }
}
