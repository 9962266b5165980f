//! Waiting for any of several jobs.
//!
//! Each job gets a waker that puts the job's number into a queue and notifies the waiting caller. So a call looks only at jobs that have
//! ended or are new, however many there are.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use jobtree_tree::{CancelReason, Cancelled, JobError, Outcome};

use crate::handle::JobHandle;
use crate::sync::Notify;

/// Jobs whose outcomes are taken in the order in which they end.
///
/// It holds handles, of jobs from any scope and in any form. Dropping it does to the jobs what dropping a handle does: nothing. In a
/// [`nursery`](crate::nursery()) the first job that fails cancels the others, as always; in a [`supervisor`](crate::supervisor())
/// each outcome stands alone.
///
/// ```
/// use jobtree_runtime::{JoinSet, supervisor};
///
/// let mirrors = ["slow", "broken", "fast"];
/// let winner = supervisor(|n| {
///     let mut answers = JoinSet::new();
///     for mirror in mirrors {
///         answers.insert(n.spawn(move || match mirror {
///             "broken" => Err("no answer".into()),
///             "slow" => {
///                 jobtree_runtime::sleep(std::time::Duration::from_secs(3600))?;
///                 Ok(mirror)
///             }
///             _ => Ok(mirror),
///         }));
///     }
///     let mut winner = None;
///     while let Some(outcome) = answers.join_next() {
///         if let Ok(mirror) = outcome {
///             winner = Some(mirror);
///             answers.cancel_all("one answer is enough");
///             break;
///         }
///     }
///     Ok(winner)
/// })?;
/// assert_eq!(winner, Some("fast"));
/// # Ok::<(), jobtree_runtime::JobError>(())
/// ```
pub struct JoinSet<T> {
    handles: HashMap<u64, JobHandle<T>>,
    next: u64,
    ready: Arc<Ready>,
}

/// The numbers of jobs that have to be looked at.
#[derive(Default)]
struct Ready {
    numbers: Mutex<VecDeque<u64>>,
    notify: Notify,
}

impl Ready {
    fn numbers(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of a set that is woken when a job ends.
struct JobWaker {
    number: u64,
    ready: Arc<Ready>,
}

impl JobWaker {
    fn report(&self) {
        self.ready.numbers().push_back(self.number);
        self.ready.notify.notify_one();
    }
}

impl Wake for JobWaker {
    fn wake(self: Arc<Self>) {
        self.report();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.report();
    }
}

impl<T> JoinSet<T> {
    /// Makes an empty set.
    pub fn new() -> JoinSet<T> {
        JoinSet {
            handles: HashMap::new(),
            next: 0,
            ready: Arc::default(),
        }
    }

    /// Adds a job.
    pub fn insert(&mut self, handle: JobHandle<T>) {
        self.handles.insert(self.next, handle);
        self.ready.numbers().push_back(self.next);
        self.next += 1;
    }

    /// Returns how many jobs are in it, with those that have ended and were not taken.
    pub fn len(&self) -> usize {
        self.handles.len()
    }

    /// Returns `true` if no job is in it.
    pub fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }

    /// Waits until a job has ended, takes it out and returns its outcome; `None` if no job is in the set. The stack of a
    /// job is parked meanwhile.
    ///
    /// If the *calling* job is cancelled, the outcome is its own cancellation, as that of [`JobHandle::join`] is, and some job is
    /// taken out for it: so a loop over all outcomes comes to an end.
    pub fn join_next(&mut self) -> Option<Outcome<T>> {
        loop {
            if self.handles.is_empty() {
                return None;
            }
            if let Some(outcome) = self.try_join_next() {
                return Some(outcome);
            }
            if let Err(cancelled) = self.ready.notify.wait() {
                return self.give_up_one(cancelled);
            }
        }
    }

    /// Does what [`join_next`](JoinSet::join_next) does, as a future. Dropped before it is ready, it has taken no job out.
    ///
    /// ```
    /// use jobtree_runtime::{JoinSet, block_on, future};
    ///
    /// let sum = block_on(future::nursery(async |n| {
    ///     let mut parts: JoinSet<u32> = (1..=3).map(|part| n.spawn(move || Ok(part))).collect();
    ///     let mut sum = 0;
    ///     while let Some(part) = parts.join_next_async().await {
    ///         sum += part?;
    ///     }
    ///     Ok(sum)
    /// }))??;
    /// assert_eq!(sum, 6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn join_next_async(&mut self) -> Option<Outcome<T>> {
        loop {
            if self.handles.is_empty() {
                return None;
            }
            if let Some(outcome) = self.try_join_next() {
                return Some(outcome);
            }
            if let Err(cancelled) = self.ready.notify.notified().await {
                return self.give_up_one(cancelled);
            }
        }
    }

    /// Takes out a job that has ended, and returns its outcome; `None` if none has. It does not look whether the calling job is
    /// cancelled.
    pub fn try_join_next(&mut self) -> Option<Outcome<T>> {
        loop {
            // It stays the first one until it was looked at: if that panics, a later call looks again.
            let number = *self.ready.numbers().front()?;
            let outcome = self.outcome_of(number);
            self.ready.numbers().pop_front();
            if outcome.is_some() {
                self.handles.remove(&number);
                return outcome;
            }
        }
    }

    /// Returns the outcome of a job that has ended; otherwise, its end will put the number into the queue.
    fn outcome_of(&mut self, number: u64) -> Option<Outcome<T>> {
        let handle = self.handles.get_mut(&number)?;
        let waker = Waker::from(Arc::new(JobWaker {
            number,
            ready: Arc::clone(&self.ready),
        }));
        match handle.poll_end(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    fn give_up_one(&mut self, cancelled: Cancelled) -> Option<Outcome<T>> {
        let number = *self.handles.keys().next()?;
        self.handles.remove(&number);
        Some(Err(JobError::Cancelled(cancelled)))
    }

    /// Asks all jobs in the set to end. Their outcomes can still be taken.
    pub fn cancel_all(&self, reason: impl Into<CancelReason>) {
        let reason = reason.into();
        for handle in self.handles.values() {
            handle.cancel(reason.clone());
        }
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> JoinSet<T> {
        JoinSet::new()
    }
}

impl<T> Extend<JobHandle<T>> for JoinSet<T> {
    fn extend<I: IntoIterator<Item = JobHandle<T>>>(&mut self, handles: I) {
        handles.into_iter().for_each(|handle| self.insert(handle));
    }
}

impl<T> FromIterator<JobHandle<T>> for JoinSet<T> {
    fn from_iter<I: IntoIterator<Item = JobHandle<T>>>(handles: I) -> JoinSet<T> {
        let mut set = JoinSet::new();
        set.extend(handles);
        set
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.handles.values()).finish()
    }
}
