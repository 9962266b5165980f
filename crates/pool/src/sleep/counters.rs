//! The packed word of the sleep protocol: who sleeps, who searches, and whether work has come.

use std::fmt;

use crate::sync::step::{Step, left_out};
use crate::sync::{AtomicU64, Ordering};

/// More workers than this do not fit the fields (and the sleepers' summary word).
pub(crate) const MAX_WORKERS: usize = 4096;

const FIELD_BITS: u32 = 16;
const FIELD_MASK: u64 = (1 << FIELD_BITS) - 1;
const INACTIVE_SHIFT: u32 = FIELD_BITS;
const EVENTS_SHIFT: u32 = 2 * FIELD_BITS;

const ONE_SLEEPING: u64 = 1;
const ONE_INACTIVE: u64 = 1 << INACTIVE_SHIFT;
const ONE_EVENT: u64 = 1 << EVENTS_SHIFT;

/// The jobs event counter. Even: some worker is sleepy and no work has been posted since. Odd: work has
/// been posted since the last worker became sleepy. Sleepers move it from odd to even, posters from
/// even to odd.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct JobsEventCounter(u32);

impl JobsEventCounter {
    fn is_sleepy(self) -> bool {
        self.0 & 1 == 0
    }
}

/// One reading of the word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counters(u64);

impl Counters {
    /// Workers that are asleep, or are about to be and have passed the last check.
    pub(crate) fn sleeping(self) -> u32 {
        (self.0 & FIELD_MASK) as u32
    }

    /// Workers without work: searching or sleeping.
    pub(crate) fn inactive(self) -> u32 {
        ((self.0 >> INACTIVE_SHIFT) & FIELD_MASK) as u32
    }

    /// Workers that are awake and looking for work, and so will find what is posted.
    pub(crate) fn searching(self) -> u32 {
        self.inactive().saturating_sub(self.sleeping())
    }

    /// The events part.
    pub(crate) fn events(self) -> JobsEventCounter {
        JobsEventCounter((self.0 >> EVENTS_SHIFT) as u32)
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counters")
            .field("events", &self.events())
            .field("inactive", &self.inactive())
            .field("sleeping", &self.sleeping())
            .finish()
    }
}

/// The word itself.
pub(crate) struct AtomicCounters(AtomicU64);

impl AtomicCounters {
    pub(crate) fn new() -> AtomicCounters {
        AtomicCounters(AtomicU64::new(0))
    }

    #[inline]
    pub(crate) fn load(&self) -> Counters {
        Counters(self.0.load(Ordering::Acquire))
    }

    /// A worker has run out of work.
    pub(crate) fn add_inactive(&self) {
        self.0.fetch_add(ONE_INACTIVE, Ordering::AcqRel);
    }

    /// A worker has found work; returns the word after that.
    pub(crate) fn sub_inactive(&self) -> Counters {
        let before = self.0.fetch_sub(ONE_INACTIVE, Ordering::AcqRel);
        Counters(before - ONE_INACTIVE)
    }

    /// Moves the event counter to sleepy unless it is; returns what it then is.
    pub(crate) fn announce_sleepy(&self) -> JobsEventCounter {
        let mut seen = self.load();
        loop {
            if seen.events().is_sleepy() {
                return seen.events();
            }
            let sleepy = Counters(seen.0.wrapping_add(ONE_EVENT));
            match self.exchange(seen, sleepy) {
                Ok(()) => return sleepy.events(),
                Err(now) => seen = now,
            }
        }
    }

    /// Counts the caller as sleeping, unless work was posted since it announced itself.
    pub(crate) fn try_add_sleeping(&self, announced: JobsEventCounter) -> bool {
        let mut seen = self.load();
        loop {
            if seen.events() != announced && !left_out(Step::SleepEventCheck) {
                return false;
            }
            match self.exchange(seen, Counters(seen.0 + ONE_SLEEPING)) {
                Ok(()) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// A sleeper has been woken, or has changed its mind.
    pub(crate) fn sub_sleeping(&self) {
        let before = self.0.fetch_sub(ONE_SLEEPING, Ordering::AcqRel);
        debug_assert!(Counters(before).sleeping() > 0);
    }

    /// Work has been posted: moves the event counter from sleepy to active; returns the word.
    #[inline]
    pub(crate) fn note_new_work(&self) -> Counters {
        let mut seen = self.load();
        while seen.events().is_sleepy() {
            let active = Counters(seen.0.wrapping_add(ONE_EVENT));
            match self.exchange(seen, active) {
                Ok(()) => return active,
                Err(now) => seen = now,
            }
        }
        seen
    }

    fn exchange(&self, old: Counters, new: Counters) -> Result<(), Counters> {
        self.0
            .compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
            .map_err(Counters)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sleepers_make_the_counter_even_and_posters_make_it_odd() {
        let counters = AtomicCounters::new();
        let active = counters.note_new_work().events();
        assert!(!active.is_sleepy());
        assert_eq!(counters.note_new_work().events(), active);
        let sleepy = counters.announce_sleepy();
        assert!(sleepy.is_sleepy());
        assert_eq!(counters.announce_sleepy(), sleepy);
        counters.add_inactive();
        assert!(counters.try_add_sleeping(sleepy));
        counters.note_new_work();
        assert!(!counters.try_add_sleeping(sleepy));
        assert_eq!(counters.load().sleeping(), 1);
        assert_eq!(counters.load().searching(), 0);
    }

    #[test]
    fn the_event_counter_wraps_without_touching_its_neighbours() {
        let counters = AtomicCounters(AtomicU64::new(
            (u64::MAX << EVENTS_SHIFT) | (3 * ONE_INACTIVE) | ONE_SLEEPING,
        ));
        let sleepy = counters.announce_sleepy();
        assert_eq!(sleepy, JobsEventCounter(0));
        assert_eq!(counters.load().inactive(), 3);
        assert_eq!(counters.load().sleeping(), 1);
    }
}
