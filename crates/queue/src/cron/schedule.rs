//! A schedule: cron, a time zone, jitter, and what becomes of missed firings.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use jobtree_protocol::{Missed, ScheduleId, ScheduleSpec};

use super::{Cron, CronError};
use crate::now::{wall_after, wall_before, wall_until};

/// A firing that comes up to this much late is on time.
const ON_TIME: Duration = Duration::from_secs(60);

/// One firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Firing {
    /// When the expression says: this names the firing, and no two of a schedule have the same.
    pub nominal: Timestamp,
    /// When it fires, with its jitter.
    pub at: Timestamp,
}

/// A schedule that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleError {
    /// Its expression.
    Cron(CronError),
    /// Its time zone.
    Zone(String),
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScheduleError::Cron(error) => error.fmt(f),
            ScheduleError::Zone(zone) => {
                write!(
                    f,
                    "the time zone {zone:?} is not known; write one such as \"Europe/Berlin\""
                )
            }
        }
    }
}

impl std::error::Error for ScheduleError {}

/// When a schedule fires.
#[derive(Clone, Debug)]
pub struct Schedule {
    id: ScheduleId,
    cron: Cron,
    zone: TimeZone,
    jitter: Duration,
    missed: Missed,
}

impl Schedule {
    /// Reads a schedule.
    ///
    /// # Errors
    /// What is wrong with the expression or the time zone.
    pub fn new(id: ScheduleId, spec: &ScheduleSpec) -> Result<Schedule, ScheduleError> {
        let cron = spec.cron.parse().map_err(ScheduleError::Cron)?;
        let unknown = |_| ScheduleError::Zone(spec.time_zone.clone());
        let zone = TimeZone::get(&spec.time_zone).map_err(unknown)?;
        let jitter = Duration::from_secs(u64::from(spec.jitter_sec));
        Ok(Schedule {
            id,
            cron,
            zone,
            jitter,
            missed: spec.missed,
        })
    }

    /// The first firing after one (or after the moment that the schedule was made or resumed).
    pub fn next(&self, after: Timestamp) -> Option<Firing> {
        self.cron
            .next_after(after, &self.zone)
            .map(|nominal| self.firing(nominal))
    }

    fn firing(&self, nominal: Timestamp) -> Firing {
        Firing {
            nominal,
            at: wall_after(nominal, self.jitter_of(nominal)),
        }
    }

    /// Spreads schedules that say the same, and always the same for one firing: whoever computes it, when and where.
    fn jitter_of(&self, nominal: Timestamp) -> Duration {
        let span = self.jitter.as_millis() as u64;
        if span == 0 {
            return Duration::ZERO;
        }
        let (high, low) = self.id.0.as_u64_pair();
        let mixed = mix(mix(high ^ mix(low)) ^ nominal.as_second() as u64);
        Duration::from_millis(mixed % (span + 1))
    }

    /// What is to be submitted now, the oldest first, if `last` was the last firing that was handled; at most `most`.
    ///
    /// What is up to a minute late is on time. Of what is later, `skip` submits nothing, `once` one job for all, which
    /// is named by the last, and `all` each. The last of what is returned, or of what was left out, is to be handled
    /// from then on as `last`: that is the second value.
    pub fn due(&self, last: Timestamp, now: Timestamp, most: usize) -> (Vec<Firing>, Timestamp) {
        if self.missed == Missed::All {
            let due: Vec<Firing> = self.between(last, now).take(most).collect();
            let handled = due.last().map_or(last, |firing| firing.nominal);
            return (due, handled);
        }
        let Some(latest) = self.latest(last, now) else {
            return (Vec::new(), last);
        };
        let on_time = wall_until(latest.at, now) <= ON_TIME;
        let due = if on_time || self.missed == Missed::Once {
            vec![latest]
        } else {
            Vec::new()
        };
        (due, latest.nominal)
    }

    /// Firings after `last` whose time has come. One that has to wait for its jitter makes those behind it wait.
    fn between(&self, last: Timestamp, now: Timestamp) -> impl Iterator<Item = Firing> + '_ {
        let mut after = last;
        std::iter::from_fn(move || {
            let firing = self.next(after).filter(|firing| firing.at <= now)?;
            after = firing.nominal;
            Some(firing)
        })
    }

    /// The latest of them, without going through years of minutes.
    fn latest(&self, last: Timestamp, now: Timestamp) -> Option<Firing> {
        let mut back = self.jitter + Duration::from_secs(60);
        loop {
            let from = wall_before(now, back).max(last);
            if let Some(latest) = self.between(from, now).last() {
                return Some(latest);
            }
            if from == last {
                return None;
            }
            back *= 4;
        }
    }
}

/// Spreads a number's bits.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
