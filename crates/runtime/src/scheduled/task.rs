//! The job, its future, its value and the layer's header in one allocation.
//!
//! # Protocol
//!
//! As in `future/task.rs`, with a [`Turn`] in place of an entry in a queue of the pool:
//!
//! ```text
//!   wake:  set QUEUED; whoever finds neither QUEUED, RUNNING nor DONE set before makes the turn
//!   run:   QUEUED -> RUNNING, poll
//!          waits: RUNNING -> 0, unless QUEUED was set meanwhile; then RUNNING|QUEUED -> QUEUED, and the turn goes back
//!          ready: -> DONE
//!   drop:  QUEUED -> RUNNING, drop the future -> DONE
//! ```
//!
//! So there is a turn exactly while QUEUED is set and RUNNING is not, and it is the right to set RUNNING. A cancellation of
//! the job is a wake.
//!
//! The memory is kept by references to the job: one is the execution's, which lies inside until DONE, so a turn needs
//! none; a waker and a [`Header`] have their own.

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use jobtree_base::user_code::{Place, drop_user};
use jobtree_pool::raw::{current_stack, prefetch, replace_polled_waker};
use jobtree_tree::raw::{self, Attached, Beside, attach_beside};
use jobtree_tree::{Body, BodyResult, BoxError, Cause, Job, JobId, JobOptions, Tree};

use super::end::end;
use super::{Prepared, Schedule};
use crate::current::in_job;
use crate::future::Nursery;
use crate::future::body::BodyFuture;
use crate::handle::JobHandle;
use crate::runtime::Inner;
use crate::sim;
use crate::task::{Slot, Spawned, drop_unused};

const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
const DONE: u8 = 4;

/// How many lines from the front on a small future and the header take, about.
const LINES_BEHIND: isize = 4;

/// What is the same for all futures.
#[repr(C)]
struct Front<S: Schedule> {
    functions: &'static Functions<S>,
    state: AtomicU8,
    /// Whether the pool was told that it waits. Only whoever runs it looks.
    holds_pool: Cell<bool>,
    /// Whether it was woken on the stack that it is polled on, which needs no locked instruction.
    woke_itself: Cell<bool>,
    /// The stack that it is polled on; null if none, or if that is a thread's that is no worker.
    polled_on: AtomicPtr<()>,
    /// The runtime of the job: alive until the job has ended.
    runtime: *const Inner,
    /// The job that this lies beside. Alive as long as this is.
    job: Cell<*const ()>,
    header: S,
}

/// What depends on the future.
struct Functions<S: Schedule> {
    run: unsafe fn(NonNull<Front<S>>) -> Ran<S>,
    abandon: unsafe fn(NonNull<Front<S>>),
}

/// What lies beside the job.
#[repr(C)]
struct Task<S: Schedule, F, T> {
    /// First, so that a pointer to it is a pointer to the whole.
    front: Front<S>,
    slot: Slot<T>,
    /// Touched by whoever has set RUNNING.
    run: UnsafeCell<Option<Run<F>>>,
}

struct Run<F> {
    body: BodyFuture<F>,
    execution: Body,
    has_begun: bool,
}

// SAFETY: as for `future::task::FutureTask`: futures and values are `Send`, headers `Send` and `Sync`, and all `'static`.
unsafe impl<S, F, T> Beside for Task<S, F, T>
where
    S: Schedule,
    F: Future<Output = Result<T, BoxError>> + Send,
    T: Send,
{
    fn discard_value(&self) {
        // SAFETY: by the contract of the trait nobody else looks.
        drop_user(Place::Value, unsafe { self.slot.take() });
    }

    const WANTS_CANCELLATION: bool = true;

    fn cancelled(&self) {
        // SAFETY: alive, and this is a task, of which the front is the first field.
        unsafe { Self::wake(std::ptr::from_ref(self).cast()) };
    }
}

