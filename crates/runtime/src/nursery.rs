//! Scopes whose children have ended when the scope has.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jobtree_pool::raw::task::RawContext;
use jobtree_tree::{BoxError, CancelReason, Job, JobOptions, JobState, Outcome, ParentEnded};

use crate::deadline::limit_of;
use crate::future;
use crate::handle::JobHandle;
use crate::inline;
use crate::runtime::{self, Inner, Place};
use crate::sim;
use crate::task::{self, Spawned, TaskStack};

/// Runs `body` in a scope for jobs, on the calling thread, and returns when all jobs spawned in it have ended.
///
/// The jobs may borrow what outlives the scope. If one fails, the others and the body are cancelled, and the scope ends
/// with the first error. Inside of a job the scope is a job under it: cancelled with it, and its outcome is the
/// caller's to handle.
///
/// ```
/// use jobtree_runtime::{JobError, nursery};
///
/// let mut numbers = vec![3, 1, 2];
/// nursery(|n| {
///     let (left, right) = numbers.split_at_mut(1);
///     n.spawn(|| Ok(left.sort()));
///     n.spawn(|| Ok(right.sort()));
///     Ok(())
/// })?;
/// assert_eq!(numbers, [3, 1, 2]);
///
/// let outcome = nursery(|n| {
///     n.launch(|| Err("no such file".into()));
///     Ok(())
/// });
/// assert!(matches!(outcome, Err(JobError::Failed(_))));
/// # Ok::<(), JobError>(())
/// ```
///
/// # Errors
/// The first error of the body or a child; a panic is an error, too. A body that returns the scope's own cancellation
/// (through `?`) ends it as cancelled.
///
/// # Panics
/// If the global runtime is needed and its pool cannot be made (see [`Pool::try_global`](jobtree_pool::Pool::try_global)).
pub fn nursery<'env, F, T>(body: F) -> Outcome<T>
where
    F: for<'scope> FnOnce(&'scope Nursery<'scope, 'env>) -> Result<T, BoxError>,
{
    open(runtime::current(), JobOptions::new(), body)
}

/// [`nursery`](nursery()), but a child that fails does so alone: neither its siblings nor the scope are cancelled.
///
/// ```
/// use jobtree_runtime::supervisor;
///
/// let survivors = supervisor(|n| {
///     n.launch(|| Err("bad luck".into()));
///     let other = n.spawn(|| Ok(1));
///     Ok(other.join()?)
/// })?;
/// assert_eq!(survivors, 1);
/// # Ok::<(), jobtree_runtime::JobError>(())
/// ```
///
/// # Errors
/// An error or panic of the body.
///
/// # Panics
/// As [`nursery`](nursery()).
pub fn supervisor<'env, F, T>(body: F) -> Outcome<T>
where
    F: for<'scope> FnOnce(&'scope Nursery<'scope, 'env>) -> Result<T, BoxError>,
{
    open(runtime::current(), JobOptions::new().supervisor(), body)
}

pub(crate) fn open<'env, F, T>(place: Place, options: JobOptions, body: F) -> Outcome<T>
where
    F: for<'scope> FnOnce(&'scope Nursery<'scope, 'env>) -> Result<T, BoxError>,
{
    let Place { parent, runtime } = place;
    // Both outlive the call below, and so all jobs in the scope; the body's frame does not.
    let context = RawContext::current();
    let nursery = OnceCell::new();
    inline::run(&parent, options, |job| {
        body(nursery.get_or_init(|| Nursery {
            job: job.clone(),
            runtime,
            context,
            scope: PhantomData,
            env: PhantomData,
        }))
    })
}

/// Where a scope is in its life: the state of its job, seen as a scope's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NurseryState {
    /// Its body runs.
    Open,
    /// Its body has returned, and jobs in it have not ended.
    Closing,
    /// It has ended, with a value or an error.
    Closed,
    /// It was asked to end, or a job in it failed.
    Cancelling,
    /// It has ended by cancellation.
    Cancelled,
}

