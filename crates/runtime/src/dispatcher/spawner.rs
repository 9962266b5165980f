//! Starting jobs on a dispatcher.

use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, Instant};

use jobtree_tree::{BoxError, Job, JobOptions};

use super::{Dispatcher, Place, Queue, job};
use crate::budget::Executor;
use crate::deadline::limit_of;
use crate::handle::JobHandle;
use crate::nursery::Nursery;
use crate::spawner::{Spawner, handle_of};

/// What is said about a job before it starts on a dispatcher; see [`Spawner::on`].
#[must_use = "nothing starts before `spawn` or `launch`"]
pub struct DispatchedSpawner<'scope, 'env: 'scope> {
    spawner: Spawner<'scope, 'env>,
    dispatcher: Dispatcher,
}

impl<'scope, 'env> Spawner<'scope, 'env> {
    /// The job shall run on `dispatcher`.
    ///
    /// ```
    /// use jobtree_runtime::{Dispatcher, nursery};
    ///
    /// nursery(|n| {
    ///     let read = n
    ///         .job_options()
    ///         .label("read")
    ///         .on(&Dispatcher::io())
    ///         .spawn(|| Ok(std::fs::read("/dev/null")?));
    ///     assert!(read.join()?.is_empty());
    ///     Ok(())
    /// })?;
    /// # Ok::<(), jobtree_runtime::JobError>(())
    /// ```
    pub fn on(self, dispatcher: &Dispatcher) -> DispatchedSpawner<'scope, 'env> {
        DispatchedSpawner {
            spawner: self,
            dispatcher: dispatcher.clone(),
        }
    }
}

impl<'scope, 'env> DispatchedSpawner<'scope, 'env> {
    /// What reports and dumps call it.
    pub fn label(mut self, label: impl Into<Cow<'static, str>>) -> Self {
        self.spawner = self.spawner.label(label);
        self
    }

    /// How long it may take, from now on, the wait for a thread included. Then it is cancelled, and has failed.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.spawner = self.spawner.timeout(limit);
        self
    }

    /// Jobs below it fail alone.
    pub fn supervisor(mut self) -> Self {
        self.spawner = self.spawner.supervisor();
        self
    }

    /// Starts the job. In a simulation it fails if the dispatcher was made outside, and elsewhere if it was made in one.
    pub fn spawn<F, T>(self, body: F) -> JobHandle<T>
    where
        F: FnOnce() -> Result<T, BoxError> + Send + 'scope,
        T: Send + 'scope,
    {
        let (nursery, start, options) = self.spawner.into_parts();
        let runtime = &nursery.runtime;
        match self.dispatcher.place(runtime) {
            Place::Workers(load) => {
                let entered = load.enter();
                let number = entered.number();
                let handle = nursery.job_with(start, options, move || {
                    let _entered = entered;
                    body()
                });
                load.name(number, handle.job());
                handle
            }
            Place::Queue(queue) => {
                // What the job borrows must not leave a simulation, nor wait for one that is over.
                if let Err(refused) = queue.check_suits(runtime) {
                    return nursery.job_with(start, options, move || Err(refused.into()));
                }
                match nursery.admit(&start.request, Executor::Blocking) {
                    Ok(None) => enqueue(nursery, queue, start.deadline, options, body),
                    Ok(Some(lease)) => {
                        let options = lease.install(options);
                        let body = lease.around(body);
                        enqueue(nursery, queue, start.deadline, options, body)
                    }
                    // As a job that fails, so that its scope and its handle learn of it; and without a thread.
                    Err(refusal) => nursery.refused(start, options, refusal),
                }
            }
        }
    }

    /// Starts the job and forgets its value.
    pub fn launch<F>(self, body: F)
    where
        F: FnOnce() -> Result<(), BoxError> + Send + 'scope,
    {
        drop(self.spawn(body));
    }
}

fn enqueue<'scope, F, T>(
    nursery: &'scope Nursery<'scope, '_>,
    queue: &Queue,
    deadline: Option<Instant>,
    options: JobOptions,
    body: F,
) -> JobHandle<T>
where
    F: FnOnce() -> Result<T, BoxError> + Send + 'scope,
    T: Send + 'scope,
{
    let runtime = &nursery.runtime;
    let timer = |job: &Job| limit_of(runtime, deadline, job);
    let (parent, around) = (nursery.job(), nursery.context);
    // SAFETY: the scope's job does not end before `'scope` is over: see `Nursery::job_with`.
    let spawned = unsafe { job::spawn(parent, options, runtime, queue, around, timer, body) };
    handle_of(spawned)
}

impl fmt::Debug for DispatchedSpawner<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DispatchedSpawner")
            .field("spawner", &self.spawner)
            .field("dispatcher", &self.dispatcher)
            .finish()
    }
}