impl<S, F, T> Task<S, F, T>
where
    S: Schedule,
    F: Future<Output = Result<T, BoxError>> + Send,
    T: Send,
{
    const FUNCTIONS: Functions<S> = Functions {
        run: Self::run,
        abandon: Self::abandon,
    };

    /// # Safety
    /// `front` is that of a task of this type, and the caller gives away its turn.
    unsafe fn run(front: NonNull<Front<S>>) -> Ran<S> {
        let this = front.cast::<Self>();
        // SAFETY: of this type by contract; alive by the execution in it, since there was a turn.
        let task = unsafe { this.as_ref() };
        // Acquire: what was written before each wake is seen by the poll.
        task.front.state.swap(RUNNING, Ordering::AcqRel);
        // SAFETY: only who has set RUNNING looks into the cell.
        let place = unsafe { &mut *task.run.get() };
        let run = place.as_mut().expect("there is a turn until the end");
        let Some((value, result)) = Self::poll(this, run) else {
            if !task.front.holds_pool.replace(true) {
                // SAFETY: the job has not ended, so its runtime is there.
                unsafe { (*task.front.runtime).pool().hold() };
            }
            if task.front.comes_to_rest() {
                // Not touched from here on: it may be running elsewhere.
                return Ran::Waits;
            }
            // At one go, and with Acquire: what the one who woke it has written goes on to the next run.
            task.front.state.swap(QUEUED, Ordering::AcqRel);
            return Ran::Again(Turn { front });
        };
        let run = place.take().expect("just polled");
        // SAFETY: the task is of this type and alive; what was run is its own.
        unsafe { Self::end(this, run, value, result) };
        Ran::Ended
    }

    /// # Safety
    /// As for [`run`](Task::run).
    unsafe fn abandon(front: NonNull<Front<S>>) {
        let this = front.cast::<Self>();
        // SAFETY: as in `run`.
        let task = unsafe { this.as_ref() };
        task.front.state.swap(RUNNING, Ordering::AcqRel);
        // SAFETY: as in `run`.
        let place = unsafe { &mut *task.run.get() };
        let run = place.as_mut().expect("there is a turn until the end");
        let job = run.execution.job();
        job.cancel(Cause::Abandoned);
        // SAFETY: the task does not move before it is dropped, and the body is dropped in its place.
        let body = unsafe { Pin::new_unchecked(&mut run.body) };
        in_job(job, || body.discard());
        let run = place.take().expect("just looked at");
        // SAFETY: as in `run`.
        unsafe { Self::end(this, run, None, BodyResult::Cancelled) };
    }

    /// # Safety
    /// `this` is alive, RUNNING is the caller's, and `run` came from it.
    unsafe fn end(this: NonNull<Self>, run: Run<F>, value: Option<T>, result: BodyResult) {
        let Run {
            body, execution, ..
        } = run;
        drop(body);
        // SAFETY: alive by the execution, until that has ended.
        let task = unsafe { this.as_ref() };
        task.front.state.store(DONE, Ordering::Release);
        // SAFETY: the job has not ended, so the value is still the body's.
        unsafe { task.slot.put(value) };
        let holds_pool = task.front.holds_pool.get();
        // SAFETY: the job has not ended, so its runtime is there.
        let held = holds_pool.then(|| unsafe { &*task.front.runtime }.pool().clone());
        let header: Header<S> = Header {
            job: execution.job().clone(),
            front: this.cast(),
        };
        end(&header, execution, result);
        if let Some(pool) = held {
            pool.release();
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
        let polled_on = unsafe { &this.as_ref().front.polled_on };
        polled_on.store(current_stack().cast_mut(), Ordering::Relaxed);
        let outer = replace_polled_waker(this.as_ptr().cast());
        let result = body.poll(job, &mut Context::from_waker(&waker));
        replace_polled_waker(outer);
        polled_on.store(std::ptr::null_mut(), Ordering::Relaxed);
        match result {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    const WAKER: RawWakerVTable = RawWakerVTable::new(
        |data| {
            // SAFETY: a waker holds a reference, so the task is alive.
            let front = unsafe { &*data.cast::<Front<S>>() };
            // SAFETY: the job is alive by the same reference; the one that is made here is the clone's.
            std::mem::forget(unsafe { Job::from_ptr(front.job.get()) });
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
        // SAFETY: alive by contract; the front is the first field.
        let front = unsafe { &*data.cast::<Front<S>>() };
        let polled_on = front.polled_on.load(Ordering::Relaxed);
        if !polled_on.is_null() && std::ptr::eq(polled_on, current_stack()) {
            // Nobody else writes the name of this stack, and nobody else uses the cell while it stands there.
            return front.woke_itself.set(true);
        }
        let before = front.state.fetch_or(QUEUED, Ordering::AcqRel);
        if before & (QUEUED | RUNNING | DONE) == 0 {
            let front = NonNull::new(data.cast_mut().cast()).expect("a task is somewhere");
            S::due(Turn { front });
        }
    }

    /// # Safety
    /// `data` is a task, and the caller gives away a reference to its job.
    unsafe fn drop_reference(data: *const ()) {
        // SAFETY: alive by the reference.
        let job = unsafe { (*data.cast::<Front<S>>()).job.get() };
        // SAFETY: the reference is the caller's.
        drop(unsafe { raw::adopt_job(job) });
    }
}

impl<S: Schedule> Front<S> {
    /// After a poll: `false` if it was woken meanwhile.
    fn comes_to_rest(&self) -> bool {
        let (relaxed, release) = (Ordering::Relaxed, Ordering::Release);
        !self.woke_itself.take()
            && self
                .state
                .compare_exchange(RUNNING, 0, release, relaxed)
                .is_ok()
    }
}

/// The right and duty to poll a job once: it exists exactly while a poll is due.
///
/// Dropped without being run, it cancels the job as abandoned, and drops its future: no job is lost silently.
#[must_use = "dropping it cancels the job"]
pub struct Turn<S: Schedule> {
    front: NonNull<Front<S>>,
}

// SAFETY: it is the right to touch what only one thread touches at a time: a future that is `Send`, and a header that is
// `Send` and `Sync`.
unsafe impl<S: Schedule> Send for Turn<S> {}
// SAFETY: a shared turn only lends the header and the job.
unsafe impl<S: Schedule> Sync for Turn<S> {}

/// What came of a [`Turn`].
#[derive(Debug)]
#[must_use = "dropping a turn cancels its job"]
pub enum Ran<S: Schedule> {
    /// The future is gone: the job has ended, or does with the last job below it.
    Ended,
    /// It waits. [`Schedule::due`] tells when it does not any more.
    Waits,
    /// It woke itself, or was woken, while it was polled: another poll is due, and the turn the caller's to queue.
    Again(Turn<S>),
}

impl<S: Schedule> Turn<S> {
    /// Polls the job, in the job, on the calling thread. A job that was cancelled before it began is not polled, but ends.
    pub fn run(self) -> Ran<S> {
        sim::point();
        let turn = ManuallyDrop::new(self);
        // SAFETY: the functions are those of its type; the turn is given away, since it is not dropped.
        unsafe { (turn.front.as_ref().functions.run)(turn.front) }
    }

    /// The job.
    pub fn job(&self) -> Job {
        // SAFETY: alive by the execution: there is a turn.
        let job = unsafe { Job::from_ptr(self.front.as_ref().job.get()) };
        job.expect("a task lies beside its job")
    }

    /// The number of the job.
    pub fn id(&self) -> JobId {
        // SAFETY: alive by the execution: there is a turn. What is made is no reference of its own, and is not given back.
        let job = ManuallyDrop::new(unsafe { raw::adopt_job(self.front.as_ref().job.get()) });
        job.id()
    }

    /// For a turn that will be run soon: has the processor fetch the job's memory meanwhile.
    #[inline]
    pub fn prefetch(&self) {
        // The job lies before the front, the future and the value behind it.
        let around = self.front.as_ptr().cast_const().cast::<u8>();
        for line in -2..LINES_BEHIND {
            prefetch(around.wrapping_offset(64 * line));
        }
    }

    /// What the layer remembers of the job, to be kept.
    pub fn header(&self) -> Header<S> {
        Header {
            job: self.job(),
            front: self.front,
        }
    }
}

impl<S: Schedule> Deref for Turn<S> {
    type Target = S;

    fn deref(&self) -> &S {
        // SAFETY: alive by the execution: there is a turn.
        unsafe { &(*self.front.as_ptr()).header }
    }
}

impl<S: Schedule> Drop for Turn<S> {
    fn drop(&mut self) {
        // SAFETY: the functions are those of its type, and the turn is given away.
        unsafe { (self.front.as_ref().functions.abandon)(self.front) };
    }
}

impl<S: Schedule> fmt::Debug for Turn<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Turn").field(&self.job()).finish()
    }
}

/// What the layer remembers of a job, in the job's own memory; this keeps it.
pub struct Header<S: Schedule> {
    job: Job,
    front: NonNull<Front<S>>,
}

// SAFETY: it lends a header that is `Send` and `Sync`, and keeps a job; the last one drops both, and what else is left there
// is `Send`.
unsafe impl<S: Schedule> Send for Header<S> {}
// SAFETY: as above.
unsafe impl<S: Schedule> Sync for Header<S> {}

impl<S: Schedule> Header<S> {
    /// The job.
    pub fn job(&self) -> &Job {
        &self.job
    }
}

impl<S: Schedule> Clone for Header<S> {
    fn clone(&self) -> Header<S> {
        Header {
            job: self.job.clone(),
            front: self.front,
        }
    }
}

impl<S: Schedule> Deref for Header<S> {
    type Target = S;

    fn deref(&self) -> &S {
        // SAFETY: beside the job, which is alive by our reference.
        unsafe { &(*self.front.as_ptr()).header }
    }
}

impl<S: Schedule> fmt::Debug for Header<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Header").field(&self.job).finish()
    }
}