impl From<JobState> for NurseryState {
    fn from(state: JobState) -> NurseryState {
        match state {
            JobState::Completing => NurseryState::Closing,
            JobState::Cancelling => NurseryState::Cancelling,
            JobState::Completed | JobState::Failed | JobState::TimedOut => NurseryState::Closed,
            JobState::Cancelled => NurseryState::Cancelled,
            // Pending, Active.
            _ => NurseryState::Open,
        }
    }
}

/// A scope in which jobs can be spawned; see [`nursery`](nursery()).
///
/// `'scope` is as long as the scope is open, `'env` is what surrounds it: as with [`std::thread::scope`].
pub struct Nursery<'scope, 'env: 'scope> {
    job: Job,
    runtime: Arc<Inner>,
    context: RawContext,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

// SAFETY: the context is an address that is handed to the pool and followed only while the scope's frame is
// there; everything else may be used from any thread.
unsafe impl Send for Nursery<'_, '_> {}
// SAFETY: as above.
unsafe impl Sync for Nursery<'_, '_> {}

impl<'scope, 'env> Nursery<'scope, 'env> {
    /// Starts a job.
    ///
    /// In a scope that is cancelled, the job is born cancelled and never runs.
    pub fn spawn<F, T>(&'scope self, body: F) -> JobHandle<T>
    where
        F: FnOnce() -> Result<T, BoxError> + Send + 'scope,
        T: Send + 'scope,
    {
        self.job_with(JobOptions::new(), self.runtime.task_stack, None, body)
    }

    /// Starts a job whose value nobody needs. Nothing of it is left when it has ended: a scope can launch jobs for
    /// months.
    pub fn launch<F>(&'scope self, body: F)
    where
        F: FnOnce() -> Result<(), BoxError> + Send + 'scope,
    {
        let options = JobOptions::new().unwanted();
        let handle = self.job_with(options, self.runtime.task_stack, None, body);
        drop(handle);
    }

    /// Starts a job that is a future. It may borrow what the scope's other jobs may.
    ///
    /// ```
    /// use jobtree_runtime::nursery;
    ///
    /// let words = ["one", "two"];
    /// nursery(|n| {
    ///     let length = n.spawn_future(async { Ok(words[0].len()) });
    ///     assert_eq!(length.join()?, 3);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), jobtree_runtime::JobError>(())
    /// ```
    pub fn spawn_future<F, T>(&'scope self, future: F) -> JobHandle<T>
    where
        F: Future<Output = Result<T, BoxError>> + Send + 'scope,
        T: Send + 'scope,
    {
        self.future_with(JobOptions::new(), None, future)
    }

    /// Says more about a job before it starts: label, limit, supervision.
    ///
    /// ```
    /// use std::time::Duration;
    /// use jobtree_runtime::nursery;
    ///
    /// nursery(|n| {
    ///     let handle = n
    ///         .job_options()
    ///         .label("fetch")
    ///         .timeout(Duration::from_secs(5))
    ///         .spawn(|| Ok("page"));
    ///     assert_eq!(handle.job().label(), "fetch");
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    pub fn job_options(&'scope self) -> Spawner<'scope, 'env> {
        Spawner {
            nursery: self,
            options: JobOptions::new(),
            stack: self.runtime.task_stack,
            limit: None,
        }
    }

    /// The scope as a job.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Where the scope is in its life.
    ///
    /// ```
    /// use jobtree_runtime::{NurseryState, nursery};
    ///
    /// let job = nursery(|n| {
    ///     assert_eq!(n.state(), NurseryState::Open);
    ///     Ok(n.job().clone())
    /// })?;
    /// assert_eq!(NurseryState::from(job.state()), NurseryState::Closed);
    /// # Ok::<(), jobtree_runtime::JobError>(())
    /// ```
    pub fn state(&self) -> NurseryState {
        self.job.state().into()
    }

    /// Asks everything in the scope to end; `false` if it was asked before.
    pub fn cancel(&self, reason: impl Into<CancelReason>) -> bool {
        let asked = self.job.cancel(reason.into());
        sim::point();
        asked
    }

    fn job_with<F, T>(
        &'scope self,
        options: JobOptions,
        stack: TaskStack,
        deadline: Option<Instant>,
        body: F,
    ) -> JobHandle<T>
    where
        F: FnOnce() -> Result<T, BoxError> + Send + 'scope,
        T: Send + 'scope,
    {
        let timer = |job: &Job| limit_of(&self.runtime, deadline, job);
        // SAFETY: `inline::run` does not return before the scope's job has ended, and `'scope` and the frame
        // of the context are longer than that call.
        let spawned = unsafe {
            task::spawn(
                &self.job,
                options,
                self.runtime.pool(),
                self.context,
                stack,
                timer,
                body,
            )
        };
        handle_of(spawned)
    }

    fn future_with<F, T>(
        &'scope self,
        options: JobOptions,
        deadline: Option<Instant>,
        future: F,
    ) -> JobHandle<T>
    where
        F: Future<Output = Result<T, BoxError>> + Send + 'scope,
        T: Send + 'scope,
    {
        let timer = |job: &Job| limit_of(&self.runtime, deadline, job);
        let (job, runtime) = (&self.job, &*self.runtime);
        // SAFETY: as in `job_with`.
        let spawned =
            unsafe { future::task::spawn(job, options, runtime, self.context, timer, future) };
        handle_of(spawned)
    }
}

fn handle_of<T>(spawned: Result<Spawned<T>, ParentEnded>) -> JobHandle<T> {
    match spawned {
        Ok(spawned) => JobHandle::new(spawned),
        // `'scope` is over when the scope's job has ended.
        Err(ended) => unreachable!("a nursery was used after its end: {ended}"),
    }
}

impl fmt::Debug for Nursery<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Nursery").field(&self.job).finish()
    }
}

/// What is said about a job before it starts; see [`Nursery::job_options`].
#[must_use = "nothing starts before `spawn` or `launch`"]
pub struct Spawner<'scope, 'env: 'scope> {
    nursery: &'scope Nursery<'scope, 'env>,
    options: JobOptions,
    stack: TaskStack,
    limit: Option<Duration>,
}

