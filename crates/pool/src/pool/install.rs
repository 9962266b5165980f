//! Bringing a closure from any thread onto a worker, and its result back.

use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::panic::{self, AssertUnwindSafe};
use std::ptr::NonNull;
use std::sync::Arc;

use jobtree_base::user_owned::UserOwned;

use super::shared::Shared;
use crate::context::{self, shielded_if_panicking};
use crate::deque::Entry;
use crate::job::{Job, JobKind, TaskHeader};
use crate::latch::{Latch, ThreadLatch};
use crate::sim;
use crate::stack::StackClass;
use crate::wait::WaitFor;
use crate::worker::Worker;

/// A closure in the frame of the thread that waits for it.
#[repr(C)]
struct InstallTask<'a, F, R> {
    header: TaskHeader,
    body: UnsafeCell<ManuallyDrop<F>>,
    result: UnsafeCell<Option<std::thread::Result<R>>>,
    waiter: Waiter<'a>,
}

/// The thread or worker that waits.
enum Waiter<'a> {
    /// A thread that is no worker.
    Thread(&'a ThreadLatch),
    /// A worker of another pool, which must not go before it has been told.
    Worker(&'a Latch, Arc<Shared>),
}

impl<'a, F, R> InstallTask<'a, F, R>
where
    F: FnOnce(&Worker) -> R + Send,
    R: Send,
{
    const KIND: JobKind = JobKind {
        execute: Self::execute,
        stack: StackClass::Default,
        name: std::any::type_name::<F>,
    };

    fn new(body: F, waiter: Waiter<'a>) -> InstallTask<'a, F, R> {
        InstallTask {
            header: TaskHeader {
                job: Job { kind: &Self::KIND },
                owner: std::ptr::null(),
            },
            body: UnsafeCell::new(ManuallyDrop::new(body)),
            result: UnsafeCell::new(None),
            waiter,
        }
    }

    /// The task runs in the caller's context: the caller's frame waits for it, and so those below.
    fn entry(&self, caller: Option<&Worker>) -> Entry {
        Entry {
            job: NonNull::from(self).cast(),
            context: context::of(caller),
        }
    }

    unsafe fn execute(job: NonNull<Job>, worker: &Worker) {
        // SAFETY: made from a task of this type, whose frame waits until it is told below.
        let task = unsafe { job.cast::<InstallTask<'_, F, R>>().as_ref() };
        // SAFETY: run once, so taken once.
        let body = unsafe { ManuallyDrop::take(&mut *task.body.get()) };
        let result = panic::catch_unwind(AssertUnwindSafe(|| body(worker)));
        // SAFETY: the waiter reads it only after it has been told.
        unsafe { *task.result.get() = Some(result) };
        match &task.waiter {
            Waiter::Thread(latch) => {
                let latch: *const ThreadLatch = *latch;
                // SAFETY: the waiter keeps it until it is set.
                unsafe { ThreadLatch::set(latch) };
            }
            Waiter::Worker(latch, pool) => {
                let latch: *const Latch = *latch;
                // A reference of our own: the task and its frame are gone once the latch is set.
                let keep_waiters_pool = pool.clone();
                // SAFETY: the waiter keeps it until it is set, and we keep its pool.
                unsafe { Latch::set(latch) };
                drop(keep_waiters_pool);
            }
        }
    }

    /// # Safety
    /// The waiter has been told.
    unsafe fn into_result(self) -> R {
        match self.result.into_inner() {
            Some(Ok(result)) => result,
            Some(Err(payload)) => panic::resume_unwind(payload),
            None => unreachable!("the waiter is told after the result is there"),
        }
    }
}

/// Runs `body` on a worker of `pool`: right here if the caller is one.
pub(super) fn run_on_worker_of<F, R>(pool: &Arc<Shared>, body: F) -> R
where
    F: FnOnce(&Worker) -> R + Send,
    R: Send,
{
    Worker::with_current(|worker| match worker {
        Some(worker) if std::ptr::eq(worker.pool(), &**pool) => body(worker),
        Some(worker) => {
            let body = UserOwned::captured(body);
            sim::refuse_outside_work(pool);
            pool.refuse_without_workers();
            let body = body.into_inner();
            shielded_if_panicking(|| run_from_other_pool(worker, pool, body))
        }
        None => {
            let body = UserOwned::captured(body);
            sim::refuse_outside_work(pool);
            pool.refuse_without_workers();
            // Before a worker knows the task in a frame of this thread.
            sim::refuse_to_sleep();
            let body = body.into_inner();
            shielded_if_panicking(|| run_from_outside(pool, body))
        }
    })
}

#[cold]
fn run_from_outside<F, R>(pool: &Shared, body: F) -> R
where
    F: FnOnce(&Worker) -> R + Send,
    R: Send,
{
    let latch = ThreadLatch::new();
    let task = InstallTask::new(body, Waiter::Thread(&latch));
    pool.inject(task.entry(None));
    latch.wait();
    // SAFETY: told.
    unsafe { task.into_result() }
}

#[cold]
fn run_from_other_pool<F, R>(worker: &Worker, pool: &Shared, body: F) -> R
where
    F: FnOnce(&Worker) -> R + Send,
    R: Send,
{
    let latch = Latch::new();
    let own_pool = worker.thread().pool.clone();
    let task = InstallTask::new(body, Waiter::Worker(&latch, own_pool));
    pool.inject(task.entry(Some(worker)));
    worker.wait_until(&latch, WaitFor::Installed);
    // SAFETY: told.
    unsafe { task.into_result() }
}
