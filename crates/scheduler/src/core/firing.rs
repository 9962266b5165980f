//! Schedules: fired once for each of their times, whoever of several schedulers comes first.
//!
//! A record's `next_at` is the next time as its expression says, before jitter. What is due is fired one at a time; each
//! firing writes the next time with it, and then the schedules are read again. So a scheduler that was away continues
//! where it left off, with what the schedule says of missed times.

use std::collections::HashSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use jobtree_protocol::{Overlap, ScheduleId, ScheduleView};
use jobtree_queue::Now;
use jobtree_queue::cron::Schedule;
use jobtree_store::{Firing, ScheduleRecord, Submission};

use super::io::Op;
use super::{Bug, Core};

#[derive(Debug)]
struct Scheduled {
    record: ScheduleRecord,
    schedule: Schedule,
    /// When it is fired here, with jitter.
    at: Timestamp,
}

/// The longest that a scheduler on a shared store waits for another to fire first.
const HESITATION: Duration = Duration::from_millis(250);

/// All schedules that fire.
#[derive(Debug, Default)]
pub(super) struct Schedules {
    all: Vec<Scheduled>,
    firing: HashSet<ScheduleId>,
}

impl Schedules {
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.all
            .iter()
            .filter(|it| !self.firing.contains(&it.record.id))
            .map(|it| it.at)
            .min()
    }
}

fn just_before(at: Timestamp) -> Timestamp {
    at.checked_sub(SignedDuration::from_micros(1)).unwrap_or(at)
}

/// The next time as the expression says.
pub(crate) fn next_nominal(schedule: &Schedule, after: Timestamp) -> Option<Timestamp> {
    schedule.next(after).map(|firing| firing.nominal)
}

/// When it fires, with jitter.
fn with_jitter(schedule: &Schedule, nominal: Timestamp) -> Timestamp {
    let firing = schedule.next(just_before(nominal));
    firing.map_or(nominal, |firing| firing.at)
}

/// A schedule as it is shown.
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

impl Core {
    pub(super) fn set_schedules(&mut self, records: Vec<ScheduleRecord>) {
        self.schedules.firing = self
            .flights
            .values()
            .filter_map(|flight| flight.op.fires())
            .collect();
        let mut all = Vec::with_capacity(records.len());
        for record in records.into_iter().filter(|record| !record.spec.paused) {
            // One that cannot be read was refused when it was written; a newer version may have written it.
            let schedule = Schedule::new(record.id, &record.spec).ok();
            let (Some(schedule), Some(next)) = (schedule, record.next_at) else {
                continue;
            };
            let at = with_jitter(&schedule, next) + self.hesitation();
            all.push(Scheduled {
                record,
                schedule,
                at,
            });
        }
        self.schedules.all = all;
    }

    /// Several schedulers would all fire at the same moment, and all but one in vain.
    fn hesitation(&mut self) -> Duration {
        if self.options.shared {
            HESITATION.mul_f64(self.dice.below(1 << 20) as f64 / f64::from(1 << 20))
        } else {
            Duration::ZERO
        }
    }

    pub(super) fn fire_schedules(&mut self, now: Now) {
        if self.schedules.next().is_none_or(|at| at > now.wall) {
            return;
        }
        let mut firings = Vec::new();
        for it in &self.schedules.all {
            let id = it.record.id;
            if it.at > now.wall || self.schedules.firing.contains(&id) {
                continue;
            }
            let Some(next) = it.record.next_at else {
                continue;
            };
            let last = just_before(next);
            let (due, handled) = it.schedule.due(last, now.wall, 1);
            if handled <= last {
                continue;
            }
            let next_at = next_nominal(&it.schedule, handled);
            let at = due.first().map_or(handled, |firing| firing.nominal);
            firings.push((it, at, !due.is_empty(), next_at));
        }
        let mut ops = Vec::new();
        for (it, at, fires, next_at) in firings {
            let record = &it.record;
            let job = fires.then(|| record.spec.job.clone());
            let overlap = record.spec.overlap == Overlap::Forbid;
            let unless = record.last_job.filter(|_| overlap);
            // The mistake: each scheduler has a name of its own for the same firing.
            let at = if self.has(Bug::FireByClock) {
                now.wall
            } else {
                at
            };
            ops.push((record.id, record.revision, at, job, next_at, unless));
        }
        for (schedule_id, revision, at, job, next_at, unless) in ops {
            self.schedules.firing.insert(schedule_id);
            // What cannot be submitted any more, since the policy has changed, is left out.
            let intent = job.and_then(|job| job.validate(&self.options.limits).ok());
            let mut random = [0; 10];
            random[..8].copy_from_slice(&self.dice.roll().to_le_bytes());
            random[8..].copy_from_slice(&self.dice.roll().to_le_bytes()[..2]);
            let job = intent.map(|intent| Submission {
                id: jobtree_protocol::JobId::from_parts(now.wall, random),
                id_given: false,
                intent,
            });
            let firing = Firing {
                schedule_id,
                revision,
                at,
                job,
                unless,
                next_at,
            };
            self.op(Op::Fire(Box::new(firing)), None, now);
        }
    }
}
