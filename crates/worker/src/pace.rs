//! How long jobs take here, and so how many to claim at a time.
//!
//! Many short jobs under one lease share its commits. But those of one lease wait for each other, and nobody else can take
//! them meanwhile, so a batch is worth a moment of work at most, and jobs that take longer than that come one by one. The
//! guess rises at once and falls slowly: that a job is short is believed when some were. And it is only for short jobs that
//! the next lease is asked for before the one before is done with.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A batch is worth this much work.
const WORTH: Duration = Duration::from_millis(100);
/// Jobs that take this long at most may wait here for their turn.
const SHORT: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// What one job takes, once one has run.
    each: Option<Duration>,
    /// The largest batch that was run; the next is no more than twice as large.
    largest: u32,
}

impl Pace {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many jobs ran one after the other.
    pub(crate) fn ran(&self, jobs: u32, took: Duration) {
        if jobs == 0 {
            return;
        }
        let now = took / jobs;
        let mut state = self.lock();
        let each = match state.each {
            Some(each) if now < each => (each * 3 + now) / 4,
            _ => now,
        };
        state.each = Some(each);
        state.largest = state.largest.max(jobs);
    }

    /// How many jobs to ask for in one lease, of as many as there may be.
    pub(crate) fn batch(&self, most: u32) -> u32 {
        let mut state = self.lock();
        let Some(each) = state.each else {
            return 1;
        };
        let worth = WORTH.as_nanos() / each.as_nanos().max(1);
        let worth = u32::try_from(worth).unwrap_or(u32::MAX);
        if worth < state.largest {
            // Grown slow: what was known of large batches is of no use.
            state.largest = worth;
        }
        worth.min(state.largest.saturating_mul(2)).clamp(1, most)
    }

    /// Whether jobs may be claimed before there is a place to run them.
    pub(crate) fn is_short(&self) -> bool {
        self.lock().each.is_some_and(|each| each <= SHORT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: Duration = Duration::from_micros(1);

    #[test]
    fn nothing_is_hoarded_before_something_is_known() {
        let pace = Pace::default();
        assert_eq!((pace.batch(500), pace.is_short()), (1, false));
    }

    #[test]
    fn batches_of_short_jobs_grow_by_doubling_up_to_what_is_allowed() {
        let pace = Pace::default();
        let mut sizes = Vec::new();
        for _ in 0..11 {
            let size = pace.batch(500);
            sizes.push(size);
            pace.ran(size, MICRO * 10 * size);
        }
        assert_eq!(sizes, [1, 2, 4, 8, 16, 32, 64, 128, 256, 500, 500]);
        assert!(pace.is_short());
    }

    #[test]
    fn a_batch_is_worth_a_tenth_of_a_second() {
        let pace = Pace::default();
        for _ in 0..10 {
            pace.ran(64, MICRO * 5000 * 64);
        }
        assert_eq!(pace.batch(500), 20);
        assert!(pace.is_short());
        pace.ran(1, Duration::from_secs(9));
        assert_eq!(pace.batch(500), 1, "at once");
        assert!(!pace.is_short());
        // Slowly believed again.
        pace.ran(1, MICRO);
        assert_eq!(pace.batch(500), 1);
        let back = (0..100).take_while(|_| {
            pace.ran(1, MICRO);
            !pace.is_short()
        });
        assert!(back.count() > 10);
        assert_eq!(pace.batch(500), 2);
    }
}
