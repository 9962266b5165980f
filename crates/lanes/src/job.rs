//! A job that was not scheduled yet: what it does, and what is said about it.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use jobtree_base::user_code::Place;
use jobtree_base::user_owned::UserOwned;
use jobtree_runtime::{BoxError, CancelToken, JobError};

use crate::Priority;
use crate::bodies::{Action, Boxed, Coroutine, Eventual, JobBody, Next, Steps, Task};
use crate::callbacks::{CallbackSet, Callbacks};
use crate::context::Context;
use crate::dependencies::Dependency;
use crate::header::Extra;
use crate::lane::Lane;
use crate::lock::lock;
use crate::progress::Progress;
use crate::steps::Step;

/// A job for a [`JobManager`](crate::JobManager), of any kind. Scheduling takes it, so nobody can schedule it twice.
///
/// ```compile_fail,E0382
/// # use jobtree_lanes::{JobManager, LaneJob};
/// # let manager = JobManager::builder().build().unwrap();
/// let job = LaneJob::action(|| Ok(()));
/// let first = manager.schedule(job);
/// let second = manager.schedule(job);
/// ```
///
/// `B` is what it does; [`boxed`](LaneJob::boxed) makes jobs of different kinds the same type.
///
/// ```
/// use jobtree_lanes::{JobManager, LaneJob, Priority};
///
/// let manager = JobManager::builder().build()?;
/// let job = LaneJob::action(|| Ok(6 * 7)).priority(Priority::High).label("the answer");
/// assert_eq!(manager.schedule(job).join()?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing runs before it is scheduled"]
pub struct LaneJob<T, B = Boxed<T>> {
    body: B,
    about: About,
    _value: PhantomData<fn() -> T>,
}

/// What is said about a job.
#[derive(Default)]
pub(crate) struct About {
    pub(crate) priority: Priority,
    pub(crate) lane: Lane,
    pub(crate) label: Option<Cow<'static, str>>,
    pub(crate) tokens: Vec<CancelToken>,
    pub(crate) after: Vec<Dependency>,
    /// There if there is anything in it, or if there are tokens.
    pub(crate) extra: Option<Box<Extra>>,
}

impl<T, F> LaneJob<T, Action<F>>
where
    F: FnOnce() -> Result<T, BoxError> + Send + 'static,
    T: Send + 'static,
{
    /// A job that calls `action` once. If that waits, it has the stack of a worker parked, or blocks the thread that pumps.
    ///
    /// ```
    /// use jobtree_lanes::{JobManager, LaneJob};
    ///
    /// let manager = JobManager::builder().build()?;
    /// let handle = manager.schedule(LaneJob::action(|| Ok("forty-two".parse::<u32>()?)));
    /// assert!(handle.join().unwrap_err().to_string().contains("invalid digit"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn action(action: F) -> Self {
        LaneJob::of(Action::new(action))
    }
}

impl<T, F> LaneJob<T, Task<F>>
where
    F: FnOnce(&Context) -> Result<T, BoxError> + Send + 'static,
    T: Send + 'static,
{
    /// A job that calls `task` once, which reports its progress and waits as it likes: the stack of a worker is parked
    /// meanwhile, and its worker runs other jobs.
    ///
    /// On a pumped lane it blocks the thread that pumps while it waits; so it cannot wait there for its own next dispatch
    /// ([`ContextError::OnPumpedLane`](crate::ContextError::OnPumpedLane)).
    ///
    /// ```
    /// use jobtree_lanes::{JobManager, LaneJob};
    ///
    /// let manager = JobManager::builder().build()?;
    /// let handle = manager.schedule(LaneJob::task(|context| {
    ///     for done in 0..3 {
    ///         context.progress(done as f32 / 3.0).wait()?;
    ///         context.next_dispatch().wait()?;
    ///     }
    ///     Ok("done")
    /// }));
    /// assert_eq!(handle.join()?, "done");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn task(task: F) -> Self {
        LaneJob::of(Task(task))
    }
}

