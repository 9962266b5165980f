//! Tasks that no code waits for, and giving way to others.

use std::sync::Arc;

use jobtree_base::user_owned::UserOwned;

use crate::context::ContextRef;
use crate::deque::Entry;
use crate::found::{Found, Work};
use crate::isolation::Isolation;
use crate::job::boxed_task;
use crate::pool::shared::{Shared, Waits};
use crate::raw::fuel::Meter;
use crate::raw::gate;
use crate::scope::{current_pool, submit_through_lane};
use crate::sim;
use crate::worker::{Worker, WorkerThread};

/// Runs `body` some time on the current pool, or the global one; no code waits for it.
///
/// A panic goes to the pool's panic handler; without one it is recorded
/// (`jobtree::user_code`), and the pool goes on.
///
/// # Panics
/// If the calling code has limits that do not allow it: in a job of `jobtree-runtime` with a budget or a profile. See the
/// table in the documentation of its module `budget`.
///
/// ```
/// use std::sync::mpsc::channel;
///
/// let (sender, receiver) = channel();
/// jobtree_pool::spawn(move || sender.send(42).unwrap());
/// assert_eq!(receiver.recv()?, 42);
/// # Ok::<(), std::sync::mpsc::RecvError>(())
/// ```
pub fn spawn<F>(body: F)
where
    F: FnOnce() + Send + 'static,
{
    let body = UserOwned::captured(body);
    let pool = current_pool();
    spawn_on(&pool, body.into_inner());
}

/// [`spawn`], but tasks spawned so by one worker start in the order of spawning.
pub fn spawn_fifo<F>(body: F)
where
    F: FnOnce() + Send + 'static,
{
    let body = UserOwned::captured(body);
    let pool = current_pool();
    spawn_fifo_on(&pool, body.into_inner());
}

pub(crate) fn spawn_on<F: FnOnce() + Send + 'static>(pool: &Arc<Shared>, body: F) {
    if gate::is_open() {
        pool.submit(detached::<F>(move |_| body()));
    } else if let Some(entry) = detached_within_limits(body) {
        pool.submit(entry);
    }
    sim::point();
}

/// [`spawn_on`] for the layers above, which have asked whether it is allowed.
pub(crate) fn spawn_unasked<F: FnOnce() + Send + 'static>(pool: &Arc<Shared>, body: F) {
    spawn_inside(pool, Isolation::NONE, body);
}

/// [`spawn_unasked`] for a task that code inside `isolation` waits for.
pub(crate) fn spawn_inside<F>(pool: &Arc<Shared>, isolation: Isolation, body: F)
where
    F: FnOnce() + Send + 'static,
{
    let mut entry = detached::<F>(move |_| body());
    entry.context = ContextRef::outermost_inside(isolation);
    pool.submit(entry);
    sim::point();
}

/// A task of code that has limits; `None` if it must not be started and this cannot be said.
#[cold]
#[inline(never)]
fn detached_within_limits<F: FnOnce() + Send + 'static>(body: F) -> Option<Entry> {
    let body = UserOwned::captured(body);
    let permit = gate::admit_detached(1)?;
    let body = body.into_inner();
    Some(detached::<F>(move |_| gate::run_within(&*permit, body)))
}

pub(crate) fn spawn_fifo_on<F: FnOnce() + Send + 'static>(pool: &Arc<Shared>, body: F) {
    let entry = match gate::is_open() {
        true => detached::<F>(move |_| body()),
        false => match detached_within_limits(body) {
            Some(entry) => entry,
            None => return,
        },
    };
    Worker::with_current(|worker| match worker {
        Some(worker) if std::ptr::eq(worker.pool(), &**pool) => {
            let lane = &pool.workers[worker.index()].fifo;
            // SAFETY: the lane lies in the pool, which ends only after all tasks have.
            unsafe { submit_through_lane(pool, worker, lane, entry, std::ptr::null()) };
        }
        _ => pool.inject(entry),
    });
    sim::point();
}

/// A task that no code waits for, called after the type `Named`: its panics go to the pool's handler.
///
/// It runs in the outermost context: the frames that contexts lie in may be gone by then.
pub(crate) fn detached<Named>(body: impl FnOnce(&Worker) + Send + 'static) -> Entry {
    unsafe fn after(_: *const (), worker: &Worker, result: std::thread::Result<()>) {
        if let Err(payload) = result {
            worker.pool().handle_panic(payload);
        }
    }
    Entry {
        // SAFETY: borrows nothing, and a queue runs each entry once.
        job: unsafe { boxed_task::<Named, _>(std::ptr::null(), after, body) },
        context: ContextRef::OUTERMOST,
    }
}

/// The result of a yield.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yield {
    /// Other work has run.
    Executed,
    /// There was nothing to run.
    Idle,
}

/// Lets something else run on this worker, if there is anything; `None` outside of a pool.
///
/// ```
/// use jobtree_pool::{Pool, Yield, yield_now};
///
/// let pool = Pool::builder().workers(1).build()?;
/// assert_eq!(pool.install(yield_now), Some(Yield::Idle));
/// assert_eq!(yield_now(), None);
/// # Ok::<(), jobtree_pool::BuildError>(())
/// ```
#[inline(always)]
pub fn yield_now() -> Option<Yield> {
    Worker::with_running(
        #[inline(always)]
        |worker| match worker {
            Some(worker) => Some(yield_worker(worker)),
            None => yield_from_outside(),
        },
    )
}

