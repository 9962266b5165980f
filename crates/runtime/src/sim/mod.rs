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
//!   waits for. The jobs are then cancelled, so that their destructors run; what does not end even so is leaked.
//! * Programs that do not end: after [`max_steps`](Builder::max_steps).
//!
//! # Where the order can change
//!
//! Between two *points* nothing else runs. Points are: where a job or task starts; where something is spawned; where a fork
//! is made and where it is taken back; where something waits; between two blocks of a parallel loop;
//! [`checkpoint`](crate::checkpoint), [`yield_now`](jobtree_pool::yield_now), cancelling, and all operations of this
//! crate that can wait. Plain memory access is none: put a `checkpoint` where a race is suspected.
//!
//! # What escapes it
//!
//! A simulation repeats itself only as far as everything in it comes from the seed. These do not:
//!
//! * **Real time.** `Instant::now`, `SystemTime::now` and `std::thread::sleep` know nothing of the clock here.
//! * **Hash seeds.** A `HashMap` with std's `RandomState` is iterated in another order in each process. Addresses differ
//!   too, and so do the ids of jobs ([`Job::id`](crate::Job::id)), which count up through the whole process.
//! * **Other threads.** What another thread does (`std::thread::spawn`, an ordinary [`Runtime`](crate::Runtime) or
//!   [`Pool`](jobtree_pool::Pool), tokio), it does when it likes. If everybody waits for it, the program looks stuck.
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
// * `jobtree_pool::raw::sim::choose(n)` where a choice is free: `Some` of a number below `n` in a simulation, and the
//   module's own way of choosing otherwise (a fair `select`).
// * `jobtree_pool::raw::sim::is_simulated()` where threads would be used: a closure that blocks a thread of its own
//   elsewhere runs as a task of the simulated pool here, since there is one thread only.
// * `jobtree_pool::raw::sim::undisturbed(f)` where the code of others is called under a lock.
// * `Timers::now`, never `Instant::now`.

mod check;
mod error;
mod events;
mod report;
mod run;

use std::cell::RefCell;
use std::time::Duration;

pub use check::check;
pub use error::{SimError, WaitingJob};
pub use jobtree_pool::raw::sim::SimulationError;
use jobtree_pool::raw::sim::is_simulated;
pub(crate) use jobtree_pool::raw::sim::point;
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
