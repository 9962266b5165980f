//! A job that runs on the pool: its body and its value beside the job, in one allocation.

use std::cell::UnsafeCell;
use std::ptr::NonNull;

use jobtree_base::user_code::{Place, drop_user};
use jobtree_pool::Worker;
use jobtree_pool::raw::task::{RawContext, RawTask, RawTaskKind};
use jobtree_pool::raw::{PoolRef, outermost_at_end, stack_with_bell};
use jobtree_tree::raw::{
    Attached, Beside, StackName, as_part_of_end, attach_beside_with, start_on,
};
use jobtree_tree::{Body, BodyResult, BoxError, Job, JobOptions, ParentEnded};

use crate::budget::later::with_limits_of;
use crate::current::run_body;
use crate::sim;
use crate::timers::Timer;

/// The stack that a task starts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskStack {
    /// As large as the pool's workers have.
    Default,
    /// 64 KiB.
    Small,
}

/// Where a body leaves its value for whoever has the handle.
///
/// Written by the thread that runs the body, before the job ends; then it is the handle's, or the one's who
/// ends the job if nobody wants it. The job's word says who: see `lose_interest`.
pub(crate) struct Slot<T>(UnsafeCell<Option<T>>);

impl<T> Slot<T> {
    pub(crate) fn empty() -> Slot<T> {
        Slot(UnsafeCell::new(None))
    }

    /// # Safety
    /// Only by whoever runs the body, before the job ends.
    pub(crate) unsafe fn put(&self, value: Option<T>) {
        // SAFETY: by contract nobody else looks.
        unsafe { *self.0.get() = value };
    }

    /// # Safety
    /// Only whoever has the right to the value just now.
    pub(crate) unsafe fn take(&self) -> Option<T> {
        // SAFETY: by contract nobody else looks.
        unsafe { (*self.0.get()).take() }
    }
}

/// What lies beside the job.
#[repr(C)]
struct Task<F, T> {
    /// First, so that the pool's pointer is a pointer to the whole.
    raw: RawTask,
    slot: Slot<T>,
    /// Taken once, by the thread that runs it.
    run: UnsafeCell<Option<Run<F>>>,
}

struct Run<F> {
    body: F,
    execution: Body,
    /// Of a job that has a limit, with a handle to see afterwards whether it has ended.
    deadline: Option<Box<(Timer, Job)>>,
}

// SAFETY: values are dropped where the job ends or is freed, on any thread: bodies are `Send`, and
// `spawn` asks the same of values. What they borrow outlives the job's end, and both are gone by then.
unsafe impl<F: Send, T: Send> Beside for Task<F, T> {
    fn discard_value(&self) {
        // SAFETY: by the contract of the trait nobody else looks.
        drop_user(Place::Value, unsafe { self.slot.take() });
    }
}

impl<F: FnOnce() -> Result<T, BoxError> + Send, T: Send> Task<F, T> {
    const KIND: RawTaskKind = RawTaskKind::new(Self::run, std::any::type_name::<F>);
    const KIND_ON_SMALL_STACK: RawTaskKind = Self::KIND.on_small_stacks();

    fn kind(stack: TaskStack) -> &'static RawTaskKind {
        match stack {
            TaskStack::Default => &Self::KIND,
            TaskStack::Small => &Self::KIND_ON_SMALL_STACK,
        }
    }

    unsafe fn run(raw: NonNull<RawTask>, worker: &Worker) {
        // SAFETY: the pool gives back the pointer that it was given, to the first field of a task of this
        // type. It is alive: the execution in it holds a reference to its job.
        let task = unsafe { raw.cast::<Task<F, T>>().as_ref() };
        // SAFETY: the pool runs a task once, and nobody else looks into this cell.
        let Some(run) = (unsafe { (*task.run.get()).take() }) else {
            return;
        };
        let starts = match StackName::new(stack_with_bell(worker)) {
            Some(stack) => start_on(&run.execution, stack),
            None => run.execution.start(),
        };
        if !starts {
            drop_unused(run.execution.job(), run.body);
            run.execution.end(BodyResult::Cancelled);
            keep_deadline(run.deadline);
            return;
        }
        let (value, result) = run_body(run.execution.job(), run.body);
        // SAFETY: the job has not ended, so the value is still the body's.
        unsafe { task.slot.put(value) };
        run.execution.end(result);
        keep_deadline(run.deadline);
    }
}

