//! A moment of the manager's time: nanoseconds since the manager was made.
//!
//! Half the size of an [`Instant`], it fits into an atomic, and tests write it down as a number. The manager takes it
//! from its runtime's clock, so that it is virtual wherever the runtime's time is.

use std::time::{Duration, Instant};

/// See the module's head. Lasts for 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Moment(u64);

impl Moment {
    /// When the manager was made.
    pub(crate) const BEGINNING: Moment = Moment(0);

    /// `now` in the time of a manager made at `beginning`; what lies before that counts as the beginning.
    #[inline]
    pub(crate) fn between(beginning: Instant, now: Instant) -> Moment {
        Moment(whole_nanos(now.saturating_duration_since(beginning)))
    }

    #[inline]
    pub(crate) const fn from_nanos(nanos: u64) -> Moment {
        Moment(nanos)
    }

    #[inline]
    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This moment as an instant, in the time of a manager made at `beginning`.
    pub(crate) fn instant(self, beginning: Instant) -> Instant {
        beginning + Duration::from_nanos(self.0)
    }

    /// How long after `earlier` this is; nothing, if it is not after it.
    #[inline]
    pub(crate) const fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment that is `duration` later; the last one there is, if that is too late.
    #[inline]
    pub(crate) fn after(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(whole_nanos(duration)))
    }
}

#[inline]
fn whole_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_comes_back_as_the_instant_it_was_made_of() {
        let beginning = Instant::now();
        let later = beginning + Duration::from_micros(1_234_567);
        let moment = Moment::between(beginning, later);
        assert_eq!(moment.as_nanos(), 1_234_567_000);
        assert_eq!(moment.instant(beginning), later);
        assert_eq!(Moment::between(later, beginning), Moment::BEGINNING);
    }

    #[test]
    fn time_neither_goes_below_nothing_nor_wraps() {
        let moment = Moment::from_nanos(5);
        assert_eq!(moment.since(Moment::from_nanos(2)), Duration::from_nanos(3));
        assert_eq!(moment.since(Moment::from_nanos(9)), Duration::ZERO);
        assert_eq!(moment.after(Duration::MAX), Moment::from_nanos(u64::MAX));
    }
}
