//! When a job will probably start: by its obstacles, running leases, and this machine's hours of quiet.
//!
//! Each obstacle of an explanation has a time of its own, and the job starts at the latest of them: a moment that is named,
//! the expected end of enough running jobs, the next hour that is quiet in most weeks, the work of the jobs before it at
//! the capacity there is. If one of them depends on somebody's decision (a pause, a node, a worker) there is no estimate:
//! no number is better than a made-up one.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use jobtree_protocol::{Estimate, EstimateBasis, QuietState};
use serde::{Deserialize, Serialize};

use crate::change::Change;
use crate::explain::Explanation;
use crate::now::{Now, wall_after};
use crate::planner::Planner;

const HOURS: usize = 7 * 24;
/// From this part of the samples on an hour counts as quiet.
const MOSTLY: f64 = 0.5;
/// Hours of samples before anything is said of the others.
const ENOUGH_HOURS: usize = 48;
/// Weight of an hour's past when a new week comes: four or five weeks count.
const FADING: f64 = 0.8;

/// How often each hour of the week was QUIET, on the local clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WeeklyProfile {
    hours: Vec<Hour>,
    /// The hour that samples are being added to.
    current: Option<(usize, i64)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Hour {
    quiet: f64,
    samples: f64,
}

impl Default for WeeklyProfile {
    fn default() -> Self {
        WeeklyProfile {
            hours: vec![Hour::default(); HOURS],
            current: None,
        }
    }
}

impl WeeklyProfile {
    /// Adds a sample.
    pub fn add(&mut self, at: Timestamp, zone: &TimeZone, quiet: bool) {
        let index = hour_of(at, zone);
        let absolute = at.as_second().div_euclid(3600);
        if self.current != Some((index, absolute)) {
            // A new week's hour: the weeks before count less.
            self.current = Some((index, absolute));
            self.hours[index].quiet *= FADING;
            self.hours[index].samples *= FADING;
        }
        self.hours[index].samples += 1.0;
        self.hours[index].quiet += f64::from(u8::from(quiet));
    }

    /// Part of the samples of an hour that were quiet; none without any.
    pub fn chance(&self, at: Timestamp, zone: &TimeZone) -> Option<f64> {
        let hour = self.hours[hour_of(at, zone)];
        (hour.samples > 0.0).then(|| hour.quiet / hour.samples)
    }

    /// The beginning of the next hour that is mostly quiet (or now, if this one is), and how often it was. None with
    /// less than two days of samples, or when no hour is.
    pub fn next_quiet(&self, from: Timestamp, zone: &TimeZone) -> Option<(Timestamp, f64)> {
        if self.hours.iter().filter(|hour| hour.samples > 0.0).count() < ENOUGH_HOURS {
            return None;
        }
        let mut at = from;
        for _ in 0..=HOURS {
            if let Some(chance) = self.chance(at, zone).filter(|chance| *chance >= MOSTLY) {
                return Some((at, chance));
            }
            let next = at.as_second().div_euclid(3600) * 3600;
            at = Timestamp::from_second(next)
                .ok()?
                .checked_add(Span::new().hours(1))
                .ok()?;
        }
        None
    }
}

fn hour_of(at: Timestamp, zone: &TimeZone) -> usize {
    let local = zone.to_datetime(at);
    let day = local.date().weekday().to_monday_zero_offset() as usize;
    day * 24 + local.hour() as usize
}

impl Planner {
    /// When a job will probably start, by its explanation; none when that is anybody's guess.
    pub fn estimate(
        &self,
        explanation: &Explanation,
        profile: &WeeklyProfile,
        now: Now,
    ) -> Option<Estimate> {
        let zone =
            TimeZone::get(&self.admission().policy().quiet.time_zone).unwrap_or(TimeZone::UTC);
        let mut estimate = Estimate {
            start_at: now.wall,
            basis: EstimateBasis::Schedule,
            confidence: 1.0,
        };
        // The latest, but quiet after everything that has to come first.
        let (quiet, others): (Vec<_>, Vec<_>) = explanation
            .obstacles
            .iter()
            .map(|obstacle| &obstacle.change)
            .partition(|change| matches!(change, Change::BusyAtMost { .. }));
        let mut later = |start_at: Timestamp, basis, confidence: f64| {
            if start_at > estimate.start_at {
                (estimate.start_at, estimate.basis) = (start_at, basis);
            }
            estimate.confidence *= confidence;
        };
        for change in others {
            match change {
                Change::Wait(time) => {
                    later(wall_after(now.wall, *time), EstimateBasis::Schedule, 1.0)
                }
                Change::WaitUntil(at) => later(*at, EstimateBasis::Schedule, 1.0),
                Change::NextSample => {}
                Change::FreeUnits(units) => {
                    let wait = self.units_free_in(*units, now)?;
                    later(
                        wall_after(now.wall, wait),
                        EstimateBasis::RunningLeases,
                        0.8,
                    );
                }
                Change::JobsGone(jobs) if explanation.exact => {
                    let wait = self.work_of(jobs, now)?;
                    later(
                        wall_after(now.wall, wait),
                        EstimateBasis::RunningLeases,
                        0.6,
                    );
                }
                _ => return None,
            }
        }
        let from = estimate.start_at;
        for change in quiet {
            let Change::BusyAtMost { state, lasting, .. } = change else {
                continue;
            };
            if *state != QuietState::Quiet {
                return None;
            }
            let (at, chance) = profile.next_quiet(from, &zone)?;
            estimate.start_at = estimate.start_at.max(wall_after(at, *lasting));
            estimate.basis = EstimateBasis::QuietProfile;
            estimate.confidence *= chance;
        }
        Some(estimate)
    }

    /// How long the work of these jobs takes at the capacity there is; none when one does not say how long it takes.
    fn work_of(&self, jobs: &[jobtree_protocol::JobId], now: Now) -> Option<Duration> {
        let view = self.view(now);
        let mut work = 0.0;
        for job in jobs {
            let (candidate, addon) = self.candidate_of(*job)?;
            let takes = candidate
                .expected_duration
                .or(self.order().learnt(addon, &candidate.job_type))?;
            work += f64::from(candidate.cost) * takes.as_secs_f64();
        }
        let capacity = self.admission().capacity(&view, Default::default());
        (capacity > 0).then(|| Duration::from_secs_f64(work / f64::from(capacity)))
    }
}
