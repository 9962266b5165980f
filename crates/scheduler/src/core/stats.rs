//! Counts and histograms since the start, for people and for metrics.

use std::collections::BTreeMap;

use jobtree_protocol::{EventKind, JobState};
use jobtree_queue::JobRecord;
use jobtree_queue::history::Durations;

/// Counts and histograms since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Events by kind, those that are not kept included.
    pub events: BTreeMap<&'static str, u64>,
    /// Denials by code, each as often as it was written.
    pub denials: BTreeMap<String, u64>,
    /// How long jobs waited from the moment they could start until they ran.
    pub waited: Durations,
    /// How long runs took that ended.
    pub ran: Durations,
    /// Proposals that lost against another scheduler or a caller.
    pub lost_proposals: u64,
    /// Operations of the store that failed, and were repeated or dropped.
    pub store_failures: u64,
    /// Times that the store was read again.
    pub reads: u64,
}

impl Stats {
    pub(super) fn count(&mut self, kind: EventKind) {
        *self.events.entry(kind.as_str()).or_default() += 1;
    }

    pub(super) fn see(&mut self, job: &JobRecord) {
        match (job.state, job.started_at, job.ended_at) {
            (JobState::Running, Some(started), _) => {
                let waited = started.duration_since(job.waiting_since());
                self.waited.add(waited.try_into().unwrap_or_default());
            }
            (JobState::Done | JobState::Failed, Some(started), Some(ended)) => {
                let ran = ended.duration_since(started);
                self.ran.add(ran.try_into().unwrap_or_default());
            }
            _ => {}
        }
    }
}
