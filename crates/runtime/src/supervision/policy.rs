//! When a child is started again, which others with it, how often, and after what pause.

use std::time::Duration;

/// Whom the end of one child concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Strategy {
    /// It alone is started again.
    OneForOne,
    /// All are stopped, in reverse order, and started again in order: none of them can do without the others.
    OneForAll,
    /// It and those that were described after it are stopped, in reverse order, and started again in order: each builds on
    /// those before it.
    RestForOne,
}

/// When a child is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestartPolicy {
    /// Whenever it ends.
    Always,
    /// When it fails, panics, or its time is over; not when it ends with success, nor when somebody cancels it.
    OnFailure,
    /// Never; also not when it was stopped for the sake of others.
    Never,
}

/// A pause before a child is started again, the longer the more restarts there were within the period that is
/// counted.
///
/// ```
/// use std::time::Duration;
/// use jobtree_runtime::supervision::Backoff;
///
/// let backoff = Backoff::exponential(Duration::from_millis(10), Duration::from_millis(100));
/// let pauses = [1, 2, 3, 4, 5, 1000].map(|restart| backoff.pause(restart).as_millis());
/// assert_eq!(pauses, [10, 20, 40, 80, 100, 100]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    /// Whether each pause is twice as long as the one before.
    doubles: bool,
}

impl Backoff {
    /// Always the same pause.
    pub fn constant(pause: Duration) -> Backoff {
        Backoff {
            first: pause,
            longest: pause,
            doubles: false,
        }
    }

    /// `first`, then twice as long each time, up to `longest`.
    pub fn exponential(first: Duration, longest: Duration) -> Backoff {
        Backoff {
            first,
            longest,
            doubles: true,
        }
    }

    /// The pause before the `restart`-th restart; the first one is 1. A pause that is longer than the clock can count, such as
    /// `Duration::MAX`, never ends: the child is not started again.
    pub fn pause(&self, restart: usize) -> Duration {
        let mut pause = self.first.min(self.longest);
        if self.doubles && !pause.is_zero() {
            let mut doublings = restart.saturating_sub(1);
            // At most some hundred times: no time is longer than the longest.
            while doublings > 0 && pause < self.longest {
                pause = pause.saturating_mul(2).min(self.longest);
                doublings -= 1;
            }
        }
        pause
    }
}
