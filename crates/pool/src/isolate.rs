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
//! * threads that are no workers of the pool: timers, dispatchers, other pools that are not blocked themselves. What a job on
//!   a dispatcher forks back on the workers is inside, too, if the scope of that job was opened inside (`blocking.rs`).
//!
//! `broadcast` inside ends if every other worker comes back to its loop or to a wait outside of `isolate`: its tasks have to
//! run on those very workers. Two broadcasts that run inside two isolations at once may wait for each other for ever.
//!
//! What runs inside runs on top of the waiting frame, so that it has ended before that frame goes on, and so tasks that wait
//! nest on one stack. When half of the stack is in use, a wait takes nothing more on top and sleeps until what it waits for has
//! come: from other workers or threads, that is. A wait that stays out of room for [`WATCHDOG_PATIENCE`] is reported on stderr, by
//! every build, since it may be for ever.
//!
//! What does not end: waiting inside for something that only this worker could bring about and that was made outside:
//! a latch that one of its parked stacks sets, a detached task (`spawn`, `Runtime::spawn`), a child of an `async` nursery
//! (these belong to no frame, and so to no isolation). In debug builds a wait inside that has found nothing to run for
//! [`WATCHDOG_PATIENCE`] is reported on stderr, once, with the other workers of the pool that wait inside an isolation.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::context::Installed;
use crate::isolation::Isolation;
use crate::worker::{Worker, WorkerThread};

/// The time that a wait inside `isolate` may sleep before a debug build reports it. Picked by feel: longer than any fork in a
/// test, shorter than a developer's patience.
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
/// Inside, wait only for work made inside: forks, and the tasks or jobs of scopes that were opened inside, on a dispatcher, too.
/// Such waits end, also on a pool's only worker, if that work waits for nothing but its own. Anything else may need this very worker: detached
/// tasks (`spawn`), jobs of an `async` nursery, latches that are set by work made outside.
///
/// Keep what runs inside short and free of other waits. Work that was made inside and is parked on another worker (it sleeps,
/// or waits for a channel) goes on when that worker has time for it; if that worker waits inside an `isolate` of its own, for
/// work that is parked here, both wait for ever. So do two broadcasts at once, each inside an `isolate`. A debug build reports
/// both on stderr after ten seconds, and names the workers that wait for each other.
///
/// On a stack of 64 KiB, what was made inside runs on top of the waiting frame, too.
///
/// Tasks inside that wait nest on the stack of the waiting frame. When half of it is in use, the worker runs nothing more on top
/// and sleeps until what it waits for has come. So thousands of tasks may wait inside for what other threads or workers do, but
/// not for each other: a wait for a task that has not begun then waits for another worker to run it, on a pool with one worker for
/// ever. Such a wait is reported on stderr after ten seconds. A thread that is a worker by `use_current_thread` has no such bound.
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
        // A thread that is no worker runs no other work while it waits.
        None => body(),
    })
}

/// An isolation that the calling code is in, until this value is dropped.
struct Open<'w> {
    isolation: Isolation,
    worker: &'w Worker,
    /// Before the isolation is closed, neither the thread nor the fiber is inside any more.
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
        // Fibers may have been woken meanwhile: see `woken.rs`.
        self.worker.strand().ask_for_woken();
        self.worker.thread().numbers.close(self.isolation);
    }
}

/// Notes which isolation the frames on a thread's running fiber are inside of, until this value is dropped. Such a fiber is
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

/// The watch of a debug build over one wait inside `isolate`, and of every build over one that is out of room, which reports the wait once if it finds nothing to run for long,
/// however often the worker is woken meanwhile.
///
/// While it watches, the worker shows how much it holds up: stacks that are ready to go on, and tasks that were sent to this
/// very worker and were not made inside. Another worker's report names it.
pub(crate) struct Watchdog<'t> {
    thread: &'t WorkerThread,
    /// The time at which the worker last had something to run; `None` if there is nothing to report, or no more.
    idle_since: Option<Instant>,
    /// `true` if the wait runs nothing on top of its stack.
    is_out_of_room: bool,
}

