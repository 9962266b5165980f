//! Schedules: fired once for each of their times, whichever of several schedulers comes first.
//!
//! A record's `next_at` is the next time as its expression says, before jitter. What is due is fired one at a time; each
//! firing writes the next time with it, and then the schedules are read again. So a scheduler that was away continues
//! where it left off, by the schedule's own rule for missed times.

use std::collections::HashSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use jobtree_protocol::{Overlap, ScheduleId, ScheduleView};
use jobtree_queue::cron::Schedule;
use jobtree_store::{Firing, ScheduleRecord, Submission};

use super::planted::Bug;
use super::turn::Turn;

#[derive(Debug)]
struct Scheduled {
    record: ScheduleRecord,
    schedule: Schedule,
    /// When it is fired here, with jitter.
    at: Timestamp,
}

/// The longest that a scheduler on a shared store waits for another one to fire first.
const HESITATION: Duration = Duration::from_millis(250);

/// All schedules that fire.
#[derive(Debug, Default)]
pub(super) struct Schedules {
    all: Vec<Scheduled>,
    firing: HashSet<ScheduleId>,
}

fn just_before(at: Timestamp) -> Timestamp {
    at.checked_sub(SignedDuration::from_micros(1)).unwrap_or(at)
}

/// Returns the next time after `after` as the expression says.
pub(crate) fn next_nominal(schedule: &Schedule, after: Timestamp) -> Option<Timestamp> {
    schedule.next(after).map(|firing| firing.nominal)
}

/// Returns when it fires, with jitter.
fn with_jitter(schedule: &Schedule, nominal: Timestamp) -> Timestamp {
    let firing = schedule.next(just_before(nominal));
    firing.map_or(nominal, |firing| firing.at)
}

/// Returns a schedule as it is shown.
pub(crate) fn view_of(record: &ScheduleRecord) -> ScheduleView {
    let schedule = Schedule::new(record.id, &record.spec).ok();
    let at = |nominal| {
        schedule
            .as_ref()
            .map_or(nominal, |it| with_jitter(it, nominal))
    };
    ScheduleView {
        schedule_id: record.id,
        spec: record.spec.clone(),
        next_at: record.next_at.map(at),
        last_at: record.last_at,
        last_job: record.last_job,
    }
}

impl Schedules {
    /// Returns the next time at which something is fired.
    pub(super) fn next(&self) -> Option<Timestamp> {
        let waiting = self.all.iter();
        let waiting = waiting.filter(|it| !self.firing.contains(&it.record.id));
        waiting.map(|it| it.at).min()
    }

    /// Takes the schedules as they were read.
    pub(super) fn set(&mut self, records: Vec<ScheduleRecord>, turn: &mut Turn) {
        self.firing = turn.in_flight.fired();
        self.all.clear();
        for record in records.into_iter().filter(|record| !record.spec.paused) {
            // One that cannot be read was refused when it was written; a newer version may have written it.
            let schedule = Schedule::new(record.id, &record.spec).ok();
            let (Some(schedule), Some(next)) = (schedule, record.next_at) else {
                continue;
            };
            let at = with_jitter(&schedule, next) + hesitation(turn);
            self.all.push(Scheduled {
                record,
                schedule,
                at,
            });
        }
    }

    /// Fires what is due.
    pub(super) fn fire(&mut self, turn: &mut Turn) {
        let wall = turn.now.wall;
        if self.next().is_none_or(|at| at > wall) {
            return;
        }
        let mut firing = Vec::new();
        for it in &self.all {
            let record = &it.record;
            if it.at > wall || self.firing.contains(&record.id) {
                continue;
            }
            let Some(next) = record.next_at else {
                continue;
            };
            let last = just_before(next);
            let (due, handled) = it.schedule.due(last, wall, 1);
            if handled <= last {
                continue;
            }
            let at = due.first().map_or(handled, |firing| firing.nominal);
            let job = (!due.is_empty()).then(|| record.spec.job.clone());
            // A job that cannot be submitted any more, since the policy has changed, is left out.
            let intent = job.and_then(|job| job.validate(&turn.config.options.limits).ok());
            let job = intent.map(|intent| Submission {
                id: turn.rng.job_id(wall),
                id_given: false,
                intent,
            });
            firing.push(record.id);
            turn.ask(Box::new(Firing {
                schedule_id: record.id,
                revision: record.revision,
                // The mistake: each scheduler has a name of its own for the same firing.
                at: if turn.has(Bug::FireByClock) { wall } else { at },
                job,
                unless: record
                    .last_job
                    .filter(|_| record.spec.overlap == Overlap::Forbid),
                next_at: next_nominal(&it.schedule, handled),
            }));
        }
        self.firing.extend(firing);
    }
}

/// Draws how long this scheduler waits: several would all fire at the same time, and all but one in vain.
fn hesitation(turn: &mut Turn) -> Duration {
    if turn.config.options.shared {
        HESITATION.mul_f64(turn.rng.fraction())
    } else {
        Duration::ZERO
    }
}
