//! The job that drives a simulated system: it lets the events of the world happen by the clock of the simulated runtime.

use std::sync::Arc;
use std::time::Duration;

use jobtree_runtime::{BoxError, Runtime, checkpoint, sim};

use super::processes::Processes;
use super::{System, SystemReport};
use crate::core::rng;
use crate::sim::Failure;
use crate::sim::check::Broken;
use crate::sim::world::{Telling, World};

/// How long workers may take to stop when nothing goes wrong.
const STOPPING: Duration = Duration::from_secs(60);

/// Runs a system once. Returns how it went, and the steps that were remembered.
pub(super) fn run(
    seed: u64,
    system: &System,
    telling: Telling,
) -> (Result<SystemReport, Box<Failure>>, Vec<String>) {
    let simulation = sim::Runtime::builder(seed).workers(3).build();
    let report = simulation.run(|runtime| {
        let mut world = World::new(seed, system.scenario.clone(), telling);
        world.processes = Some(Box::new(Processes::new(runtime, system)?));
        let result = world.drive(runtime)?;
        let report = world.processes().report.clone();
        let (result, trace) = world.concluded(result);
        Ok((result.map(|queue| SystemReport { queue, ..report }), trace))
    });
    match report.outcome {
        Ok((result, trace)) => {
            let result = result.map(|told| SystemReport {
                steps: report.steps,
                trace_hash: rng::mixed(report.trace_hash ^ told.queue.fingerprint),
                ..told
            });
            (result, trace.into())
        }
        Err(error) => {
            let failure = Failure {
                seed,
                what: error.to_string(),
                trace: Vec::new(),
            };
            (Err(Box::new(failure)), Vec::new())
        }
    }
}

impl World {
    /// Lets everything happen until all jobs have ended and all workers have stopped.
    ///
    /// # Errors
    /// If the simulation is ended meanwhile.
    fn drive(&mut self, runtime: &Runtime) -> Result<Result<(), Broken>, BoxError> {
        self.plan();
        self.plan_processes();
        loop {
            match self.next_turn(runtime)? {
                Ok(true) => break,
                Ok(false) if self.time > self.end() => return Ok(Err(self.unended())),
                Ok(false) => {}
                Err(broken) => return Ok(Err(broken)),
            }
        }
        let stopping = self.processes().stop_all();
        let end = self.time + STOPPING;
        while !stopping.iter().all(|it| it.is_finished()) {
            if let Err(broken) = self.next_turn(runtime)? {
                return Ok(Err(broken));
            }
            if self.time > end {
                return Ok(Err("a worker does not stop".to_owned()));
            }
        }
        for ended in stopping {
            if let Err(error) = ended.join() {
                return Ok(Err(format!("a worker does not stop: {error}")));
            }
        }
        if let Some(job) = self.processes().ledger.any() {
            return Ok(Err(format!(
                "all workers have stopped, and something of job {job} still runs"
            )));
        }
        Ok(self.check_kept())
    }

    /// Lets the next event happen, or waits for it. Returns `true` if all jobs have ended.
    fn next_turn(&mut self, runtime: &Runtime) -> Result<Result<bool, Broken>, BoxError> {
        checkpoint()?;
        let now = sim::elapsed().ok_or("not in a simulation")?;
        self.time = now;
        self.take_mail();
        let next = self.queue.first_key_value().map(|((time, _), _)| *time);
        let wait = next.map_or(STOPPING, |next| next.saturating_sub(now));
        if !wait.is_zero() {
            let mailbox = Arc::clone(&self.processes().mailbox);
            runtime.clock().wait_at_most(wait, mailbox.came())?;
            return Ok(Ok(false));
        }
        Ok(self.due_turn())
    }

    fn due_turn(&mut self) -> Result<bool, Broken> {
        let Some(((_, _), event)) = self.queue.pop_first() else {
            return Ok(false);
        };
        let is_over = self.turn(self.time, event)?;
        self.send_answers()?;
        self.check_processes()?;
        Ok(is_over)
    }
}
