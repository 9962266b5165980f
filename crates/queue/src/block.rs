//! What keeps a job from starting, with the numbers it was decided by.
//!
//! The same values are the denial's text, the log's entry and the explanation: no reader has to guess later what was
//! measured and what it was compared with.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{JobId, NodeId, QuietState};

use crate::busy::Resource;
use crate::policy::write_duration;
use crate::signal_names::{self, HighSignal};

/// How long a machine has been calm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calm {
    /// Already.
    pub lasted: Duration,
    /// Before its state changes.
    pub needed: Duration,
}

/// One thing in the way.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// The machine was not measured for this long.
    Stale {
        /// Age of the last sample.
        age: Duration,
        /// From which on it is not trusted.
        limit: Duration,
    },
    /// PANIC.
    Panic {
        /// What busy was.
        busy: f64,
        /// What it must come down to.
        bound: f64,
        /// The signals that are too high.
        high: Vec<HighSignal>,
        /// How long busy has been below the bound, and how long it must.
        calm: Calm,
        /// How long nothing starts after that.
        cooldown: Duration,
    },
    /// PANIC was there a short while ago.
    CoolingDown {
        /// How long it still lasts.
        left: Duration,
        /// How long it lasts as a whole.
        whole: Duration,
    },
    /// The machine is in a worse state than the job may start in.
    NotQuiet {
        /// Its state.
        state: QuietState,
        /// What busy was.
        busy: f64,
        /// The worst state in which the job starts.
        needs: QuietState,
        /// What busy must come down to, and stay at.
        bound: f64,
        /// The signals that are too high.
        high: Vec<HighSignal>,
        /// How long busy has been at or below the bound, and how long it must.
        calm: Calm,
    },
    /// It is not the hour.
    OutsideWindow {
        /// When the next window opens.
        opens: Option<Timestamp>,
    },
    /// QUIET, but not for long enough.
    StreakTooShort {
        /// How long it has lasted.
        streak: Duration,
        /// How long it must have.
        needed: Duration,
    },
    /// A resource that the job is heavy on is in use.
    Pressure {
        /// Which.
        resource: Resource,
        /// The pressure, tightened, 0..=10.
        level: f64,
        /// What it must come down to.
        bound: f64,
    },
    /// Not enough units.
    Capacity {
        /// In use.
        used: u32,
        /// Asked for.
        requested: u32,
        /// There are, at this load and for these constraints.
        capacity: u32,
    },
    /// Enough was started since the machine was last measured.
    Ramp {
        /// Units added since then.
        added: u32,
        /// Asked for.
        requested: u32,
        /// May be added.
        limit: u32,
    },
    /// The node has as many leases as it may.
    Leases {
        /// Live ones.
        active: u32,
        /// May be.
        limit: u32,
    },
    /// The addon has as many leases as it may.
    AddonLeases {
        /// Live ones.
        active: u32,
        /// May be.
        limit: u32,
    },
    /// The addon has as many units as it may.
    AddonUnits {
        /// In use.
        used: u32,
        /// Asked for.
        requested: u32,
        /// May be.
        limit: u32,
    },
    /// Capacity is kept for another job, which this one would delay.
    Held {
        /// That job.
        job: JobId,
        /// Until when at most.
        until: Duration,
        /// Units that are not kept.
        spare: u32,
        /// Asked for.
        requested: u32,
    },
    /// Its time has not come: a schedule, or the wait before another attempt.
    NotYet {
        /// When it comes.
        at: Timestamp,
    },
    /// It failed before, and waits for its next attempt.
    Retry {
        /// When that may start.
        at: Timestamp,
        /// Which attempt it will be, 1 for the first.
        attempt: u32,
        /// How many it may have.
        most: u32,
    },
    /// Its addon is paused.
    AddonPaused,
    /// Jobs of its type are paused.
    TypePaused,
    /// As many jobs with its concurrency key run as may.
    KeyTaken {
        /// The key.
        key: String,
        /// That run.
        running: u32,
        /// That may.
        limit: u32,
    },
    /// It asks for another node, or for labels that this one has not.
    WrongNode {
        /// This one.
        node: NodeId,
        /// The one that it asks for, if that is another.
        wanted: Option<NodeId>,
        /// The labels that this one has not.
        labels: Vec<String>,
    },
    /// The node takes no more jobs.
    Draining,
    /// Its type is served by workers that claim, and none of them waits for a job now.
    NoWorker,
    /// No worker serves its type: it is not reserved, but for a probe now and then.
    Unserved {
        /// When the type was served last; `None` if it never was.
        last: Option<Timestamp>,
        /// Rounds of reservations that no caller accepted, in a row.
        vain: u32,
        /// When the next probe may begin.
        probe: Timestamp,
    },
    /// These go first, and take what there is.
    Behind {
        /// Those that would have to be gone.
        jobs: Vec<JobId>,
        /// Whether there are more than are listed.
        more: bool,
    },
}

