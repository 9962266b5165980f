//! The one hub of a simulated pool: gives turns to its logical workers.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

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
/// Dropped before its end, it leaks what its parked stacks hold; use [`end`](Self::end).
pub struct SimulatedPool {
    /// Dropped only when no strand is left: else its stacks and all they know stay for ever.
    parts: ManuallyDrop<Parts>,
    /// Who had the last turn: only changes are written down.
    last: Option<usize>,
    runnable: Vec<usize>,
    _overflow_is_reported: ThreadGuard,
}

struct Parts {
    /// Each in a box of its own: strands know them by address.
    threads: Vec<Box<WorkerThread>>,
    shared: Arc<Shared>,
    simulation: Box<Simulation>,
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
        let threads: Vec<_> = (0..workers)
            .map(|index| Box::new(WorkerThread::new(shared.clone(), index)))
            .collect();
        for thread in &threads {
            thread.prepare_hub().map_err(SimulationError::Stack)?;
        }
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
        });
        overflow::install_handler();
        SIMULATION.set(&raw const *simulation);
        Ok(SimulatedPool {
            parts: ManuallyDrop::new(Parts {
                threads,
                shared,
                simulation,
            }),
            last: None,
            runnable: Vec::with_capacity(workers),
            _overflow_is_reported: ThreadGuard::new("jobtree-simulation"),
        })
    }

    /// The pool, for whoever gives it work.
    pub fn pool_ref(&self) -> PoolRef {
        PoolRef::of_shared(&self.parts.shared)
    }

    /// Gives turns until there is a reason to pause, the latest being `limit` steps in all. It can be called again.
    pub fn run(&mut self, world: &mut dyn World, limit: u64) -> Pause {
        self.simulation().limit.set(limit);
        // What the hub itself calls is on no worker, and must not be taken for a strand's doing.
        let _attached = self.parts.threads[0].attach();
        loop {
            if world.is_over() {
                return Pause::Over;
            }
            if self.simulation().is_over_limit() {
                return Pause::Limit;
            }
            self.find_runnable();
            if self.runnable.is_empty() {
                self.simulation().count_step();
                if !world.advance() && !self.rouse_for_stranger() {
                    return Pause::Stuck;
                }
                continue;
            }
            // The clock is like one more worker.
            if world.is_due(self.steps()) && self.simulation().choose(self.runnable.len() + 1) == 0
            {
                self.simulation().count_step();
                world.happen();
                continue;
            }
            let worker = {
                let mut schedule = self.simulation().schedule.borrow_mut();
                schedule.turn(&self.runnable)
            };
            self.give_turn(worker);
        }
    }

    fn simulation(&self) -> &Simulation {
        &self.parts.simulation
    }

    /// Collects who can go on.
    fn find_runnable(&mut self) {
        let Parts {
            shared, simulation, ..
        } = &*self.parts;
        let can_run = |worker: &usize| match simulation.activities[*worker].get() {
            Activity::Runs => true,
            Activity::Idle | Activity::Waits => shared.sleep.has_notice(*worker),
            Activity::Ended => false,
        };
        self.runnable.clear();
        self.runnable
            .extend((0..shared.workers.len()).filter(can_run));
    }

    fn give_turn(&mut self, worker: usize) {
        let simulation = &self.parts.simulation;
        simulation.count_step();
        {
            let mut trace = simulation.trace.borrow_mut();
            trace.number(worker as u64);
            if self.last.replace(worker) != Some(worker) {
                trace.line(Some(worker), format_args!("runs"));
            }
        }
        let activity = &simulation.activities[worker];
        if activity.replace(Activity::Runs) != Activity::Runs {
            self.parts.shared.sleep.read_notice(worker);
        }
        let thread = &*self.parts.threads[worker];
        thread.take_over_thread();
        if !thread.give_turn() {
            activity.set(Activity::Ended);
        }
    }

    /// Somebody on another thread may have left work, whom the posting protocol of simulations does not see.
    fn rouse_for_stranger(&self) -> bool {
        let Parts {
            shared, simulation, ..
        } = &*self.parts;
        let idle = simulation
            .activities
            .iter()
            .position(|activity| activity.get() == Activity::Idle);
        match idle {
            Some(worker) if !shared.injector.is_empty() => {
                shared.sleep.notify(worker);
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

    /// The panics of tasks that nobody waits for, since the last call.
    pub fn take_panics(&mut self) -> Vec<Box<dyn Any + Send>> {
        self.simulation().panics.take()
    }

    /// Lets all tasks finish, with at most `limit` further steps, and frees everything.
    ///
    /// # Errors
    /// If they do not: how many tasks are left. Their stacks, and all that they hold, are never freed, and nothing on
    /// them ever goes on.
    pub fn end(mut self, limit: u64) -> Result<(), u64> {
        struct NothingElse;
        impl World for NothingElse {
            fn is_over(&mut self) -> bool {
                false
            }
            fn is_due(&mut self, _: u64) -> bool {
                false
            }
            fn happen(&mut self) {}
            fn advance(&mut self) -> bool {
                false
            }
        }
        self.parts.shared.terminate();
        let limit = self.steps().saturating_add(limit);
        self.run(&mut NothingElse, limit);
        let has_ended = |activity: &Cell<Activity>| activity.get() == Activity::Ended;
        if !self.simulation().activities.iter().all(has_ended) {
            return Err(self.parts.shared.unfinished_tasks());
        }
        SIMULATION.set(std::ptr::null());
        // SAFETY: taken once: `drop` below only forgets. Every loop has ended, so no strand has a stack in use.
        drop(unsafe { ManuallyDrop::take(&mut self.parts) });
        Ok(())
    }
}

impl Drop for SimulatedPool {
    fn drop(&mut self) {
        // The parts stay, if they are still there: what is parked knows them.
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

    /// One of this worker's strands whose wait is over.
    pub(crate) fn take_some_ready(&self) -> Option<*const Strand> {
        let mut ready = self.ready.borrow_mut();
        if ready.is_empty() {
            return None;
        }
        let chosen = Simulation::with(|simulation| simulation.choose(ready.len()));
        ready.remove(chosen.unwrap_or(0))
    }
}
