//! Moving from and to the database.

use std::sync::Arc;

use jiff::Timestamp;
use jobtree_protocol::{AddonId, JobId, LeaseId, ScheduleId, from_micros, to_micros};
use jobtree_queue::{JobRecord, KeyRecord, LeaseRecord};
use uuid::Uuid;

use super::flush::{PUT_ENDED, PUT_HOT, put_ended, put_hot, side_tables};
use super::tables::{PgTables, records};
use crate::logs::LogEnd;
use crate::moving::{Fired, ReadAll, TakeIn};
use crate::tables::{Recorded, Result};

impl ReadAll for PgTables {
    fn all_leases(&mut self, after: Option<LeaseId>, limit: usize) -> Result<Vec<LeaseRecord>> {
        let after = after.map_or(Uuid::nil(), |id| id.0);
        let rows = self.query(
            "SELECT record FROM scheduler_leases WHERE id > $1 ORDER BY id LIMIT $2",
            &[&after, &(limit as i64)],
        )?;
        records::<LeaseRecord>(&rows)?
            .into_iter()
            .map(|lease| match lease.is_live() {
                true => self.with_jobs(lease),
                false => Ok(lease),
            })
            .collect()
    }

    fn all_keys(
        &mut self,
        after: Option<(AddonId, String)>,
        limit: usize,
    ) -> Result<Vec<KeyRecord>> {
        let (addon, key) =
            after.map_or_else(Default::default, |(addon, key)| (addon.to_string(), key));
        let rows = self.query(
            "SELECT record FROM scheduler_keys WHERE (addon_id, key) > ($1, $2) ORDER BY addon_id, key LIMIT $3",
            &[&addon, &key, &(limit as i64)],
        )?;
        records(&rows)
    }

    fn all_firings(
        &mut self,
        after: Option<(ScheduleId, Timestamp)>,
        limit: usize,
    ) -> Result<Vec<Fired>> {
        let (schedule, at) = after.map_or((Uuid::nil(), i64::MIN), |(schedule, at)| {
            (schedule.0, to_micros(at))
        });
        let rows = self.query(
            "SELECT schedule_id, at, job_id FROM scheduler_firings WHERE (schedule_id, at) > ($1, $2) \
             ORDER BY schedule_id, at LIMIT $3",
            &[&schedule, &at, &(limit as i64)],
        )?;
        let fired = rows.iter().map(|row| Fired {
            schedule_id: ScheduleId(row.get(0)),
            at: from_micros(row.get(1)),
            job_id: row.get::<_, Option<Uuid>>(2).map(JobId),
        });
        Ok(fired.collect())
    }

    fn all_logs(&mut self, after: Option<JobId>, limit: usize) -> Result<Vec<(JobId, LogEnd)>> {
        let after = after.map_or(Uuid::nil(), |id| id.0);
        let rows = self.query(
            "SELECT lease_id, run_offset, kept, left_out, is_full, run_kept, job_id FROM scheduler_log_ends \
             WHERE job_id > $1 ORDER BY job_id LIMIT $2",
            &[&after, &(limit as i64)],
        )?;
        let end = rows
            .iter()
            .map(|row| (JobId(row.get(6)), super::logs::end_of(row)));
        Ok(end.collect())
    }

    fn next_event(&mut self) -> Result<u64> {
        self.next_place()
    }
}

impl TakeIn for PgTables {
    fn take_in_jobs(&mut self, jobs: &[(Option<u64>, Arc<JobRecord>)]) -> Result<()> {
        let all = jobs.iter().map(|(_, job)| &**job);
        let rows = jobs
            .iter()
            .map(|(last, job)| (&**job, last.map(|place| place as i64)));
        let (ended, waiting): (Vec<_>, Vec<_>) = rows.partition(|(job, _)| job.state.is_ended());
        let mut calls = Vec::new();
        if !waiting.is_empty() {
            calls.push(put_hot(PUT_HOT, &waiting));
        }
        if !ended.is_empty() {
            calls.push(put_ended(PUT_ENDED, &ended));
        }
        side_tables(&mut calls, all.clone(), all);
        self.change_all(calls)
    }

    fn take_in_events(&mut self, events: &[(Recorded, Option<u64>)]) -> Result<()> {
        self.put_trail(events)
    }

    fn go_on_from(&mut self, next_event: u64) -> Result<()> {
        self.begin_places_at(next_event)
    }
}
