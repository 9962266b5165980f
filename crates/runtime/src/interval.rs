//! Doing something again and again, at times that do not drift.

use std::time::{Duration, Instant};

use jobtree_tree::{Cancelled, WaitingFor};

use crate::block::unless_cancelled;
use crate::current::checkpoint;
use crate::deadline::Sleep;
use crate::future;
use crate::runtime;

/// Makes a clock that ticks each `period`, for the first time at once.
///
/// ```
/// use jobtree_runtime::{interval, sim};
/// use std::time::Duration;
///
/// // By a clock that stands still, so that the test takes no time.
/// sim::check(0..3, |_| {
///     let mut each_minute = interval(Duration::from_secs(60));
///     for _ in 0..3 {
///         each_minute.wait()?;
///     }
///     assert_eq!(sim::elapsed(), Some(Duration::from_secs(120)));
///     Ok(())
/// });
/// ```
///
/// # Panics
/// If `period` is zero.
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval has a period");
    Interval {
        period,
        next: Some(runtime::current().runtime.timers.now()),
    }
}

/// A clock that ticks regularly; see [`interval`]. Ticks that come while nothing waits for them are skipped, except one: the others
/// stay at their times.
#[derive(Debug)]
pub struct Interval {
    period: Duration,
    /// `None` is never: the clock cannot count so far.
    next: Option<Instant>,
}

impl Interval {
    /// Returns the time of the next tick, and sets the one after it.
    fn advance(&mut self) -> Duration {
        let now = runtime::current().runtime.timers.now();
        let Some(next) = self.next else {
            return Duration::MAX;
        };
        // Of those that have passed, only the last one counts.
        let late = now.saturating_duration_since(next).as_nanos();
        let skipped = late / self.period.as_nanos();
        let periods = u32::try_from(skipped + 1).unwrap_or(u32::MAX);
        let step = self.period.checked_mul(periods);
        self.next = step.and_then(|step| next.checked_add(step));
        next.saturating_duration_since(now)
    }

    /// Waits for the next tick; the stack of a job is parked meanwhile.
    ///
    /// # Errors
    /// If the current job is cancelled.
    pub fn wait(&mut self) -> Result<(), Cancelled> {
        checkpoint()?;
        let timers = runtime::current().runtime.timers.clone();
        let wait = self.advance();
        unless_cancelled(Sleep::new(timers, wait), WaitingFor::Time)
    }

    /// Waits for the next tick as a future does it. Dropped before it is ready, it has used up its tick.
    ///
    /// # Errors
    /// If the current job is cancelled.
    pub async fn wait_async(&mut self) -> Result<(), Cancelled> {
        let wait = self.advance();
        future::sleep(wait).await
    }
}