/// By a thread of the program's own that may be a worker.
#[cold]
#[inline(never)]
fn yield_from_outside() -> Option<Yield> {
    Worker::with_current(|worker| worker.map(yield_worker))
}

/// [`yield_now`], but only to this worker's own tasks.
pub fn yield_local() -> Option<Yield> {
    Worker::with_current(|worker| worker.map(yield_worker_locally))
}

/// Begins a new time slice: a fiber that offers its thread to others has a full slice again, whether or not another wanted the
/// thread.
// Inlined up to the switch itself: a switch that returns through frames costs a mispredicted return for each, some 8 ns.
#[inline(always)]
pub(crate) fn yield_worker(worker: &Worker) -> Yield {
    if worker.thread().yield_to_next_ready(worker.strand()) {
        return Yield::Executed;
    }
    yield_with_care(worker)
}

#[cold]
#[inline(never)]
fn yield_with_care(worker: &Worker) -> Yield {
    sim::point_of_yielding();
    let result = match yield_if_over_share(worker) {
        Yield::Executed => Yield::Executed,
        Yield::Idle => yield_to_anybody(worker),
    };
    worker.thread().begin_slice(worker.strand());
    result
}

fn yield_to_anybody(worker: &Worker) -> Yield {
    let isolation = worker.strand().context().get().isolation();
    let thread = worker.thread();
    if isolation.is_none() {
        // Looked at before the search: what is found must be run.
        let can_park = parks_when_yielding(thread);
        thread
            .find_work_for_yield()
            .map_or(Yield::Idle, |found| give_way(worker, found, can_park))
    } else {
        let found = find_work_on_top(worker, isolation);
        found.map_or(Yield::Idle, |found| give_way(worker, found, false))
    }
}

pub(crate) fn yield_worker_locally(worker: &Worker) -> Yield {
    sim::point_of_yielding();
    let thread = worker.thread();
    let isolation = worker.strand().context().get().isolation();
    if !isolation.is_none() {
        let found = find_work_on_top(worker, isolation);
        return found.map_or(Yield::Idle, |found| give_way(worker, found, false));
    }
    let can_park = parks_when_yielding(thread);
    thread
        .own_task()
        .map_or(Yield::Idle, |found| give_way(worker, found, can_park))
}

/// Returns `true` if a fiber that yields is suspended, instead of running other work on top.
fn parks_when_yielding(thread: &WorkerThread) -> bool {
    thread.pool.waits() == Waits::Park && thread.can_park()
}

/// Returns work that a worker which yields inside an isolation may run on top of the calling frame, if there is room.
fn find_work_on_top(worker: &Worker, isolation: Isolation) -> Option<Found> {
    let (thread, strand) = (worker.thread(), worker.strand());
    match thread.has_room_on_top(strand) {
        true => thread.find_work_inside(strand, isolation),
        false => None,
    }
}

/// Gives way as a preempted fiber if the calling job is over its share.
fn yield_if_over_share(worker: &Worker) -> Yield {
    // SAFETY: the current context is alive.
    let is_over = unsafe {
        let meter = Meter::of(worker.strand().context().get());
        worker.thread().is_over_share(meter)
    };
    if is_over {
        yield_preempted(worker)
    } else {
        Yield::Idle
    }
}

/// Gives way because the time slice is used up: behind all other work, see `preempted.rs`.
pub(crate) fn yield_preempted(worker: &Worker) -> Yield {
    let context = worker.strand().context().get();
    let isolation = context.isolation();
    // SAFETY: the current context is alive.
    let share = unsafe { Meter::of(context) }.share;
    let thread = worker.thread();
    // Looked at before the search: what is found must be run.
    if !isolation.is_none() || std::thread::panicking() || !thread.can_park() {
        return Yield::Idle;
    }
    // SAFETY: the share of the current context, which is alive.
    unsafe {
        thread
            .preempted
            .end_slice(share, thread.settle_share(share))
    };
    let Some(found) = thread.find_work() else {
        return Yield::Idle;
    };
    let strand = worker.strand();
    // SAFETY: a `&Worker` is only to be had on the fiber's own stack. Its context stays alive while it is parked, and so does
    // the share.
    unsafe {
        strand.share_all();
        thread.preempted.push(strand, share);
    }
    thread.park_in_favour_of(strand, found);
    Yield::Executed
}

fn give_way(worker: &Worker, found: Found, can_park: bool) -> Yield {
    let (thread, strand) = (worker.thread(), worker.strand());
    // SAFETY: a `&Worker` is only to be had on the fiber's own stack.
    unsafe { strand.share_all() };
    match found.work() {
        Work::Ready(ready) => thread.let_run(strand, ready),
        _ if can_park => thread.yield_to(strand, found),
        _ => thread.execute(worker, found),
    }
    Yield::Executed
}
