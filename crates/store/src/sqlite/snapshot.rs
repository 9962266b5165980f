//! A snapshot of the file, as a reader's connection sees it.

use std::sync::Arc;

use jobtree_protocol::{AddonId, JobId, JobQuery, JobState, JobType, Json, LeaseId};
use jobtree_queue::{JobRecord, KeyRecord, LeaseRecord, RequestName};
use rusqlite::Connection;

use super::{list, queries, trail};
use crate::tables::{Count, Page, Pause, Reading, Recorded, Result, ScheduleRecord};

/// A connection inside of a transaction that only reads.
pub(crate) struct Snapshot<'a>(pub(crate) &'a Connection);

impl Reading for Snapshot<'_> {
    fn jobs(&mut self, ids: &[JobId]) -> Result<Vec<Arc<JobRecord>>> {
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            found.extend(queries::job(self.0, *id)?.map(|stored| stored.job));
        }
        Ok(found)
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<LeaseRecord>> {
        queries::lease(self.0, id)
    }

    fn requested_lease(&mut self, request: &RequestName) -> Result<Option<LeaseId>> {
        queries::requested_lease(self.0, request)
    }

    fn live_leases(&mut self) -> Result<Vec<LeaseRecord>> {
        queries::live_leases(self.0)
    }

    fn dispatching(&mut self) -> Result<Vec<Arc<JobRecord>>> {
        queries::dispatching(self.0)
    }

    fn queued(&mut self, after: Option<JobId>, limit: usize) -> Result<Vec<Arc<JobRecord>>> {
        queries::queued(self.0, after, limit)
    }

    fn list(&mut self, query: &JobQuery, limit: usize) -> Result<Page> {
        list::list(self.0, query, limit)
    }

    fn counts(&mut self, ended: bool) -> Result<Vec<Count>> {
        queries::counts(self.0, ended)
    }

    fn key(&mut self, addon: &AddonId, key: &str) -> Result<Option<KeyRecord>> {
        queries::key(self.0, addon, key)
    }

    fn unique_holder(
        &mut self,
        addon: &AddonId,
        job_type: &JobType,
        key: &str,
    ) -> Result<Option<(JobId, JobState)>> {
        queries::unique_holder(self.0, addon, job_type, key)
    }

    fn key_holders(&mut self, addon: &AddonId, key: &str) -> Result<u32> {
        queries::key_holders(self.0, addon, key)
    }

    fn waiting_for(&mut self, dependency: JobId) -> Result<Vec<JobId>> {
        queries::waiting_for(self.0, dependency)
    }

    fn events_of(&mut self, job: JobId) -> Result<Vec<Recorded>> {
        let last = queries::job(self.0, job)?.and_then(|stored| stored.last_event);
        trail::events_before(self.0, last)
    }

    fn events_after(&mut self, cursor: u64, limit: usize) -> Result<Vec<Recorded>> {
        trail::events_after(self.0, cursor, limit)
    }

    fn last_event(&mut self) -> Result<u64> {
        Ok(trail::last_event(self.0)? as u64)
    }

    fn schedules(&mut self) -> Result<Vec<ScheduleRecord>> {
        queries::schedules(self.0)
    }

    fn pauses(&mut self) -> Result<Vec<Pause>> {
        queries::pauses(self.0)
    }

    fn note(&mut self, name: &str) -> Result<Option<Json>> {
        queries::note(self.0, name)
    }

    fn notes(&mut self, prefix: &str) -> Result<Vec<(String, Json)>> {
        queries::notes(self.0, prefix)
    }
}
