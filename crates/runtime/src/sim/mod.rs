//! Running a program in a simulation: on one thread, in an order that a seed decides, by a clock that stands still.
//!
//! A test of concurrent code passes a thousand times and fails the next day, because it saw the same few orders a thousand
//! times. In a simulation the program runs as always: jobs, nurseries, [`sleep`](crate::sleep), forks, parallel loops. But its workers are
//! *logical*: they take turns on one thread, and whose turn it is, who steals from whom, which sleeper wakes and which of
//! several timers comes first all follow from a seed. The same seed gives the same run, to the last step; another seed
//! gives another one. [`check`](check()) tries many, and tells which one fails:
//!
//! ```should_panic
//! use std::sync::atomic::{AtomicU32, Ordering};
//! use jobtree_runtime::{checkpoint, sim};
//!
//! sim::check(0..1000, |rt| {
//!     let count = AtomicU32::new(0);
//!     rt.nursery(|n| {
//!         for _ in 0..2 {
//!             n.launch(|| {
//!                 let seen = count.load(Ordering::Relaxed);
//!                 checkpoint()?; // Somebody else may come in between here.
//!                 count.store(seen + 1, Ordering::Relaxed);
//!                 Ok(())
//!             });
//!         }
//!         Ok(())
//!     })?;
//!     assert_eq!(count.into_inner(), 2);
//!     Ok(())
//! });
//! ```
//!
//! It panics with the seed, and with how to see what happened: `JOBTREE_SIM_SEED=…` in the environment makes
//! [`check`](check()) run that seed alone and print its trace. [`Runtime`] runs a single seed and reports on it.
//!
//! # Time
//!
//! The clock stands still while anybody can do anything. When all wait, it jumps to the next deadline: an hour of
//! `sleep` takes no time. [`elapsed`] tells how late it is. Deadlines at the same millisecond come in an order of the
//! seed's, and others may act in between. A program that computes until its time is over would do so for ever; give each
//! step some time then ([`Builder::time_per_step`]).
//!
//! # What it finds
//!
//! * Panics and errors that depend on the order: [`check`](check()) fails if the program panics or returns an error.
//! * Deadlocks: when all wait and no deadline is left, the program is stuck, and the report names each job and what it
//!   waits for. The jobs are then cancelled, and what does not end even so is unwound, so that all destructors run.
//! * Programs that do not end: after [`max_steps`](Builder::max_steps).
//!
//! # Where the order can change
//!
//! Between two *points* nothing else runs. Points are: where a job or task starts; where something is spawned; where a fork
//! is made and where it is taken back; where something waits; between two blocks of a parallel loop;
//! [`checkpoint`](crate::checkpoint), [`yield_now`](jobtree_pool::yield_now), cancelling, and all operations of this
//! crate that can wait. Plain memory access is none: put a `checkpoint` where a race is suspected.
//!
//! # Borrowing
//!
//! A program may borrow from the caller of [`check`](check()) or [`Runtime::run`], as with [`std::thread::scope`]:
//! neither returns before everything that was started in the simulation has ended.
//!
//! * When the program is over, stuck or at its limit, its jobs are cancelled. What still has not ended is unwound, by a
//!   panic with [`Stopped`](jobtree_pool::Stopped) that no panic hook sees: a wait for an
//!   [`OnceLatch`](jobtree_pool::OnceLatch) or a [`CountLatch`](jobtree_pool::CountLatch), a wait outside of any job, a
//!   [`yield_now`](jobtree_pool::yield_now), and each operation that a cancelled job tries to begin.
//! * A thread of a [`std::thread::scope`] is joined when its scope is unwound. If that thread never ends, the simulation
//!   never returns, and says so on standard error.
//! * If something does not end even so, the **process aborts**, with the seed and the paths of the jobs on standard error: a
//!   destructor that waits for ever while it is unwound, code that catches each unwinding and goes on, a loop through
//!   points at which nothing is unwound, or programs that are built with `panic = "abort"`. A destructor that panics while
//!   it is unwound aborts, too, as in every Rust program.
//! * Work that borrows cannot be handed to threads outside. [`Pool::install`](jobtree_pool::Pool::install), `join`, `scope`
//!   and `broadcast` of another pool panic; [`nursery`](crate::Runtime::nursery) and
//!   [`block_on`](crate::Runtime::block_on) of another runtime, and a [`Dispatcher`](crate::Dispatcher) that was made
//!   outside, return an error. Nothing has left the simulation then. Work that owns everything can be handed over:
//!   [`Pool::spawn`](jobtree_pool::Pool::spawn), [`Runtime::spawn`](crate::Runtime::spawn).
//!
//! # Callbacks of the clock
//!
//! When a deadline has come, the simulator itself cancels the job or wakes the waker, between two steps of the workers. A
//! callback that is called for it ([`Job::on_cancel`](crate::Job::on_cancel), a waker of the program's own) may spawn,
//! cancel and send without waiting. It can neither fork nor wait nor open a scope, which is refused by a panic or an error
//! before anything is shared. A panic of such a callback makes the simulation fail: [`SimError::CallbackPanicked`].
//!
//! # What escapes it
//!
//! A simulation repeats itself only as far as everything in it comes from the seed. These do not:
//!
//! * **Real time.** `Instant::now`, `SystemTime::now` and `std::thread::sleep` know nothing of the clock here.
//! * **Randomness of the system.** [`random`] draws from the seed instead.
//! * **Hash seeds.** A `HashMap` with std's `RandomState` is iterated in another order in each process. Addresses differ
//!   too, and so do the ids of jobs ([`Job::id`](crate::Job::id)), which count up through the whole process.
//! * **Other threads.** What another thread does (`std::thread::spawn`, jobs spawned in an ordinary
//!   [`Runtime`](crate::Runtime) or [`Pool`](jobtree_pool::Pool), tokio), it does in its own time. If all workers wait for
//!   it, the program looks stuck.
//! * **Blocking the thread.** A lock of the standard library that is held at a point and wanted by another job blocks the
//!   only thread there is, for ever; so does waiting for a `std::sync::mpsc` channel, or spinning without a point.
//!   In an ordinary runtime such code only blocks a worker, until the holder goes on.
//! * **Thread locals.** All logical workers share those of the one thread.
//! * **Input and output.** Files and sockets do what they do.
//! * **Weak memory.** Every access is seen at once and in order: a missing `Acquire` does not show.
//! * **Destructors that wait during a panic.** While one waits, `std::thread::panicking()` says yes in other jobs too.
//!
//! Simulations switch stacks, so there are none where that is impossible (nor under Miri): see
//! [`SimError::Unavailable`].