/// Makes the job; see [`prepare`](super::prepare()).
pub(super) fn attach<S, F, T>(
    nursery: &Nursery,
    options: JobOptions,
    header: S,
    make: impl FnOnce(&Header<S>) -> F,
) -> Prepared<S, T>
where
    S: Schedule,
    F: Future<Output = Result<T, BoxError>> + Send + 'static,
    T: Send + 'static,
{
    let task: Task<S, F, T> = Task {
        front: Front {
            functions: &Task::<S, F, T>::FUNCTIONS,
            state: AtomicU8::new(QUEUED),
            holds_pool: Cell::new(false),
            woke_itself: Cell::new(false),
            polled_on: AtomicPtr::new(std::ptr::null_mut()),
            runtime: nursery.runtime(),
            job: Cell::new(std::ptr::null()),
            header,
        },
        slot: Slot::empty(),
        run: UnsafeCell::new(None),
    };
    // Of a job whose parent has ended: it is cancelled, so what is under it is born so.
    let mut ended_tree = None;
    let attached = attach_beside(nursery.job(), options, task).or_else(|(_, task)| {
        let tree = ended_tree.insert(Tree::new());
        tree.root().cancel(Cause::Shutdown);
        attach_beside(tree.root(), JobOptions::new(), task)
    });
    let Ok(Attached {
        job,
        body: execution,
        beside,
    }) = attached
    else {
        unreachable!("the root of a new tree has not ended");
    };
    let header: Header<S> = Header {
        job: job.clone(),
        front: beside.cast(),
    };
    // SAFETY: only the address is made; alive by `job`.
    let slot = unsafe { NonNull::new_unchecked(&raw mut (*beside.as_ptr()).slot) };
    // SAFETY: alive by `job`.
    let front = unsafe { beside.cast::<Front<S>>().as_ref() };
    front.job.set(job.as_ptr());
    let handle = JobHandle::new(Spawned { job, slot });
    if header.job().is_cancelled() {
        drop_unused(header.job(), make);
        front.state.store(DONE, Ordering::Release);
        end(&header, execution, BodyResult::Cancelled);
        return Prepared {
            turn: None,
            header,
            handle,
        };
    }
    let run = Run {
        body: BodyFuture::of_task(make(&header)),
        execution,
        has_begun: false,
    };
    // SAFETY: there is no turn yet, so nobody looks; and a wake finds QUEUED, so none is made.
    unsafe { *beside.as_ref().run.get() = Some(run) };
    Prepared {
        turn: Some(Turn {
            front: beside.cast(),
        }),
        header,
        handle,
    }
}
