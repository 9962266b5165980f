//! Jobs that are reserved for other nodes: until each is back, or is known to be gone, it may come to be wanted here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jobtree_protocol::JobId;

use crate::order::KindId;

/// The jobs that are away, each until it has come back at the latest, on the monotonic clock.
#[derive(Clone, Debug, Default)]
pub(super) struct Away {
    jobs: BTreeMap<JobId, (KindId, Duration)>,
    ends: BTreeSet<(Duration, JobId)>,
}

impl Away {
    pub(super) fn insert(&mut self, job: JobId, kind: KindId, until: Duration) {
        self.remove(job);
        self.jobs.insert(job, (kind, until));
        self.ends.insert((until, job));
    }

    pub(super) fn remove(&mut self, job: JobId) {
        if let Some((_, until)) = self.jobs.remove(&job) {
            self.ends.remove(&(until, job));
        }
    }

    /// Forgets the jobs that must be back by now.
    pub(super) fn expire(&mut self, now: Duration) {
        while let Some((_, job)) = self.ends.first().filter(|(until, _)| *until <= now) {
            let job = *job;
            self.remove(job);
        }
    }

    /// The types of the jobs.
    pub(super) fn kinds(&self) -> impl Iterator<Item = &KindId> {
        self.jobs.values().map(|(kind, _)| kind)
    }
}
