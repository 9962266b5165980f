//! A future that runs as a job on the pool: future, value and job in one allocation.
//!
//! # Protocol
//!
//! One word says where the future is (`state.rs`). `QUEUED`: it lies in a queue of the pool, or will as soon as the worker that
//! runs it is done. `RUNNING`: a worker polls it, or has put it back into a queue. `DONE`: it is gone, and only the memory is left.
//!
//! ```text
//!   wake: set QUEUED; whoever finds neither QUEUED, RUNNING nor DONE set before puts it into a queue
//!   run:  QUEUED -> RUNNING, poll
//!         waits: RUNNING -> 0, unless it was woken meanwhile; then back into a queue, as it is
//!         ready: -> DONE
//! ```
//!
//! A cancellation of the job is a wake.
//!
//! A future that waits is in no queue, so the pool is told that there is one, and does not end before it (`hold_pool`).
//! A waker holds a reference to the job, and so the memory.

use std::cell::{Cell, UnsafeCell};
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use jobtree_base::user_code::{Place, drop_user};
use jobtree_pool::Worker;
use jobtree_pool::raw::task::{RawContext, RawTask, RawTaskKind, hold_pool, release_pool};
use jobtree_pool::raw::{current_stack, polled_waker, replace_polled_waker};
use jobtree_tree::raw::{self, Attached, Beside, attach_beside};
use jobtree_tree::{Body, BodyResult, BoxError, Job, JobOptions, ParentEnded};

use super::body::BodyFuture;
use super::state::TaskState;
use crate::current::in_job;
use crate::runtime::Inner;
use crate::task::{Slot, Spawned, drop_unused, keep_deadline};
use crate::timers::Timer;

/// What lies beside the job.
#[repr(C)]
struct FutureTask<F, T> {
    /// First, so that the pool's pointer is a pointer to the whole.
    raw: RawTask,
    slot: Slot<T>,
    state: TaskState,
    context: RawContext,
    /// The runtime of the job: alive until the job has ended.
    runtime: *const Inner,
    /// The job that this lies beside. Alive as long as this is.
    job: Cell<*const ()>,
    /// Touched by whoever runs it.
    run: UnsafeCell<Option<Run<F>>>,
}

struct Run<F> {
    body: BodyFuture<F>,
    execution: Body,
    /// Of a job that has a limit, with a handle to see afterwards whether it has ended.
    deadline: Option<Box<(Timer, Job)>>,
    has_begun: bool,
}

// SAFETY: as for `task::Task`: futures and values are `Send`, and gone when what they borrow is.
unsafe impl<F, T> Beside for FutureTask<F, T>
where
    F: Future<Output = Result<T, BoxError>> + Send,
    T: Send,
{
    fn discard_value(&self) {
        // SAFETY: by the contract of the trait nobody else looks.
        drop_user(Place::Value, unsafe { self.slot.take() });
    }

    const WANTS_CANCELLATION: bool = true;

    fn cancelled(&self) {
        // SAFETY: alive, and this is a task.
        unsafe { Self::wake(std::ptr::from_ref(self).cast()) };
    }
}

