//! Schedules of a simulation, followed from outside: one run for each time of a calendar, whoever fires it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use jobtree_protocol::{JobId, JobState, Missed, Overlap, ScheduleId};
use jobtree_queue::cron::Schedule;
use jobtree_store::ScheduleRecord;

use super::check::Broken;

/// So long after its time a schedule has fired, when nothing goes wrong.
const PROMPT: Duration = Duration::from_secs(8);

struct Kept {
    record: ScheduleRecord,
    schedule: Schedule,
    /// Times that were fired or left out.
    handled: BTreeSet<Timestamp>,
    /// The last of them since the schedule was written.
    last: Option<Timestamp>,
}

/// All schedules, as the store's commands wrote them.
#[derive(Default)]
pub(super) struct Calendar {
    all: BTreeMap<ScheduleId, Kept>,
}

impl Calendar {
    pub(super) fn put(&mut self, record: &ScheduleRecord) {
        let schedule = Schedule::new(record.id, &record.spec).expect("a sound schedule");
        let kept = self.all.entry(record.id).or_insert_with(|| Kept {
            record: record.clone(),
            schedule: schedule.clone(),
            handled: BTreeSet::new(),
            last: None,
        });
        if kept.record.spec != record.spec {
            // What it missed until now is forgotten.
            kept.last = None;
        }
        (kept.record, kept.schedule) = (record.clone(), schedule);
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &ScheduleRecord> {
        self.all.values().map(|kept| &kept.record)
    }

    /// A schedule fired, or a time of it was left out.
    pub(super) fn fired(
        &mut self,
        id: ScheduleId,
        at: Timestamp,
        job: Option<JobId>,
        state: impl Fn(JobId) -> Option<JobState>,
    ) -> Result<(), Broken> {
        let Some(kept) = self.all.get_mut(&id) else {
            return Err(format!("schedule {id} fired, and there is none"));
        };
        let name = &kept.record.spec.name;
        if !kept.handled.insert(at) {
            return Err(format!("{name} fired twice for {at}"));
        }
        let next = |after: Timestamp| kept.schedule.next(after).map(|firing| firing.nominal);
        let before = at.checked_sub(SignedDuration::from_micros(1)).unwrap_or(at);
        if job.is_some() && next(before) != Some(at) {
            return Err(format!("{name} fired for {at}, which is no time of it"));
        }
        if job.is_some() && kept.record.spec.paused {
            return Err(format!("{name} fired for {at}, and it is paused"));
        }
        if kept.record.spec.missed == Missed::All
            && let Some(last) = kept.last
        {
            let mut due = next(last);
            while let Some(known) = due.filter(|due| *due != at && kept.handled.contains(due)) {
                due = next(known);
            }
            if due != Some(at) {
                return Err(format!("{name} fired for {at}, and {due:?} was left out"));
            }
        }
        kept.last = Some(at);
        if kept.record.spec.overlap == Overlap::Forbid
            && let Some(before) = kept.record.last_job.filter(|_| job.is_some())
            && state(before).is_some_and(|state| !state.is_ended())
        {
            return Err(format!(
                "{name} fired for {at}, and job {before} of the time before has not ended"
            ));
        }
        Ok(())
    }

    /// All that is not paused goes on.
    pub(super) fn check_goes_on(&self, now: Timestamp) -> Result<(), Broken> {
        for Kept { record, .. } in self.all.values() {
            let jitter = Duration::from_secs(record.spec.jitter_sec.into());
            let late = |next: Timestamp| next + jitter + PROMPT < now;
            if !record.spec.paused && record.next_at.is_none_or(late) {
                let (name, next) = (&record.spec.name, record.next_at);
                return Err(format!("{name} fires no more: {next:?} is its next time"));
            }
        }
        Ok(())
    }

    /// A power cut: what was known may be undone.
    pub(super) fn forget(&mut self, records: &[ScheduleRecord]) {
        self.all.clear();
        for record in records {
            self.put(record);
        }
    }
}
