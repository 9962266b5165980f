//! Schedules: kept here, fired here. When they fire is decided elsewhere.

use jiff::Timestamp;
use jobtree_protocol::{Event, EventKind, JobId, NodeId, ScheduleId, SubmitAnswer, whole_micros};
use jobtree_queue::transitions::Changes;

use super::{Submission, Unit};
use crate::error::StoreError;
use crate::tables::{Pause, Result, ScheduleRecord};

/// One firing of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Firing {
    /// Whose.
    pub schedule_id: ScheduleId,
    /// Which version of the schedule this follows from. If there is a newer one nothing is done: somebody was faster, or
    /// it was written anew, and what is due has to be asked again.
    pub revision: u64,
    /// For which time of its calendar: at most one firing for each.
    pub at: Timestamp,
    /// What is submitted; none if this firing is left out (missed, or the job before has not ended), which is noted so
    /// that nobody fires it later.
    pub job: Option<Submission>,
    /// The job is left out while this one has not ended.
    pub unless: Option<JobId>,
    /// When it fires next.
    pub next_at: Option<Timestamp>,
}

impl Unit<'_> {
    /// Writes a schedule; its revision counts itself, and what it fired last stays known.
    pub(crate) fn put_schedule(&mut self, mut schedule: ScheduleRecord) -> Result<ScheduleRecord> {
        let all = self.tables.schedules()?;
        let taken = |other: &&ScheduleRecord| {
            other.id != schedule.id && other.spec.name == schedule.spec.name
        };
        if all.iter().any(|other| taken(&other)) {
            return Err(StoreError::NameTaken {
                name: schedule.spec.name,
            });
        }
        let before = all.iter().find(|other| other.id == schedule.id);
        schedule.revision = before.map_or(1, |before| before.revision + 1);
        if let Some(before) = before {
            (schedule.last_at, schedule.last_job) = (before.last_at, before.last_job);
        }
        self.tables.put_schedule(&schedule)?;
        Ok(schedule)
    }

    /// Fires once for each time: `None` if somebody was faster. A firing without a job is remembered all the same, and so is
    /// one whose job is refused: it would be refused again.
    pub(crate) fn fire(&mut self, firing: Firing) -> Result<Option<SubmitAnswer>> {
        let Firing {
            schedule_id,
            revision,
            at,
            job,
            unless,
            next_at,
        } = firing;
        let Some(mut schedule) = self.tables.schedule(schedule_id)? else {
            return Err(StoreError::NoSchedule(schedule_id));
        };
        if schedule.revision != revision {
            // It was paused or changed meanwhile, or others are further: to go back would fire again what is behind them.
            return Ok(None);
        }
        let overlaps = match unless.filter(|_| job.is_some()) {
            None => false,
            // One that is not there was pruned: it has ended.
            Some(before) => {
                let jobs = self.tables.jobs(&[before])?;
                jobs.iter().any(|job| !job.state.is_ended())
            }
        };
        let mut changes = Changes::default();
        let mut answer = None;
        if let Some(mut submission) = job.filter(|_| !overlaps) {
            submission.intent.schedule_id = Some(schedule_id);
            answer = self.submit_among(submission, &mut changes)?.ok();
        }
        let id = answer.as_ref().map(|answer| answer.job_id);
        if self.tables.fire(schedule_id, at, id)? {
            self.write(changes)?;
        } else {
            // It was fired before the schedule was written anew, by a clock that was set back since: on to the next.
            answer = None;
        }
        schedule.revision += 1;
        schedule.next_at = next_at;
        if let Some(answer) = &answer {
            schedule.last_at = Some(at);
            schedule.last_job = Some(answer.job_id);
        }
        self.tables.put_schedule(&schedule)?;
        Ok(answer)
    }

    pub(crate) fn delete_schedule(&mut self, id: ScheduleId) -> Result<()> {
        if self.tables.delete_schedule(id)? {
            Ok(())
        } else {
            Err(StoreError::NoSchedule(id))
        }
    }

    /// Skips an addon or a type from now on, which the trail tells.
    pub(crate) fn pause(&mut self, pause: &Pause) -> Result<()> {
        self.tables.put_pause(pause)?;
        self.tell(
            EventKind::Paused,
            pause_text(pause, pause.reason.as_deref()),
        )
    }

    /// Skips it no longer. Whether it was skipped.
    pub(crate) fn resume(&mut self, pause: &Pause) -> Result<bool> {
        let was = self
            .tables
            .delete_pause(&pause.addon_id, pause.job_type.as_ref())?;
        if was {
            self.tell(EventKind::Resumed, pause_text(pause, None))?;
        }
        Ok(was)
    }

    /// Writes that the load state of a node has changed.
    pub(crate) fn tell_load_state(&mut self, node: NodeId, reason: String) -> Result<()> {
        let mut event = self.event(EventKind::LoadState, reason);
        event.node_id = Some(node);
        self.write(Changes {
            events: vec![event],
            ..Changes::default()
        })
    }

    fn tell(&mut self, kind: EventKind, reason: String) -> Result<()> {
        let event = self.event(kind, reason);
        self.write(Changes {
            events: vec![event],
            ..Changes::default()
        })
    }

    /// Returns an event that is about no job.
    fn event(&self, kind: EventKind, reason: String) -> Event {
        Event {
            job_id: None::<JobId>,
            at: whole_micros(self.cx.now.wall),
            kind,
            state: None,
            lease_id: None,
            node_id: None,
            attempt: None,
            revision: None,
            reason: Some(reason),
        }
    }
}

fn pause_text(pause: &Pause, why: Option<&str>) -> String {
    let mut text = match &pause.job_type {
        None => format!("addon {}", pause.addon_id),
        Some(job_type) => format!("addon {}, type {job_type}", pause.addon_id),
    };
    if let Some(why) = why {
        text.push_str(": ");
        text.push_str(why);
    }
    text
}