impl<F, T> FutureTask<F, T>
where
    F: Future<Output = Result<T, BoxError>> + Send,
    T: Send,
{
    const KIND: RawTaskKind = RawTaskKind::new(Self::run, std::any::type_name::<F>);

    unsafe fn run(raw: NonNull<RawTask>, worker: &Worker) {
        let this = raw.cast::<FutureTask<F, T>>();
        // SAFETY: the pool gives back the pointer that it was given, to the first field of a task of this type. It is
        // alive: the execution in it holds a reference to its job.
        let task = unsafe { this.as_ref() };
        task.state.begin_run();
        // SAFETY: only the worker that runs the task looks into the cell.
        let place = unsafe { &mut *task.run.get() };
        let Some(run) = place.as_mut() else {
            return;
        };
        let Some((value, result)) = Self::poll(this, run) else {
            if !task.state.holds_pool.replace(true) {
                hold_pool(worker);
            }
            if !task.state.comes_to_rest() {
                // Woken meanwhile: ours to queue. Behind the others, or it would keep them from running.
                let context = task.context;
                // SAFETY: as in `spawn`; it is in no queue.
                unsafe { worker.requeue_raw(raw, context) };
            }
            // Not touched from here on: it may be running elsewhere.
            return;
        };
        let holds_pool = task.state.holds_pool.get();
        let Run {
            body,
            execution,
            deadline,
            ..
        } = place.take().expect("just polled");
        drop(body);
        task.state.end();
        // SAFETY: the job has not ended, so the value is still the body's.
        unsafe { task.slot.put(value) };
        execution.end(result);
        keep_deadline(deadline);
        if holds_pool {
            release_pool(worker);
        }
    }

    /// One poll; `None` if it has to wait.
    fn poll(this: NonNull<Self>, run: &mut Run<F>) -> Option<(Option<T>, BodyResult)> {
        let job = run.execution.job();
        // SAFETY: the task does not move before it is dropped, and the body is dropped in its place.
        let mut body = unsafe { Pin::new_unchecked(&mut run.body) };
        if !run.has_begun {
            if !run.execution.start() {
                in_job(job, || body.as_mut().discard());
                return Some((None, BodyResult::Cancelled));
            }
            run.has_begun = true;
        }
        // SAFETY: the functions suit the pointer. It is lent without a reference of its own, and so not dropped; the
        // execution holds one.
        let waker = ManuallyDrop::new(unsafe { Waker::from_raw(Self::raw_waker(this)) });
        // SAFETY: alive by the execution.
        let state = unsafe { &this.as_ref().state };
        state.begin_poll(current_stack());
        let outer = replace_polled_waker(this.as_ptr().cast());
        let result = body.poll(job, &mut Context::from_waker(&waker));
        replace_polled_waker(outer);
        state.end_poll();
        match result {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    const WAKER: RawWakerVTable = RawWakerVTable::new(
        |data| {
            // SAFETY: a waker holds a reference, so the task is alive.
            let task = unsafe { &*data.cast::<Self>() };
            // SAFETY: the job is alive by the same reference; the one that is made here is the clone's.
            std::mem::forget(unsafe { Job::from_ptr(task.job.get()) });
            RawWaker::new(data, &Self::WAKER)
        },
        |data| {
            // SAFETY: as above; the reference is given back after waking.
            unsafe {
                Self::wake(data);
                Self::drop_reference(data);
            }
        },
        // SAFETY: as above.
        |data| unsafe { Self::wake(data) },
        // SAFETY: as above; given back once.
        |data| unsafe { Self::drop_reference(data) },
    );

    fn raw_waker(this: NonNull<Self>) -> RawWaker {
        RawWaker::new(this.as_ptr().cast_const().cast(), &Self::WAKER)
    }

    /// # Safety
    /// `data` is a task that is alive.
    unsafe fn wake(data: *const ()) {
        // SAFETY: alive by contract.
        let task = unsafe { &*data.cast::<Self>() };
        if !task.state.wake(current_stack) {
            return;
        }
        let raw = NonNull::new(data.cast_mut().cast::<RawTask>()).expect("a task is somewhere");
        // SAFETY: the job waits, so it has not ended, and cannot before it was queued; and with it its runtime.
        let runtime = unsafe { &*task.runtime };
        let (pool, context) = (runtime.pool(), task.context);
        // A worker of the pool keeps it anyway. Anybody else has to: once queued, the job may end, and the runtime
        // with it.
        let kept = (!pool.is_current()).then(|| pool.clone());
        // SAFETY: as in `spawn`; it is in no queue, and the pool was told to stay.
        unsafe { kept.as_ref().unwrap_or(pool).submit_raw(raw, context) };
    }

    /// # Safety
    /// `data` is a task, and the caller gives away a reference to its job.
    unsafe fn drop_reference(data: *const ()) {
        // SAFETY: alive by the reference.
        let job = unsafe { (*data.cast::<Self>()).job.get() };
        // SAFETY: the reference is the caller's.
        drop(unsafe { raw::adopt_job(job) });
    }
}

/// Whether `waker` is that of the task that is polled on the calling stack: then it is woken by a cancellation of its job,
/// and by that of any scope around the calling code.
#[inline]
pub(crate) fn is_told_of_cancellation(waker: &Waker) -> bool {
    std::ptr::eq(waker.data(), polled_waker())
}

/// Makes a job under `parent` whose body is `future`, and gives it to the pool of `runtime`, which is the parent's.
///
/// # Safety
/// Everything that `future` and its value borrow outlives the end of `parent`, and so do the frames of
/// `context`.
pub(crate) unsafe fn spawn<F, T>(
    parent: &Job,
    options: JobOptions,
    runtime: &Inner,
    context: RawContext,
    deadline: impl FnOnce(&Job) -> Option<Timer>,
    future: F,
) -> Result<Spawned<T>, ParentEnded>
where
    F: Future<Output = Result<T, BoxError>> + Send,
    T: Send,
{
    let task = FutureTask {
        raw: RawTask::new(&FutureTask::<F, T>::KIND, parent.as_ptr()),
        slot: Slot::empty(),
        state: TaskState::queued(),
        context,
        runtime,
        job: Cell::new(std::ptr::null()),
        run: UnsafeCell::new(None),
    };
    let attached = match attach_beside(parent, options, task) {
        Ok(attached) => attached,
        Err((ended, _)) => {
            drop_user(Place::Captured, future);
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
        drop_unused(&job, future);
        execution.end(BodyResult::Cancelled);
        return Ok(Spawned { job, slot });
    }
    let deadline = deadline(&job).map(|timer| Box::new((timer, job.clone())));
    // SAFETY: the task was not submitted yet, so nobody else looks.
    unsafe {
        let task = beside.as_ref();
        task.job.set(job.as_ptr());
        *task.run.get() = Some(Run {
            body: BodyFuture::of_task(future),
            execution,
            deadline,
            has_begun: false,
        });
    }
    // SAFETY: the task lies in its job's memory, which the execution inside keeps until it has ended; it is
    // in no queue; the run function is the one for its type. The context and what the future borrows are there
    // until the parent ends, which is not before this job does.
    unsafe { runtime.pool().submit_raw(beside.cast(), context) };
    Ok(Spawned { job, slot })
}
