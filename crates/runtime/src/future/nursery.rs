//! The scope of async code. Its children borrow nothing, because the future that owns the scope can be dropped
//! before they have ended.

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jobtree_pool::raw::task::RawContext;
use jobtree_tree::{BoxError, CancelReason, Job, JobOptions, Outcome};

use super::{scope, task};
use crate::budget::{self, Executor, Lease, Opened, Refusal, Request, Scope};
use crate::dispatcher::{self, Queue};
use crate::handle::JobHandle;
use crate::join_set::JoinSet;
use crate::nursery::{finish, lost};
use crate::runtime::{self, Inner, born_cancelled};
use crate::task::{TaskStack, spawn as spawn_task};
use crate::timers::Timer;

/// [`nursery`](crate::nursery()) for async code: runs `body`, and is ready when all jobs started in it have ended.
///
/// Dropped before, it cancels them; the job that awaited it still ends after them.
///
/// The future belongs to the job that polls it first, and is to be polled there until it is ready, or dropped. If other code keeps it
/// when the body of that job returns, the scope is cancelled as abandoned and its body counts as returned, so that the job can
/// end; a later poll is ready with the cancellation.
///
/// ```
/// use jobtree_runtime::{Runtime, future};
///
/// let total = Runtime::global().block_on(future::nursery(async |n| {
///     let half = n.spawn(|| Ok(20));
///     let other = n.spawn_future(async { Ok(22) });
///     Ok(half.await? + other.await?)
/// }))??;
/// assert_eq!(total, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Its children must not borrow,
///
/// ```compile_fail,E0597
/// use jobtree_runtime::{Runtime, future};
///
/// let numbers = vec![1, 2, 3];
/// let scope = future::nursery(async |n| {
///     n.launch(|| Ok(assert_eq!(numbers.len(), 3)));
///     Ok(())
/// });
/// # Runtime::global().block_on(scope);
/// ```
///
/// not even from its own body, which may be dropped before them:
///
/// ```compile_fail,E0373
/// use jobtree_runtime::{Runtime, future};
///
/// let scope = future::nursery(async |n| {
///     let local = vec![1, 2, 3];
///     n.launch(|| Ok(assert_eq!(local.len(), 3)));
///     Ok(())
/// });
/// # Runtime::global().block_on(scope);
/// ```
///
/// # Errors
/// As [`nursery`](crate::nursery()).
pub async fn nursery<F, T>(body: F) -> Outcome<T>
where
    F: AsyncFnOnce(Nursery) -> Result<T, BoxError>,
{
    open(JobOptions::new(), body).await
}

/// [`supervisor`](crate::supervisor()) for async code: a child that fails does so alone. Otherwise it is as
/// [`nursery`](nursery()).
///
/// # Errors
/// An error or panic of the body.
pub async fn supervisor<F, T>(body: F) -> Outcome<T>
where
    F: AsyncFnOnce(Nursery) -> Result<T, BoxError>,
{
    open(JobOptions::new().supervisor(), body).await
}

async fn open<F, T>(options: JobOptions, body: F) -> Outcome<T>
where
    F: AsyncFnOnce(Nursery) -> Result<T, BoxError>,
{
    let place = runtime::current();
    let (budgets, lease, options) = match Scope::open(&place.parent, &place.runtime.ground) {
        Ok(None) => (None, None, options),
        Ok(Some(opened)) => {
            let options = opened.install(options);
            let Opened { scope, lease, .. } = opened;
            (Some(Arc::new(scope)), lease, options)
        }
        Err(refusal) => {
            return scope::run(place, options, |_, _| ready(Err(refusal.into()))).await;
        }
    };
    let finished = Arc::new(AtomicBool::new(false));
    let is_finished = {
        let finished = Arc::clone(&finished);
        move || finished.load(Ordering::Acquire)
    };
    scope::run_or_finish(place, options, is_finished, |place, job| async move {
        let scope = body(Nursery {
            job,
            finished,
            runtime: place.runtime,
            budgets,
        });
        match lease {
            None => scope.await,
            Some(lease) => lease.around_future(scope).await,
        }
    })
    .await
}