impl Watchdog<'_> {
    pub(crate) fn new(thread: &WorkerThread) -> Watchdog<'_> {
        let watches = cfg!(debug_assertions) && !thread.is_simulated;
        Watchdog {
            thread,
            idle_since: watches.then(Instant::now),
            is_out_of_room: false,
        }
    }

    /// The wait runs nothing on top, since half of its stack is in use.
    #[cold]
    pub(crate) fn is_out_of_room(&mut self) {
        self.is_out_of_room = true;
        self.idle_since = (!self.thread.is_simulated).then(Instant::now);
    }

    pub(crate) fn found_work(&mut self) {
        self.idle_since = self.idle_since.map(|_| Instant::now());
    }

    /// Shows what the worker holds up, and returns how long the next sleep may last before [`Watchdog::report`].
    pub(crate) fn limit(&self) -> Option<Duration> {
        if cfg!(debug_assertions) {
            let held_up = self.held_up();
            let shown = &self.thread.shared().held_up_inside;
            shown.store(1 + held_up, Ordering::Relaxed);
        }
        Some(patience().saturating_sub(self.idle_since?.elapsed()))
    }

    fn held_up(&self) -> usize {
        self.thread.ready.borrow().len() + self.thread.own_mail.borrow().len()
    }

    /// Says that the wait has lasted suspiciously long, and which other workers of the pool wait inside an isolation.
    pub(crate) fn report(&mut self) {
        self.idle_since = None;
        let (thread, held_up) = (self.thread, self.held_up());
        if self.is_out_of_room {
            eprintln!(
                "jobtree: worker {} has waited inside `isolate` for {:?} and runs nothing meanwhile, since tasks that wait have used up \
                 half of its stack. If it waits for such a task, this is a deadlock: let fewer tasks wait inside `isolate`, or give \
                 the pool larger stacks with `stack_size`.",
                thread.index,
                patience(),
            );
            STUCK_WAITS.fetch_add(1, Ordering::Release);
            return;
        }
        let mut report = format!(
            "jobtree: worker {} has waited inside `isolate` for {:?} and found nothing of its own to run. \
             If it waits for something that was not forked or spawned inside, this is a deadlock: move \
             that wait out of `isolate` ({held_up} stacks and tasks of this worker are ready to go on and cannot).",
            thread.index,
            patience(),
        );
        for (index, other) in thread.pool.workers.iter().enumerate() {
            // One more than it holds up, while it waits inside.
            let shown = other.held_up_inside.load(Ordering::Relaxed);
            if index != thread.index && shown > 0 {
                let _ = write!(
                    report,
                    "\n  worker {index} waits inside `isolate`, too, and holds up {} stacks and tasks{}",
                    shown - 1,
                    match shown > 1 && held_up > 0 {
                        true =>
                            ": if these are what the two wait for, they wait for each other, for ever; leave one of the \
                             isolations before the wait or the broadcast",
                        false => "",
                    }
                );
            }
        }
        eprintln!("{report}");
        // After the report: who sees the count may rely on it.
        STUCK_WAITS.fetch_add(1, Ordering::Release);
    }
}

impl Drop for Watchdog<'_> {
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            let shown = &self.thread.shared().held_up_inside;
            shown.store(0, Ordering::Relaxed);
        }
    }
}

fn patience() -> Duration {
    match std::env::var("JOBTREE_ISOLATE_WATCHDOG_MS") {
        Ok(value) => value
            .parse()
            .map_or(WATCHDOG_PATIENCE, Duration::from_millis),
        Err(_) => WATCHDOG_PATIENCE,
    }
}

/// Returns the number of waits inside [`isolate`] that were reported as stuck in this process: in debug builds, and if they were
/// out of room.
pub fn stuck_isolated_waits() -> u64 {
    STUCK_WAITS.load(Ordering::Acquire)
}
