//! Jobs that are a sequence of steps.
//!
//! An iterator hands out its steps one by one, and is asked for the next one only when the last is done. A step may be
//! another such iterator, which is then asked first, to any depth; or something to wait for, and while the job waits it
//! is in no queue.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, ready};

use jobtree_runtime::{BoxError, Ended, Job, JobError, checkpoint};

use crate::bodies::settle;
use crate::dependencies::{Dependency, Prelude, poll_prelude};
use crate::handle::LaneHandle;
use crate::header::JobHeader;
use crate::progress::{Payload, Progress};

/// Something to wait for.
pub type Awaited = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

/// A sequence of steps inside of another.
pub type Routine = Box<dyn Iterator<Item = Step> + Send>;

/// What a job of steps does next.
///
/// ```
/// use jobtree_lanes::Step;
///
/// let routine: Vec<Step> = vec![
///     Step::progress(0.0),
///     Step::wait(async { Ok(()) }),
///     Step::action(|| Ok(println!("fetched"))),
///     Step::routine([Step::progress(0.5), Step::NextDispatch]),
///     Step::payload("anything"),
/// ];
/// # assert_eq!(routine.len(), 5);
/// ```
#[non_exhaustive]
pub enum Step {
    /// First all the steps of this.
    Routine(Routine),
    /// Waits for a future; if that fails, so does the job.
    Wait(Awaited),
    /// Waits for another job. If that fails, so does this one; if it is cancelled, this one is.
    WaitFor(Dependency),
    /// Calls this when the step is reached, and goes on with what it returns: for what shall not begin before.
    Start(Box<dyn FnOnce() -> Step + Send>),
    /// It is so far now.
    Progress(Progress),
    /// Calls this.
    Action(Box<dyn FnOnce() -> Result<(), BoxError> + Send>),
    /// Lets others have their turns, and goes on in the next dispatch: on a pumped lane, in the next pump.
    NextDispatch,
    /// Shows something.
    Payload(Payload),
    /// The job fails.
    Fail(BoxError),
}

impl Step {
    /// [`Step::Routine`].
    pub fn routine<I>(steps: I) -> Step
    where
        I: IntoIterator<Item = Step>,
        I::IntoIter: Send + 'static,
    {
        Step::Routine(Box::new(steps.into_iter()))
    }

    /// [`Step::Wait`].
    pub fn wait(future: impl Future<Output = Result<(), BoxError>> + Send + 'static) -> Step {
        Step::Wait(Box::pin(future))
    }

    /// [`Step::Wait`] for a future that is made when the step is reached.
    pub fn wait_with<F>(make: impl FnOnce() -> F + Send + 'static) -> Step
    where
        F: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        Step::start(move || Step::wait(make()))
    }

    /// [`Step::WaitFor`].
    pub fn handle<T>(handle: &LaneHandle<T>) -> Step {
        Step::WaitFor(handle.dependency())
    }

    /// [`Step::Start`].
    pub fn start(make: impl FnOnce() -> Step + Send + 'static) -> Step {
        Step::Start(Box::new(make))
    }

    /// [`Step::Progress`].
    pub fn progress(progress: impl Into<Progress>) -> Step {
        Step::Progress(progress.into())
    }

    /// [`Step::Action`].
    pub fn action(action: impl FnOnce() -> Result<(), BoxError> + Send + 'static) -> Step {
        Step::Action(Box::new(action))
    }

    /// [`Step::Payload`].
    pub fn payload<P: Any + Send + Sync>(payload: P) -> Step {
        Step::Payload(std::sync::Arc::new(payload))
    }

    /// [`Step::Fail`].
    pub fn fail(error: impl Into<BoxError>) -> Step {
        Step::Fail(error.into())
    }
}

impl From<Progress> for Step {
    fn from(progress: Progress) -> Step {
        Step::Progress(progress)
    }
}

impl From<f32> for Step {
    fn from(fraction: f32) -> Step {
        Step::progress(fraction)
    }
}

impl From<f64> for Step {
    fn from(fraction: f64) -> Step {
        Step::progress(fraction)
    }
}

impl From<Dependency> for Step {
    fn from(job: Dependency) -> Step {
        Step::WaitFor(job)
    }
}