impl<T, F, R> LaneJob<T, Eventual<F, R>>
where
    F: FnOnce(Context) -> R + Send + 'static,
    R: Future<Output = Result<T, BoxError>> + Send + 'static,
    T: Send + 'static,
{
    /// A job that is a future; `make` is called in its first dispatch.
    ///
    /// ```
    /// use jobtree_lanes::{JobManager, LaneJob};
    ///
    /// let manager = JobManager::builder().build()?;
    /// let handle = manager.schedule(LaneJob::future(async |context| {
    ///     context.progress(0.4).await?;
    ///     context.next_dispatch().await?;
    ///     Ok(42)
    /// }));
    /// assert_eq!(handle.join()?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn future(make: F) -> Self {
        LaneJob::of(Eventual::new(make))
    }
}

impl<T, F> LaneJob<T, Coroutine<F>>
where
    F: FnMut(&Context) -> Result<Next<T>, BoxError> + Send + 'static,
    T: Send + 'static,
{
    /// A job that calls `step` again and again, until it is done.
    ///
    /// ```
    /// use jobtree_lanes::{JobManager, LaneJob, Next};
    ///
    /// let manager = JobManager::builder().build()?;
    /// let mut count = 0;
    /// let handle = manager.schedule(LaneJob::coroutine(move |_| {
    ///     count += 1;
    ///     Ok(if count < 1000 { Next::Again } else { Next::Done(count) })
    /// }));
    /// assert_eq!(handle.join()?, 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn coroutine(step: F) -> Self {
        LaneJob::of(Coroutine(step))
    }
}

impl<F, I> LaneJob<(), Steps<F>>
where
    F: FnOnce() -> I + Send + 'static,
    I: IntoIterator<Item = Step>,
    I::IntoIter: Send + 'static,
{
    /// A job of steps; what makes the iterator of them is called in the first dispatch.
    ///
    /// ```
    /// use jobtree_lanes::{JobManager, LaneJob, Step};
    ///
    /// let manager = JobManager::builder().build()?;
    /// let handle = manager.schedule(LaneJob::steps_with(|| {
    ///     let files = ["a", "b"]; // Looked up when the job runs, not when it is described.
    ///     files.map(Step::payload)
    /// }));
    /// handle.wait()?;
    /// assert_eq!(handle.payload().unwrap().downcast_ref(), Some(&"b"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn steps_with(make: F) -> Self {
        LaneJob::of(Steps(make))
    }
}

impl LaneJob<()> {
    /// A job of steps.
    ///
    /// ```
    /// use jobtree_lanes::{JobManager, LaneJob, Progress, Step};
    ///
    /// let manager = JobManager::builder().build()?;
    /// let chunks = 0..4u64;
    /// let handle = manager.schedule(LaneJob::steps(chunks.flat_map(|chunk| {
    ///     let fetch = Step::wait_with(async || Ok(()));
    ///     [fetch, Progress::from_range(chunk + 1, 4).into()]
    /// })));
    /// handle.wait()?;
    /// assert_eq!(handle.progress(), 1.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn steps<I>(steps: I) -> LaneJob<(), Steps<impl FnOnce() -> I + Send + 'static>>
    where
        I: IntoIterator<Item = Step> + Send + 'static,
        I::IntoIter: Send + 'static,
    {
        LaneJob::steps_with(move || steps)
    }
}

impl<T, B> LaneJob<T, B> {
    fn of(body: B) -> LaneJob<T, B> {
        LaneJob {
            body,
            about: About::default(),
            _value: PhantomData,
        }
    }

