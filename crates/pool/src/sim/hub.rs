//! The one hub of a simulated pool: gives turns to its logical workers.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use super::ending::EndingState;
use super::schedule::Schedule;
use super::trace::Trace;
use super::{
    Activity, Pause, SIMULATION, Simulation, SimulationError, SimulationOptions, World, keep_panic,
};
use crate::pool::shared::{Handlers, Shared};
use crate::raw::PoolRef;
use crate::sleep::MAX_WORKERS;
use crate::stack::overflow::{self, ThreadGuard};
use crate::stack::{self, StackSupply};
use crate::strand::Strand;
use crate::worker::{Worker, WorkerThread};

/// A pool without threads: its workers take turns on the thread that made it, while that is in [`run`](Self::run).
///
/// Dropped before its end, it leaks what its parked stacks hold, so nothing there may borrow; use [`end`](Self::end).
pub struct SimulatedPool {
    /// The workers, in a box that fibers know by address. Freed only when no fiber is left; else it stays for ever, and with it
    /// the pool and all stacks.
    threads: *mut [WorkerThread],
    /// The simulation, in a box that this thread knows by address; as long as `threads`.
    simulation: *mut Simulation,
    pub(super) shared: Arc<Shared>,
    /// The worker that had the last turn: only changes are written down.
    last: Option<usize>,
    runnable: Vec<usize>,
    _overflow_is_reported: ThreadGuard,
}

impl SimulatedPool {
    /// A pool whose workers have not begun.
    ///
    /// # Errors
    /// See [`SimulationError`].
    pub fn new(options: SimulationOptions) -> Result<SimulatedPool, SimulationError> {
        let SimulationOptions {
            seed,
            workers,
            stack_size,
            keeps_trace,
        } = options;
        if !SIMULATION.get().is_null() {
            return Err(SimulationError::Nested);
        }
        if Worker::with_current(|worker| worker.is_some()) {
            return Err(SimulationError::OnWorker);
        }
        if workers == 0 || workers > MAX_WORKERS {
            return Err(SimulationError::Workers { requested: workers });
        }
        let stack_size = stack::checked_stack_size(stack_size).map_err(SimulationError::Stack)?;
        let handlers = Handlers {
            on_panic: Some(Box::new(keep_panic)),
            ..Handlers::default()
        };
        let stacks = StackSupply::new(stack_size).map_err(SimulationError::Stack)?;
        let shared = Arc::new(Shared::simulated(
            workers, seed, stack_size, handlers, stacks,
        ));
        let threads: Box<[_]> = (0..workers)
            .map(|index| WorkerThread::new(shared.clone(), index))
            .collect();
        let simulation = Box::new(Simulation {
            pool: Arc::as_ptr(&shared),
            schedule: RefCell::new(Schedule::new(seed, workers)),
            activities: (0..workers).map(|_| Cell::new(Activity::Runs)).collect(),
            trace: RefCell::new(Trace::new(keeps_trace)),
            steps: Cell::new(0),
            limit: Cell::new(u64::MAX),
            undisturbed: Cell::new(0),
            ticks: Cell::new(0),
            panics: RefCell::new(Vec::new()),
            callback_panics: RefCell::new(Vec::new()),
            ending: EndingState::default(),
        });
        let pool = SimulatedPool {
            threads: Box::into_raw(threads),
            simulation: Box::into_raw(simulation),
            shared,
            last: None,
            runnable: Vec::with_capacity(workers),
            _overflow_is_reported: ThreadGuard::new("jobtree-simulation"),
        };
        overflow::install_handler();
        SIMULATION.set(pool.simulation);
        // Without stacks for all of them nothing begins, and what there is is leaked: it is too little to matter.
        for thread in pool.threads() {
            thread.prepare_hub().map_err(SimulationError::Stack)?;
        }
        Ok(pool)
    }

    /// The pool, for the thread that gives it work.
    pub fn pool_ref(&self) -> PoolRef {
        PoolRef::of_shared(&self.shared)
    }

    /// Gives turns until there is a reason to pause, the latest being `limit` steps in all. It can be called again.
    ///
    /// A panic of what the world lets happen is kept for [`take_callback_panics`](Self::take_callback_panics).
    pub fn run(&mut self, world: &mut dyn World, limit: u64) -> Pause {
        self.give_turns(world, limit, Until::World)
    }

    pub(super) fn give_turns(&mut self, world: &mut dyn World, limit: u64, until: Until) -> Pause {
        self.simulation().limit.set(limit);
        // What the hub itself calls is on no worker, and must not be taken for a fiber's doing.
        let _attached = self.threads()[0].attach();
        loop {
            let is_over = match until {
                Until::World => world.is_over(),
                Until::Ended => self.has_ended(),
            };
            if is_over {
                return Pause::Over;
            }
            if self.simulation().is_over_limit() {
                return Pause::Limit;
            }
            self.find_runnable();
            if self.runnable.is_empty() {
                self.simulation().count_step();
                let happened = self.call_world(|| world.advance());
                // A panic has happened, too.
                if happened == Some(false) && !self.rouse_for_stranger() {
                    return Pause::Stuck;
                }
                continue;
            }
            // The clock is like one more worker.
            if world.is_due(self.steps()) && self.simulation().choose(self.runnable.len() + 1) == 0
            {
                self.simulation().count_step();
                self.call_world(|| world.happen());
                continue;
            }
            let worker = {
                let mut schedule = self.simulation().schedule.borrow_mut();
                schedule.turn(&self.runnable)
            };
            self.give_turn(worker);
        }
    }