impl Block {
    /// For programs.
    pub fn code(&self) -> &'static str {
        match self {
            Block::Stale { .. } => "stale",
            Block::Panic { .. } => "panic",
            Block::CoolingDown { .. } => "cooling_down",
            Block::NotQuiet { .. } => "not_quiet",
            Block::OutsideWindow { .. } => "outside_window",
            Block::StreakTooShort { .. } => "streak_too_short",
            Block::Pressure { .. } => "pressure",
            Block::Capacity { .. } => "capacity",
            Block::Ramp { .. } => "ramp",
            Block::Leases { .. } => "leases",
            Block::AddonLeases { .. } => "addon_leases",
            Block::AddonUnits { .. } => "addon_units",
            Block::Held { .. } => "held",
            Block::NotYet { .. } => "not_yet",
            Block::Retry { .. } => "retry_backoff",
            Block::AddonPaused => "addon_paused",
            Block::TypePaused => "type_paused",
            Block::KeyTaken { .. } => "key_taken",
            Block::WrongNode { .. } => "wrong_node",
            Block::Draining => "draining",
            Block::NoWorker => "no_worker",
            Block::Unserved { .. } => "unserved",
            Block::Behind { .. } => "behind",
        }
    }

    /// The signals that are too high, if it is about the load.
    pub fn high_signals(&self) -> &[HighSignal] {
        match self {
            Block::Panic { high, .. } | Block::NotQuiet { high, .. } => high,
            _ => &[],
        }
    }

    /// What was measured.
    pub fn measured(&self) -> Option<f64> {
        match *self {
            Block::Stale { age, .. } => Some(age.as_secs_f64()),
            Block::Panic { busy, .. } | Block::NotQuiet { busy, .. } => Some(busy),
            Block::CoolingDown { left, whole } => Some(whole.saturating_sub(left).as_secs_f64()),
            Block::StreakTooShort { streak, .. } => Some(streak.as_secs_f64()),
            Block::Pressure { level, .. } => Some(level),
            Block::Capacity {
                used, requested, ..
            } => Some(f64::from(used + requested)),
            Block::Ramp {
                added, requested, ..
            } => Some(f64::from(added + requested)),
            Block::Leases { active, .. } | Block::AddonLeases { active, .. } => {
                Some(f64::from(active))
            }
            Block::AddonUnits {
                used, requested, ..
            } => Some(f64::from(used + requested)),
            Block::Held { requested, .. } => Some(f64::from(requested)),
            Block::KeyTaken { running, .. } => Some(f64::from(running)),
            Block::Behind { ref jobs, .. } => Some(jobs.len() as f64),
            Block::Unserved { vain, .. } => Some(f64::from(vain)),
            Block::Retry { attempt, .. } => Some(f64::from(attempt)),
            Block::OutsideWindow { .. }
            | Block::NotYet { .. }
            | Block::AddonPaused
            | Block::TypePaused
            | Block::WrongNode { .. }
            | Block::Draining
            | Block::NoWorker => None,
        }
    }

    /// What it was compared with.
    pub fn threshold(&self) -> Option<f64> {
        match *self {
            Block::Stale { limit, .. } => Some(limit.as_secs_f64()),
            Block::Panic { bound, .. } | Block::NotQuiet { bound, .. } => Some(bound),
            Block::Pressure { bound, .. } => Some(bound),
            Block::CoolingDown { whole, .. } => Some(whole.as_secs_f64()),
            Block::StreakTooShort { needed, .. } => Some(needed.as_secs_f64()),
            Block::Capacity { capacity, .. } => Some(f64::from(capacity)),
            Block::Ramp { limit, .. }
            | Block::Leases { limit, .. }
            | Block::AddonLeases { limit, .. }
            | Block::AddonUnits { limit, .. }
            | Block::KeyTaken { limit, .. } => Some(f64::from(limit)),
            Block::Held { spare, .. } => Some(f64::from(spare)),
            Block::Behind { .. } | Block::Unserved { .. } => Some(0.0),
            Block::Retry { most, .. } => Some(f64::from(most)),
            Block::OutsideWindow { .. }
            | Block::NotYet { .. }
            | Block::AddonPaused
            | Block::TypePaused
            | Block::WrongNode { .. }
            | Block::Draining
            | Block::NoWorker => None,
        }
    }

    /// Whether it is the same thing in the way, whatever its numbers are now: a denial is written once.
    pub fn same_kind(&self, other: &Block) -> bool {
        match (self, other) {
            (Block::NotQuiet { state, .. }, Block::NotQuiet { state: before, .. }) => {
                state == before
            }
            _ => self.code() == other.code(),
        }
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Block::Stale { age, limit } => {
                let (age, limit) = (age.as_secs(), limit.as_secs());
                write!(
                    f,
                    "No metrics for {age} s (limit {limit} s); failing closed"
                )
            }
            Block::Panic {
                high,
                calm,
                cooldown,
                ..
            } => {
                f.write_str("The machine is overloaded (PANIC): ")?;
                write_load(f, high, *calm)?;
                match cooldown.is_zero() {
                    true => Ok(()),
                    false => write!(f, ", then it cools down for {}", write_duration(*cooldown)),
                }
            }
            Block::CoolingDown { left, whole } => {
                let (left, whole) = (left.as_secs_f64().ceil(), write_duration(*whole));
                write!(
                    f,
                    "The machine was overloaded (PANIC) and cools down for {whole}: {left:.0} s are left"
                )
            }
            Block::NotQuiet {
                state,
                needs,
                high,
                calm,
                ..
            } => {
                let (state, needs) = (name(*state), name(*needs));
                write!(f, "The machine is {state}, the job waits for {needs}: ")?;
                write_load(f, high, *calm)
            }
            Block::OutsideWindow { opens: Some(opens) } => {
                write!(f, "Outside of the quiet windows; the next opens at {opens}")
            }
            Block::OutsideWindow { opens: None } => {
                f.write_str("Outside of the quiet windows; none opens")
            }
            Block::StreakTooShort { streak, needed } => {
                let (streak, needed) = (streak.as_secs(), write_duration(*needed));
                write!(f, "QUIET for {streak} s; waiting for a streak of {needed}")
            }
            Block::Pressure {
                resource,
                level,
                bound,
            } => {
                let resource = resource.name();
                write!(
                    f,
                    "Pressure on {resource} too high for this job: level={level:.1}, bound={bound:.1}"
                )
            }
            Block::Capacity {
                used,
                requested,
                capacity,
            } => {
                write!(
                    f,
                    "Capacity exceeded: used={used}, requested={requested}, capacity={capacity}"
                )
            }
            Block::Ramp {
                added,
                requested,
                limit,
            } => {
                write!(
                    f,
                    "Ramp: added={added} since the last sample, requested={requested}, limit={limit}"
                )
            }
            Block::Leases { active, limit } => {
                write!(f, "Lease cap reached: active={active}, limit={limit}")
            }
            Block::AddonLeases { active, limit } => {
                write!(
                    f,
                    "Lease cap of the addon reached: active={active}, limit={limit}"
                )
            }
            Block::AddonUnits {
                used,
                requested,
                limit,
            } => {
                write!(
                    f,
                    "Units of the addon exceeded: used={used}, requested={requested}, limit={limit}"
                )
            }
            Block::Held {
                job,
                spare,
                requested,
                ..
            } => {
                write!(
                    f,
                    "Capacity is held for job {job}: spare={spare}, requested={requested}"
                )
            }
            Block::NotYet { at } => write!(f, "Not before {at}"),
            Block::Retry { at, attempt, most } => write!(
                f,
                "The last run failed: attempt {attempt} of {most} starts at {at} or later"
            ),
            Block::AddonPaused => f.write_str("The addon is paused"),
            Block::TypePaused => f.write_str("Jobs of this type are paused"),
            Block::KeyTaken {
                key,
                running,
                limit,
            } => {
                write!(
                    f,
                    "Concurrency key {key:?} is taken: running={running}, limit={limit}"
                )
            }
            Block::WrongNode {
                node,
                wanted,
                labels,
            } => {
                f.write_str("The job asks for ")?;
                if let Some(wanted) = wanted {
                    write!(f, "node {wanted}")?;
                }
                let and = if wanted.is_some() { " and " } else { "" };
                match &labels[..] {
                    [] => {}
                    [one] => write!(f, "{and}the label {one}")?,
                    all => write!(f, "{and}the labels {}", all.join(", "))?,
                }
                match (wanted, labels.is_empty()) {
                    (Some(_), _) => write!(f, "; this is node {node}"),
                    (None, _) => write!(f, ", which node {node} does not have"),
                }
            }
            Block::Draining => f.write_str("The node is draining"),
            Block::NoWorker => f.write_str("All workers for jobs of this addon and type are busy"),
            Block::Unserved { last, vain, probe } => {
                f.write_str("No worker serves jobs of this addon and type: ")?;
                match last {
                    Some(last) => write!(f, "the last call was at {last}")?,
                    None => f.write_str("none has called since the daemon started")?,
                }
                if *vain > 0 {
                    write!(f, "; reservations that were not accepted: {vain} in a row")?;
                }
                write!(f, "; next probe at {probe} or later")
            }
            Block::Behind { jobs, more } => {
                let (count, more) = (jobs.len(), if *more { " or more" } else { "" });
                let jobs = if count == 1 { "job" } else { "jobs" };
                write!(
                    f,
                    "Behind {count}{more} {jobs} that come first and take the capacity"
                )
            }
        }
    }
}

/// Writes which signals are too high, or else how long the machine has been calm.
fn write_load(f: &mut fmt::Formatter<'_>, high: &[HighSignal], calm: Calm) -> fmt::Result {
    let needed = write_duration(calm.needed);
    match high.is_empty() {
        true => write!(f, "calm for {} s of {needed}", calm.lasted.as_secs()),
        false => write!(f, "{}; must be calm for {needed}", signal_names::list(high)),
    }
}

/// A state as the texts write it.
pub(crate) fn name(state: QuietState) -> &'static str {
    match state {
        QuietState::Quiet => "QUIET",
        QuietState::Normal => "NORMAL",
        QuietState::Busy => "BUSY",
        QuietState::Panic => "PANIC",
    }
}