impl<T> From<&LaneHandle<T>> for Step {
    fn from(handle: &LaneHandle<T>) -> Step {
        Step::handle(handle)
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Step::Progress(progress) => return f.debug_tuple("Progress").field(progress).finish(),
            Step::WaitFor(job) => return f.debug_tuple("WaitFor").field(job).finish(),
            Step::Fail(error) => return f.debug_tuple("Fail").field(error).finish(),
            Step::Routine(_) => "Routine",
            Step::Wait(_) => "Wait",
            Step::Start(_) => "Start",
            Step::Action(_) => "Action",
            Step::NextDispatch => "NextDispatch",
            Step::Payload(_) => "Payload",
        };
        f.write_str(name)
    }
}

/// What is waited for.
enum Waiting {
    Nothing,
    For(Awaited),
    ForJob(Job, Pin<Box<Ended>>),
}

impl Waiting {
    /// Ready when there is nothing to wait for any more.
    fn poll(&mut self, context: &mut TaskContext<'_>) -> Poll<Result<(), BoxError>> {
        let result = match self {
            Waiting::Nothing => return Poll::Ready(Ok(())),
            Waiting::For(future) => ready!(future.as_mut().poll(context)),
            Waiting::ForJob(job, ended) => {
                ready!(ended.as_mut().poll(context));
                job.error()
                    .map_or(Ok(()), |error: JobError| Err(error.into()))
            }
        };
        *self = Waiting::Nothing;
        Poll::Ready(result)
    }
}

/// A job of steps at work.
pub(crate) struct StepsRun<F, I> {
    header: JobHeader,
    prelude: Option<Box<Prelude>>,
    /// There until the first step.
    make: Option<F>,
    outermost: Option<I>,
    /// The routines inside of it, the innermost last.
    inner: Vec<Routine>,
    waiting: Waiting,
}

// Iterators and closures are used by reference or by value, and never pinned; futures are in boxes.
impl<F, I> Unpin for StepsRun<F, I> {}

/// What a step leads to.
enum Led {
    /// To the next step.
    On,
    /// Out of this dispatch.
    Out,
}

impl<F, I> StepsRun<F, I> {
    pub(crate) fn new(header: JobHeader, prelude: Option<Box<Prelude>>, make: F) -> StepsRun<F, I> {
        StepsRun {
            header,
            prelude,
            make: Some(make),
            outermost: None,
            inner: Vec::new(),
            waiting: Waiting::Nothing,
        }
    }

    fn take(&mut self, step: Step) -> Result<Led, BoxError> {
        let mut step = step;
        loop {
            match step {
                Step::Routine(routine) => self.inner.push(routine),
                Step::Wait(future) => self.waiting = Waiting::For(future),
                Step::WaitFor(dependency) => {
                    let ended = Box::pin(dependency.job.ended());
                    self.waiting = Waiting::ForJob(dependency.job, ended);
                }
                Step::Start(make) => {
                    step = make();
                    continue;
                }
                Step::Progress(progress) => self.header.report(progress),
                Step::Action(action) => action()?,
                Step::NextDispatch => return Ok(Led::Out),
                Step::Payload(payload) => self.header.show(payload),
                Step::Fail(error) => return Err(error),
            }
            return Ok(Led::On);
        }
    }
}

impl<F, I, J> StepsRun<F, J>
where
    F: FnOnce() -> I,
    I: IntoIterator<Item = Step, IntoIter = J>,
    J: Iterator<Item = Step>,
{
    /// The next step; `None` after the last one.
    fn next(&mut self) -> Option<Step> {
        while let Some(innermost) = self.inner.last_mut() {
            match innermost.next() {
                Some(step) => return Some(step),
                None => self.inner.pop(),
            };
        }
        if let Some(make) = self.make.take() {
            self.outermost = Some(make().into_iter());
        }
        self.outermost.as_mut()?.next()
    }

    fn poll_steps(&mut self, context: &mut TaskContext<'_>) -> Poll<Result<(), BoxError>> {
        loop {
            ready!(self.waiting.poll(context))?;
            checkpoint()?;
            if !self.header.take_step() {
                break;
            }
            match self.next() {
                None => return Poll::Ready(Ok(())),
                Some(step) => match self.take(step)? {
                    Led::On => {}
                    Led::Out => break,
                },
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<F, I, J> Future for StepsRun<F, J>
where
    F: FnOnce() -> I,
    I: IntoIterator<Item = Step, IntoIter = J>,
    J: Iterator<Item = Step>,
{
    type Output = Result<(), BoxError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        ready!(poll_prelude(&mut self.prelude, context))?;
        self.poll_steps(context).map(settle)
    }
}
