//! The place up to which old rows were deleted, so that the next search for them begins there.
//!
//! The rows that were deleted stay in tables and indexes until a vacuum, and longer if a backup or a forgotten session holds
//! a snapshot. A search from the beginning goes over all of them each time: the more jobs a second a queue forgets, the
//! longer each of many searches takes. What is left behind (rows that another transaction had locked, jobs whose logs were
//! not deleted yet) is found when the search begins anew, now and then.

use std::time::{Duration, Instant};

use jobtree_protocol::JobState;

/// The time between two searches from the beginning. Picked by feel.
const ANEW: Duration = Duration::from_secs(3600);
/// Commits are not in the order of the times that they write: so many microseconds before the last row that was deleted are
/// searched again.
const OVERLAP: i64 = 5_000_000;

/// The places up to which rows were deleted. If the transaction that deleted them failed, they are found when the search
/// begins anew.
#[derive(Default)]
pub(super) struct PrunedUntil {
    since: Option<Instant>,
    /// By state, in microseconds.
    jobs: [Option<i64>; 3],
    trail: Option<i64>,
}

fn place(state: JobState) -> usize {
    match state {
        JobState::Done => 0,
        JobState::Failed => 1,
        _ => 2,
    }
}

impl PrunedUntil {
    /// Lets the next search begin at the beginning, if the last one that did is long ago.
    pub(super) fn renew(&mut self) {
        let now = Instant::now();
        if self.since.is_none_or(|since| now - since > ANEW) {
            *self = Self {
                since: Some(now),
                ..Self::default()
            };
        }
    }

    pub(super) fn jobs_from(&self, state: JobState) -> i64 {
        self.jobs[place(state)].map_or(i64::MIN, |last| last.saturating_sub(OVERLAP))
    }

    pub(super) fn jobs_until(&mut self, state: JobState, last: i64) {
        let known = &mut self.jobs[place(state)];
        *known = (*known).max(Some(last));
    }

    pub(super) fn trail_from(&self) -> i64 {
        self.trail.unwrap_or(i64::MIN)
    }

    pub(super) fn trail_until(&mut self, last: i64) {
        self.trail = self.trail.max(Some(last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_begins_where_the_last_one_ended() {
        let mut pruned = PrunedUntil::default();
        pruned.renew();
        assert_eq!(pruned.jobs_from(JobState::Done), i64::MIN);
        pruned.jobs_until(JobState::Done, 100_000_000);
        pruned.jobs_until(JobState::Done, 90_000_000);
        pruned.trail_until(640);
        pruned.renew();
        assert_eq!(pruned.jobs_from(JobState::Done), 95_000_000);
        assert_eq!(pruned.jobs_from(JobState::Failed), i64::MIN);
        assert_eq!(pruned.trail_from(), 640);
    }
}
