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
//! How long anybody waits under this, the largest job under a flood of small ones too, is [`WaitBound`]; what dispatches
//! add to it that nobody takes up is [`VainBound`].

use std::collections::BTreeMap;
use std::time::Duration;

use jobtree_protocol::JobId;

use crate::dispatch::LONGEST_REST;
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

/// How long a job waits at most, while the machine is quiet and nothing holds back the job itself.
///
/// Let `A` be the age step, `R` the longest run time of any job (`R ≤ hold`), `C` the capacity that lasts, `m` the
/// largest cost of what is ahead, `Q` the quantum × weight of the job's own addon, `B` the units of its own addon that
/// are ahead of it (and what that addon owes from starts out of turn), and `Qᵢ` those of the other addons in its class.
///
/// After `2A` the job is in the highest class. Its addon needs `k = ⌈B/Q⌉ + 1` turns until the job is reached, and each of
/// the others starts at most `k·Qᵢ + m` units in that time, backfills included since they are charged:
///
/// ```text
/// U    = B + Σ (k·Qᵢ + m)
/// wait ≤ 2A + (⌈U / (C − m + 1)⌉ + 1) · R
/// ```
///
/// For in any time `R` whatever ran at its beginning has ended; if the next in order still does not fit, more than
/// `C − m` units were started since. And when the job is next itself, what runs then has ended after one more `R`: nothing
/// passes its hold that would delay it. Expected durations that are exceeded delay it by as much, and dispatches that
/// nobody takes up by a [`VainBound`].
///
/// ```
/// use std::time::Duration;
/// use jobtree_queue::hold::WaitBound;
///
/// let bound = WaitBound {
///     age_step: Duration::ZERO,
///     longest_run: Duration::from_secs(20),
///     capacity: 100,
///     largest_ahead: 5,
///     own_ahead: 0,
///     own_quantum: 100,
///     other_quanta: vec![100, 100, 100],
/// };
/// assert_eq!(bound.wait(), Duration::from_secs(100));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitBound {
    /// `A`; zero for a job that is in the highest class that has jobs.
    pub age_step: Duration,
    /// `R`.
    pub longest_run: Duration,
    /// `C`.
    pub capacity: u32,
    /// `m`.
    pub largest_ahead: u32,
    /// `B`.
    pub own_ahead: u32,
    /// `Q`.
    pub own_quantum: u32,
    /// `Qᵢ`.
    pub other_quanta: Vec<u32>,
}

impl WaitBound {
    /// The bound.
    pub fn wait(&self) -> Duration {
        let (most, ahead) = (u64::from(self.largest_ahead), u64::from(self.own_ahead));
        let turns = ahead.div_ceil(u64::from(self.own_quantum.max(1))) + 1;
        let others = self
            .other_quanta
            .iter()
            .map(|quantum| turns * u64::from(*quantum) + most);
        let units = ahead + others.sum::<u64>();
        let runs = units.div_ceil(u64::from(self.capacity).saturating_sub(most) + 1) + 1;
        let runs = u32::try_from(runs).unwrap_or(u32::MAX);
        (2 * self.age_step).saturating_add(self.longest_run.saturating_mul(runs))
    }
}

/// What dispatches that nobody takes up add to a wait, where several nodes share a store.
///
/// Let `w` nodes have nobody for the job's addon and type and room for the job, `T` be the time in which a dispatch is to
/// be taken up, and `L` how long it takes a node to hear of a job that waits. One node at least has somebody who takes the
/// job up, and room. Each try in vain keeps the job for `T`, and before it the job was free for less than `L`, or that
/// node would have had it: `n` tries take less than `n·(T + L)`. Of them the node with the most has made `k ≥ n/w`. It left
/// the job to others after each but the last, except for two at most after which somebody asked there:
///
/// ```text
/// k·T + ¾·Σ min(2ⁱ·T, M) ≤ w·k·(T + L)      i = 0 … k − 4, M the longest rest
/// wait ≤ w·k·(T + L)                        for the largest such k
/// ```
///
/// When there are so many nodes without anybody that they can keep a job among themselves however long each rests,
/// there is no such `k`, and no bound: name the nodes or labels of such jobs.
///
/// ```
/// use std::time::Duration;
/// use jobtree_queue::hold::VainBound;
///
/// let seconds = Duration::from_secs;
/// let bound = VainBound { nodes: 2, take_up: seconds(30), hears_after: seconds(5) };
/// assert_eq!(bound.wait(), Some(seconds(420)));
/// assert_eq!(VainBound { nodes: 0, ..bound }.wait(), Some(seconds(0)));
/// assert_eq!(VainBound { nodes: 50, ..bound }.wait(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VainBound {
    /// `w`.
    pub nodes: u32,
    /// `T`.
    pub take_up: Duration,
    /// `L`.
    pub hears_after: Duration,
}

impl VainBound {
    /// The bound; none if there is none.
    pub fn wait(&self) -> Option<Duration> {
        let longest = self.take_up.max(LONGEST_REST).as_secs_f64();
        let (take_up, nodes) = (self.take_up.as_secs_f64(), f64::from(self.nodes));
        let each = take_up + self.hears_after.as_secs_f64();
        if self.nodes == 0 {
            return Some(Duration::ZERO);
        }
        if nodes * each >= take_up + 0.75 * longest {
            return None;
        }
        // Possible for `tries`, and from some number on for none.
        let possible = |tries: u32| {
            let rests = (0..tries.saturating_sub(3)).map(|rest| take_up * 2_f64.powi(rest as i32));
            let rested: f64 = rests.map(|rest| rest.min(longest)).sum();
            f64::from(tries) * take_up + 0.75 * rested <= nodes * f64::from(tries) * each
        };
        let mut tries = 3;
        while possible(tries + 1) {
            tries += 1;
        }
        let all = self.nodes.saturating_mul(tries);
        Some((self.take_up + self.hears_after).saturating_mul(all))
    }
}