impl<'scope, 'env> Spawner<'scope, 'env> {
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

    /// Starts the job: [`Nursery::spawn`].
    pub fn spawn<F, T>(self, body: F) -> JobHandle<T>
    where
        F: FnOnce() -> Result<T, BoxError> + Send + 'scope,
        T: Send + 'scope,
    {
        let stack = self.stack;
        let (nursery, options, deadline) = self.into_parts();
        nursery.job_with(options, stack, deadline, body)
    }

    /// Starts a job that is a future: [`Nursery::spawn_future`].
    pub fn spawn_future<F, T>(self, future: F) -> JobHandle<T>
    where
        F: Future<Output = Result<T, BoxError>> + Send + 'scope,
        T: Send + 'scope,
    {
        let (nursery, options, deadline) = self.into_parts();
        nursery.future_with(options, deadline, future)
    }

    /// The time begins to run.
    fn into_parts(self) -> (&'scope Nursery<'scope, 'env>, JobOptions, Option<Instant>) {
        let now = self.nursery.runtime.timers.now();
        let deadline = self.limit.and_then(|limit| now.checked_add(limit));
        let options = match deadline {
            Some(deadline) => self.options.deadline(deadline),
            None => self.options,
        };
        (self.nursery, options, deadline)
    }

    /// Starts the job and forgets its value: [`Nursery::launch`].
    pub fn launch<F>(mut self, body: F)
    where
        F: FnOnce() -> Result<(), BoxError> + Send + 'scope,
    {
        self.options = self.options.unwanted();
        drop(self.spawn(body));
    }
}

impl fmt::Debug for Spawner<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner")
            .field("options", &self.options)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
