//! Capacity that is kept for one job: the reservation of a node.
//!
//! The job that is next but does not fit gets a hold, if the machine could carry it (its cost is within the capacity
//! there is at this load). From then on, jobs of its class or a lower one start only if they do not delay it:
//!
//! - the *shadow* is the moment at which enough running jobs will have ended, by their expected ends;
//! - a job backfills if it ends before the shadow (as declared, else by the learnt 95th percentile), or if it fits
//!   beside the held job at the shadow;
//! - when ends are not known there is no shadow, and nothing backfills.
//!
//! Jobs of a higher class do not respect a hold, and take it over when they do not fit themselves. A hold ends when its
//! job starts or goes, when the capacity cannot carry it any more, and after `hold` in any case; after that the job
//! *rests* for `rest` before capacity is kept for it again, so that a job that others keep from starting costs no more
//! than half of the time.
//!
//! **How long the largest job waits under a flood of small ones.** Let `A` be the age step, `R` the longest run time of
//! any job (and `R ≤ hold`), `N` the number of addons with jobs in its class, `Q` quantum × weight of the heaviest, and
//! `C` the capacity that lasts. It is in the highest class after `2A`; there at most `B` units of its own addon are ahead
//! of it, and its addon's turn comes round after at most `N·Q` units of others each time, `⌈B/Q⌉ + 1` times. When its turn
//! has come it is held for at most one other held job, and then for its own: `2R`. So, with work-conserving capacity,
//!
//! ```text
//! wait ≤ 2A + (⌈B/Q⌉ + 1) · N · Q · R / (C − cost + 1) + 2R
//! ```
//!
//! The same without `2R` and with `C` instead of `C − cost + 1` is the bound for the next job of any addon.

use std::collections::BTreeMap;
use std::time::Duration;

use jobtree_protocol::JobId;

use crate::order::Gate;

/// Capacity that is kept for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The job.
    pub job: JobId,
    /// Its units.
    pub cost: u32,
    /// Its class, 0..=2.
    pub class: usize,
    /// Since when, on the monotonic clock.
    pub since: Duration,
    /// Until when at most.
    pub until: Duration,
}

/// What may pass a hold at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shadow {
    /// When the held job can start; not known when it depends on jobs whose end is not.
    pub(crate) at: Option<Duration>,
    /// Units that are free beside it then.
    pub(crate) spare: u32,
}

impl Shadow {
    /// Whether a job behind this gate, started now, leaves the held job where it is.
    pub(crate) fn lets_pass(&self, gate: &Gate, now: Duration) -> bool {
        let ends = gate.takes.map(|takes| now + takes.at_most());
        let before = self.at.zip(ends).is_some_and(|(at, ends)| ends <= at);
        before || gate.cost <= self.spare
    }
}

/// The hold of a node, and the jobs that rest from one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holds {
    pub(crate) current: Option<Hold>,
    resting: BTreeMap<JobId, Duration>,
}

impl Holds {
    /// Whether capacity is not to be kept for a job yet.
    pub(crate) fn rests(&self, job: JobId, now: Duration) -> bool {
        self.resting.get(&job).is_some_and(|until| *until > now)
    }

    /// Ends a hold that has lasted for too long; its job rests.
    pub(crate) fn expire(&mut self, rest: Duration, now: Duration) {
        self.resting.retain(|_, until| *until > now);
        if let Some(hold) = self.current.filter(|hold| hold.until <= now) {
            self.resting.insert(hold.job, now + rest);
            self.current = None;
        }
    }

    /// A job waits no more.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.resting.remove(&job);
        if self.current.is_some_and(|hold| hold.job == job) {
            self.current = None;
        }
    }

    /// When something of this changes by itself.
    pub(crate) fn next_time(&self) -> Option<Duration> {
        let rests = self.resting.values().min().copied();
        self.current
            .map(|hold| hold.until)
            .into_iter()
            .chain(rests)
            .min()
    }
}
