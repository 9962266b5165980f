//! Job groups: jobs that are alike in everything but their place.
//!
//! All jobs of a group share addon, type, priority, cost, constraints, waiver, expected duration (to a power of two),
//! concurrency key and node. So what is in the way of one is in the way of all, and a million jobs behind one obstacle
//! cost as much to skip as one: the group is taken out of the classes until the obstacle is gone.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{Constraints, JobId, JobType, NodeId, Priority};

use super::KindId;
use crate::candidate::ConcurrencyKey;
use crate::deadline::Waiver;

/// An addon's number within one planner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AddonIndex(pub(crate) usize);

/// A group's number; used again after the group is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupId(pub(crate) usize);

/// A job's place: FIFO by the time it was enqueued; ids break ties.
pub(crate) type Place = (Timestamp, JobId);

/// A duration, rounded up to a power of two of seconds: `Takes(5)` is up to 32 s. Job groups are told apart by this, or each
/// duration would have a group of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Takes(u8);

impl Takes {
    pub(crate) fn of(duration: Duration) -> Takes {
        let seconds = u64::try_from(duration.as_millis().div_ceil(1000)).unwrap_or(u64::MAX);
        let power = if seconds <= 1 {
            0
        } else {
            64 - (seconds - 1).leading_zeros()
        };
        Takes(power.min(40) as u8)
    }

    /// The most it is.
    pub(crate) fn at_most(self) -> Duration {
        Duration::from_secs(1 << self.0)
    }
}

/// What decides whether the jobs of a group may start, apart from who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Gate {
    pub(crate) waiver: Waiver,
    pub(crate) cost: u32,
    pub(crate) heavy: [bool; 4],
    pub(crate) takes: Option<Takes>,
}

impl Gate {
    pub(crate) fn constraints(&self) -> Constraints {
        let [cpu_heavy, disk_write_heavy, network_heavy, memory_heavy] = self.heavy;
        Constraints {
            cpu_heavy,
            disk_write_heavy,
            network_heavy,
            memory_heavy,
        }
    }
}

/// The properties that the jobs of a group share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) addon: AddonIndex,
    pub(crate) job_type: JobType,
    pub(crate) priority: Priority,
    pub(crate) urgent: bool,
    pub(crate) waiver: Waiver,
    pub(crate) cost: u32,
    pub(crate) heavy: [bool; 4],
    /// As declared; what is learnt is the type's.
    pub(crate) declared: Option<Takes>,
    pub(crate) key: Option<ConcurrencyKey>,
    pub(crate) node: Option<NodeId>,
    pub(crate) labels: Vec<String>,
    /// Each in a lease of its own.
    pub(crate) alone: bool,
}

impl Shape {
    /// The type, within its addon.
    pub(crate) fn kind(&self) -> KindId {
        (self.addon, self.job_type.clone())
    }
}

/// Where a group stands in the classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stand {
    pub(crate) class: usize,
    pub(crate) gate: Gate,
    pub(crate) head: Place,
}

/// Jobs that are alike.
#[derive(Clone, Debug)]
pub(crate) struct JobGroup {
    pub(crate) shape: Shape,
    pub(crate) queue: BTreeSet<Place>,
    pub(crate) wrong_node: bool,
    /// In the classes, as this; not when something is in the way of all its jobs.
    pub(crate) stand: Option<Stand>,
    /// When its head rises by a class.
    pub(crate) rises: Option<Timestamp>,
}

/// The class of a job that waits since `since`: its priority, one more for each `step` that it has waited, and when it
/// rises next. Waiting time, not attempts: a denial is no failure.
pub(crate) fn aged(
    priority: Priority,
    since: Timestamp,
    step: Duration,
    at: Timestamp,
) -> (usize, Option<Timestamp>) {
    const HIGHEST: usize = 2;
    let base = priority as usize;
    if step.is_zero() {
        return (base, None);
    }
    let waited = Duration::try_from(at.duration_since(since)).unwrap_or_default();
    let steps = (waited.as_nanos() / step.as_nanos()).min(HIGHEST as u128) as usize;
    let class = (base + steps).min(HIGHEST);
    let rises = (class < HIGHEST).then(|| crate::now::wall_after(since, step * (steps as u32 + 1)));
    (class, rises)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_up_to_powers_of_two() {
        for (seconds, at_most) in [
            (0, 1),
            (1, 1),
            (2, 2),
            (3, 4),
            (32, 32),
            (33, 64),
            (100_000, 131_072),
        ] {
            let takes = Takes::of(Duration::from_secs(seconds));
            assert_eq!(takes.at_most(), Duration::from_secs(at_most), "{seconds}");
        }
        assert_eq!(
            Takes::of(Duration::from_millis(1500)).at_most(),
            Duration::from_secs(2)
        );
        assert!(Takes::of(Duration::MAX).at_most() > Duration::from_secs(1 << 39));
    }

    #[test]
    fn a_job_rises_by_waiting_and_no_further_than_the_highest() {
        let since: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let step = Duration::from_secs(600);
        let after = |seconds| crate::now::wall_after(since, Duration::from_secs(seconds));
        assert_eq!(
            aged(Priority::Low, since, step, since),
            (0, Some(after(600)))
        );
        assert_eq!(
            aged(Priority::Low, since, step, after(599)),
            (0, Some(after(600)))
        );
        assert_eq!(
            aged(Priority::Low, since, step, after(600)),
            (1, Some(after(1200)))
        );
        assert_eq!(aged(Priority::Low, since, step, after(1200)), (2, None));
        assert_eq!(aged(Priority::High, since, step, since), (2, None));
        assert_eq!(
            aged(Priority::Low, since, Duration::ZERO, after(86_400)),
            (0, None)
        );
        // A clock that was set back makes nobody older.
        assert_eq!(aged(Priority::Low, after(100), step, since).0, 0);
    }
}
