//! Calls for jobs: how long after a call its caller is expected to call again.

use std::time::Duration;

use jiff::Timestamp;

use crate::now::Now;

/// The longest time for which a call counts, unless the take-up time is longer.
pub(crate) const LONGEST_SERVED: Duration = Duration::from_secs(600);

/// Calls of one sort, from one scope.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Calls {
    /// The last one, on the monotonic clock.
    pub(super) last: Duration,
    /// The last one, on the wall clock.
    pub(super) at: Timestamp,
    /// The longest gap between two calls of late: it is forgotten by a quarter of the time that passes.
    interval: Duration,
}

impl Calls {
    /// Notes a call. A gap as long as the longest time that a call counts is no interval: the caller was away.
    pub(super) fn note(calls: &mut Option<Calls>, now: Now, new_call: bool) {
        let gap = calls.map_or(Duration::ZERO, |calls| now.mono.saturating_sub(calls.last));
        let before = calls.map_or(Duration::ZERO, |calls| calls.interval);
        let seen = if new_call && gap < LONGEST_SERVED {
            gap
        } else {
            Duration::ZERO
        };
        *calls = Some(Calls {
            last: now.mono,
            at: now.wall,
            interval: before.saturating_sub(gap / 4).max(seen),
        });
    }

    /// Until when a caller of such an interval is expected to call again.
    pub(super) fn until(&self, take_up: Duration) -> Duration {
        let expected = self.interval.saturating_mul(3).min(LONGEST_SERVED);
        self.last.saturating_add(expected.max(take_up))
    }
}

/// Calls from one scope: all addons, an addon, or a type.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Callers {
    pub(super) claims: Option<Calls>,
    /// Polls, asks for capacity, requests and acceptances: calls of those who accept reservations.
    pub(super) polls: Option<Calls>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Now {
        let start = Now {
            wall: "2026-01-01T00:00:00Z".parse().unwrap(),
            mono: Duration::from_secs(1000),
        };
        start.after(Duration::from_secs(seconds))
    }

    /// How long after the last of these calls the caller still counts.
    fn counts_for(calls: &[u64]) -> u64 {
        let mut noted = None;
        for &call in calls {
            Calls::note(&mut noted, at(call), true);
        }
        let noted: Calls = noted.unwrap();
        (noted.until(Duration::from_secs(30)) - noted.last).as_secs()
    }

    #[test]
    fn a_caller_counts_for_three_of_its_intervals() {
        assert_eq!(counts_for(&[0]), 30, "no interval is known yet");
        assert_eq!(counts_for(&[0, 1, 2, 3]), 30, "the take-up time at least");
        assert_eq!(counts_for(&[0, 60]), 180);
        assert_eq!(counts_for(&[0, 60, 120, 180]), 180);
        assert_eq!(counts_for(&[0, 400]), 600, "ten minutes at most");
        assert_eq!(counts_for(&[0, 900]), 30, "it was away in between");
        // A poll, a request and an acceptance each minute are one interval of a minute.
        assert_eq!(counts_for(&[0, 0, 0, 60, 60, 60, 120, 120, 120]), 180);
        // One long gap is forgotten.
        let steady: Vec<u64> = [0, 60].into_iter().chain(61..300).collect();
        assert_eq!(counts_for(&steady), 30);
    }
}
