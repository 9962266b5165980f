//! What bindings to other languages need, and Rust programs have better forms of: scopes and jobs that lifetimes
//! say nothing about.
//!
//! Hidden from the documentation: it may change with the bindings of this workspace, which are its only users.

use std::time::Duration;

use jobtree_tree::{BoxError, Job, JobOptions, Outcome};

use crate::budget::{
    Budget, Capabilities, Decision, Exhausted, RechargeError, Refusal, Request, Scope,
};
use crate::deadline::limit_of;
use crate::dispatcher::Dispatcher;
use crate::future::{JobPlace, Nursery};
use crate::handle::JobHandle;
use crate::inline;
use crate::runtime::{Runtime, current, runtime_of};
use crate::task::TaskStack;

pub use crate::current::name_of_stack;
pub use crate::owned::{OwnedNursery, WaitInside};
pub use jobtree_pool::raw::is_unwinding;
pub use jobtree_pool::{BuildError, Stopped, yield_now};
pub use jobtree_tree::ParentEnded;

/// The current job as a scope: what is started in it is under that job, which ends after it. `None` outside of a job.
pub fn current_nursery() -> Option<Nursery> {
    Job::current()?;
    let place = current();
    let budgets = Scope::of(&place.parent);
    Some(Nursery::new(place.parent, place.runtime, budgets))
}

/// A job as a scope. `None` if it has ended.
pub fn nursery_of(job: &Job) -> Option<Nursery> {
    if job.is_ended() {
        return None;
    }
    Some(Nursery::new(job.clone(), runtime_of(job)?, Scope::of(job)))
}

/// The same scope, whose jobs come out of the budget of the scope's job if it has one.
pub fn within_limits(nursery: Nursery) -> Nursery {
    nursery.within_limits()
}

/// Runs `body` on the calling thread as a scope under `parent`, and returns when everything that was started in it has
/// ended. It is cancelled with `parent`, not with the calling job.
///
/// # Errors
/// If `parent` has ended; `body` was not called.
pub fn scope_under<T>(
    parent: &Job,
    supervisor: bool,
    body: impl FnOnce() -> Result<T, BoxError>,
) -> Result<Outcome<T>, ParentEnded> {
    let mut options = JobOptions::new();
    if supervisor {
        options = options.supervisor();
    }
    inline::try_run(parent, options, |_| body())
}

/// Has `handler` decide about jobs started in `nursery` that have used up their budget; `false` if nothing is limited
/// there.
pub fn supervise_budgets(
    nursery: &Nursery,
    handler: impl Fn(&Exhausted) -> Decision + Send + Sync + 'static,
) -> bool {
    match nursery.budgets() {
        Some(budgets) => {
            budgets.supervise(handler);
            true
        }
        None => false,
    }
}

/// Gives a job that was started in `nursery` and has used up its budget up to `more` out of the scope's; returns how much
/// it got.
///
/// # Errors
/// As [`Nursery::recharge`](crate::Nursery::recharge).
pub fn recharge(nursery: &Nursery, job: &Job, more: Budget) -> Result<Budget, RechargeError> {
    match nursery.budgets() {
        Some(budgets) => budgets.recharge(job, more),
        None => Err(RechargeError::NotSupervised),
    }
}

/// The root of a runtime as a scope: what is started in it belongs to nobody, and fails alone.
pub fn root_nursery(runtime: &Runtime) -> Nursery {
    runtime.root_nursery()
}

/// What is said about a job before it starts.
#[derive(Clone, Debug, Default)]
pub struct JobDescription {
    /// What reports and dumps call it.
    pub label: Option<String>,
    /// How long it may take.
    pub limit: Option<Duration>,
    /// Whether a stack of 64 KiB is enough for it.
    pub small_stack: bool,
    /// Where it runs.
    pub dispatcher: Dispatcher,
    /// How much it may do, if something else than usual.
    pub budget: Option<Budget>,
    /// What it may ask for, if less than the scope may.
    pub capabilities: Option<Capabilities>,
}

/// Ends the threads of a dispatcher that nobody will use any more, as soon as they have nothing left to do; `false` if
/// `limit` was over first.
pub fn end_threads(dispatcher: &Dispatcher, limit: Duration) -> bool {
    dispatcher.end_threads(limit)
}

/// Starts a job in `nursery` whose body `make` returns. Under one that is cancelled or has ended it is born cancelled: its
/// body is dropped and never runs.
///
/// # Errors
/// If the budget or the capabilities of the scope do not allow it; then `make` was not called.
pub fn try_spawn<F, T>(
    nursery: &Nursery,
    description: JobDescription,
    make: impl FnOnce() -> F,
) -> Result<JobHandle<T>, Refusal>
where
    F: FnOnce() -> Result<T, BoxError> + Send + 'static,
    T: Send + 'static,
{
    let runtime = nursery.runtime();
    let now = runtime.timers.now();
    let deadline = description.limit.and_then(|limit| now.checked_add(limit));
    let mut options = JobOptions::new();
    if let Some(label) = description.label {
        options = options.label(label);
    }
    if let Some(deadline) = deadline {
        options = options.deadline(deadline);
    }
    let place = match description.dispatcher.queue(runtime) {
        Some(queue) => JobPlace::ThreadOf(queue),
        None if description.small_stack => JobPlace::Worker(TaskStack::Small),
        None => JobPlace::Worker(runtime.task_stack),
    };
    let request = Request {
        budget: description.budget,
        capabilities: description.capabilities,
    };
    let timer = |job: &Job| limit_of(runtime, deadline, job);
    nursery.try_spawn_limited(place, options, &request, timer, make)
}
