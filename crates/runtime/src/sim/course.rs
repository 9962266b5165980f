//! A simulation from the start of its program to the end of everything that was started in it.

use std::io::Write as _;
use std::panic::{self, AssertUnwindSafe};

use jobtree_base::user_code::{self, Place};
use jobtree_pool::raw::sim::{Ending, Pause, SimulatedPool};
use jobtree_tree::Job;

use super::error::{Lines, WaitingJob};
use super::events::Numbers;
use super::run::{Clock, Runtime};

/// A simulation in progress.
///
/// The program may borrow from the caller of [`Runtime::run`]. So this value does not go, on any way out, before all
/// stacks have ended. If that is impossible, the process aborts, with a message: the caller must not continue, neither
/// by returning nor by unwinding, and to sleep for ever would hide the mistake.
pub(super) struct Course<'a> {
    /// `None` when it has ended.
    pub(super) pool: Option<SimulatedPool>,
    pub(super) clock: Clock,
    /// The program's own, and that of the runtime which it is given.
    pub(super) trees: [crate::Runtime; 2],
    pub(super) numbers: Numbers,
    pub(super) simulation: &'a Runtime,
}

impl Course<'_> {
    pub(super) fn pool(&mut self) -> &mut SimulatedPool {
        self.pool.as_mut().expect("the simulation has not ended")
    }

    pub(super) fn roots(&self) -> [Job; 2] {
        self.trees.each_ref().map(|tree| tree.root().clone())
    }

    /// The jobs that have not ended.
    pub(super) fn alive(&self) -> Vec<WaitingJob> {
        let dumps = self.roots().each_ref().map(Job::dump_tree);
        WaitingJob::all_of(&dumps, &self.numbers)
    }

    /// Lets the program run until all of `jobs` have ended, with a limit of further steps.
    pub(super) fn run_until(&mut self, jobs: Vec<Job>) -> Pause {
        self.clock.until = jobs;
        let pool = self.pool.as_mut().expect("the simulation has not ended");
        let limit = pool.steps().saturating_add(self.simulation.max_steps);
        pool.run(&mut self.clock, limit)
    }

    /// Lets what was cancelled run until all of `jobs` have ended, with a limit that suits their number.
    pub(super) fn clean_up_until(&mut self, jobs: Vec<Job>) {
        self.clock.until = jobs;
        let limit = self.simulation.max_steps;
        let pool = self.pool.as_mut().expect("the simulation has not ended");
        // What has not ended by then is unwound.
        pool.clean_up(&mut self.clock, limit);
    }

    /// Cancels everything.
    pub(super) fn close_trees(&self) {
        for tree in &self.trees {
            // Callbacks are called for it.
            user_code::call_user(Place::CancelCallback, || tree.close_tree());
        }
    }

    /// Ends everything that is left, or the process.
    ///
    /// # Errors
    /// How many tasks had to be unwound.
    pub(super) fn end(&mut self) -> Result<(), u64> {
        let Some(pool) = self.pool.take() else {
            return Ok(());
        };
        let clock = &mut self.clock;
        let limit = self.simulation.max_steps;
        match panic::catch_unwind(AssertUnwindSafe(|| pool.end(clock, limit))) {
            Ok(Ending::Complete) => Ok(()),
            Ok(Ending::Unwound { tasks }) => Err(tasks),
            Ok(Ending::Refused { tasks }) => self.abort(&format!(
                "{tasks} tasks neither end when they are cancelled nor can be unwound"
            )),
            Err(_) => self.abort("the simulator has panicked"),
        }
    }

    /// Aborts the process because stacks are left that may borrow.
    fn abort(&self, reason: &str) -> ! {
        let seed = self.simulation.options.seed;
        let jobs = self.alive();
        // Not `eprintln!`, which the test harness may keep for itself.
        let _ = writeln!(
            std::io::stderr(),
            "jobtree: the simulation with seed {seed} cannot end: {reason}. They may use what they borrow from the \
             caller of `sim::Runtime::run` or `sim::check`, which therefore cannot return; the process is aborted. Look \
             for destructors that wait for something that never comes, for code that catches every panic and continues, \
             and for waits for other threads. Jobs that have not ended:{}",
            Lines(&jobs)
        );
        std::process::abort();
    }
}

impl Drop for Course<'_> {
    fn drop(&mut self) {
        if self.pool.is_some() {
            // The simulator unwinds: what it has started must end all the same.
            self.close_trees();
            let _ = self.end();
        }
    }
}
