//! `isolate`: code that must not find itself interrupted by strangers while it waits.
//!
//! A worker that waits inside does not park its stack and runs only work that was made inside. So a
//! lock that is held across a wait cannot be wanted by what the same thread runs meanwhile.
//!
//! What can still deadlock: waiting inside for something that only this worker could bring about, such
//! as a latch that is set by one of its parked stacks, or by a task sent to this worker. In debug builds
//! a wait inside that has slept longer than [`WATCHDOG_PATIENCE`] is reported on stderr, once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::context::{Context, Installed};
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
/// Inside, wait only for work made inside: anything else may need this very worker.
pub fn isolate<F, R>(body: F) -> R
where
    F: FnOnce() -> R,
{
    Worker::with_current(|worker| match worker {
        Some(worker) => {
            let outer = worker.strand().context().get();
            // SAFETY: the current context is alive as long as we are inside.
            let mut context = unsafe { Context::isolating(outer) };
            context.isolation = &raw const context;
            let _below = BelowFrames::enter(worker.thread(), &raw const context);
            let _installed = Installed::new(Some(worker), &raw const context);
            body()
        }
        // A thread that is no worker runs nobody's work while it waits.
        None => body(),
    })
}

/// Notes which isolation the frames on a thread's running strand are inside of, until this value is dropped. Such a strand is
/// never parked, so the note is good for whatever runs on the thread meanwhile.
pub(crate) struct BelowFrames<'t> {
    thread: &'t WorkerThread,
    outer: *const Context,
}

impl BelowFrames<'_> {
    pub(crate) fn enter(thread: &WorkerThread, isolation: *const Context) -> BelowFrames<'_> {
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