/// Drops the body of a job that was cancelled before it began, with what the body captured.
pub(crate) fn drop_unused<F>(job: &Job, body: F) {
    if std::mem::needs_drop::<F>() {
        as_part_of_end(job, || {
            with_limits_of(job, || drop_user(Place::Captured, body));
        });
    }
}

/// Keeps the deadline of a job whose body has returned, if the job has not ended: its time may still run out while its
/// children are at work.
pub(crate) fn keep_deadline(deadline: Option<Box<(Timer, Job)>>) {
    if let Some(deadline) = deadline {
        // The job may be gone, and with it the frames behind the context that is installed; and what is dropped here may
        // be the last handle to it.
        outermost_at_end(move || {
            let (timer, job) = *deadline;
            if !job.is_ended() {
                timer.detach();
            }
        });
    }
}

/// The address of the task, if it is one, whose value is left here. Only to be compared with.
///
/// Tasks and futures begin alike, and other jobs are in no queue of tasks.
pub(crate) fn task_around<T>(slot: NonNull<Slot<T>>) -> *const RawTask {
    const { assert!(std::mem::offset_of!(Task<(), T>, raw) == 0) };
    let before = std::mem::offset_of!(Task<(), T>, slot);
    slot.as_ptr().cast_const().wrapping_byte_sub(before).cast()
}

/// A new job on its way to a worker.
pub(crate) struct Spawned<T> {
    pub(crate) job: Job,
    pub(crate) slot: NonNull<Slot<T>>,
}

/// Makes a job under `parent` and gives it to `pool`; `deadline` makes the timer that ends its time.
///
/// # Safety
/// Everything that `body` and its value borrow outlives the end of `parent`, and so do the frames of
/// `context`.
pub(crate) unsafe fn spawn<F, T>(
    parent: &Job,
    options: JobOptions,
    pool: &PoolRef,
    context: RawContext,
    stack: TaskStack,
    deadline: impl FnOnce(&Job) -> Option<Timer>,
    body: F,
) -> Result<Spawned<T>, ParentEnded>
where
    F: FnOnce() -> Result<T, BoxError> + Send,
    T: Send,
{
    let raw = RawTask::new(Task::<F, T>::kind(stack), parent.as_ptr());
    let write = |place: NonNull<Task<F, T>>| {
        let task = place.as_ptr();
        // SAFETY: there is room for one; each field is written once.
        unsafe {
            (&raw mut (*task).raw).write(raw);
            (&raw mut (*task).slot).write(Slot::empty());
            (&raw mut (*task).run).write(UnsafeCell::new(None));
        }
    };
    // SAFETY: all fields are written.
    let attached = match unsafe { attach_beside_with(parent, options, write) } {
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
    let slot = unsafe { NonNull::new_unchecked(&raw mut (*beside.as_ptr()).slot) };
    if job.is_cancelled() {
        // Born cancelled: it never runs, so no worker needs to see it.
        drop_unused(&job, body);
        execution.end(BodyResult::Cancelled);
        return Ok(Spawned { job, slot });
    }
    let deadline = deadline(&job).map(|timer| Box::new((timer, job.clone())));
    // SAFETY: the task was not submitted yet, so nobody else looks into the cell, and there is nothing in it to drop.
    unsafe {
        beside.as_ref().run.get().write(Some(Run {
            body,
            execution,
            deadline,
        }));
    }
    // SAFETY: the task lies in its job's memory, which the execution inside keeps until it has run; it is
    // submitted once; the run function is the one for its type. The context and what the body borrows are
    // there until the parent ends, which is not before this job does.
    unsafe { pool.submit_raw(beside.cast(), context) };
    sim::point();
    Ok(Spawned { job, slot })
}
