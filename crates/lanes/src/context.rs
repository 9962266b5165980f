//! What a job's own code can do with its job: tell how far it is, let others go first, and have something done on another
//! lane.
//!
//! Each of these is a future, and can be [waited for](Yielding::wait) by code that blocks.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use jobtree_runtime::{CancelOnDrop, Cancelled, Job, JobError, JobHandle, Outcome, checkpoint};

use crate::Priority;
use crate::cells::LaneRef;
use crate::header::JobHeader;
use crate::lane::Lane;
use crate::progress::Progress;

/// The job as its own code sees it. Clones are the same job.
///
/// ```
/// use jobtree_lanes::{JobManager, LaneJob};
///
/// let manager = JobManager::builder().build()?;
/// let handle = manager.schedule(LaneJob::future(async |context| {
///     context.progress(0.4).await?;
///     context.progress_with(0.8, "almost").await?;
///     context.next_dispatch().await?;
///     Ok(context.job().label())
/// }).label("load"));
/// handle.wait()?;
/// assert_eq!(handle.payload().unwrap().downcast_ref(), Some(&"almost"));
/// assert_eq!(handle.join()?, "load");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Context {
    header: JobHeader,
}

impl Context {
    pub(crate) fn new(header: JobHeader) -> Context {
        Context { header }
    }

    pub(crate) fn header(&self) -> &JobHeader {
        &self.header
    }

    /// Tells how far the job is: at once. Awaiting what is returned is a step: when all steps of the dispatch are taken,
    /// others have their turns first.
    pub fn progress(&self, progress: impl Into<Progress>) -> Yielding<'_> {
        self.header.report(progress.into());
        self.step()
    }

    /// [`progress`](Context::progress), with something to show.
    pub fn progress_with<P: Any + Send + Sync>(
        &self,
        progress: impl Into<Progress>,
        payload: P,
    ) -> Yielding<'_> {
        self.progress(progress.into().with_payload(payload))
    }

    /// Shows something, at once; awaiting it is a step.
    pub fn payload<P: Any + Send + Sync>(&self, payload: P) -> Yielding<'_> {
        self.header.show(Arc::new(payload));
        self.step()
    }

    fn step(&self) -> Yielding<'_> {
        Yielding {
            context: self,
            stage: Stage::Step,
        }
    }

    /// Lets others have their turns, and goes on in the next dispatch: on a pumped lane, in the next pump.
    #[must_use = "it does nothing unless it is awaited, or waited for"]
    pub fn next_dispatch(&self) -> Yielding<'_> {
        Yielding {
            context: self,
            stage: Stage::NextDispatch,
        }
    }

    /// Has `call` run on another lane, as a part of this job: cancelled with it, and in need of no slot.
    ///
    /// ```
    /// use jobtree_lanes::{JobManager, Lane, LaneJob, PumpLimit};
    ///
    /// let manager = JobManager::builder().build()?;
    /// let here = std::thread::current().id();
    /// let handle = manager.schedule(LaneJob::future(async move |context| {
    ///     let there = context.run_on(Lane::Main, || std::thread::current().id()).await?;
    ///     Ok(there == here)
    /// }));
    /// while !handle.is_finished() {
    ///     manager.pump(&Lane::Main, PumpLimit::default())?;
    /// }
    /// assert!(handle.join()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "it does nothing unless it is awaited, or waited for"]
    pub fn run_on<F, R>(&self, lane: impl Into<Lane>, call: F) -> RunOn<F, R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        RunOn {
            header: self.header.clone(),
            lane: lane.into(),
            call: Some(call),
            running: None,
        }
    }

    /// The job.
    pub fn job(&self) -> &Job {
        self.header.job()
    }

    /// Whether it was asked to end.
    pub fn is_cancelled(&self) -> bool {
        self.job().is_cancelled()
    }

    /// How urgent it is.
    pub fn priority(&self) -> Priority {
        self.header.priority
    }

    /// Whether the calling thread pumps the lane of this job just now, with this job.
    fn is_pumped(&self, lane: &LaneRef) -> bool {
        let cell = self.header.shared.cell(lane);
        cell.visits.is_none() && cell.pumps_here()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Step,
    NextDispatch,
    Yielded,
}

/// A place where a job may let others go first; see [`Context`].
#[derive(Debug)]
pub struct Yielding<'a> {
    context: &'a Context,
    stage: Stage,
}

