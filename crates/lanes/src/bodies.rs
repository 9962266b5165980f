//! What a job does, by kind: each turns into a future that the job is.
//!
//! All of them but that of [`LaneJob::future`](crate::LaneJob::future) need no pinning, so that they are what they hold
//! and nothing more: an action is its closure.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, ready};

use jobtree_runtime::future::Nursery;
use jobtree_runtime::scheduled::{Description, Prepared, prepare};
use jobtree_runtime::{BoxError, Cancelled, JobError, checkpoint};

use crate::context::Context;
use crate::dependencies::{Dependency, Prelude, cancel_self, poll_prelude};
use crate::header::{JobHeader, LaneHeader};
use crate::steps::{Step, StepsRun};

/// Where a job comes into being. Nothing to be used outside.
#[doc(hidden)]
pub struct Launcher<'a> {
    pub(crate) nursery: &'a Nursery,
    pub(crate) description: Description,
    pub(crate) header: LaneHeader,
    pub(crate) after: Vec<Dependency>,
}

/// A job that has come into being.
#[doc(hidden)]
pub struct Launched<T>(pub(crate) Prepared<LaneHeader, T>);

/// What a job is started with.
struct Start<'a> {
    header: &'a JobHeader,
    prelude: Option<Box<Prelude>>,
}

impl Start<'_> {
    fn context(&self) -> Context {
        Context::new(self.header.clone())
    }
}

impl Launcher<'_> {
    fn launch<F, T>(self, make: impl FnOnce(Start<'_>) -> F) -> Launched<T>
    where
        F: Future<Output = Result<T, BoxError>> + Send + 'static,
        T: Send + 'static,
    {
        let prelude = Prelude::new(self.after);
        let prepared = prepare(self.nursery, self.description, self.header, |header| {
            make(Start { header, prelude })
        });
        Launched(prepared)
    }
}

mod sealed {
    pub trait Sealed {}
}
use sealed::Sealed;

/// What a [`LaneJob`](crate::LaneJob) does. The constructors of that make it.
pub trait JobBody<T>: Sealed + Send + 'static {
    /// What reports call this kind of job, if nothing else is said.
    fn kind(&self) -> &'static str;

    #[doc(hidden)]
    fn launch(self, launcher: Launcher<'_>) -> Launched<T>;
}

/// What the result of a job's code means: if it waited for something that was cancelled, it is cancelled, too.
pub(crate) fn settle<T>(result: Result<T, BoxError>) -> Result<T, BoxError> {
    result.map_err(|error| {
        let cancelled = match error.downcast_ref() {
            Some(JobError::Cancelled(cancelled)) => Some(cancelled),
            Some(_) => None,
            None => error.downcast_ref::<Cancelled>(),
        };
        match cancelled {
            None => error,
            Some(cancelled) => {
                let reason = format!("what it waited for was cancelled: {}", cancelled.reason());
                cancel_self(reason)
            }
        }
    })
}

/// A closure; see [`LaneJob::action`](crate::LaneJob::action).
pub struct Action<F>(F);

impl<F> Action<F> {
    pub(crate) fn new(action: F) -> Action<F> {
        Action(action)
    }
}

impl<F> Sealed for Action<F> {}

impl<F, T> JobBody<T> for Action<F>
where
    F: FnOnce() -> Result<T, BoxError> + Send + 'static,
    T: Send + 'static,
{
    fn kind(&self) -> &'static str {
        "action"
    }

    fn launch(self, launcher: Launcher<'_>) -> Launched<T> {
        launcher.launch(|start| ActionRun {
            prelude: start.prelude,
            action: Some(self.0),
        })
    }
}

/// An action at work.
struct ActionRun<F> {
    prelude: Option<Box<Prelude>>,
    action: Option<F>,
}

// The closure is called by value, so it is never pinned.
impl<F> Unpin for ActionRun<F> {}

impl<F, T> Future for ActionRun<F>
where
    F: FnOnce() -> Result<T, BoxError>,
{
    type Output = Result<T, BoxError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        ready!(poll_prelude(&mut self.prelude, context))?;
        let action = self
            .action
            .take()
            .expect("a job is not polled after its end");
        Poll::Ready(settle(action()))
    }
}

/// A closure that may wait; see [`LaneJob::task`](crate::LaneJob::task).
pub struct Task<F>(pub(crate) F);

impl<F> Sealed for Task<F> {}

impl<F, T> JobBody<T> for Task<F>
where
    F: FnOnce(&Context) -> Result<T, BoxError> + Send + 'static,
    T: Send + 'static,
{
    fn kind(&self) -> &'static str {
        "task"
    }

    fn launch(self, launcher: Launcher<'_>) -> Launched<T> {
        launcher.launch(|start| TaskRun {
            context: start.context(),
            prelude: start.prelude,
            task: Some(self.0),
        })
    }
}

/// A task at work.
struct TaskRun<F> {
    context: Context,
    prelude: Option<Box<Prelude>>,
    task: Option<F>,
}

// As for an action.
impl<F> Unpin for TaskRun<F> {}

