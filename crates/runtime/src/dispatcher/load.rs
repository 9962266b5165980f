//! What waits or runs on a dispatcher: counted, and known by name, so that one can wait until there is nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use jobtree_base::user_code::wake_all_users;
use jobtree_tree::{Cancelled, Job};

/// See the module's head.
#[derive(Default)]
pub(super) struct Load {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    /// A job is known by name a moment after it was counted, or a moment after it has left, which is then ignored.
    jobs: BTreeMap<u64, Option<Job>>,
    /// To be woken when the last one leaves.
    waiting: Vec<Waker>,
}

/// One that is counted until this is dropped.
pub(super) struct Entered {
    load: Arc<Load>,
    number: u64,
}

impl Load {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more.
    pub(super) fn enter(self: &Arc<Load>) -> Entered {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.jobs.insert(number, None);
        Entered {
            load: Arc::clone(self),
            number,
        }
    }

    /// The one with this number is `job`, if it is still there.
    pub(super) fn name(&self, number: u64, job: &Job) {
        if let Some(name) = self.lock().jobs.get_mut(&number) {
            *name = Some(job.clone());
        }
    }

    /// The paths of what is there.
    pub(super) fn paths(&self) -> Vec<String> {
        // Handles, because asking for a path takes the locks of jobs.
        let jobs: Vec<Option<Job>> = self.lock().jobs.values().cloned().collect();
        jobs.iter()
            .map(|job| match job {
                Some(job) => job.path(),
                None => "a job that was just started".to_owned(),
            })
            .collect()
    }

    /// A future that is ready when there is nothing.
    pub(super) fn empty(&self) -> Empty<'_> {
        Empty { load: self }
    }
}

impl Entered {
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut state = self.load.lock();
        let job = state.jobs.remove(&self.number);
        let waiting = match state.jobs.is_empty() {
            true => std::mem::take(&mut state.waiting),
            false => Vec::new(),
        };
        drop(state);
        // Not under the lock: it may be the last handle of a job, and wakers run other people's code.
        drop(job);
        wake_all_users(waiting.into_iter());
    }
}

/// See [`Load::empty`].
pub(super) struct Empty<'a> {
    load: &'a Load,
}

impl Future for Empty<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Before the lock is taken, as every waker is cloned.
        let own = context.waker().clone();
        let mut state = self.load.lock();
        if state.jobs.is_empty() {
            return Poll::Ready(());
        }
        if !state.waiting.iter().any(|known| known.will_wake(&own)) {
            state.waiting.push(own);
        }
        Poll::Pending
    }
}

/// Why a dispatcher was not drained; see [`Dispatcher::drain`](crate::Dispatcher::drain).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DrainError {
    /// The time was over.
    TimedOut {
        /// The paths of the jobs that wait or run there.
        left: Vec<String>,
    },
    /// The job that waited was cancelled.
    Cancelled(Cancelled),
}

impl DrainError {
    /// The paths of the jobs that were left; none if the waiting job was cancelled.
    pub fn left(&self) -> &[String] {
        match self {
            DrainError::TimedOut { left } => left,
            DrainError::Cancelled(_) => &[],
        }
    }
}

impl fmt::Display for DrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DrainError::TimedOut { left } => write!(
                f,
                "still on the dispatcher after the time limit: {}; cancel them, or give them more time",
                left.join(", ")
            ),
            DrainError::Cancelled(cancelled) => cancelled.fmt(f),
        }
    }
}

impl std::error::Error for DrainError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            DrainError::TimedOut { .. } => None,
            DrainError::Cancelled(cancelled) => Some(cancelled),
        }
    }
}