// How other modules of this crate take part:
//
// * `point()` where another thread could come in between: in every operation that others can see, and outside of all
//   locks. It is a load and a branch in ordinary runtimes.
// * `point_or_unwind()` instead, where an operation has not begun or has nothing left to do: a program that does not end is
//   unwound there when the simulation ends. A wait that no cancellation ends is a `wait_with_waker_breakably`, unless it
//   is for something that borrows from the waiter.
// * `refusal(runtime)` before a scope is opened in a runtime that may not be the simulated one.
// * `jobtree_pool::raw::sim::choose(n)` where a choice is free: `Some` of a number below `n` in a simulation, and the
//   module's own way of choosing otherwise (a fair `select`).
// * `jobtree_pool::raw::sim::is_simulated()` where threads would be used: a closure that blocks a thread of its own
//   elsewhere runs as a task of the simulated pool here, since there is one thread only.
// * `jobtree_pool::raw::sim::undisturbed(f)` where the code of others is called under a lock.
// * `Timers::now`, never `Instant::now`.

mod check;
mod course;
mod error;
mod events;
mod report;
mod run;

use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

pub use check::check;
pub use error::{SimError, WaitingJob};
pub use jobtree_pool::raw::sim::SimulationError;
use jobtree_pool::raw::sim::{Outside, choose, is_simulated, outside_of_simulation};
pub(crate) use jobtree_pool::raw::sim::{point, point_or_unwind};
pub use report::Report;
pub use run::{Builder, Runtime};

thread_local! {
    /// The runtime that is simulated on this thread.
    static SIMULATED: RefCell<Option<crate::Runtime>> = const { RefCell::new(None) };
}

/// How much time has passed in the simulation that the calling code runs in; `None` outside of simulations.
///
/// ```
/// use std::time::Duration;
/// use jobtree_runtime::{sim, sleep};
///
/// let report = sim::Runtime::new(1).run(|_| {
///     sleep(Duration::from_secs(3600))?;
///     Ok(sim::elapsed())
/// });
/// assert_eq!(report.outcome.unwrap(), Some(Duration::from_secs(3600)));
/// ```
pub fn elapsed() -> Option<Duration> {
    with_runtime(|runtime| runtime?.inner().timers.virtual_time())
}

/// Draws a number from the seed of the simulation that the calling code runs in; `None` outside of simulations. For
/// programs that draw ids or jitter from the system otherwise.
///
/// ```
/// use jobtree_runtime::sim;
///
/// let draw = |seed| sim::Runtime::new(seed).run(|_| Ok(sim::random())).outcome.unwrap();
/// assert!(draw(1).is_some());
/// assert_eq!(draw(1), draw(1));
/// assert_ne!(draw(1), draw(2));
/// assert_eq!(sim::random(), None);
/// ```
pub fn random() -> Option<u64> {
    let half = || choose(1 << 32).map(|half| half as u64);
    Some(half()? << 32 | half()?)
}

/// Returns why the calling code cannot wait for jobs of `runtime`, if it is in a simulation: `runtime` is not the simulated
/// one, or the code is a callback of the clock.
pub(crate) fn refusal(runtime: &crate::runtime::Inner) -> Option<Refused> {
    outside_of_simulation(runtime.pool()).map(Refused)
}

/// The error of a scope that cannot be opened in a simulation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused(Outside);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Outside::OtherPool => f.write_str(
                "code in a simulation cannot wait for jobs of another runtime; use the simulated one, which `nursery` and \
                 the other free functions find by themselves, or `Runtime::spawn` with a body that owns what it uses",
            ),
            callback => callback.fmt(f),
        }
    }
}

impl std::error::Error for Refused {}

/// Lends the runtime that is simulated on this thread.
pub(crate) fn with_runtime<R>(body: impl FnOnce(Option<&crate::Runtime>) -> R) -> R {
    if !is_simulated() {
        return body(None);
    }
    // Not while it is borrowed: the body may run others' code.
    let runtime = SIMULATED
        .try_with(|simulated| simulated.borrow().clone())
        .ok()
        .flatten();
    body(runtime.as_ref())
}
