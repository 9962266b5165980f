//! What a manager counts.
//!
//! What happens to a queue is counted under its lane's lock, which is held then in any case, in plain numbers: a
//! [`Tally`]. What happens to jobs elsewhere, that is, that they are scheduled and that they end, is counted in atomics:
//! [`Endings`]. So a job that runs once pays for two of these. Counts that belong together may be a moment apart in a
//! snapshot.
//!
//! # The average wait
//!
//! A wait is the time from when a job is put into a queue to when it is taken out, for each dispatch anew. The average is
//! the mean of all waits that ended in the last 10 to 20 seconds: waits are summed up in windows of 10 s, and the
//! mean is that of the present window and the one before. So it follows the load, it is exact, and those of several lanes
//! can be put together. For the mean over all time, divide [`PriorityStats::wait_total`] by the dispatches.

mod prometheus;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::lane::Lane;
use crate::moment::Moment;
use crate::priority::Priority;

/// How long waits are summed up for one part of the average.
const WINDOW: Duration = Duration::from_secs(10);

/// Up to where each bucket of [`WaitHistogram`] goes, but for the last, which has no end.
pub const WAIT_BOUNDS: [Duration; 8] = [
    Duration::from_micros(10),
    Duration::from_micros(100),
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(10),
];

/// How many dispatches followed a wait of which length: up to each of [`WAIT_BOUNDS`], and above the last.
pub type WaitHistogram = [u64; WAIT_BOUNDS.len() + 1];

/// How many waits, and their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    count: u64,
    /// A million jobs that wait for hours are more than 64 bits hold.
    nanos: u128,
}

impl Waits {
    /// Their mean; None, if there were none.
    pub(crate) fn mean(self) -> Option<Duration> {
        self.nanos.checked_div(self.count.into()).map(duration)
    }

    /// Both together.
    pub(crate) fn and(self, other: Waits) -> Waits {
        Waits {
            count: self.count + other.count,
            nanos: self.nanos + other.nanos,
        }
    }
}

fn duration(nanos: u128) -> Duration {
    const SECOND: u128 = 1_000_000_000;
    let seconds = u64::try_from(nanos / SECOND).unwrap_or(u64::MAX);
    Duration::new(seconds, (nanos % SECOND) as u32)
}

/// What one bucket counts.
#[derive(Clone, Copy, Debug, Default)]
struct BucketTally {
    requeues: u64,
    aged_turns: u64,
    /// When the present window ends.
    window_ends: Moment,
    present: Waits,
    /// Of the window before.
    before: Waits,
    /// Of all windows before that.
    long_ago: Waits,
    histogram: WaitHistogram,
}

impl BucketTally {
    #[inline]
    fn add(&mut self, waited: Duration, now: Moment) {
        if now >= self.window_ends {
            self.turn_over(now);
        }
        self.present.count += 1;
        self.present.nanos += waited.as_nanos();
        // Short ones are frequent: so not by halves.
        let bucket = WAIT_BOUNDS.iter().position(|bound| waited <= *bound);
        self.histogram[bucket.unwrap_or(WAIT_BOUNDS.len())] += 1;
    }

    #[cold]
    fn turn_over(&mut self, now: Moment) {
        let ended = std::mem::take(&mut self.present);
        self.long_ago = self.long_ago.and(self.before);
        if now < self.window_ends.after(WINDOW) {
            self.before = ended;
        } else {
            self.before = Waits::default();
            self.long_ago = self.long_ago.and(ended);
        }
        self.window_ends = now.after(WINDOW);
    }

    /// The waits of the last 10 to 20 seconds.
    fn recent(mut self, now: Moment) -> Waits {
        if now >= self.window_ends {
            self.turn_over(now);
        }
        self.present.and(self.before)
    }

    fn all(&self) -> Waits {
        self.present.and(self.before).and(self.long_ago)
    }
}

/// What one lane counts under its lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally([BucketTally; Priority::COUNT]);

impl Tally {
    /// A job came back into the queue.
    #[inline]
    pub(crate) fn requeued(&mut self, priority: Priority) {
        self.0[priority.index()].requeues += 1;
    }

    /// A job was taken out of the queue, by age or not.
    #[inline]
    pub(crate) fn dispatched(
        &mut self,
        priority: Priority,
        waited: Duration,
        by_age: bool,
        now: Moment,
    ) {
        let bucket = &mut self.0[priority.index()];
        bucket.aged_turns += u64::from(by_age);
        bucket.add(waited, now);
    }

    /// The waits that ended in the last 10 to 20 seconds.
    pub(crate) fn recent_waits(&self, priority: Priority, now: Moment) -> Waits {
        self.0[priority.index()].recent(now)
    }
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Completed,
    Canceled,
    Faulted,
}

/// What one lane counts without its lock. Those who schedule and those who run are different threads, so that each
/// has its own cache lines.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    scheduled: Line<[AtomicU64; Priority::COUNT]>,
    ended: [Line<[AtomicU64; 3]>; Priority::COUNT],
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line<T>(T);