    pub(super) fn simulation(&self) -> &Simulation {
        // SAFETY: made by `Box::into_raw`, and freed only by `free`, which takes `self`.
        unsafe { &*self.simulation }
    }

    fn threads(&self) -> &[WorkerThread] {
        // SAFETY: as above.
        unsafe { &*self.threads }
    }

    /// Collects who can go on.
    fn find_runnable(&mut self) {
        let mut runnable = std::mem::take(&mut self.runnable);
        runnable.clear();
        let simulation = self.simulation();
        runnable.extend((0..simulation.activities.len()).filter(|worker| {
            match simulation.activities[*worker].get() {
                Activity::Runs => true,
                Activity::Idle | Activity::Waits => self.shared.sleep.has_notice(*worker),
                Activity::Ended => false,
            }
        }));
        self.runnable = runnable;
    }

    fn give_turn(&mut self, worker: usize) {
        let is_same = self.last.replace(worker) == Some(worker);
        let simulation = self.simulation();
        simulation.count_step();
        {
            let mut trace = simulation.trace.borrow_mut();
            trace.number(worker as u64);
            if !is_same {
                trace.line(Some(worker), format_args!("runs"));
            }
        }
        let activity = &simulation.activities[worker];
        if activity.replace(Activity::Runs) != Activity::Runs {
            self.shared.sleep.read_notice(worker);
        }
        let thread = &self.threads()[worker];
        thread.take_over_thread();
        if !thread.give_turn() {
            activity.set(Activity::Ended);
        }
    }

    /// Notifies an idle worker, and returns `true`, if another thread has left work, which the posting protocol of simulations does
    /// not see.
    fn rouse_for_stranger(&self) -> bool {
        let activities = &self.simulation().activities;
        let idle = activities
            .iter()
            .position(|activity| activity.get() == Activity::Idle);
        match idle {
            Some(worker) if !self.shared.injector.is_empty() => {
                self.shared.sleep.notify(worker);
                true
            }
            _ => false,
        }
    }

    /// Steps so far.
    pub fn steps(&self) -> u64 {
        self.simulation().steps.get()
    }

    /// A hash over everything that was decided and noted.
    pub fn hash(&self) -> u64 {
        self.simulation().trace.borrow().hash()
    }

    /// The trace as text, if it is kept; once.
    pub fn take_trace(&mut self) -> Option<String> {
        self.simulation().trace.borrow_mut().take_lines()
    }

    /// The panics of tasks that no code waits for, since the last call.
    pub fn take_panics(&mut self) -> Vec<Box<dyn Any + Send>> {
        self.simulation().panics.take()
    }

    /// The panics of what the world let happen, since the last call.
    pub fn take_callback_panics(&mut self) -> Vec<Box<dyn Any + Send>> {
        self.simulation().callback_panics.take()
    }

    /// Lets the world call callbacks of the program; `None` if one panicked, which is kept.
    fn call_world<R>(&self, call: impl FnOnce() -> R) -> Option<R> {
        match panic::catch_unwind(AssertUnwindSafe(call)) {
            Ok(result) => Some(result),
            Err(payload) => {
                self.simulation().callback_panics.borrow_mut().push(payload);
                None
            }
        }
    }

    /// Returns `true` if the loops of all workers have ended.
    pub(super) fn has_ended(&self) -> bool {
        let has_ended = |activity: &Cell<Activity>| activity.get() == Activity::Ended;
        self.simulation().activities.iter().all(has_ended)
    }

    /// Returns `true` if a worker can continue, or has been left something by another thread.
    pub(super) fn can_continue(&mut self) -> bool {
        self.find_runnable();
        !self.runnable.is_empty() || !self.shared.injector.is_empty()
    }

    /// Frees a pool that has ended.
    pub(super) fn free(self) {
        assert!(self.has_ended() && SIMULATION.get().is_null());
        // SAFETY: made by `Box::into_raw`, and dropped once: `self` ends here, and its own drop leaves them alone. Every
        // loop has ended, so nothing is left on any stack that knows them, and this thread has forgotten one.
        unsafe {
            drop(Box::from_raw(self.threads));
            drop(Box::from_raw(self.simulation));
        }
    }
}

/// The event at which the hub stops giving turns, if not earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// The world says that it is over.
    World,
    /// All loops have ended.
    Ended,
}

impl Drop for SimulatedPool {
    fn drop(&mut self) {
        // The boxes stay, unless `free` has freed them: what is parked knows them.
        SIMULATION.set(std::ptr::null());
    }
}

impl fmt::Debug for SimulatedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedPool").finish_non_exhaustive()
    }
}

impl WorkerThread {
    /// The worker has found nothing to do: another one gets the turn, until something is posted, or only when this one
    /// is told (`alone`).
    pub(crate) fn idle_in_simulation(&self, alone: bool) {
        if self.pool.sleep.has_notice(self.index) {
            return self.pool.sleep.read_notice(self.index);
        }
        let activity = if alone {
            Activity::Waits
        } else {
            Activity::Idle
        };
        Simulation::with(|simulation| simulation.activities[self.index].set(activity));
        Worker::with_current(|worker| {
            let worker = worker.expect("only strands look for work");
            self.suspend_to_hub(worker.strand());
        });
    }

    /// One of this worker's fibers whose wait is over.
    pub(crate) fn take_some_ready(&self) -> Option<*const Strand> {
        let mut ready = self.ready.borrow_mut();
        if ready.is_empty() {
            return None;
        }
        let chosen = Simulation::with(|simulation| simulation.choose(ready.len()));
        ready.remove(chosen.unwrap_or(0))
    }
}
