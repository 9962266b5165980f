//! Scopes whose children have ended when the scope has.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jobtree_pool::raw::task::RawContext;
use jobtree_tree::{BoxError, CancelReason, Job, JobError, JobOptions, JobState, Outcome};

use crate::budget::{Budget, Decision, Exhausted, Opened, RechargeError, Scope, SpawnRefused};
use crate::handle::JobHandle;
use crate::inline;
use crate::join_set::JoinSet;
use crate::runtime::{self, Inner, Place};
use crate::sim;
use crate::spawner::Spawner;

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

/// [`nursery`](nursery()), with a label by which reports and dumps call the scope.
///
/// ```
/// use jobtree_runtime::{Job, labelled_nursery};
///
/// let path = labelled_nursery("album", |n| {
///     let picture = n.job_options().label("picture").spawn(|| Ok(Job::current().unwrap().path()));
///     Ok(picture.join()?)
/// })?;
/// assert_eq!(path, "root/album/picture");
/// # Ok::<(), jobtree_runtime::JobError>(())
/// ```
///
/// # Errors
/// As [`nursery`](nursery()).
///
/// # Panics
/// As [`nursery`](nursery()).
pub fn labelled_nursery<'env, F, T>(label: impl Into<Cow<'static, str>>, body: F) -> Outcome<T>
where
    F: for<'scope> FnOnce(&'scope Nursery<'scope, 'env>) -> Result<T, BoxError>,
{
    open(runtime::current(), JobOptions::new().label(label), body)
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
    if let Some(refusal) = sim::refusal(&runtime) {
        return inline::run(&parent, options, |_| Err(refusal.into()));
    }
    // Both outlive the call below, and so all jobs in the scope; the body's frame does not.
    let context = RawContext::current();
    let nursery = OnceCell::new();
    let (budgets, lease, options) = match Scope::open(&parent, &runtime.ground) {
        Ok(None) => (None, None, options),
        Ok(Some(opened)) => {
            let options = opened.install(options);
            let Opened { scope, lease, .. } = opened;
            (Some(scope), lease, options)
        }
        Err(refusal) => return inline::run(&parent, options, |_| Err(refusal.into())),
    };
    let is_finished = || nursery.get().is_some_and(Nursery::is_finished);
    inline::run_or_finish(&parent, options, is_finished, |job| {
        let nursery = nursery.get_or_init(|| Nursery {
            job: job.clone(),
            finished: AtomicBool::new(false),
            runtime,
            context,
            budgets,
            scope: PhantomData,
            env: PhantomData,
        });
        match &lease {
            None => body(nursery),
            Some(lease) => lease.run(|| body(nursery)),
        }
    })
}

