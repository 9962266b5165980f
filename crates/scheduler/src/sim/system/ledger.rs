//! What runs in the simulated processes, as the handlers themselves note it, and what must not be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jobtree_protocol::{JobId, LeaseId};
use jobtree_worker::Run;

use super::mailbox::ProcessId;
use crate::sim::worker::Script;

/// Two runs of one job at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overlap {
    pub(super) job: JobId,
    /// The lease under which it ran already.
    pub(super) before: LeaseId,
    /// The lease under which it begins.
    pub(super) lease: LeaseId,
    pub(super) process: ProcessId,
    pub(super) other: ProcessId,
}

struct LiveRun {
    job: JobId,
    lease: LeaseId,
    process: ProcessId,
    /// Jobs and forks of it that have not ended.
    parts: u32,
}

#[derive(Default)]
struct State {
    runs: BTreeMap<u64, LiveRun>,
    next: u64,
    overlaps: Vec<Overlap>,
    given_back: BTreeSet<(LeaseId, JobId)>,
    broken: Option<String>,
}

/// See the module's head.
#[derive(Default)]
pub(super) struct Ledger(Mutex<State>);

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, job: JobId, lease: LeaseId, process: ProcessId) -> u64 {
        let mut state = self.lock();
        let overlap = state.runs.values().find(|run| run.job == job);
        let overlap = overlap.map(|run| Overlap {
            job,
            before: run.lease,
            lease,
            process: run.process,
            other: process,
        });
        state.overlaps.extend(overlap);
        if state.given_back.contains(&(lease, job)) {
            let place = process.place;
            state.breaks(format!(
                "process {place} begins job {job}, which it has given back"
            ));
        }
        state.next += 1;
        let number = state.next;
        let run = LiveRun {
            job,
            lease,
            process,
            parts: 0,
        };
        state.runs.insert(number, run);
        number
    }

    /// A process says that it will not begin a job.
    pub(super) fn give_back(&self, process: ProcessId, lease: LeaseId, job: JobId) {
        let mut state = self.lock();
        state.given_back.insert((lease, job));
        let begun = |run: &LiveRun| run.job == job && run.lease == lease;
        if state.runs.values().any(begun) {
            let place = process.place;
            state.breaks(format!(
                "process {place} gives job {job} back, and has begun it"
            ));
        }
    }

    /// A process says what came of a job, or of all jobs of a lease: nothing of them runs any more.
    pub(super) fn answered_for(&self, process: ProcessId, lease: LeaseId, job: Option<JobId>) {
        let mut state = self.lock();
        let same = |run: &&LiveRun| {
            run.process == process && run.lease == lease && job.is_none_or(|job| run.job == job)
        };
        if let Some(run) = state.runs.values().find(same) {
            let (id, parts, place) = (run.job, run.parts, process.place);
            state.breaks(format!(
                "process {place} answers for job {id}, and {parts} parts of it still run"
            ));
        }
    }

    /// A process is gone, with all that ran in it.
    pub(super) fn kill(&self, process: ProcessId) {
        self.lock().runs.retain(|_, run| run.process != process);
    }

    /// Returns the process in which something runs under a lease, with the job.
    pub(super) fn runs_under(&self, lease: LeaseId) -> Option<(ProcessId, JobId)> {
        let state = self.lock();
        let run = state.runs.values().find(|run| run.lease == lease);
        run.map(|run| (run.process, run.job))
    }

    /// Returns a job of which something runs.
    pub(super) fn any(&self) -> Option<JobId> {
        self.lock().runs.values().next().map(|run| run.job)
    }

    pub(super) fn take_overlaps(&self) -> Vec<Overlap> {
        std::mem::take(&mut self.lock().overlaps)
    }

    pub(super) fn take_broken(&self) -> Option<String> {
        self.lock().broken.take()
    }

    fn leave(&self, number: u64) {
        let mut state = self.lock();
        // A process that is gone has no runs.
        if let Some(run) = state.runs.get_mut(&number) {
            run.parts -= 1;
            if run.parts == 0 {
                state.runs.remove(&number);
            }
        }
    }
}

impl State {
    /// The first counts.
    fn breaks(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }
}

/// One run of a handler in a simulated system. Clones are the same run.
#[derive(Clone)]
pub struct SimRun {
    run: Run,
    script: Script,
    ledger: Arc<Ledger>,
    number: u64,
}

impl SimRun {
    pub(super) fn begin(
        run: &Run,
        script: Script,
        ledger: &Arc<Ledger>,
        process: ProcessId,
    ) -> (SimRun, Part) {
        let lease = run.job().lease_id.unwrap_or(LeaseId(run.id().0));
        let number = ledger.begin(run.id(), lease, process);
        let this = SimRun {
            run: run.clone(),
            script,
            ledger: Arc::clone(ledger),
            number,
        };
        let part = this.part();
        (this, part)
    }

    /// The run, as its worker gives it to the handler.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The duration of the job.
    pub fn takes(&self) -> Duration {
        Duration::from_millis(self.script.takes)
    }

    /// Notes that a part of the job runs, a job below it or a fork, until what is returned is dropped.
    pub fn part(&self) -> Part {
        if let Some(run) = self.ledger.lock().runs.get_mut(&self.number) {
            run.parts += 1;
        }
        Part {
            ledger: Arc::clone(&self.ledger),
            number: self.number,
        }
    }
}

impl std::fmt::Debug for SimRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SimRun").field(&self.run).finish()
    }
}

/// A part of a run; see [`SimRun::part`].
#[must_use = "the part has ended when this is dropped"]
#[derive(Debug)]
pub struct Part {
    ledger: Arc<Ledger>,
    number: u64,
}

impl Drop for Part {
    fn drop(&mut self) {
        self.ledger.leave(self.number);
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").finish_non_exhaustive()
    }
}