    /// How urgent it is.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.about.priority = priority;
        self
    }

    /// Where it runs.
    pub fn lane(mut self, lane: impl Into<Lane>) -> Self {
        self.about.lane = lane.into();
        self
    }

    /// What reports, dumps and warnings call it.
    pub fn label(mut self, label: impl Into<Cow<'static, str>>) -> Self {
        self.about.label = Some(label.into());
        self
    }

    /// What sort of job it is, for reports.
    pub fn kind(mut self, kind: impl Into<Cow<'static, str>>) -> Self {
        self.extra().kind = Some(kind.into());
        self
    }

    /// Is cancelled with `token`, too; even before it is scheduled.
    pub fn token(mut self, token: CancelToken) -> Self {
        self.extra();
        self.about.tokens.push(token);
        self
    }

    /// A token that cancels it, whether or not it was scheduled by then. One that was cancelled before is never run.
    ///
    /// ```
    /// use jobtree_lanes::{JobManager, LaneJob};
    ///
    /// let manager = JobManager::builder().build()?;
    /// let mut job = LaneJob::action(|| Ok(()));
    /// let token = job.cancel_token();
    /// token.cancel("never mind");
    /// assert!(manager.schedule(job).is_canceled());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel_token(&mut self) -> CancelToken {
        let token = CancelToken::new();
        self.extra();
        self.about.tokens.push(token.clone());
        token
    }

    /// Comes after these jobs: its first step is taken when all have ended as they have to. If one ends otherwise, this one
    /// is cancelled. It looks at them in its first dispatch, and then waits in no queue; its slot it has from the beginning.
    pub fn after<'d>(mut self, jobs: impl IntoIterator<Item = &'d Dependency>) -> Self {
        self.about.after.extend(jobs.into_iter().cloned());
        self
    }

    /// Is called when it has completed. There may be several of each kind; [`LaneHandle`](crate::LaneHandle) adds more.
    pub fn on_completed(mut self, callback: impl FnOnce() + Send + 'static) -> Self {
        lock(&self.callbacks().ends)
            .completed
            .push(Box::new(callback));
        self
    }

    /// Is called when it was cancelled.
    pub fn on_canceled(mut self, callback: impl FnOnce() + Send + 'static) -> Self {
        lock(&self.callbacks().ends)
            .cancelled
            .push(Box::new(callback));
        self
    }

    /// Is called when it failed, panicked or timed out.
    pub fn on_faulted(mut self, callback: impl FnOnce(&JobError) + Send + 'static) -> Self {
        lock(&self.callbacks().ends)
            .faulted
            .push(Box::new(callback));
        self
    }

    /// Is called whenever it gets further or shows something, and with 1 when it has completed.
    pub fn on_progress(mut self, callback: impl Fn(&Progress) + Send + Sync + 'static) -> Self {
        let callback = UserOwned::new(Place::Captured, Box::new(callback) as Box<_>);
        self.callbacks()
            .progress
            .push(std::sync::Arc::new(callback));
        self
    }

    /// Where the callbacks are called.
    ///
    /// ```
    /// use jobtree_lanes::{Callbacks, JobManager, Lane, LaneJob, PumpLimit};
    ///
    /// let manager = JobManager::builder().build()?;
    /// let (said, heard) = std::sync::mpsc::channel();
    /// let job = LaneJob::action(|| Ok(()))
    ///     .on_completed(move || said.send(std::thread::current().id()).unwrap())
    ///     .callbacks_on(Callbacks::Lane(Lane::Main));
    /// manager.schedule(job).join()?;
    /// let called_by = loop {
    ///     manager.pump(&Lane::Main, PumpLimit::default())?;
    ///     if let Ok(thread) = heard.try_recv() {
    ///         break thread;
    ///     }
    /// };
    /// assert_eq!(called_by, std::thread::current().id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn callbacks_on(mut self, place: Callbacks) -> Self {
        self.callbacks().place = place;
        self
    }

    fn extra(&mut self) -> &mut Extra {
        self.about.extra.get_or_insert_default()
    }

    fn callbacks(&mut self) -> &mut CallbackSet {
        let callbacks = &mut self.extra().callbacks;
        callbacks.get_or_init(CallbackSet::default);
        callbacks.get_mut().expect("just made")
    }

    /// The same job, of a type that does not tell what it does.
    pub fn boxed(self) -> LaneJob<T>
    where
        B: JobBody<T>,
    {
        LaneJob {
            body: Boxed::new(self.body),
            about: self.about,
            _value: PhantomData,
        }
    }

    /// It will be below a job that is none of the manager's.
    pub(crate) fn becomes_guest(&mut self) {
        self.extra().is_guest = true;
    }

    pub(crate) fn about(&self) -> &About {
        &self.about
    }

    pub(crate) fn into_parts(self) -> (B, About) {
        (self.body, self.about)
    }
}

impl<T, B> fmt::Debug for LaneJob<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneJob")
            .field("label", &self.about.label)
            .field("lane", &self.about.lane)
            .field("priority", &self.about.priority)
            .finish_non_exhaustive()
    }
}
