//! Moving from and to memory.

use std::ops::Bound;
use std::sync::Arc;

use jiff::Timestamp;
use jobtree_protocol::{AddonId, JobId, LeaseId, ScheduleId};
use jobtree_queue::{JobRecord, KeyRecord, LeaseRecord};

use super::Data;
use crate::logs::LogEnd;
use crate::moving::{Fired, ReadAll, TakeIn};
use crate::tables::{Recorded, Result};

fn after<K>(key: Option<K>) -> (Bound<K>, Bound<K>) {
    (
        key.map_or(Bound::Unbounded, Bound::Excluded),
        Bound::Unbounded,
    )
}

impl ReadAll for Data {
    fn all_leases(&mut self, from: Option<LeaseId>, limit: usize) -> Result<Vec<LeaseRecord>> {
        let leases = self.leases.range(after(from)).take(limit);
        Ok(leases.map(|(_, lease)| lease.clone()).collect())
    }

    fn all_keys(
        &mut self,
        from: Option<(AddonId, String)>,
        limit: usize,
    ) -> Result<Vec<KeyRecord>> {
        let keys = self.keys.range(after(from)).take(limit);
        Ok(keys.map(|(_, key)| key.clone()).collect())
    }

    fn all_firings(
        &mut self,
        from: Option<(ScheduleId, Timestamp)>,
        limit: usize,
    ) -> Result<Vec<Fired>> {
        let firings = self.firings.range(after(from)).take(limit);
        let fired =
            |((schedule_id, at), job_id): (&(ScheduleId, Timestamp), &Option<JobId>)| Fired {
                schedule_id: *schedule_id,
                at: *at,
                job_id: *job_id,
            };
        Ok(firings.map(fired).collect())
    }

    fn all_logs(&mut self, from: Option<JobId>, limit: usize) -> Result<Vec<(JobId, LogEnd)>> {
        let logs = self.logs.range(after(from)).take(limit);
        Ok(logs.map(|(job, log)| (*job, log.end.clone())).collect())
    }

    fn next_event(&mut self) -> Result<u64> {
        Ok(self.last_event + 1)
    }
}

impl TakeIn for Data {
    fn take_in_jobs(&mut self, jobs: &[(Option<u64>, Arc<JobRecord>)]) -> Result<()> {
        for (_, job) in jobs {
            self.put_job(Arc::clone(job));
        }
        Ok(())
    }

    fn take_in_events(&mut self, events: &[(Recorded, Option<u64>)]) -> Result<()> {
        for (recorded, _) in events {
            if let Some(job) = recorded.event.job_id {
                self.trails.entry(job).or_default().push(recorded.cursor);
            }
            self.last_event = recorded.cursor;
            self.events.insert(recorded.cursor, recorded.clone());
        }
        Ok(())
    }

    fn go_on_from(&mut self, next_event: u64) -> Result<()> {
        self.last_event = self.last_event.max(next_event - 1);
        Ok(())
    }
}
