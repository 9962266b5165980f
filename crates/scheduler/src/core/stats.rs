//! Counts and histograms since the start, for people and for metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use jobtree_protocol::{EventKind, JobState};
use jobtree_queue::JobRecord;

/// How many durations there were up to each bound. Counts only grow, as those who draw rates from them expect.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    counts: [u64; Histogram::BOUNDS_SEC.len() + 1],
    sum_sec: f64,
}

impl Histogram {
    /// The upper ends of the buckets, in seconds: from a quick job to an overnight one. One bucket more is for the rest.
    pub const BOUNDS_SEC: [f64; 16] = [
        0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0,
        14_400.0, 86_400.0,
    ];

    /// Adds one.
    pub fn add(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = Self::BOUNDS_SEC.partition_point(|bound| *bound < seconds);
        self.counts[bucket] += 1;
        self.sum_sec += seconds;
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All of them together, in seconds.
    pub fn sum_sec(&self) -> f64 {
        self.sum_sec
    }

    /// For each bound in [`BOUNDS_SEC`](Self::BOUNDS_SEC), how many were not above it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use jobtree_scheduler::core::Histogram;
    ///
    /// let mut waits = Histogram::default();
    /// waits.add(Duration::from_millis(3));
    /// waits.add(Duration::from_secs(2));
    /// let up_to: Vec<(f64, u64)> = waits.up_to().collect();
    /// assert_eq!(up_to[0], (0.001, 0));
    /// assert_eq!(up_to[1], (0.005, 1));
    /// assert_eq!(up_to[7], (5.0, 2));
    /// ```
    pub fn up_to(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bounds = Self::BOUNDS_SEC.iter().zip(&self.counts);
        bounds.scan(0, |sum, (bound, count)| {
            *sum += count;
            Some((*bound, *sum))
        })
    }
}

/// Counts and histograms since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Events by kind, those that are not kept included.
    pub events: BTreeMap<&'static str, u64>,
    /// Denials by code, each as often as it was written.
    pub denials: BTreeMap<String, u64>,
    /// How long jobs waited from the moment they could start until they ran.
    pub waited: Histogram,
    /// How long runs took that ended.
    pub ran: Histogram,
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
