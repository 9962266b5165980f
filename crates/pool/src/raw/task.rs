//! Tasks whose memory another crate provides, and waiting for them.
//!
//! A layer that keeps an allocation of its own for each task lays a [`RawTask`] into it, and so saves the
//! second allocation that a closure would take. The price is that it has to keep the promises that a scope
//! keeps by itself: that the task is alive until it has run, and that its context is.

use std::fmt;
use std::ptr::NonNull;

use super::PoolRef;
use crate::context::{self, ContextRef};
use crate::deque::Entry;
use crate::isolation::Isolation;
use crate::job::{Job, JobKind, TaskHeader};
use crate::latches::OnceLatch;
use crate::pool::Pool;
use crate::pool::shared::Shared;
use crate::stack::StackClass;
use crate::wait::WaitFor;
use crate::worker::Worker;

/// The beginning of a task: a field of another crate's allocation. While it is queued the pool reads it.
#[repr(transparent)]
pub struct RawTask {
    header: TaskHeader,
}

// SAFETY: it holds a reference to a static and an address that is only compared.
unsafe impl Send for RawTask {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for RawTask {}

/// The properties that all tasks of one kind have in common: how to run one, and its name.
#[repr(transparent)]
pub struct RawTaskKind {
    kind: JobKind,
}

/// Runs a task. Called once for each submission, on a worker of the pool, in the context that was given. It must
/// not unwind (the process would abort), and it may free the task: the pool does not touch it afterwards.
pub type RunTask = unsafe fn(NonNull<RawTask>, &Worker);

impl RawTaskKind {
    /// A kind of tasks that are run by `run`; `name` is called for reports, such as that of a stack overflow.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use jobtree_pool::{OnceLatch, Pool, Worker, raw::task::{RawContext, RawTask, RawTaskKind}};
    ///
    /// #[repr(C)]
    /// struct Hello {
    ///     task: RawTask,
    ///     done: OnceLatch,
    /// }
    ///
    /// static KIND: RawTaskKind = RawTaskKind::new(run, || "hello");
    ///
    /// unsafe fn run(task: NonNull<RawTask>, _: &Worker) {
    ///     // SAFETY: every task of this kind is the first field of a `Hello`, which waits for its latch.
    ///     unsafe { task.cast::<Hello>().as_ref() }.done.set();
    /// }
    ///
    /// let pool = Pool::builder().workers(1).build()?;
    /// // In an `Arc`, because setting the latch goes on for a moment after the waiter has been told.
    /// let hello = std::sync::Arc::new(Hello {
    ///     task: RawTask::new(&KIND, std::ptr::null()),
    ///     done: OnceLatch::new(),
    /// });
    /// let task = NonNull::from(&*hello).cast();
    /// // SAFETY: submitted once, alive until the pool has ended, and not in any context.
    /// unsafe { pool.submit_raw(task, RawContext::outermost()) };
    /// hello.done.wait();
    /// pool.shutdown(std::time::Duration::from_secs(60))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn new(run: RunTask, name: fn() -> &'static str) -> RawTaskKind {
        // SAFETY: the two function types differ only in what the first parameter, a `NonNull` of a sized type, points
        // to, and such pointers are passed alike. A job of this kind is a `RawTask`, which begins with a `Job`.
        let execute =
            unsafe { std::mem::transmute::<RunTask, unsafe fn(NonNull<Job>, &Worker)>(run) };
        RawTaskKind {
            kind: JobKind {
                execute,
                stack: StackClass::Default,
                name,
            },
        }
    }

    /// The same kind of tasks, but they are content with a stack of 64 KiB: very many of them can wait at once.
    pub const fn on_small_stacks(mut self) -> RawTaskKind {
        self.kind.stack = StackClass::Small;
        self
    }
}

impl fmt::Debug for RawTaskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawTaskKind")
            .field(&(self.kind.name)())
            .finish()
    }
}

impl RawTask {
    /// A task of `owner`, whatever that is: its address tells [`wait_helping`] which tasks to run. Null is none.
    pub const fn new(kind: &'static RawTaskKind, owner: *const ()) -> RawTask {
        RawTask {
            header: TaskHeader {
                job: Job { kind: &kind.kind },
                owner,
            },
        }
    }
}

impl fmt::Debug for RawTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawTask")
            .field("name", &(self.header.job.kind.name)())
            .field("owner", &self.header.owner)
            .finish()
    }
}

/// The context that a task runs in; see [`with_user_context`](crate::with_user_context).
#[derive(Clone, Copy, Debug)]
pub struct RawContext {
    context: ContextRef,
}

impl RawContext {
    /// The context of the calling code. It lies in the frames below, and is gone when they are.
    pub fn current() -> RawContext {
        RawContext {
            context: Worker::with_current(context::of),
        }
    }

