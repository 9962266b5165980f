//! Questions: how things stand, why a job waits, what was decided, what was learnt.

use jobtree_protocol::{Decision, Explain, HistoryStats, JobId, LoadSample, Reason, StatusView};

use super::Scheduler;
use crate::Reply;
use crate::core::{Call, Stats};

impl Scheduler {
    /// Why a job waits, each reason with what was measured and what would have to change; and when it will probably
    /// start.
    pub fn explain(&self, job: JobId) -> Reply<Explain> {
        self.call(|caller| Call::Explain(job, caller))
    }

    /// Returns the first reason why each of these jobs waits, as [`explain`](Self::explain) lists it first. Jobs that wait for
    /// other jobs, are held by a worker or have ended are not among them.
    pub fn reasons(&self, jobs: Vec<JobId>) -> Reply<Vec<(JobId, Reason)>> {
        self.call(|caller| Call::Reasons(jobs, caller))
    }

    /// How things stand. Counts every job.
    pub fn status(&self) -> Reply<StatusView> {
        self.call(Call::Status)
    }

    /// How busy the machine is, and what is in use. Unlike [`status`](Self::status) it asks the store nothing.
    pub fn load(&self) -> Reply<LoadSample> {
        self.call(Call::Load)
    }

    /// Counts and histograms since the start.
    pub fn stats(&self) -> Reply<Stats> {
        self.call(Call::Stats)
    }

    /// What was decided last, the newest first.
    pub fn decisions(&self, limit: usize) -> Reply<Vec<Decision>> {
        self.call(|caller| Call::Decisions(limit, caller))
    }

    /// How jobs of each addon, and of each of its types, did.
    pub fn history(&self) -> Reply<Vec<HistoryStats>> {
        self.call(Call::History)
    }
}
