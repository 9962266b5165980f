//! One seed over the whole system: the real core, the real worker and the real runtime.
//!
//! The simulation of the scheduler ([`crate::sim`]) runs inside a simulation of the runtime ([`jobtree_runtime::sim`]). One
//! job of that runtime owns the world: its calendar of events goes by the runtime's clock, which jumps when no job can
//! run. Processes with real [`Worker`](jobtree_worker::Worker)s are other jobs, in an order that the same seed decides: they
//! claim, renew, fence, complete and give back over a network that loses, delays and doubles; their handlers open nurseries,
//! fork and wait; processes crash, are cut off and are deployed anew.
//!
//! # Invariants
//!
//! Beside those of the scheduler:
//!
//! - no job runs in two processes at once, unless its first lease was revoked or its time was over;
//! - when a lease runs out, nothing of its jobs runs any more, by the clock of its worker alone;
//! - a worker that holds a lease renews it, or repeats what it has to say for it, until its own clock says that the lease
//!   may be over: no completion is lost because its answer was;
//! - what a worker answers for has ended, down to the last fork; what it has given back it does not begin;
//! - when all workers have stopped, nothing is left in their trees;
//! - the same seed gives the same run, to the last step of the runtime.
//!
//! That these are checked is shown by mistakes of the worker that can be switched on ([`WorkerBug`]).
//!
//! # What escapes it
//!
//! A process cannot be stopped and continued: its jobs share the clock with all others. HTTP and the client's threads are
//! not simulated.

mod calls;
mod driver;
mod dues;
mod ledger;
mod link;
mod mailbox;
mod processes;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jobtree_runtime::{BoxError, Runtime, nursery, shield, sleep};

use super::world::Telling;
use super::{Failure, Report, Scenario};
pub(super) use calls::{Arrival, Ready};
pub use jobtree_worker::Bug as WorkerBug;
pub use ledger::{Part, SimRun};
pub(super) use processes::Processes;

/// What handlers do. They take as long as [`SimRun::takes`] says.
pub type Work = Arc<dyn Fn(&SimRun) -> Result<(), BoxError> + Send + Sync>;

/// Makes what handlers do, anew for each run, with the simulated runtime.
pub type MakeWork = Arc<dyn Fn(&Runtime) -> Result<Work, BoxError> + Send + Sync>;

/// A system that is simulated as a whole.
#[derive(Clone)]
pub struct System {
    /// The schedulers, their store and what is submitted. Its `workers` are models, of which there are none.
    pub scenario: Scenario,
    /// Processes with a worker, for each scheduler.
    pub processes: usize,
    /// Each process crashes, is cut off or is deployed anew about so often in 1000 s.
    pub process_trouble: u64,
    /// Jobs that take a few milliseconds, in 1000: workers take them in batches.
    pub short_jobs: u64,
    /// Messages that take long, in 1000.
    pub slow_messages: u64,
    /// The work of handlers.
    pub work: MakeWork,
    /// A mistake of the workers that is switched on.
    pub bug: Option<WorkerBug>,
}

impl System {
    /// One scheduler with five processes.
    pub fn one() -> Self {
        System {
            scenario: Scenario {
                workers: 0,
                jobs: 40,
                trouble: Duration::from_secs(60),
                calm: Duration::from_secs(300),
                ..Scenario::one()
            },
            processes: 5,
            process_trouble: 100,
            short_jobs: 700,
            slow_messages: 150,
            work: Arc::new(|_| Ok(Arc::new(rest))),
            bug: None,
        }
    }

    /// More trouble for longer jobs: what a mistake with leases is found in.
    #[must_use]
    pub fn stormy(self) -> Self {
        System {
            process_trouble: 200,
            short_jobs: 200,
            scenario: Scenario {
                calm: self.scenario.calm * 2,
                ..self.scenario
            },
            ..self
        }
    }

    /// With a mistake of the workers.
    #[must_use]
    pub fn with(self, bug: WorkerBug) -> Self {
        System {
            bug: Some(bug),
            ..self
        }
    }

    /// Three schedulers that share a store, with three processes each.
    pub fn three() -> Self {
        let one = Self::one();
        System {
            scenario: Scenario {
                workers: 0,
                jobs: one.scenario.jobs,
                trouble: one.scenario.trouble,
                calm: one.scenario.calm,
                ..Scenario::three()
            },
            processes: 3,
            ..one
        }
    }
}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("System")
            .field("scenario", &self.scenario)
            .field("processes", &self.processes)
            .finish_non_exhaustive()
    }
}

/// Two jobs that wait, one of which needs a moment to clean up when it is cancelled.
fn rest(run: &SimRun) -> Result<(), BoxError> {
    let half = run.takes() / 2;
    nursery(|n| {
        n.launch(|| {
            let _part = run.part();
            sleep(half)?;
            run.run().progress(0.5, "half of it");
            Ok(sleep(half)?)
        });
        n.launch(|| {
            let _part = run.part();
            let rested = sleep(run.takes());
            if rested.is_err() {
                // Less than a sixth of the TTL, which a worker leaves it.
                let moment = Duration::from_millis(1_200);
                shield(moment * 2, || Ok(sleep(moment)?))?;
            }
            Ok(rested?)
        });
        Ok(())
    })?;
    Ok(())
}

/// The report of a run of a whole system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemReport {
    /// The report of the schedulers and the jobs.
    pub queue: Report,
    /// Processes that crashed.
    pub crashes: u64,
    /// Processes that were cut off.
    pub partitions: u64,
    /// Processes that were asked to end, for others to take their places.
    pub deployments: u64,
    /// Leases that ran out although their process was alive.
    pub expired_of_living: u64,
    /// Jobs that a worker was asked to give back.
    pub asked_back: u64,
    /// Runs that began while another one of a lease that was taken away had not stopped.
    pub excused: u64,
    /// Steps of the runtime.
    pub steps: u64,
    /// A hash over every decision of the runtime and every event of the schedulers: the same only for the same run.
    pub trace_hash: u64,
}

/// Runs a system.
///
/// # Errors
/// If an invariant does not hold, or the workers get stuck, panic or leave something behind.
pub fn run(seed: u64, system: &System) -> Result<SystemReport, Box<Failure>> {
    let (first, _) = driver::run(seed, system, Telling::Nothing);
    let Err(failure) = first else { return first };
    match driver::run(seed, system, Telling::Last) {
        (Err(again), trace) if again.what == failure.what => {
            Err(Box::new(Failure { trace, ..*again }))
        }
        (other, _) => Err(Box::new(Failure {
            what: format!(
                "{}; and then the same seed went another way: {:?}",
                failure.what,
                other.map_err(|other| other.what)
            ),
            ..*failure
        })),
    }
}

/// Runs a system once more and tells every event of its schedulers and their network, whether it fails or not.
///
/// # Errors
/// The second value, if an invariant does not hold.
pub fn retell(seed: u64, system: &System) -> (Vec<String>, Result<SystemReport, Box<Failure>>) {
    let (result, trace) = driver::run(seed, system, Telling::All);
    (trace, result)
}