impl<F, T> Future for TaskRun<F>
where
    F: FnOnce(&Context) -> Result<T, BoxError>,
{
    type Output = Result<T, BoxError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        ready!(poll_prelude(&mut self.prelude, context))?;
        let task = self.task.take().expect("a job is not polled after its end");
        Poll::Ready(settle(task(&self.context)))
    }
}

/// A future; see [`LaneJob::future`](crate::LaneJob::future).
pub struct Eventual<F, R> {
    make: F,
    // As if it held one: whether it may be sent does not depend on the future alone.
    _future: PhantomData<fn() -> R>,
}

impl<F, R> Eventual<F, R> {
    pub(crate) fn new(make: F) -> Eventual<F, R> {
        Eventual {
            make,
            _future: PhantomData,
        }
    }
}

impl<F, R> Sealed for Eventual<F, R> {}

impl<F, R, T> JobBody<T> for Eventual<F, R>
where
    F: FnOnce(Context) -> R + Send + 'static,
    R: Future<Output = Result<T, BoxError>> + Send + 'static,
    T: Send + 'static,
{
    fn kind(&self) -> &'static str {
        "future"
    }

    fn launch(self, launcher: Launcher<'_>) -> Launched<T> {
        launcher.launch(|start| {
            let context = start.context();
            let mut prelude = start.prelude;
            async move {
                poll_fn(|context| poll_prelude(&mut prelude, context)).await?;
                settle((self.make)(context).await)
            }
        })
    }
}

/// What a step of a coroutine says; see [`LaneJob::coroutine`](crate::LaneJob::coroutine).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// Call it again, in this dispatch if there are steps left.
    Again,
    /// Call it again in the next dispatch.
    NextDispatch,
    /// It is done.
    Done(T),
}

/// A closure that is called again and again; see [`LaneJob::coroutine`](crate::LaneJob::coroutine).
pub struct Coroutine<F>(pub(crate) F);

impl<F> Sealed for Coroutine<F> {}

impl<F, T> JobBody<T> for Coroutine<F>
where
    F: FnMut(&Context) -> Result<Next<T>, BoxError> + Send + 'static,
    T: Send + 'static,
{
    fn kind(&self) -> &'static str {
        "coroutine"
    }

    fn launch(self, launcher: Launcher<'_>) -> Launched<T> {
        launcher.launch(|start| CoroutineRun {
            context: start.context(),
            prelude: start.prelude,
            step: self.0,
        })
    }
}

/// A coroutine at work.
struct CoroutineRun<F> {
    context: Context,
    prelude: Option<Box<Prelude>>,
    step: F,
}

// The closure is called by reference and never pinned.
impl<F> Unpin for CoroutineRun<F> {}

impl<F, T> Future for CoroutineRun<F>
where
    F: FnMut(&Context) -> Result<Next<T>, BoxError>,
{
    type Output = Result<T, BoxError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        ready!(poll_prelude(&mut this.prelude, context))?;
        while this.context.header().take_step() {
            checkpoint()?;
            match settle((this.step)(&this.context))? {
                Next::Again => {}
                Next::NextDispatch => break,
                Next::Done(value) => return Poll::Ready(Ok(value)),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Steps; see [`LaneJob::steps`](crate::LaneJob::steps).
pub struct Steps<F>(pub(crate) F);

impl<F> Sealed for Steps<F> {}

impl<F, I> JobBody<()> for Steps<F>
where
    F: FnOnce() -> I + Send + 'static,
    I: IntoIterator<Item = Step>,
    I::IntoIter: Send + 'static,
{
    fn kind(&self) -> &'static str {
        "steps"
    }

    fn launch(self, launcher: Launcher<'_>) -> Launched<()> {
        launcher.launch(|start| StepsRun::new(start.header.clone(), start.prelude, self.0))
    }
}

/// A body of any kind; see [`LaneJob::boxed`](crate::LaneJob::boxed).
pub struct Boxed<T>(Box<dyn LaunchBoxed<T>>);

impl<T> Boxed<T> {
    pub(crate) fn new<B: JobBody<T>>(body: B) -> Boxed<T> {
        Boxed(Box::new(body))
    }
}

/// [`JobBody`] for bodies in boxes.
trait LaunchBoxed<T>: Send {
    fn kind_of_boxed(&self) -> &'static str;

    fn launch_boxed(self: Box<Self>, launcher: Launcher<'_>) -> Launched<T>;
}

impl<T, B: JobBody<T>> LaunchBoxed<T> for B {
    fn kind_of_boxed(&self) -> &'static str {
        self.kind()
    }

    fn launch_boxed(self: Box<Self>, launcher: Launcher<'_>) -> Launched<T> {
        self.launch(launcher)
    }
}

impl<T> Sealed for Boxed<T> {}

impl<T: Send + 'static> JobBody<T> for Boxed<T> {
    fn kind(&self) -> &'static str {
        self.0.kind_of_boxed()
    }

    fn launch(self, launcher: Launcher<'_>) -> Launched<T> {
        self.0.launch_boxed(launcher)
    }
}
