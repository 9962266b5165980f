//! Starting a job in a scope: what can be said before, whether it is allowed, and on what it runs.

use std::borrow::Cow;
use std::fmt;
use std::future::ready;
use std::time::{Duration, Instant};

use jobtree_tree::{BoxError, Job, JobOptions, ParentEnded};

use crate::budget::{self, Budget, Capabilities, Executor, Lease, Refusal, Request, SpawnRefused};
use crate::deadline::limit_of;
use crate::future;
use crate::handle::JobHandle;
use crate::nursery::Nursery;
use crate::task::{self, Spawned, TaskStack};

/// How a job starts, apart from what its job is told.
pub(crate) struct Start {
    stack: TaskStack,
    pub(crate) deadline: Option<Instant>,
    pub(crate) request: Request,
}

impl<'scope, 'env> Nursery<'scope, 'env> {
    /// How a job starts about which nothing was said.
    #[inline]
    pub(crate) fn plain(&self) -> Start {
        Start {
            stack: self.runtime.task_stack,
            deadline: None,
            request: Request::default(),
        }
    }

    #[inline]
    pub(crate) fn job_with<F, T>(
        &'scope self,
        start: Start,
        options: JobOptions,
        body: F,
    ) -> JobHandle<T>
    where
        F: FnOnce() -> Result<T, BoxError> + Send + 'scope,
        T: Send + 'scope,
    {
        budget::charge_op();
        if self.budgets.is_none() && start.request.is_plain() && !budget::is_limited() {
            return JobHandle::new(self.start(&start, options, body));
        }
        JobHandle::new(self.start_within_limits(&start, options, body))
    }

    #[cold]
    #[inline(never)]
    fn start_within_limits<F, T>(
        &'scope self,
        start: &Start,
        options: JobOptions,
        body: F,
    ) -> Spawned<T>
    where
        F: FnOnce() -> Result<T, BoxError> + Send + 'scope,
        T: Send + 'scope,
    {
        match self.admit(&start.request, Executor::Cooperative) {
            Ok(None) => self.start(start, options, body),
            Ok(Some(lease)) => self.start(start, lease.install(options), lease.around(body)),
            // As a job that fails, so that nobody misses it.
            Err(refusal) => self.start(start, options, move || Err(refusal.into())),
        }
    }

    /// A job that fails because it may not run.
    pub(crate) fn refused<T: Send + 'scope>(
        &'scope self,
        start: Start,
        options: JobOptions,
        refusal: Refusal,
    ) -> JobHandle<T> {
        JobHandle::new(self.start(&start, options, move || Err(refusal.into())))
    }

    pub(crate) fn try_job_with<F, T>(
        &'scope self,
        start: Start,
        options: JobOptions,
        body: F,
    ) -> Result<JobHandle<T>, SpawnRefused<F>>
    where
        F: FnOnce() -> Result<T, BoxError> + Send + 'scope,
        T: Send + 'scope,
    {
        budget::charge_op();
        if self.job.is_cancelled()
            && let Some(cancelled) = self.job.cancellation()
        {
            return Err(SpawnRefused::new(Refusal::ScopeCancelled(cancelled), body));
        }
        match self.admit(&start.request, Executor::Cooperative) {
            Ok(None) => Ok(JobHandle::new(self.start(&start, options, body))),
            Ok(Some(lease)) => {
                let spawned = self.start(&start, lease.install(options), lease.around(body));
                Ok(JobHandle::new(spawned))
            }
            Err(refusal) => Err(SpawnRefused::new(refusal, body)),
        }
    }

    pub(crate) fn future_with<F, T>(
        &'scope self,
        start: Start,
        options: JobOptions,
        future: F,
    ) -> JobHandle<T>
    where
        F: Future<Output = Result<T, BoxError>> + Send + 'scope,
        T: Send + 'scope,
    {
        budget::charge_op();
        match self.admit(&start.request, Executor::Evented) {
            Ok(None) => self.start_future(&start, options, future),
            Ok(Some(lease)) => {
                let options = lease.install(options);
                self.start_future(&start, options, lease.around_future(future))
            }
            Err(refusal) => self.start_future(&start, options, ready(Err(refusal.into()))),
        }
    }

    /// A lease on a budget for a job to be spawned, if it needs one, which will run on `executor`.
    pub(crate) fn admit(
        &self,
        request: &Request,
        executor: Executor,
    ) -> Result<Option<Lease>, Refusal> {
        match &self.budgets {
            None => self.runtime.ground.admit(request, executor),
            Some(budgets) => budgets.admit(request, executor).map(Some),
        }
    }

    // Not a handle: two words come back in registers, three through memory.
    fn start<F, T>(&'scope self, start: &Start, options: JobOptions, body: F) -> Spawned<T>
    where
        F: FnOnce() -> Result<T, BoxError> + Send + 'scope,
        T: Send + 'scope,
    {
        let timer = |job: &Job| limit_of(&self.runtime, start.deadline, job);
        // SAFETY: `inline::run` does not return before the scope's job has ended, and `'scope` and the frame
        // of the context are longer than that call.
        let spawned = unsafe {
            task::spawn(
                &self.job,
                options,
                self.runtime.pool(),
                self.context,
                start.stack,
                timer,
                body,
            )
        };
        under_a_living_scope(spawned)
    }

    fn start_future<F, T>(
        &'scope self,
        start: &Start,
        options: JobOptions,
        future: F,
    ) -> JobHandle<T>
    where
        F: Future<Output = Result<T, BoxError>> + Send + 'scope,
        T: Send + 'scope,
    {
        let timer = |job: &Job| limit_of(&self.runtime, start.deadline, job);
        let (job, runtime) = (&self.job, &*self.runtime);
        // SAFETY: as in `start`.
        let spawned =
            unsafe { future::task::spawn(job, options, runtime, self.context, timer, future) };
        handle_of(spawned)
    }
}

