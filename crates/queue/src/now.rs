//! The moment at which something is decided: a value that is passed in, never read here.

use std::time::Duration;

use jiff::Timestamp;

/// Wall time and monotonic time of the same moment.
///
/// What lasts (leases, streaks, cool-downs, staleness) is measured by `mono`, which counts through suspend and which
/// no one sets back. What stands in calendars (deadlines, windows, schedules, enqueue times) is compared by `wall`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// The clock on the wall.
    pub wall: Timestamp,
    /// Time since the machine was started, suspend included.
    pub mono: Duration,
}

impl Now {
    /// This moment `later`, as it is when nobody sets the wall clock.
    ///
    /// ```
    /// use std::time::Duration;
    /// use jobtree_queue::Now;
    ///
    /// let now = Now { wall: "2026-01-01T00:00:00Z".parse().unwrap(), mono: Duration::ZERO };
    /// assert_eq!(now.after(Duration::from_secs(60)).wall, "2026-01-01T00:01:00Z".parse().unwrap());
    /// ```
    pub fn after(self, later: Duration) -> Now {
        Now {
            wall: wall_after(self.wall, later),
            mono: self.mono.saturating_add(later),
        }
    }
}

/// `wall` and `later`; the last timestamp there is when it would lie beyond.
pub(crate) fn wall_after(wall: Timestamp, later: Duration) -> Timestamp {
    wall.checked_add(later).unwrap_or(Timestamp::MAX)
}

/// `wall` less `earlier`; the first timestamp there is when it would lie before.
pub(crate) fn wall_before(wall: Timestamp, earlier: Duration) -> Timestamp {
    wall.checked_sub(earlier).unwrap_or(Timestamp::MIN)
}

/// How long it is from `from` to `to`; zero when it is past.
pub(crate) fn wall_until(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or(Duration::ZERO)
}