impl Yielding<'_> {
    /// Does the same for code that blocks: the calling stack is parked until the job's turn comes again.
    ///
    /// # Errors
    /// If the job is cancelled; and if it would block the very thread that has to come again.
    pub fn wait(self) -> Result<(), ContextError> {
        checkpoint().map_err(ContextError::Cancelled)?;
        let header = self.context.header();
        if self.stage == Stage::Step && header.take_step() {
            return Ok(());
        }
        if self.context.is_pumped(&header.lane) {
            return match self.stage {
                // Nobody else can be let in here, and that is for the pump's limit to see.
                Stage::Step => Ok(()),
                _ => Err(ContextError::OnPumpedLane),
            };
        }
        let shared = &header.shared;
        let steps = u32::try_from(shared.settings.steps_per_dispatch).unwrap_or(u32::MAX);
        let turn = shared.run_within(header, header.lane.clone(), "next dispatch", || ());
        match turn.join() {
            Ok(()) => {
                header.begin_dispatch(steps);
                Ok(())
            }
            Err(error) => Err(ContextError::of(error)),
        }
    }
}

impl Future for Yielding<'_> {
    type Output = Result<(), Cancelled>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        checkpoint()?;
        match self.stage {
            Stage::Yielded => return Poll::Ready(Ok(())),
            Stage::Step if self.context.header().take_step() => return Poll::Ready(Ok(())),
            Stage::Step | Stage::NextDispatch => {}
        }
        self.stage = Stage::Yielded;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Something that is done on another lane; see [`Context::run_on`].
pub struct RunOn<F, R> {
    header: JobHeader,
    lane: Lane,
    /// There until it is on its way.
    call: Option<F>,
    /// Dropped before it has ended, it is not needed any more.
    running: Option<CancelOnDrop<R>>,
}

// The closure is called by value, and never pinned.
impl<F, R> Unpin for RunOn<F, R> {}

impl<F, R> RunOn<F, R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    fn start(&mut self) -> Option<JobHandle<R>> {
        let call = self.call.take()?;
        let shared = &self.header.shared;
        Some(shared.run_within(&self.header, shared.find(&self.lane), "run on a lane", call))
    }

    /// Does the same for code that blocks. On the thread that pumps the lane, in a pump, it is called at once.
    ///
    /// # Errors
    /// If it panicked, or this job is cancelled.
    pub fn wait(mut self) -> Outcome<R> {
        let lane = self.header.shared.find(&self.lane);
        if Context::new(self.header.clone()).is_pumped(&lane)
            && let Some(call) = self.call.take()
        {
            return Ok(call());
        }
        match self.start() {
            Some(running) => running.join(),
            None => unreachable!("nobody has polled it"),
        }
    }
}

impl<F, R> Future for RunOn<F, R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    type Output = Outcome<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Outcome<R>> {
        if let Some(running) = self.start() {
            self.running = Some(running.cancel_on_drop());
        }
        let running = self.running.as_mut();
        Pin::new(running.expect("it was started")).poll(context)
    }
}

impl<F, R> fmt::Debug for RunOn<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunOn")
            .field("lane", &self.lane)
            .finish_non_exhaustive()
    }
}

/// Why a task cannot wait for its next dispatch.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ContextError {
    /// Its job was cancelled.
    Cancelled(Cancelled),
    /// It runs on the thread that pumps its lane, which cannot pump again before the task has returned.
    OnPumpedLane,
    /// The manager failed to let it go on.
    Failed(JobError),
}

impl ContextError {
    fn of(error: JobError) -> ContextError {
        match error {
            JobError::Cancelled(cancelled) => ContextError::Cancelled(cancelled),
            other => ContextError::Failed(other),
        }
    }
}

impl fmt::Display for ContextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContextError::Cancelled(cancelled) => cancelled.fmt(f),
            ContextError::OnPumpedLane => f.write_str(
                "a task on a pumped lane cannot wait for its next dispatch, because it blocks the thread that pumps; \
                 make it a `LaneJob::future` or `LaneJob::steps`, or put it on `Lane::Any` and use `run_on`",
            ),
            ContextError::Failed(error) => error.fmt(f),
        }
    }
}

impl Error for ContextError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ContextError::Cancelled(cancelled) => Some(cancelled),
            ContextError::OnPumpedLane => None,
            ContextError::Failed(error) => Some(error),
        }
    }
}
