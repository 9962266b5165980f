//! A job that feeds a channel: the channel closes when the job ends, and the job ends when nobody receives any more.

use std::fmt;

use jobtree_tree::{BoxError, Cancelled, Cause, Job};

use crate::channel::{self, Receiver, SendError, Sender};
use crate::current::checkpoint;
use crate::handle::JobHandle;
use crate::nursery::Nursery;

impl<'scope, 'env> Nursery<'scope, 'env> {
    /// Starts a job that sends values into a channel of `capacity`; 0 is a rendezvous. The channel is closed when the job
    /// ends, however it does, so that whoever receives comes to an end, too.
    ///
    /// The other way round, a job whose values nobody receives any more is cancelled at its next
    /// [`send`](Producer::send): that is its normal end, and no failure.
    ///
    /// ```
    /// use jobtree_runtime::nursery;
    ///
    /// let squares = nursery(|n| {
    ///     let (squares, _producer) = n.produce(16, |out| {
    ///         for number in 0_u64.. {
    ///             out.send(number * number)?;
    ///         }
    ///         Ok(())
    ///     });
    ///     // The endless producer ends when the receiver is dropped.
    ///     Ok(squares.into_iter().take(5).collect::<Vec<_>>())
    /// })?;
    /// assert_eq!(squares, [0, 1, 4, 9, 16]);
    /// # Ok::<(), jobtree_runtime::JobError>(())
    /// ```
    ///
    /// # Panics
    /// If the limits of the calling code do not allow the channel ([`CapChannel`](crate::budget::CapChannel)), as in the profile
    /// [`Core`](crate::Profile::Core), where nothing may be spawned either. If they allow the channel and not the job, the job
    /// fails and the channel is closed.
    pub fn produce<T, F>(&'scope self, capacity: usize, body: F) -> (Receiver<T>, JobHandle<()>)
    where
        F: FnOnce(&Producer<T>) -> Result<(), BoxError> + Send + 'scope,
        T: Send + 'scope,
    {
        let (sender, receiver) = match capacity {
            0 => channel::rendezvous(),
            _ => channel::bounded(capacity),
        };
        let handle = self.spawn(move || {
            let Some(job) = Job::current() else {
                unreachable!("the body of a job runs in it");
            };
            body(&Producer { sender, job })
        });
        (receiver, handle)
    }
}

/// What a producer sends with; see [`Nursery::produce`].
pub struct Producer<T> {
    sender: Sender<T>,
    job: Job,
}

impl<T> Producer<T> {
    /// Sends `value`, and waits for room.
    ///
    /// # Errors
    /// If the current job is cancelled; and if nobody receives any more, which cancels the producer. Return it
    /// through `?`. The value is lost.
    pub fn send(&self, value: T) -> Result<(), Cancelled> {
        match self.sender.send(value) {
            Ok(()) => Ok(()),
            Err(SendError::Cancelled(_, cancelled)) => Err(cancelled),
            Err(SendError::Closed(_)) => Err(self.abandoned()),
        }
    }

    /// [`send`](Producer::send) as a future.
    ///
    /// # Errors
    /// As [`send`](Producer::send).
    pub async fn send_async(&self, value: T) -> Result<(), Cancelled> {
        match self.sender.send_async(value).await {
            Ok(()) => Ok(()),
            Err(SendError::Cancelled(_, cancelled)) => Err(cancelled),
            Err(SendError::Closed(_)) => Err(self.abandoned()),
        }
    }

    /// The end of the channel, for the other ways to send. A clone of it does not keep the channel open.
    pub fn sender(&self) -> &Sender<T> {
        &self.sender
    }

    #[cold]
    fn abandoned(&self) -> Cancelled {
        self.job.cancel(Cause::Abandoned);
        // The current job may be one below the producer, and sees it as its own; or be shielded.
        let seen = checkpoint().err().or_else(|| self.job.cancellation());
        match seen {
            Some(cancelled) => cancelled,
            None => unreachable!("{:?} sends after its end", self.job),
        }
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.sender.close();
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Producer").field(&self.sender).finish()
    }
}
