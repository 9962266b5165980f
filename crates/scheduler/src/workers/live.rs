//! Which durable jobs run in this process, and where in the tree.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jobtree_protocol::JobId;
use jobtree_runtime::{Job, TreeDump};

/// The jobs that run, by their durable ids.
#[derive(Debug, Default)]
pub(crate) struct LiveJobs(Mutex<HashMap<JobId, Job>>);

impl LiveJobs {
    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, Job>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, id: JobId, job: Job) {
        self.lock().insert(id, job);
    }

    pub(super) fn remove(&self, id: JobId) {
        self.lock().remove(&id);
    }

    pub(crate) fn tree(&self, id: JobId) -> Option<TreeDump> {
        let job = self.lock().get(&id).cloned();
        job.map(|job| job.dump_tree())
    }

    pub(crate) fn ids(&self) -> Vec<JobId> {
        let mut ids: Vec<_> = self.lock().keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    pub(super) fn cancel_all(&self, reason: &'static str) {
        let jobs: Vec<Job> = self.lock().values().cloned().collect();
        for job in jobs {
            job.cancel(reason.into());
        }
    }

    pub(super) fn paths(&self) -> Vec<String> {
        let jobs: Vec<Job> = self.lock().values().cloned().collect();
        jobs.iter().map(Job::path).collect()
    }
}
