//! Counts and histograms since the start, for people and for metrics.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use jobtree_protocol::{EventKind, JobState};
use jobtree_queue::JobRecord;
use jobtree_store::Histogram;

/// The upper ends of the buckets, in microseconds: from a quick job to an overnight one. One bucket more is for the rest.
const BOUNDS_MICROS: [u64; 16] = [
    1_000,
    5_000,
    10_000,
    50_000,
    100_000,
    500_000,
    1_000_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    900_000_000,
    3_600_000_000,
    14_400_000_000,
    86_400_000_000,
];

/// Counts and histograms since the start.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// Events by kind, those that are not kept included.
    pub events: BTreeMap<&'static str, u64>,
    /// Denials by code, each as often as it was written.
    pub denials: BTreeMap<String, u64>,
    /// How long jobs waited from the moment they could start until they ran, in microseconds.
    pub waited: Histogram,
    /// How long runs took that ended, in microseconds.
    pub ran: Histogram,
    /// Proposals that lost against another scheduler or a caller.
    pub lost_proposals: u64,
    /// Operations of the store that failed, and were repeated or dropped.
    pub store_failures: u64,
    /// Times that the store was read again.
    pub reads: u64,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            events: BTreeMap::new(),
            denials: BTreeMap::new(),
            waited: Histogram::new(&BOUNDS_MICROS),
            ran: Histogram::new(&BOUNDS_MICROS),
            lost_proposals: 0,
            store_failures: 0,
            reads: 0,
        }
    }
}

impl Stats {
    pub(super) fn add_event(&mut self, kind: EventKind) {
        *self.events.entry(kind.as_str()).or_default() += 1;
    }

    pub(super) fn add_job(&mut self, job: &JobRecord) {
        let ended = matches!(job.state, JobState::Done | JobState::Failed);
        if let (true, Some(started), Some(ended)) = (ended, job.started_at, job.ended_at) {
            // Both at the end: a short job is never seen RUNNING, and a long one often.
            let waited = started.duration_since(job.waiting_since());
            self.waited.add(micros(waited));
            self.ran.add(micros(ended.duration_since(started)));
        }
    }
}

/// A clock that was set back makes no negative times.
fn micros(time: SignedDuration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(0)
}
