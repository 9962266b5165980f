//! A job that runs on a thread that may be blocked. It has a box for its body and a place in a queue, where the jobs of
//! the pool have neither: here a thread is woken or started for each.
//!
//! # Cancelled while it waits
//!
//! All threads may be stuck in system calls, so a job that is cancelled in the queue must not wait for one to be dropped.
//! Whoever cancels it takes it out and gives it to the workers, who see that it was cancelled: they drop the body and end
//! the job. (Not whoever cancels: the body's destructors are no business of theirs. And there are workers: the one who
//! opened the scope keeps the pool.) The callback that does this is entered before the job is pushed; a cancellation that
//! comes between the two finds nothing to take out, so whoever has pushed looks again afterwards. Taking out happens once,
//! by the queue's lock.

use std::ptr::NonNull;

use jobtree_base::user_code::{Place, drop_user};
use jobtree_pool::raw::task::RawContext;
use jobtree_pool::raw::{BlockingJob, PoolRef, Ticket};
use jobtree_tree::raw::{Attached, Beside, attach_beside, on_cancel_first};
use jobtree_tree::{
    Body, BodyResult, BoxError, CancelCallback, Job, JobOptions, Lacking, ParentEnded,
};

use super::Queue;
use super::load::Entered;
use crate::current::run_body;
use crate::runtime::Inner;
use crate::task::{Slot, Spawned, drop_unused, keep_deadline};
use crate::timers::Timer;

/// What lies beside the job.
struct Value<T>(Slot<T>);

// SAFETY: values are dropped where the job ends or is freed, on any thread; `spawn` asks that they are `Send`. What they
// borrow outlives the job's end, and they are gone by then.
unsafe impl<T: Send> Beside for Value<T> {
    fn discard_value(&self) {
        // SAFETY: by the contract of the trait nobody else looks.
        drop_user(Place::Value, unsafe { self.0.take() });
    }
}

/// A job on its way through the queue. The fields are dropped in this order: what the body borrows may be gone when the
/// execution has ended.
struct Run<F, T> {
    /// Takes the job out of the queue when it is cancelled.
    callback: CancelCallback,
    body: F,
    slot: NonNull<Slot<T>>,
    execution: Body,
    /// Of a job that has a limit, with a handle to see afterwards whether it has ended.
    deadline: Option<Box<(Timer, Job)>>,
    _entered: Entered,
}

// SAFETY: bodies and values are `Send` (by the bounds), and so is everything else but the slot's address, which may be
// used from any thread as long as the execution lives.
unsafe impl<F: Send, T: Send> Send for Run<F, T> {}

impl<F: FnOnce() -> Result<T, BoxError> + Send, T: Send> Run<F, T> {
    fn run(self) {
        drop(self.callback);
        if !self.execution.start() {
            drop_unused(self.execution.job(), self.body);
            self.execution.end(BodyResult::Cancelled);
            keep_deadline(self.deadline);
            return;
        }
        let (value, result) = run_body(self.execution.job(), self.body);
        // SAFETY: the execution keeps the job's memory, in which the slot lies. The job has not ended, so the value is
        // still the body's.
        unsafe { self.slot.as_ref().put(value) };
        self.execution.end(result);
        keep_deadline(self.deadline);
    }
}

/// Makes a job under `parent`, one of `runtime`'s, and puts it into `queue`; `deadline` makes the timer that ends its time.
/// What it forks is inside the isolation of `around`, the context of the scope's opener, which waits for it there.
///
/// # Safety
/// Everything that `body` and its value borrow outlives the end of `parent`.
pub(super) unsafe fn spawn<F, T>(
    parent: &Job,
    options: JobOptions,
    runtime: &Inner,
    queue: &Queue,
    around: RawContext,
    deadline: impl FnOnce(&Job) -> Option<Timer>,
    body: F,
) -> Result<Spawned<T>, ParentEnded>
where
    F: FnOnce() -> Result<T, BoxError> + Send,
    T: Send,
{
    let attached = match attach_beside(parent, options, Value(Slot::empty())) {
        Ok(attached) => attached,
        Err((ended, _)) => {
            drop_user(Place::Captured, body);
            return Err(ended);
        }
    };
    let Attached {
        job,
        body: execution,
        beside,
    } = attached;
    // SAFETY: only the address is made; alive by `job`.
    let slot = unsafe { NonNull::new_unchecked(&raw mut (*beside.as_ptr()).0) };
    if job.is_cancelled() {
        // Born cancelled: it never runs, so no thread needs to see it.
        drop_unused(&job, body);
        execution.end(BodyResult::Cancelled);
        return Ok(Spawned { job, slot });
    }
    let entered = queue.load.enter();
    queue.load.name(entered.number(), &job);
    let ticket = queue.threads.ticket();
    let pool = runtime.pool();
    let run = Run {
        callback: on_cancel_first(&job, {
            let (ticket, pool) = (ticket.clone(), pool.clone());
            move || take_out(&ticket, &pool)
        }),
        body,
        slot,
        execution,
        deadline: deadline(&job).map(|timer| Box::new((timer, job.clone()))),
        _entered: entered,
    };
    let boxed: Box<dyn FnOnce() + Send + '_> = Box::new(move || run.run());
    // SAFETY: only the lifetime changes. The queue calls each entry once; the body is gone when its execution ends, by a
    // call or by the order of the fields, and until then `parent` has not ended, so what it borrows is there. The rest
    // borrows nothing.
    let boxed: Box<dyn FnOnce() + Send> = unsafe { std::mem::transmute(boxed) };
    match queue
        .threads
        .push(&ticket, BlockingJob::inside(around, boxed))
    {
        Ok(None) => {}
        Ok(Some(_)) => runtime.degraded.add(Lacking::BlockingThread),
        Err(handed_back) => {
            // There is no thread for it. The workers block in its place, rather than that it never runs.
            for job in handed_back.jobs {
                job.run_on(pool);
            }
            runtime.degraded.add(Lacking::BlockingThread);
        }
    }
    if job.is_cancelled() {
        take_out(&ticket, pool);
    }
    Ok(Spawned { job, slot })
}

/// The job was cancelled: if it is still in the queue, the workers end it.
fn take_out(ticket: &Ticket, pool: &PoolRef) {
    if let Some(job) = ticket.withdraw() {
        job.run_on(pool);
    }
}
