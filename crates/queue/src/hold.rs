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
//! How long a job waits under this, the largest one under a flood of small ones too, is [`WaitBound`]; what jobs that
//! no worker serves add to it is [`UnservedBound`].

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
/// passes its hold that would delay it. Expected durations that are exceeded delay it by as much, and jobs that no worker
/// serves by an [`UnservedBound`].
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

/// What jobs of types that no worker serves add to the wait of a served job, however many they are and however urgent.
///
/// Let `T` be the take-up time, `R` the time in which the store returns a reservation that was not accepted, `S` the time
/// between two samples, and `L` the time in which a node hears of a job that waits (zero on one node). The job waits for
/// nothing but units, and a worker waits for it, or it may be reserved. Then its group stands behind an open gate, so no
/// [probe](crate::planner) begins; each one that is out is accepted, and then it is of a served type itself, or it is
/// returned by `T + R` after it began; and what probes added to the ramp is over with the next sample:
///
/// ```text
/// wait ≤ max(T + R, S)
/// ```
///
/// If the job shares its concurrency key with jobs of an unserved type, a probe may have that key when the job comes, and
/// others may have units when the key is free: `2·max(T + R, S)`. It is not more, since no probe takes a key that a served
/// job waits for.
///
/// Where several nodes share a store, the node that serves the job hears of it after `L`, and until then may begin probes; when
/// the last of them is over, the job itself may be on probe at a node that does not serve it, for `T + R`. When it is back, the
/// former hears of it after `L`, and the others leave it alone for at least ¾`T`. Meanwhile the former begins no probe, so that
/// it has the units then, whatever the number of nodes:
///
/// ```text
/// wait ≤ 2·(max(T + R, S) + L)
/// ```
///
/// If `L ≥ ¾T` there is no bound: take-up times must be longer than a node takes to hear. And a key that is shared with jobs of
/// an unserved type adds `max(T + R, S)` only if that type has one node to be tried at.
///
/// All of it comes on top of [`WaitBound`], which holds among served jobs.
///
/// ```
/// use std::time::Duration;
/// use jobtree_queue::hold::UnservedBound;
///
/// let seconds = Duration::from_secs;
/// let bound = UnservedBound {
///     take_up: seconds(30),
///     returned_after: seconds(1),
///     sampled_every: seconds(2),
///     shares_key: false,
///     hears_after: Duration::ZERO,
/// };
/// assert_eq!(bound.wait(), Some(seconds(31)));
/// assert_eq!(UnservedBound { shares_key: true, ..bound }.wait(), Some(seconds(62)));
/// assert_eq!(UnservedBound { hears_after: seconds(5), ..bound }.wait(), Some(seconds(72)));
/// assert_eq!(UnservedBound { hears_after: seconds(60), ..bound }.wait(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnservedBound {
    /// `T`.
    pub take_up: Duration,
    /// `R`.
    pub returned_after: Duration,
    /// `S`.
    pub sampled_every: Duration,
    /// The job's concurrency key is one of unserved jobs too.
    pub shares_key: bool,
    /// `L`; zero where no other node uses the store.
    pub hears_after: Duration,
}

impl UnservedBound {
    /// The bound; `None` if there is none.
    pub fn wait(&self) -> Option<Duration> {
        if self.hears_after.saturating_mul(4) >= self.take_up.saturating_mul(3) {
            return None;
        }
        let probe = self.take_up.saturating_add(self.returned_after);
        let once = probe.max(self.sampled_every);
        let nodes = u32::from(!self.hears_after.is_zero());
        let times = 1 + u32::from(self.shares_key) + nodes;
        let heard = self.hears_after.saturating_mul(2);
        Some(once.saturating_mul(times).saturating_add(heard))
    }
}