/// [`race`](crate::race()) for async code: runs all `futures` as jobs, and is ready with the first value that one of them returns, when the
/// others have been cancelled and have ended.
///
/// ```
/// use std::time::Duration;
/// use jobtree_runtime::{block_on, future};
///
/// let winner = block_on(future::race([3600, 0].map(|seconds| async move {
///     future::sleep(Duration::from_secs(seconds)).await?;
///     Ok(seconds)
/// })))??;
/// assert_eq!(winner, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`race`](crate::race()).
pub async fn race<I, F, T>(futures: I) -> Outcome<T>
where
    I: IntoIterator<Item = F>,
    F: Future<Output = Result<T, BoxError>> + Send + 'static,
    T: Send + 'static,
{
    open(JobOptions::new().supervisor().label("race"), async |n| {
        let mut jobs: JoinSet<T> = futures.into_iter().map(|f| n.spawn_future(f)).collect();
        let mut first = None;
        while let Some(outcome) = jobs.join_next_async().await {
            match outcome {
                Ok(value) => return n.finish(value),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(lost(first))
    })
    .await
}

/// On what a job runs.
#[derive(Clone, Copy)]
pub(crate) enum JobPlace<'a> {
    Worker(TaskStack),
    ThreadOf(&'a Queue),
}

/// A scope of async code; see [`nursery`](nursery()). Jobs started after its end are born cancelled.
#[derive(Clone)]
pub struct Nursery {
    job: Job,
    /// `true` if the scope was cancelled by [`Nursery::finish`].
    finished: Arc<AtomicBool>,
    runtime: Arc<Inner>,
    /// `None` where nothing is limited, and for jobs under the root.
    budgets: Option<Arc<Scope>>,
}

impl Nursery {
    /// A scope whose jobs come out of the budget of `budgets`; without, each is treated as one under the root.
    pub(crate) fn new(job: Job, runtime: Arc<Inner>, budgets: Option<Scope>) -> Nursery {
        Nursery {
            job,
            finished: Arc::default(),
            runtime,
            budgets: budgets.map(Arc::new),
        }
    }

    /// The same scope, in which jobs come out of the budget of the scope's job, if it has one.
    pub(crate) fn within_limits(mut self) -> Nursery {
        self.budgets = Scope::of(&self.job).map(Arc::new);
        self
    }

    /// What it knows of budgets; `None` where nothing is limited.
    pub(crate) fn budgets(&self) -> Option<&Scope> {
        self.budgets.as_deref()
    }

    /// Starts a job on a stack of the pool; it may wait.
    pub fn spawn<F, T>(&self, body: F) -> JobHandle<T>
    where
        F: FnOnce() -> Result<T, BoxError> + Send + 'static,
        T: Send + 'static,
    {
        self.spawn_with(JobOptions::new(), body)
    }

    /// Starts a job whose value nobody needs.
    pub fn launch<F>(&self, body: F)
    where
        F: FnOnce() -> Result<(), BoxError> + Send + 'static,
    {
        drop(self.spawn(body));
    }

    /// Starts a job that is a future.
    pub fn spawn_future<F, T>(&self, future: F) -> JobHandle<T>
    where
        F: Future<Output = Result<T, BoxError>> + Send + 'static,
        T: Send + 'static,
    {
        let options = JobOptions::new();
        match self.admit(Executor::Evented) {
            Ok(None) => self.start_future(options, future),
            Ok(Some(lease)) => {
                self.start_future(lease.install(options), lease.around_future(future))
            }
            Err(refusal) => self.start_future(options, ready(Err(refusal.into()))),
        }
    }

    fn start_future<F, T>(&self, options: JobOptions, future: F) -> JobHandle<T>
    where
        F: Future<Output = Result<T, BoxError>> + Send + 'static,
        T: Send + 'static,
    {
        let (job, runtime) = (&self.job, &*self.runtime);
        let context = RawContext::outermost();
        // SAFETY: the future borrows nothing, and the outermost context is always there.
        let spawned = unsafe { task::spawn(job, options, runtime, context, |_| None, future) };
        JobHandle::new(spawned.unwrap_or_else(|_| born_cancelled(runtime.pool())))
    }

    /// A lease on a budget for a job to be spawned, if it needs one, which will run on `executor`.
    #[inline]
    pub(crate) fn admit(&self, executor: Executor) -> Result<Option<Lease>, Refusal> {
        self.admit_request(&Request::default(), executor)
    }

    #[inline]
    fn admit_request(
        &self,
        request: &Request,
        executor: Executor,
    ) -> Result<Option<Lease>, Refusal> {
        budget::charge_op();
        match &self.budgets {
            None => self.runtime.ground.admit(request, executor),
            Some(budgets) => budgets.admit(request, executor).map(Some),
        }
    }

    /// Starts a job as [`Nursery::spawn_limited`] does, or says why it may not be. `make` is called for the body if it may.
    pub(crate) fn try_spawn_limited<F, T>(
        &self,
        place: JobPlace<'_>,
        options: JobOptions,
        request: &Request,
        timer: impl FnOnce(&Job) -> Option<Timer>,
        make: impl FnOnce() -> F,
    ) -> Result<JobHandle<T>, Refusal>
    where
        F: FnOnce() -> Result<T, BoxError> + Send + 'static,
        T: Send + 'static,
    {
        let executor = match place {
            JobPlace::ThreadOf(_) => Executor::Blocking,
            JobPlace::Worker(_) => Executor::Cooperative,
        };
        Ok(match self.admit_request(request, executor)? {
            None => self.start(place, options, timer, make()),
            Some(lease) => self.start(place, lease.install(options), timer, lease.around(make())),
        })
    }

    pub(crate) fn spawn_with<F, T>(&self, options: JobOptions, body: F) -> JobHandle<T>
    where
        F: FnOnce() -> Result<T, BoxError> + Send + 'static,
        T: Send + 'static,
    {
        let place = JobPlace::Worker(self.runtime.task_stack);
        self.spawn_limited(place, options, |_| None, body)
    }

    /// `timer` makes the timer that ends the job's time, if it has a limit.
    pub(crate) fn spawn_limited<F, T>(
        &self,
        place: JobPlace<'_>,
        options: JobOptions,
        timer: impl FnOnce(&Job) -> Option<Timer>,
        body: F,
    ) -> JobHandle<T>
    where
        F: FnOnce() -> Result<T, BoxError> + Send + 'static,
        T: Send + 'static,
    {
        let executor = match place {
            JobPlace::Worker(_) => Executor::Cooperative,
            JobPlace::ThreadOf(_) => Executor::Blocking,
        };
        match self.admit(executor) {
            Ok(None) => self.start(place, options, timer, body),
            Ok(Some(lease)) => self.start(place, lease.install(options), timer, lease.around(body)),
            // As a job that fails, so that nobody misses it.
            Err(refusal) => self.start(place, options, timer, move || Err(refusal.into())),
        }
    }

    fn start<F, T>(
        &self,
        place: JobPlace<'_>,
        options: JobOptions,
        timer: impl FnOnce(&Job) -> Option<Timer>,
        body: F,
    ) -> JobHandle<T>
    where
        F: FnOnce() -> Result<T, BoxError> + Send + 'static,
        T: Send + 'static,
    {
        let (job, pool) = (&self.job, self.runtime.pool());
        let spawned = match place {
            JobPlace::Worker(stack) => {
                let context = RawContext::outermost();
                // SAFETY: the body borrows nothing, and the outermost context is always there.
                unsafe { spawn_task(job, options, pool, context, stack, timer, body) }
            }
            JobPlace::ThreadOf(queue) => {
                dispatcher::spawn_on(queue, job, options, &self.runtime, timer, body)
            }
        };
        JobHandle::new(spawned.unwrap_or_else(|_| born_cancelled(pool)))
    }

    pub(crate) fn runtime(&self) -> &Inner {
        &self.runtime
    }

    /// The scope as a job.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Asks everything in the scope to end; `false` if it was asked before.
    pub fn cancel(&self, reason: impl Into<CancelReason>) -> bool {
        self.job.cancel(reason)
    }

    /// Ends the scope early with a value; see [`finish`](crate::Nursery::finish) of the other nursery.
    ///
    /// ```
    /// use jobtree_runtime::{block_on, future};
    ///
    /// let answer = block_on(future::nursery(async |n| {
    ///     drop(n.spawn_future(std::future::pending::<Result<(), _>>()));
    ///     n.finish(42)
    /// }))??;
    /// assert_eq!(answer, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// In the scope of a [`Runtime`](crate::Runtime) it is [`cancel`](Nursery::cancel).
    ///
    /// # Errors
    /// None; it returns a `Result` so that a body can end with it.
    pub fn finish<T>(&self, value: T) -> Result<T, BoxError> {
        finish(&self.job, &self.finished);
        Ok(value)
    }
}

impl fmt::Debug for Nursery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Nursery").field(&self.job).finish()
    }
}
