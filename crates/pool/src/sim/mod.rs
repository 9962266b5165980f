//! Simulation: all workers of a pool on one OS thread, in an order that a seed decides.
//!
//! # How it works
//!
//! A simulated pool has the deques, inboxes, parking lots and fibers of any other, but no threads: its workers are
//! *logical*. One hub (`hub.rs`), on the stack of the thread that runs the simulation, does what otherwise each worker's own
//! hub does: it resumes a fiber, which runs until it suspends itself. Which worker's, the schedule says
//! (`schedule.rs`). A fiber suspends itself
//!
//! * where it would in any pool: it waits and parks in favour of something else, or its loop gives way;
//! * where its worker would fall asleep: the worker is then idle until something is posted or sent to it;
//! * at a *point*: a place where a thread of a real pool could be interrupted for so long that others act first. The
//!   fiber stays its worker's current one, and is what that worker goes on with.
//!
//! Between two points nothing else runs. So the code in between needs no thought, except that no lock of the standard
//! library and no borrow of a cell may be held at a point: who wants it next is on the same thread.
//!
//! # What the pool does differently
//!
//! | elsewhere | in a simulation | where |
//! | --- | --- | --- |
//! | most forks are plain calls | every fork makes a record and offers it | `Tuning`: the limit of private forks is the mark of a question, so that a fiber is always asked |
//! | `wants_work` says whether a thief asked | the seed answers | [`answers_for_thieves`] |
//! | posting wakes a sleeper if no worker searches | posting wakes an idle worker that the seed chooses | `Sleep::for_simulation`: the counters always show one sleeper, so posting always takes the slow way |
//! | a thief lets forks season, a waiter spins | a look takes what there is; who finds nothing is idle | `search.rs`, `wait.rs` |
//! | ready fibers, own tasks, victims, injected tasks in a fixed order | the seed orders them | `search.rs` |
//!
//! So ordinary pools pay nothing on their fast paths.
//!
//! # The end
//!
//! A simulated program may borrow, so no stack is left behind: see `ending.rs`. What simulated code cannot wait for is
//! refused before anything of it has left its stack: see `refusal.rs`.
//!
//! # Panics
//!
//! A fiber is not interrupted while it unwinds. If a destructor waits during a panic, its fiber is suspended all the
//! same, since no other thread could bring about what it waits for. Until it goes on, `std::thread::panicking()` says yes
//! to all fibers: the count is the thread's. The counts add up, so every panic still ends where it should.

mod ending;
#[cfg(jobtree_stacks)]
mod hub;
mod refusal;
mod schedule;
mod simulated;
mod trace;

use std::any::Any;
use std::cell::{Cell, RefCell};

use crate::pool::shared::Shared;
use crate::sleep::Sleep;
use crate::stop::Stopped;
use crate::worker::Worker;
use ending::EndingState;
pub(crate) use ending::wait_breakably;
pub use ending::{Ending, unwind_if_ending};
pub use refusal::{Outside, outside_of_simulation};
pub(crate) use refusal::{refuse_outside_work, refuse_to_sleep};
use schedule::Schedule;
pub use simulated::{Pause, SimulatedPool, SimulationError, SimulationOptions, World};
use trace::Trace;

thread_local! {
    /// The simulation that runs on this thread, or null.
    static SIMULATION: Cell<*const Simulation> = const { Cell::new(std::ptr::null()) };
}

/// The activity of a logical worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    /// The worker can continue.
    Runs,
    /// The worker has found nothing to do, and would take posted work.
    Idle,
    /// The worker waits, and would not take posted work: only a notice of its own lets it continue.
    Waits,
    /// The worker's last loop has ended with the pool.
    Ended,
}

/// The state of a running simulation, apart from its workers' own.
struct Simulation {
    /// The pool that is simulated; known by its address.
    pool: *const Shared,
    schedule: RefCell<Schedule>,
    activities: Box<[Cell<Activity>]>,
    trace: RefCell<Trace>,
    /// Turns given and points passed.
    steps: Cell<u64>,
    /// The number of steps after which the hub pauses.
    limit: Cell<u64>,
    /// The number of callers that want no points just now.
    undisturbed: Cell<u32>,
    /// The time that loops take for a clock.
    ticks: Cell<u64>,
    /// The panics of tasks that no code waits for.
    panics: RefCell<Vec<Box<dyn Any + Send>>>,
    /// The panics of callbacks that the hub called.
    callback_panics: RefCell<Vec<Box<dyn Any + Send>>>,
    ending: EndingState,
}

impl Simulation {
    /// Lends the simulation that runs on this thread.
    #[inline]
    fn with<R>(body: impl FnOnce(&Simulation) -> R) -> Option<R> {
        // SAFETY: set while a `SimulatedPool`, which owns it, lives on this thread; `body` cannot keep it, and no code
        // ends the pool from inside: it takes the owner.
        let simulation = unsafe { SIMULATION.get().as_ref() };
        simulation.map(body)
    }

    /// A number below `bound`, which must not be 0.
    fn choose(&self, bound: usize) -> usize {
        let chosen = self.schedule.borrow_mut().below(bound);
        self.trace.borrow_mut().number(chosen as u64);
        chosen
    }

    fn count_step(&self) {
        self.steps.set(self.steps.get() + 1);
    }

    fn is_over_limit(&self) -> bool {
        self.steps.get() >= self.limit.get()
    }
}

/// Returns `true` if the calling code runs in a simulation.
#[inline]
pub fn is_simulated() -> bool {
    !SIMULATION.get().is_null()
}

/// A place where a thread of a real pool could be interrupted: in a simulation others may act first. Elsewhere it
/// costs a load.
///
/// No lock of the standard library may be held, and no cell be borrowed.
#[inline]
pub fn point() {
    if is_simulated() {
        pass_point(false);
    }
}