impl Endings {
    #[inline]
    pub(crate) fn scheduled(&self, priority: Priority) {
        self.scheduled.0[priority.index()].fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn ended(&self, priority: Priority, ending: Ending) {
        self.ended[priority.index()].0[ending as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// What a manager counted so far. See [`JobManager::stats`](crate::JobManager::stats).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ManagerStats {
    /// How many workers it may use at once.
    pub workers: usize,
    /// Its slots.
    pub slots: Slots,
    /// Each of its lanes.
    pub lanes: Vec<LaneStats>,
}

/// How many jobs a manager admits, and has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// How many jobs are scheduled and have not ended.
    pub in_use: usize,
    /// How many more may be scheduled without waiting; None: any number.
    pub available: Option<usize>,
    /// How many there may be; None: any number.
    pub capacity: Option<usize>,
}

/// What one lane counted so far.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneStats {
    /// Which lane.
    pub lane: Lane,
    /// By priority, the least urgent first.
    pub priorities: [PriorityStats; Priority::COUNT],
}

/// What was counted of the jobs of one priority in one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PriorityStats {
    /// How many wait now.
    pub queued: usize,
    /// How many were scheduled.
    pub scheduled: u64,
    /// How many ended well.
    pub completed: u64,
    /// How many were cancelled.
    pub canceled: u64,
    /// How many failed.
    pub faulted: u64,
    /// How often one was taken out of the queue.
    pub dispatches: u64,
    /// How often one came back into the queue.
    pub requeues: u64,
    /// How many of the dispatches were turns by age.
    pub aged_turns: u64,
    /// All waits together.
    pub wait_total: Duration,
    /// The mean of the waits that ended in the last 10 to 20 seconds, if any did.
    pub average_wait: Option<Duration>,
    /// How many waits had which length.
    pub waits: WaitHistogram,
}

impl LaneStats {
    /// What a lane counted, with the number of jobs in each bucket.
    pub(crate) fn new(
        lane: Lane,
        queued: [usize; Priority::COUNT],
        tally: &Tally,
        endings: &Endings,
        now: Moment,
    ) -> LaneStats {
        let of = |priority: Priority| {
            let index = priority.index();
            let bucket = &tally.0[index];
            let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
            let [completed, canceled, faulted] = &endings.ended[index].0;
            PriorityStats {
                queued: queued[index],
                scheduled: count(&endings.scheduled.0[index]),
                completed: count(completed),
                canceled: count(canceled),
                faulted: count(faulted),
                dispatches: bucket.all().count,
                requeues: bucket.requeues,
                aged_turns: bucket.aged_turns,
                wait_total: duration(bucket.all().nanos),
                average_wait: bucket.recent(now).mean(),
                waits: bucket.histogram,
            }
        };
        LaneStats {
            lane,
            priorities: Priority::ALL.map(of),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn each_thing_is_counted_by_priority() {
        let (mut tally, endings) = (Tally::default(), Endings::default());
        let low = Priority::Low;
        for _ in 0..4 {
            endings.scheduled(low);
        }
        endings.scheduled(Priority::High);
        endings.ended(low, Ending::Completed);
        endings.ended(low, Ending::Completed);
        endings.ended(low, Ending::Canceled);
        endings.ended(low, Ending::Faulted);
        tally.dispatched(low, seconds(1), false, at(1));
        tally.dispatched(low, seconds(3), true, at(1));
        tally.requeued(low);
        let stats = LaneStats::new(Lane::Main, [0, 7, 0, 0, 0], &tally, &endings, at(2));
        let expected = PriorityStats {
            queued: 7,
            scheduled: 4,
            completed: 2,
            canceled: 1,
            faulted: 1,
            dispatches: 2,
            requeues: 1,
            aged_turns: 1,
            wait_total: seconds(4),
            average_wait: Some(seconds(2)),
            waits: [0, 0, 0, 0, 0, 1, 0, 1, 0],
        };
        assert_eq!(stats.priorities[low.index()], expected);
        let expected = PriorityStats {
            scheduled: 1,
            ..PriorityStats::default()
        };
        assert_eq!(stats.priorities[Priority::High.index()], expected);
    }

    #[test]
    fn the_average_wait_is_the_mean_of_the_last_10_to_20_seconds() {
        let mut tally = Tally::default();
        let priority = Priority::Normal;
        let mean = |tally: &Tally, now| tally.recent_waits(priority, at(now)).mean();
        assert_eq!(mean(&tally, 0), None);
        tally.dispatched(priority, seconds(1), false, at(0));
        tally.dispatched(priority, seconds(2), false, at(9));
        tally.dispatched(priority, seconds(6), false, at(12));
        assert_eq!(mean(&tally, 12), Some(seconds(3)));
        assert_eq!(mean(&tally, 21), Some(seconds(3)));
        // The first window is forgotten when the third begins.
        assert_eq!(mean(&tally, 22), Some(seconds(6)));
        tally.dispatched(priority, seconds(4), false, at(23));
        assert_eq!(mean(&tally, 23), Some(seconds(5)));
        assert_eq!(mean(&tally, 42), Some(seconds(4)));
        assert_eq!(mean(&tally, 43), None);
        tally.dispatched(priority, seconds(7), false, at(90));
        // Over all time nothing is forgotten.
        let all = tally.0[priority.index()].all();
        assert_eq!((all.count, duration(all.nanos)), (5, seconds(20)));
    }

    #[test]
    fn averages_of_lanes_are_put_together_by_their_numbers_of_waits() {
        let (mut one, mut other) = (Tally::default(), Tally::default());
        one.dispatched(Priority::Low, seconds(8), false, at(0));
        for _ in 0..3 {
            other.dispatched(Priority::Low, seconds(0), false, at(0));
        }
        let [one, other] = [one, other].map(|tally| tally.recent_waits(Priority::Low, at(1)));
        assert_eq!(one.and(other).mean(), Some(seconds(2)));
    }

    #[test]
    fn a_wait_of_a_bound_belongs_below_it() {
        let mut tally = Tally::default();
        for bound in WAIT_BOUNDS {
            tally.dispatched(Priority::Low, bound, false, at(0));
            let above = bound + Duration::from_nanos(1);
            tally.dispatched(Priority::High, above, false, at(0));
        }
        assert_eq!(tally.0[1].histogram, [1, 1, 1, 1, 1, 1, 1, 1, 0]);
        assert_eq!(tally.0[3].histogram, [0, 1, 1, 1, 1, 1, 1, 1, 1]);
    }
}