    /// The context of work that is in no other. It is always there.
    ///
    /// Not for tasks that code inside [`isolate`](crate::isolate()) waits for: that code helps only with what carries
    /// its context, and in a pool of one worker no other thread would run them.
    pub const fn outermost() -> RawContext {
        RawContext {
            context: ContextRef::OUTERMOST,
        }
    }

    /// The innermost isolation around it.
    pub(crate) fn isolation(self) -> Isolation {
        self.context.isolation()
    }
}

impl Pool {
    /// Queues a task as [`Pool::spawn`] does: on the calling worker if it is one of this pool's, else for the thread that is
    /// first.
    ///
    /// # Safety
    /// `task` must stay where it is, unchanged, until its run function has been called, and must not be submitted
    /// again before. That function must be right for it, and callable from any thread. The frames that `context` lies
    /// in must not end before the task has run.
    #[doc(hidden)]
    pub unsafe fn submit_raw(&self, task: NonNull<RawTask>, context: RawContext) {
        // SAFETY: by contract.
        unsafe { submit(self.shared(), task, context) };
    }
}

impl PoolRef {
    /// Queues a task: [`Pool::submit_raw`].
    ///
    /// A pool that has ended runs nothing, and one that was told to end may do so any time when it has nothing to do.
    /// So either the caller keeps the pool, or this is called from a task that runs on it.
    ///
    /// # Safety
    /// As for [`Pool::submit_raw`].
    pub unsafe fn submit_raw(&self, task: NonNull<RawTask>, context: RawContext) {
        // SAFETY: by contract.
        unsafe { submit(self.shared(), task, context) };
    }
}

impl PoolRef {
    /// Queues a task behind all that the calling worker has to do; if it is none of this pool's, behind all that came from
    /// outside before.
    ///
    /// # Safety
    /// As for [`Pool::submit_raw`].
    pub unsafe fn submit_raw_behind(&self, task: NonNull<RawTask>, context: RawContext) {
        let entry = Entry {
            job: task.cast(),
            context: context.context,
        };
        Worker::with_current(|worker| match worker {
            Some(worker) if self.is_current() => worker.thread().requeue(entry),
            _ => self.shared().inject(entry),
        });
    }

    /// [`hold_pool`] on any thread.
    pub fn hold(&self) {
        self.shared().hold();
    }

    /// Takes back a [`hold`](PoolRef::hold), on any thread.
    pub fn release(&self) {
        self.shared().release();
    }
}

impl Worker {
    /// The task that runs now did the work of `more` others, too: a thief judges by the length of tasks whether it is worth
    /// while to steal them.
    pub fn ran_more_tasks(&self, more: usize) {
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        self.thread().stolen.counts_as_more(more);
    }

    /// Queues a task that has just run on this worker and wants to run again, behind all that this worker has to do.
    ///
    /// # Safety
    /// As for [`Pool::submit_raw`].
    #[doc(hidden)]
    pub unsafe fn requeue_raw(&self, task: NonNull<RawTask>, context: RawContext) {
        self.thread().requeue(Entry {
            job: task.cast(),
            context: context.context,
        });
    }
}

/// Keeps the pool from ending although a task of its is in no queue: it waits, and will be submitted again.
pub fn hold_pool(worker: &Worker) {
    worker.thread().shared().stats.made_tasks.add_release(1);
}

/// Takes back a [`hold_pool`], on any worker of the pool, after the task has run for the last time.
pub fn release_pool(worker: &Worker) {
    worker.thread().shared().stats.finished_tasks.add_release(1);
}

/// # Safety
/// As for [`Pool::submit_raw`].
unsafe fn submit(pool: &Shared, task: NonNull<RawTask>, context: RawContext) {
    pool.submit(Entry {
        job: task.cast(),
        context: context.context,
    });
}

/// Returns when `latch` is set. A worker first runs the newest tasks of its own queue, as long as they are tasks of
/// `owner`, right on top of the calling frame.
///
/// Only for an `owner` whose tasks the caller waits for: what the latch stands for must not be able to come before
/// they have run.
pub fn wait_helping(latch: &OnceLatch, owner: *const ()) {
    latch.wait_for(WaitFor::TasksOf(owner));
}

/// Runs `task` right on top of the calling frame, if it is the oldest in the calling worker's own queue and there is room on
/// the stack; says whether it did. Otherwise nothing happens: it is only an address.
///
/// Only for a caller that waits for this task, and would be cancelled together with it.
#[inline]
pub fn run_if_oldest(task: *const RawTask) -> bool {
    NonNull::new(task.cast_mut()).is_some_and(|task| {
        Worker::with_running(|worker| {
            worker.is_some_and(|worker| worker.run_if_oldest(task.cast()))
        })
    })
}
