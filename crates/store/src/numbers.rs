//! What a store's writer has done, for people and for metrics: counted by the thread that writes, read by anybody,
//! without a lock.
//!
//! Each number is exact; read while the writer counts, they may be of moments a commit apart.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Calls in a commit: up to so many.
const SIZES: [u64; 12] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];

/// Microseconds of a commit: up to so many.
const LATENCIES: [u64; 15] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000,
];

/// How values are spread, in buckets. Counts only grow, as those who draw rates from them expect.
///
/// ```
/// use jobtree_store::Histogram;
///
/// let mut sizes = Histogram::new(&[1, 10, 100]);
/// [1, 7, 12, 500].into_iter().for_each(|size| sizes.add(size));
/// assert_eq!(sizes.cumulative().collect::<Vec<_>>(), [(1, 1), (10, 2), (100, 3)]);
/// assert_eq!((sizes.count(), sizes.sum), (4, 520));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// For each bucket: values up to this, and above that of the one before.
    pub bounds: Vec<u64>,
    /// How many are in each bucket, and behind them those above the last bound.
    pub counts: Vec<u64>,
    /// All values together.
    pub sum: u64,
}

impl Default for Histogram {
    /// One bucket for all.
    fn default() -> Self {
        Self::new(&[])
    }
}

impl Histogram {
    /// Without values; the bounds grow.
    pub fn new(bounds: &[u64]) -> Self {
        Self {
            bounds: bounds.to_vec(),
            counts: vec![0; bounds.len() + 1],
            sum: 0,
        }
    }

    /// Adds a value.
    pub fn add(&mut self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        // Its fields are anybody's: one that lacks a bucket counts in the sum alone.
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum = self.sum.saturating_add(value);
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// For each bound how many values do not exceed it.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut sum = 0;
        self.bounds
            .iter()
            .zip(&self.counts)
            .map(move |(bound, count)| {
                sum += count;
                (*bound, sum)
            })
    }

    /// A bound that this part of all values does not exceed, 0..=1; none without any, or if it is above the last bound.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let rank = (part.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0) as u64;
        self.cumulative()
            .find(|(_, seen)| *seen >= rank)
            .map(|(bound, _)| bound)
    }
}

/// What a store's writer has done since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreNumbers {
    /// Calls that were run, those that were refused or changed nothing included.
    pub operations: u64,
    /// Commits that changed something.
    pub commits: u64,
    /// Commits that failed.
    pub failed_commits: u64,
    /// How many calls shared a commit that changed something.
    pub batch_sizes: Histogram,
    /// How long such a commit took to write and to sync, in microseconds. None for a store in
    /// memory.
    pub commit_micros: Histogram,
    /// Calls that wait for the writer now.
    pub waiting: u64,
}

struct Tally<const BUCKETS: usize> {
    bounds: [u64; BUCKETS],
    counts: [AtomicU64; BUCKETS],
    above: AtomicU64,
    sum: AtomicU64,
}

impl<const BUCKETS: usize> Tally<BUCKETS> {
    fn new(bounds: [u64; BUCKETS]) -> Self {
        Self {
            bounds,
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            above: AtomicU64::new(0),
            sum: AtomicU64::new(0),
        }
    }

    fn add(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        let count = self.counts.get(bucket).unwrap_or(&self.above);
        count.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    fn read(&self) -> Histogram {
        let counts = self.counts.iter().chain([&self.above]);
        Histogram {
            bounds: self.bounds.to_vec(),
            counts: counts.map(|count| count.load(Ordering::Relaxed)).collect(),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

/// Where the writer counts.
pub(crate) struct Counting {
    operations: AtomicU64,
    failed: AtomicU64,
    sizes: Tally<12>,
    micros: Tally<15>,
}

impl Default for Counting {
    fn default() -> Self {
        Self {
            operations: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            sizes: Tally::new(SIZES),
            micros: Tally::new(LATENCIES),
        }
    }
}

impl Counting {
    /// So many calls were run.
    pub(crate) fn ran(&self, operations: usize) {
        self.operations
            .fetch_add(operations as u64, Ordering::Relaxed);
    }

    /// A commit changed something.
    pub(crate) fn committed(&self, operations: usize, took: Option<Duration>) {
        self.sizes.add(operations as u64);
        if let Some(took) = took {
            self.micros
                .add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        }
    }

    /// A commit failed.
    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, waiting: usize) -> StoreNumbers {
        let batch_sizes = self.sizes.read();
        StoreNumbers {
            operations: self.operations.load(Ordering::Relaxed),
            commits: batch_sizes.count(),
            failed_commits: self.failed.load(Ordering::Relaxed),
            batch_sizes,
            commit_micros: self.micros.read(),
            waiting: waiting as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_their_buckets() {
        let tally = Tally::new([1, 10, 100]);
        [0, 1, 2, 10, 11, 100, 101, 5000]
            .into_iter()
            .for_each(|value| tally.add(value));
        let read = tally.read();
        assert_eq!(read.counts, [2, 2, 2, 2]);
        assert_eq!((read.count(), read.sum), (8, 5225));
        let cumulative: Vec<_> = read.cumulative().collect();
        assert_eq!(cumulative, [(1, 2), (10, 4), (100, 6)]);
        assert_eq!(read.quantile(0.5), Some(10));
        assert_eq!(read.quantile(0.0), Some(1));
        assert_eq!(read.quantile(1.0), None, "it is above all bounds");
        assert_eq!(Histogram::default().quantile(0.5), None);
    }
}