/// A [`point`] at the beginning of an operation, before anything of it can be seen; or at its end, when nothing is left to
/// do. Unwinds if the simulation is being ended.
#[inline]
pub fn point_or_unwind() {
    if is_simulated() {
        pass_point_or_unwind();
    }
}

#[cold]
#[inline(never)]
fn pass_point_or_unwind() {
    pass_point(false);
    unwind_if_ending();
}

/// A [`point`] at which the calling code itself lets others go first. Unwinds if the simulation is being ended.
pub(crate) fn point_of_yielding() {
    if is_simulated() {
        pass_point(true);
        unwind_if_ending();
    }
}

#[cold]
#[inline(never)]
fn pass_point(gives_way: bool) {
    Simulation::with(|simulation| {
        Worker::with_current(|worker| {
            // No worker: the hub itself is at work, for instance a timer fires.
            if let Some(worker) = worker
                && std::ptr::eq(worker.pool(), simulation.pool)
                && simulation.undisturbed.get() == 0
                && !std::thread::panicking()
            {
                simulation.count_step();
                let mut schedule = simulation.schedule.borrow_mut();
                if gives_way {
                    schedule.gives_way(worker.index());
                }
                let interrupted = schedule.interrupts(worker.index());
                drop(schedule);
                if interrupted || simulation.is_over_limit() {
                    worker.thread().suspend_to_hub(worker.strand());
                }
            }
        });
    });
}

/// Runs `body` without points: for code that calls others while it holds a lock.
pub fn undisturbed<R>(body: impl FnOnce() -> R) -> R {
    struct Guard(*const Simulation);
    impl Drop for Guard {
        fn drop(&mut self) {
            // SAFETY: null, or the simulation of this thread, which does not end while something runs in it.
            if let Some(simulation) = unsafe { self.0.as_ref() } {
                simulation.undisturbed.set(simulation.undisturbed.get() - 1);
            }
        }
    }
    Simulation::with(|simulation| {
        simulation.undisturbed.set(simulation.undisturbed.get() + 1);
    });
    let _guard = Guard(SIMULATION.get());
    body()
}

/// Returns a number below `bound` (not 0) that the seed chooses, in a simulation.
#[inline]
pub fn choose(bound: usize) -> Option<usize> {
    Simulation::with(|simulation| simulation.choose(bound))
}

/// Notes in the trace that something has happened. The text must be the same in every process.
pub fn note(text: &str) {
    Simulation::with(|simulation| {
        let who = Worker::with_current(|worker| worker.map(Worker::index));
        simulation.trace.borrow_mut().text(who, text);
    });
}

/// Steps so far.
pub fn steps() -> Option<u64> {
    Simulation::with(|simulation| simulation.steps.get())
}

/// Returns the time that loops take for a clock: in a simulation it advances by as much as the seed says, so that blocks get all
/// lengths.
#[inline]
pub(crate) fn ticks() -> Option<u64> {
    Simulation::with(|simulation| {
        let passed = 1 << simulation.choose(24);
        simulation.ticks.set(simulation.ticks.get() + passed);
        simulation.ticks.get()
    })
}

/// Returns `true` if a worker that sees a steal request shall believe it. In a simulation every worker is asked all the time, and
/// the seed decides which one hears it.
#[cold]
#[inline(never)]
pub(crate) fn answers_for_thieves() -> bool {
    point();
    let comes_first = || crate::stop::stop_requested() || has_woken();
    Simulation::with(|simulation| simulation.choose(4) == 0 || comes_first()).unwrap_or(true)
}

/// Returns `true` if a fiber of the calling worker is woken, to which a loop gives way.
fn has_woken() -> bool {
    Worker::with_running(|worker| worker.is_some_and(|worker| worker.thread().has_woken()))
}

/// Wakes an idle worker after a post to the pool of `sleep`, if that pool is simulated on this thread.
pub(crate) fn wake_one(sleep: &Sleep) -> bool {
    Simulation::with(|simulation| {
        // SAFETY: the simulation's owner keeps the pool.
        let own = unsafe { &(*simulation.pool).sleep };
        if !std::ptr::eq(sleep, own) {
            return false;
        }
        let idle = |worker: &usize| {
            simulation.activities[*worker].get() == Activity::Idle && !own.has_notice(*worker)
        };
        let count = (0..simulation.activities.len()).filter(idle).count();
        if count > 0 {
            let chosen = simulation.choose(count);
            let worker = (0..simulation.activities.len()).filter(idle).nth(chosen);
            own.notify(worker.expect("fewer than were counted"));
        }
        true
    })
    .unwrap_or(false)
}

/// In a simulation: tells every worker that waits inside `isolate` to look again; `false` if `sleep` is none of its.
pub(crate) fn wake_alone(sleep: &Sleep) -> bool {
    Simulation::with(|simulation| {
        // SAFETY: the simulation's owner keeps the pool.
        let own = unsafe { &(*simulation.pool).sleep };
        if !std::ptr::eq(sleep, own) {
            return false;
        }
        for (worker, activity) in simulation.activities.iter().enumerate() {
            if activity.get() == Activity::Waits {
                own.notify(worker);
            }
        }
        true
    })
    .unwrap_or(false)
}

/// Keeps the panic of a task that no other code waits for. Being unwound is no failure.
pub(crate) fn keep_panic(payload: Box<dyn Any + Send>) {
    if Stopped::is_payload(&*payload) {
        return;
    }
    Simulation::with(|simulation| simulation.panics.borrow_mut().push(payload));
}

#[cfg(all(test, jobtree_stacks))]
mod tests;
