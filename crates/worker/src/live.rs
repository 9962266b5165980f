//! Which durable jobs run in this process, and where in the tree.
//!
//! A job may be there twice for a moment: a run whose lease is lost is still stopping while the next has begun. So a run is
//! taken out by its place in the tree, not by the job's id; and whoever asks by that id is shown the newest.

use std::sync::{Mutex, MutexGuard, PoisonError};

use jobtree_protocol::JobId;
use jobtree_runtime::{Job, TreeDump};

/// The runs, in the order in which they began. There are as many as workers hold leases: few.
#[derive(Debug, Default)]
pub struct LiveJobs(Mutex<Vec<(JobId, Job)>>);

impl LiveJobs {
    fn lock(&self) -> MutexGuard<'_, Vec<(JobId, Job)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, id: JobId, run: Job) {
        self.lock().push((id, run));
    }

    pub(crate) fn remove(&self, run: &Job) {
        self.lock().retain(|(_, other)| other.id() != run.id());
    }

    /// The tree of a job: what it is doing now.
    pub fn tree(&self, id: JobId) -> Option<TreeDump> {
        let newest = {
            let runs = self.lock();
            let newest = runs.iter().rev().find(|(other, _)| *other == id);
            newest.map(|(_, run)| run.clone())
        };
        newest.map(|run| run.dump_tree())
    }

    /// The jobs, each once.
    pub fn ids(&self) -> Vec<JobId> {
        let mut ids: Vec<_> = self.lock().iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    pub(crate) fn runs(&self) -> Vec<(JobId, Job)> {
        self.lock().clone()
    }

    pub(crate) fn cancel_all(&self, reason: &'static str) {
        for (_, run) in self.runs() {
            run.cancel(reason);
        }
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.runs().iter().map(|(_, run)| run.path()).collect()
    }
}
