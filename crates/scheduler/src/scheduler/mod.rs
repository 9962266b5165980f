//! The handle of a running scheduler: every operation is a method here.
//!
//! A method begins its call at once and returns a [`Reply`], which a thread can block for and a future can await. Most
//! calls go straight to the store, from the caller's thread: the engine hears of what was committed, as of every commit.
//! Only what needs the dispatcher (claims, capacity, explanations, waiting) goes through the engine's mailbox.

mod admin;
mod jobs;
mod leases;
mod questions;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use jobtree_protocol::{ApiError, LeaseId, Limits};
use jobtree_store::{Answer, Stamp, Store, StoreError};

use crate::Reply;
use crate::core::{Call, Input, Responder};
use crate::engine::Engine;
use crate::error::told;
use crate::options::Options;
use crate::submissions::Mover;

/// A running scheduler. Clones are the same one; it stops with the last of them, or by [`Scheduler::stop`].
///
/// ```
/// use jobtree_protocol::{ClaimRequest, CompleteRequest, InstanceId, AddonId, JobState, SubmitRequest};
/// use jobtree_queue::signals::Sample;
/// use jobtree_scheduler::{Options, Scheduler};
/// use jobtree_store::Store;
///
/// let mut options = Options::default();
/// options.policy.quiet.enter_after = std::time::Duration::ZERO;
/// let scheduler = Scheduler::start(Store::in_memory(), options);
/// scheduler.sample(Sample::idle());
///
/// let job = scheduler.submit(SubmitRequest::new("visuals", "indexing", 30)).wait()?;
/// let dispatched = scheduler.dispatchable(None, std::time::Duration::from_secs(10)).wait()?;
/// assert_eq!(dispatched[0].job_id, job.job_id);
///
/// let lease = scheduler.ack(job.job_id, Default::default()).wait()?;
/// let ended = scheduler.complete(job.job_id, CompleteRequest::done(lease.lease_id, None)).wait()?;
/// assert_eq!(ended.state, JobState::Done);
/// # Ok::<(), jobtree_protocol::ApiError>(())
/// ```
#[derive(Clone)]
pub struct Scheduler {
    engine: Arc<Engine>,
}

/// A scheduler, if it is still there.
pub(crate) struct WeakScheduler(Weak<Engine>);

impl WeakScheduler {
    /// Returns it, unless it was dropped.
    pub(crate) fn upgrade(&self) -> Option<Scheduler> {
        self.0.upgrade().map(|engine| Scheduler { engine })
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("node", &self.engine.options().node)
            .finish_non_exhaustive()
    }
}

impl Scheduler {
    /// Starts one over a store. It begins with what the store holds.
    pub fn start(store: Store, options: Options) -> Self {
        let scheduler = Self {
            engine: Arc::new(Engine::start(store, options)),
        };
        if let Some(submissions) = scheduler.store().submissions() {
            scheduler
                .engine
                .moves(Mover::start(&scheduler, submissions));
        }
        scheduler
    }

    /// Returns a handle that does not keep it running.
    pub(crate) fn downgrade(&self) -> WeakScheduler {
        WeakScheduler(Arc::downgrade(&self.engine))
    }

    /// Stops it: what waits for it is told so, and nothing is dispatched any more. What runs goes on, and may be answered
    /// for when it is started again.
    pub fn stop(&self) {
        self.engine.stop();
    }

    /// The store that it works on.
    pub fn store(&self) -> &Store {
        self.engine.store()
    }

    /// What it was started with; for the policy in force see [`Scheduler::policy`].
    pub fn options(&self) -> &Options {
        self.engine.options()
    }

    fn stamp(&self) -> Stamp {
        self.engine.stamp()
    }

    fn limits(&self) -> &Limits {
        &self.engine.options().limits
    }

    /// A reply made of a store's answer.
    fn reply<T, U, F>(&self, answer: Answer<T>, then: F) -> Reply<U>
    where
        T: Send + 'static,
        U: Send + 'static,
        F: FnOnce(T) -> U + Send + 'static,
    {
        let engine = Arc::downgrade(&self.engine);
        Reply::new(async move {
            answer.await.map(then).map_err(|error| {
                if may_have_happened(&error)
                    && let Some(engine) = engine.upgrade()
                {
                    engine.post(Input::Resync);
                }
                told(&error)
            })
        })
    }

    /// Returns an answer of the engine's.
    fn call<T: Send + 'static>(&self, make: impl FnOnce(Responder<T>) -> Call) -> Reply<T> {
        Reply::new(self.engine.call(|_| Vec::new(), make))
    }

    /// Returns an answer of the engine's that grants leases. They are given back if the caller does not take it.
    fn call_for_leases<T: Send + 'static>(
        &self,
        leases: fn(&T) -> Vec<LeaseId>,
        make: impl FnOnce(Responder<T>) -> Call,
    ) -> Reply<T> {
        Reply::new(self.engine.call(leases, make))
    }
}

/// The outcome of a call that failed like this is not known.
fn may_have_happened(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Disconnected { .. } | StoreError::Stopped { .. }
    )
}

/// The result of a check, or the reply that says what is wrong.
fn checked<T, U: Send + 'static>(
    check: std::result::Result<T, Vec<jobtree_protocol::FieldError>>,
) -> std::result::Result<T, Reply<U>> {
    check.map_err(|fields| Reply::ready(Err(ApiError::invalid(fields))))
}

/// Waits are bounded, so that nothing is kept for ever for somebody who is gone.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

fn bounded(wait: Duration) -> Duration {
    wait.min(LONGEST_WAIT)
}
