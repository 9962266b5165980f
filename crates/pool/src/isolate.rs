//! `isolate`: code that must not find itself interrupted by strangers while it waits.
//!
//! A worker that waits inside does not park its stack and runs only work that was made inside. So a
//! lock that is held across a wait cannot be wanted by what the same thread runs meanwhile. What was made inside, every
//! queue entry says by itself (`isolation.rs`).
//!
//! # Which waits inside end
//!
//! A wait inside ends, whatever the other workers do and also on a pool's only worker, if what it waits for is brought about by
//!
//! * forks and tasks that were made inside, however deep: `join`, scopes, blocking nurseries with jobs and futures, also
//!   futures that yield, sleep, or are woken by any thread. They lie in the fork deques, where the waiter takes its own and
//!   those of the others' running stacks, or in the injector's second queue, of which the waiter is told;
//! * threads that are no workers of the pool: timers, dispatchers, other pools that are not blocked themselves.
//!
//! `broadcast` inside ends if every other worker comes back to its loop or to a wait outside of `isolate`: its tasks have to
//! run on those very workers. Two broadcasts that run inside two isolations at once may wait for each other for ever.
//!
//! What does not end: waiting inside for something that only this worker could bring about and that was made outside:
//! a latch that one of its parked stacks sets, a detached task (`spawn`, `Runtime::spawn`), a child of an `async` nursery
//! (these belong to no frame, and so to no isolation). In debug builds a wait inside that has slept longer than
//! [`WATCHDOG_PATIENCE`] is reported on stderr, once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::context::Installed;
use crate::isolation::Isolation;
use crate::worker::{Worker, WorkerThread};

/// How long a wait inside `isolate` may sleep before a debug build reports it. Picked by feel: longer
/// than any fork in a test, shorter than a developer's patience.
const WATCHDOG_PATIENCE: Duration = Duration::from_secs(10);

static STUCK_WAITS: AtomicU64 = AtomicU64::new(0);

/// Runs `body` so that while it waits for what it forked or spawned, its worker runs only that.
///
/// Use it where a lock is held across `join`, a scope or a parallel loop:
///
/// ```
/// use std::sync::Mutex;
///
/// let total = Mutex::new(0);
/// jobtree_pool::scope(|s| {
///     for n in 0..4 {
///         let total = &total;
///         s.spawn(move |_| {
///             let mut total = total.lock().unwrap();
///             // Without `isolate`, waiting here could start the next task on this very thread,
///             // which would then block on the mutex that is held below it.
///             let (a, b) = jobtree_pool::isolate(|| jobtree_pool::join(|| n, || n));
///             *total += a + b;
///         });
///     }
/// });
/// assert_eq!(total.into_inner().unwrap(), 12);
/// ```
///
/// Inside, wait only for work made inside: forks, and the tasks or jobs of scopes that were opened inside. Such waits end,
/// also on a pool's only worker, if that work waits for nothing but its own. Anything else may need this very worker: detached
/// tasks (`spawn`), jobs of an `async` nursery, latches that are set by work made outside.
///
/// Keep what runs inside short and free of other waits. Work that was made inside and is parked on another worker (it sleeps,
/// or waits for a channel) goes on when that worker has time for it; if that worker waits inside an `isolate` of its own, for
/// work that is parked here, both wait for ever. So do two broadcasts at once, each inside an `isolate`.
///
/// On a stack of 64 KiB, what was made inside runs on top of the waiting frame, too.
///
/// # Panics
/// If 65 535 calls are open at once in the process.
pub fn isolate<F, R>(body: F) -> R
where
    F: FnOnce() -> R,
{
    Worker::with_current(|worker| match worker {
        Some(worker) => {
            let _open = Open::enter(worker);
            body()
        }
        // A thread that is no worker runs nobody's work while it waits.
        None => body(),
    })
}

/// An isolation that the calling code is in, until this value is dropped.
struct Open<'w> {
    isolation: Isolation,
    worker: &'w Worker,
    /// Before the isolation is closed, neither the thread nor the strand is inside any more.
    inside: Option<(BelowFrames<'w>, Installed<'w>)>,
}

impl Open<'_> {
    fn enter(worker: &Worker) -> Open<'_> {
        let thread = worker.thread();
        let outer = worker.strand().context().get();
        let isolation = thread.numbers.open(outer.isolation());
        let below = BelowFrames::enter(thread, isolation);
        let installed = Installed::new(Some(worker), outer.isolated(isolation));
        Open {
            isolation,
            worker,
            inside: Some((below, installed)),
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.inside = None;
        self.worker.thread().numbers.close(self.isolation);
    }
}

/// Notes which isolation the frames on a thread's running strand are inside of, until this value is dropped. Such a strand is
/// never parked, so the note is good for whatever runs on the thread meanwhile.
pub(crate) struct BelowFrames<'t> {
    thread: &'t WorkerThread,
    outer: Isolation,
}

impl BelowFrames<'_> {
    pub(crate) fn enter(thread: &WorkerThread, isolation: Isolation) -> BelowFrames<'_> {
        let outer = thread.isolation.replace(isolation);
        BelowFrames { thread, outer }
    }
}

impl Drop for BelowFrames<'_> {
    fn drop(&mut self) {
        self.thread.isolation.set(self.outer);
    }
}

/// How long one sleep inside `isolate` may last before `report_stuck` is to be called.
pub(crate) fn watchdog_limit() -> Option<Duration> {
    cfg!(debug_assertions).then(patience)
}

fn patience() -> Duration {
    match std::env::var("JOBTREE_ISOLATE_WATCHDOG_MS") {
        Ok(value) => value
            .parse()
            .map_or(WATCHDOG_PATIENCE, Duration::from_millis),
        Err(_) => WATCHDOG_PATIENCE,
    }
}

/// Says that a wait inside `isolate` has lasted suspiciously long.
pub(crate) fn report_stuck(thread: &WorkerThread) {
    let parked = thread.ready.borrow().len();
    eprintln!(
        "jobtree: worker {} has waited inside `isolate` for {:?} and found nothing of its own to run. \
         If it waits for something that was not forked or spawned inside, this is a deadlock: move \
         that wait out of `isolate` ({parked} stacks of this worker are ready to go on and cannot).",
        thread.index,
        patience(),
    );
    // After the report: who sees the count may rely on it.
    STUCK_WAITS.fetch_add(1, Ordering::Release);
}

/// How many waits inside [`isolate`] debug builds have reported as stuck, in this process.
pub fn stuck_isolated_waits() -> u64 {
    STUCK_WAITS.load(Ordering::Acquire)
}