pub(crate) fn handle_of<T>(spawned: Result<Spawned<T>, ParentEnded>) -> JobHandle<T> {
    JobHandle::new(under_a_living_scope(spawned))
}

fn under_a_living_scope<T>(spawned: Result<Spawned<T>, ParentEnded>) -> Spawned<T> {
    match spawned {
        Ok(spawned) => spawned,
        // `'scope` is over when the scope's job has ended.
        Err(ended) => unreachable!("a nursery was used after its end: {ended}"),
    }
}

/// What is said about a job before it starts; see [`Nursery::job_options`].
#[must_use = "nothing starts before `spawn` or `launch`"]
pub struct Spawner<'scope, 'env: 'scope> {
    nursery: &'scope Nursery<'scope, 'env>,
    options: JobOptions,
    stack: TaskStack,
    limit: Option<Duration>,
    request: Request,
}

impl<'scope, 'env> Spawner<'scope, 'env> {
    pub(crate) fn new(nursery: &'scope Nursery<'scope, 'env>) -> Spawner<'scope, 'env> {
        Spawner {
            nursery,
            options: JobOptions::new(),
            stack: nursery.runtime.task_stack,
            limit: None,
            request: Request::default(),
        }
    }

    /// What reports and dumps call it.
    pub fn label(mut self, label: impl Into<Cow<'static, str>>) -> Self {
        self.options = self.options.label(label);
        self
    }

    /// How long it may take, from now on. Then it is cancelled, and has failed.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Starts it on a stack of 64 KiB, whatever the runtime's default: for one of very many jobs that wait.
    pub fn small_stack(mut self) -> Self {
        self.stack = TaskStack::Small;
        self
    }

    /// Jobs below it fail alone.
    pub fn supervisor(mut self) -> Self {
        self.options = self.options.supervisor();
        self
    }

    /// How much it may do, at most as much as the scope has left; see [`budget`].
    pub fn budget(mut self, budget: Budget) -> Self {
        self.request.budget = Some(budget);
        self
    }

    /// What it may ask for, if the scope may, too: it gets what is in both.
    pub fn restrict(mut self, capabilities: Capabilities) -> Self {
        let wanted = match self.request.capabilities {
            Some(before) => before.restricted_to(capabilities),
            None => capabilities,
        };
        self.request.capabilities = Some(wanted);
        self
    }

    /// Starts the job: [`Nursery::spawn`].
    pub fn spawn<F, T>(self, body: F) -> JobHandle<T>
    where
        F: FnOnce() -> Result<T, BoxError> + Send + 'scope,
        T: Send + 'scope,
    {
        let (nursery, start, options) = self.into_parts();
        nursery.job_with(start, options, body)
    }

    /// Starts the job, or says why it may not be: [`Nursery::try_spawn`].
    ///
    /// # Errors
    /// As [`Nursery::try_spawn`].
    pub fn try_spawn<F, T>(self, body: F) -> Result<JobHandle<T>, SpawnRefused<F>>
    where
        F: FnOnce() -> Result<T, BoxError> + Send + 'scope,
        T: Send + 'scope,
    {
        let (nursery, start, options) = self.into_parts();
        nursery.try_job_with(start, options, body)
    }

    /// Starts a job that is a future: [`Nursery::spawn_future`].
    pub fn spawn_future<F, T>(self, future: F) -> JobHandle<T>
    where
        F: Future<Output = Result<T, BoxError>> + Send + 'scope,
        T: Send + 'scope,
    {
        let (nursery, start, options) = self.into_parts();
        nursery.future_with(start, options, future)
    }

    /// The time begins to run.
    pub(crate) fn into_parts(self) -> (&'scope Nursery<'scope, 'env>, Start, JobOptions) {
        let now = self.nursery.runtime.timers.now();
        let deadline = self.limit.and_then(|limit| now.checked_add(limit));
        let options = match deadline {
            Some(deadline) => self.options.deadline(deadline),
            None => self.options,
        };
        let start = Start {
            stack: self.stack,
            deadline,
            request: self.request,
        };
        (self.nursery, start, options)
    }

    /// Starts the job and forgets its value: [`Nursery::launch`].
    pub fn launch<F>(self, body: F)
    where
        F: FnOnce() -> Result<(), BoxError> + Send + 'scope,
    {
        drop(self.spawn(body));
    }
}

impl fmt::Debug for Spawner<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner")
            .field("options", &self.options)
            .field("limit", &self.limit)
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}