/// Runs all `bodies` as jobs, and returns the first value that one of them returns. The others are cancelled, and have ended when it
/// returns.
///
/// A body that fails is out of the race, and the others go on.
///
/// ```
/// use std::time::Duration;
/// use jobtree_runtime::{race, sleep};
///
/// let mirrors = ["slow", "broken", "fast"];
/// let winner = race(mirrors.map(|mirror| move || match mirror {
///     "broken" => Err("no answer".into()),
///     "slow" => Ok(sleep(Duration::from_secs(3600)).map(|()| mirror)?),
///     _ => Ok(mirror),
/// }))?;
/// assert_eq!(winner, "fast");
/// # Ok::<(), jobtree_runtime::JobError>(())
/// ```
///
/// # Errors
/// The first error, if no body returns a value; that there are no bodies; the cancellation of the calling job.
///
/// # Panics
/// As [`nursery`](nursery()).
pub fn race<'env, I, F, T>(bodies: I) -> Outcome<T>
where
    I: IntoIterator<Item = F>,
    F: FnOnce() -> Result<T, BoxError> + Send + 'env,
    T: Send + 'env,
{
    let options = JobOptions::new().supervisor().label("race");
    open(runtime::current(), options, |n| {
        let mut jobs: JoinSet<T> = bodies.into_iter().map(|body| n.spawn(body)).collect();
        let mut first = None;
        while let Some(outcome) = jobs.join_next() {
            match outcome {
                Ok(value) => return n.finish(value),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(lost(first))
    })
}

/// The error of a race in which no job returned a value.
pub(crate) fn lost(first: Option<JobError>) -> BoxError {
    match first {
        Some(error) => error.into(),
        None => "a race without jobs has no winner".into(),
    }
}

/// Cancels `scope` so that its body's value stays its outcome, unless it was asked to end before.
pub(crate) fn finish(scope: &Job, finished: &AtomicBool) {
    if scope.cancel("the scope has finished") {
        finished.store(true, Ordering::Release);
    }
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
///
/// # There are no orphans
///
/// Everything that is spawned has ended when the scope has, and whatever would get around that does not compile. The
/// scope cannot be kept for later:
///
/// ```compile_fail,E0521
/// use jobtree_runtime::nursery;
///
/// let mut kept = None;
/// nursery(|n| {
///     kept = Some(n);
///     Ok(())
/// });
/// ```
///
/// nor be returned, to spawn in it when it is dead:
///
/// ```compile_fail
/// use jobtree_runtime::nursery;
///
/// let n = nursery(|n| Ok(n)).unwrap();
/// n.launch(|| Ok(()));
/// ```
///
/// nor be taken along by a thread or a detached job, which may live longer:
///
/// ```compile_fail,E0521
/// use jobtree_runtime::nursery;
///
/// nursery(|n| {
///     std::thread::spawn(move || n.launch(|| Ok(())));
///     Ok(())
/// });
/// ```
///
/// ```compile_fail,E0521
/// use jobtree_runtime::{Runtime, nursery};
///
/// nursery(|n| {
///     let detached = Runtime::global().spawn(move || Ok(n.launch(|| Ok(()))));
///     Ok(())
/// });
/// ```
///
/// The body returns before its children have ended, so they must not borrow what is the body's own, be they closures or
/// futures:
///
/// ```compile_fail,E0373
/// use jobtree_runtime::nursery;
///
/// nursery(|n| {
///     let local = vec![1, 2, 3];
///     n.launch(|| Ok(assert_eq!(local.len(), 3)));
///     Ok(())
/// });
/// ```
///
/// ```compile_fail,E0373
/// use jobtree_runtime::nursery;
///
/// nursery(|n| {
///     let local = vec![1, 2, 3];
///     let length = n.spawn_future(async { Ok(local.len()) });
///     Ok(())
/// });
/// ```
///
/// What a child has borrowed mutably is nobody else's until the scope has ended:
///
/// ```compile_fail,E0499
/// use jobtree_runtime::nursery;
///
/// let mut numbers = vec![1, 2, 3];
/// nursery(|n| {
///     n.launch(|| Ok(numbers.push(4)));
///     numbers.push(5);
///     Ok(())
/// });
/// ```
///
/// A handle may be kept longer than the scope, but not than what its value borrows:
///
/// ```compile_fail,E0597
/// use jobtree_runtime::{JobHandle, nursery};
///
/// let handle: JobHandle<&str> = {
///     let text = String::from("short-lived");
///     nursery(|n| Ok(n.spawn(|| Ok(&text[..])))).unwrap()
/// };
/// assert_eq!(handle.join().unwrap(), "short-lived");
/// ```
pub struct Nursery<'scope, 'env: 'scope> {
    pub(crate) job: Job,
    /// `true` if the scope was cancelled by [`Nursery::finish`].
    finished: AtomicBool,
    pub(crate) runtime: Arc<Inner>,
    pub(crate) context: RawContext,
    /// Where budgets are limited.
    pub(crate) budgets: Option<Scope>,
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
    /// In a scope that is cancelled, the job is born cancelled and never runs. Where budgets or capabilities do not allow
    /// it, the job fails with the [`Refusal`](crate::budget::Refusal); [`try_spawn`](Nursery::try_spawn) says so at once.
    pub fn spawn<F, T>(&'scope self, body: F) -> JobHandle<T>
    where
        F: FnOnce() -> Result<T, BoxError> + Send + 'scope,
        T: Send + 'scope,
    {
        self.job_with(self.plain(), JobOptions::new(), body)
    }

    /// Starts a job, or says why it may not be.
    ///
    /// ```
    /// use jobtree_runtime::budget::{Profile, Refusal};
    /// use jobtree_runtime::Runtime;
    ///
    /// let runtime = Runtime::builder().workers(1).profile(Profile::Core).build()?;
    /// runtime.nursery(|n| {
    ///     let refused = n.try_spawn(|| Ok(6 * 7)).unwrap_err();
    ///     assert!(matches!(refused.reason(), Refusal::CoreProfile));
    ///     assert_eq!(refused.into_body()()?, 42);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the scope is cancelled, or its budget or its capabilities do not allow another job. A refusal that may pass by
    /// itself lets others run before it returns.
    pub fn try_spawn<F, T>(&'scope self, body: F) -> Result<JobHandle<T>, SpawnRefused<F>>
    where
        F: FnOnce() -> Result<T, BoxError> + Send + 'scope,
        T: Send + 'scope,
    {
        self.try_job_with(self.plain(), JobOptions::new(), body)
    }

    /// Starts a job whose value nobody needs. Nothing of it is left when it has ended: a scope can launch jobs for
    /// months.
    pub fn launch<F>(&'scope self, body: F)
    where
        F: FnOnce() -> Result<(), BoxError> + Send + 'scope,
    {
        drop(self.spawn(body));
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
        self.future_with(self.plain(), JobOptions::new(), future)
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
        Spawner::new(self)
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
        let asked = self.job.cancel(reason);
        sim::point_or_unwind();
        asked
    }

    /// Ends the scope early with a value: asks everything in it to end, and returns `Ok(value)` for the body to return. When all
    /// jobs in the scope have ended, its caller gets the value.
    ///
    /// ```
    /// use std::time::Duration;
    /// use jobtree_runtime::{JoinSet, nursery, sleep};
    ///
    /// let first = nursery(|n| {
    ///     let mut answers: JoinSet<u64> = [3600, 0]
    ///         .map(|seconds| n.spawn(move || Ok(sleep(Duration::from_secs(seconds)).map(|()| seconds)?)))
    ///         .into_iter()
    ///         .collect();
    ///     let first = answers.join_next().expect("there are two")?;
    ///     n.finish(first)
    /// })?;
    /// assert_eq!(first, 0);
    /// # Ok::<(), jobtree_runtime::JobError>(())
    /// ```
    ///
    /// From then on the scope is cancelled: jobs that are spawned in it never begin, and what waits in its body returns the
    /// cancellation. What its jobs fail with from then on does not reach the caller, not even a panic; it is counted, and kept with the
    /// outcome of the scope's job. If the scope was cancelled before, or a job in it has failed, that stays its outcome, and the value is
    /// dropped.
    ///
    /// A job of the scope may call it, too: then the scope ends with the value that its *body* returns.
    ///
    /// # Errors
    /// None; it returns a `Result` so that a body can end with it.
    pub fn finish<T>(&self, value: T) -> Result<T, BoxError> {
        finish(&self.job, &self.finished);
        sim::point_or_unwind();
        Ok(value)
    }

    /// Returns `true` if [`finish`](Nursery::finish) has ended the scope.
    fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// Has `handler` decide what becomes of jobs spawned here that have used up their budget, where that is for a
    /// supervisor to decide ([`Profile::Cluster`](crate::Profile::Cluster)). What it gives them comes out of the scope's
    /// own budget. Without one they wait until somebody [`recharge`](Nursery::recharge)s or cancels them.
    ///
    /// The handler is called on the stack of the exhausted job, but outside of the job, and should be short. A handler that
    /// panics cancels the job.
    ///
    /// ```
    /// use jobtree_runtime::budget::{Budget, Decision};
    /// use jobtree_runtime::{Profile, Runtime, tick};
    ///
    /// let runtime = Runtime::builder().workers(1).profile(Profile::Cluster).build()?;
    /// runtime.nursery(|n| {
    ///     n.supervise_budgets(|_| Decision::Recharge(Budget { ops: 1_000, ..Budget::NONE }));
    ///     let busy = n.spawn(|| Ok((0..15_000).for_each(|_| tick())));
    ///     Ok(busy.join()?)
    /// })?;
    /// assert_eq!(runtime.statistics().recharges, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn supervise_budgets(
        &self,
        handler: impl Fn(&Exhausted) -> Decision + Send + Sync + 'static,
    ) {
        if let Some(budgets) = &self.budgets {
            budgets.supervise(handler);
        }
    }

    /// The jobs spawned here that have used up their budget and wait.
    pub fn exhausted(&self) -> Vec<Exhausted> {
        match &self.budgets {
            Some(budgets) => budgets.exhausted(),
            None => Vec::new(),
        }
    }

    /// Gives a job spawned here that has used up its budget up to `more` out of the scope's, and lets it go on. Returns
    /// how much it got.
    ///
    /// # Errors
    /// If the job is not exhausted, the scope has nothing of what it lacks, or it is no job of this scope.
    pub fn recharge(&self, job: &Job, more: Budget) -> Result<Budget, RechargeError> {
        match &self.budgets {
            Some(budgets) => budgets.recharge(job, more),
            None => Err(RechargeError::NotSupervised),
        }
    }
}

impl fmt::Debug for Nursery<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Nursery").field(&self.job).finish()
    }
}
