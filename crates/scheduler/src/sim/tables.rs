//! Tables that tell the database's own time and note what schedules do, and are otherwise those of the backend underneath;
//! or forget something, if that is the mistake.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{AddonId, JobId, JobQuery, JobState, JobType, Json, LeaseId, ScheduleId};
use jobtree_queue::transitions::Changes;
use jobtree_queue::{JobRecord, KeyRecord, LeaseRecord, Now, RequestName};
use jobtree_store::{
    Count, Fired, LogChunk, LogEnd, Page, Pause, Pruned, ReadAll, ReadLogs, Reading, Recorded,
    Retention, ScheduleRecord, StoreError, Tables, TakeIn, WriteLogs,
};

type Result<T> = std::result::Result<T, StoreError>;

/// What a store does not look at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Forgets {
    pub(super) keys: bool,
    /// Keys that another node has written a moment ago.
    pub(super) fresh_keys: bool,
    pub(super) unique: bool,
    pub(super) holders: bool,
    pub(super) dependents: bool,
    pub(super) in_hand: bool,
}

/// What a command did to schedules and pauses, which commits do not tell.
#[derive(Clone, Debug)]
pub(super) enum Setting {
    Fired(ScheduleId, Timestamp, Option<JobId>),
    Schedule(Box<ScheduleRecord>),
    Paused(AddonId, bool),
}

/// The time for which a key that another node has written is not seen, if that is the mistake.
const FRESH: Duration = Duration::from_secs(1);

/// The node that wrote each idempotency key.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyWriters(Arc<Mutex<HashMap<(AddonId, String), usize>>>);

impl KeyWriters {
    fn lock(&self) -> MutexGuard<'_, HashMap<(AddonId, String), usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tables with a clock.
pub(super) struct Timed<'a> {
    pub(super) tables: &'a mut dyn Tables,
    pub(super) wall: Option<Timestamp>,
    pub(super) forgets: Forgets,
    /// The node that asks.
    pub(super) node: usize,
    pub(super) key_writers: &'a KeyWriters,
    pub(super) settings: &'a mut Vec<Setting>,
}

macro_rules! passed_on {
    ($(fn $name:ident(&mut self $(, $arg:ident: $type:ty)*) -> $result:ty;)*) => {
        $(fn $name(&mut self $(, $arg: $type)*) -> $result {
            self.tables.$name($($arg),*)
        })*
    };
}

impl Timed<'_> {
    /// Returns `true` if a key is one that this node does not see yet, by mistake.
    fn is_unseen(&self, key: &KeyRecord) -> bool {
        let name = (key.addon_id.clone(), key.key.clone());
        let of_another = || self.key_writers.lock().get(&name) != Some(&self.node);
        self.forgets.fresh_keys
            && self.wall.is_some_and(|wall| key.created_at + FRESH > wall)
            && of_another()
    }
}

impl Reading for Timed<'_> {
    fn wall(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.wall)
    }

    fn key(&mut self, addon: &AddonId, key: &str) -> Result<Option<KeyRecord>> {
        let found = self.tables.key(addon, key)?;
        Ok(found.filter(|found| !self.forgets.keys && !self.is_unseen(found)))
    }

    fn unique_holder(
        &mut self,
        addon: &AddonId,
        job_type: &JobType,
        key: &str,
    ) -> Result<Option<(JobId, JobState)>> {
        let found = self.tables.unique_holder(addon, job_type, key)?;
        Ok(found.filter(|_| !self.forgets.unique))
    }

    fn key_holders(&mut self, addon: &AddonId, key: &str) -> Result<u32> {
        if self.forgets.holders {
            return Ok(0);
        }
        self.tables.key_holders(addon, key)
    }

    fn waiting_for(&mut self, dependency: JobId) -> Result<Vec<JobId>> {
        if self.forgets.dependents {
            return Ok(Vec::new());
        }
        self.tables.waiting_for(dependency)
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<LeaseRecord>> {
        let mut found = self.tables.lease(id)?;
        if let Some(lease) = found.as_mut().filter(|_| self.forgets.in_hand)
            && let Some(limited) = (lease.jobs.iter_mut()).find(|job| job.max_runtime_sec.is_some())
        {
            limited.begun = true;
            lease.named_current = Some(limited.id);
        }
        Ok(found)
    }

    passed_on! {
        fn jobs(&mut self, ids: &[JobId]) -> Result<Vec<Arc<JobRecord>>>;
        fn requested_lease(&mut self, request: &RequestName) -> Result<Option<LeaseId>>;
        fn live_leases(&mut self) -> Result<Vec<LeaseRecord>>;
        fn dispatching(&mut self) -> Result<Vec<Arc<JobRecord>>>;
        fn queued(&mut self, after: Option<JobId>, limit: usize) -> Result<Vec<Arc<JobRecord>>>;
        fn list(&mut self, query: &JobQuery, limit: usize) -> Result<Page>;
        fn counts(&mut self, ended: bool) -> Result<Vec<Count>>;
        fn events_of(&mut self, job: JobId) -> Result<Vec<Recorded>>;
        fn events_after(&mut self, cursor: u64, limit: usize) -> Result<Vec<Recorded>>;
        fn last_event(&mut self) -> Result<u64>;
        fn schedules(&mut self) -> Result<Vec<ScheduleRecord>>;
        fn pauses(&mut self) -> Result<Vec<Pause>>;
        fn note(&mut self, name: &str) -> Result<Option<Json>>;
        fn notes(&mut self, prefix: &str) -> Result<Vec<(String, Json)>>;
    }
}

impl ReadLogs for Timed<'_> {
    passed_on! {
        fn log_end(&mut self, job: JobId) -> Result<Option<LogEnd>>;
        fn log_chunks(&mut self, job: JobId, from: u64, to: u64) -> Result<Vec<LogChunk>>;
    }
}

impl ReadAll for Timed<'_> {
    passed_on! {
        fn all_leases(&mut self, after: Option<LeaseId>, limit: usize) -> Result<Vec<LeaseRecord>>;
        fn all_keys(&mut self, after: Option<(AddonId, String)>, limit: usize) -> Result<Vec<KeyRecord>>;
        fn all_firings(&mut self, after: Option<(ScheduleId, Timestamp)>, limit: usize) -> Result<Vec<Fired>>;
        fn all_logs(&mut self, after: Option<JobId>, limit: usize) -> Result<Vec<(JobId, LogEnd)>>;
        fn next_event(&mut self) -> Result<u64>;
    }
}

impl TakeIn for Timed<'_> {
    passed_on! {
        fn take_in_jobs(&mut self, jobs: &[(Option<u64>, Arc<JobRecord>)]) -> Result<()>;
        fn take_in_events(&mut self, events: &[(Recorded, Option<u64>)]) -> Result<()>;
        fn go_on_from(&mut self, next_event: u64) -> Result<()>;
    }
}

impl WriteLogs for Timed<'_> {
    passed_on! {
        fn append_log(&mut self, job: JobId, end: &LogEnd, chunks: &[LogChunk]) -> Result<()>;
    }
}

impl Tables for Timed<'_> {
    fn put_schedule(&mut self, schedule: &ScheduleRecord) -> Result<()> {
        self.settings
            .push(Setting::Schedule(Box::new(schedule.clone())));
        self.tables.put_schedule(schedule)
    }

    fn put_pause(&mut self, pause: &Pause) -> Result<()> {
        let addon = pause.addon_id.clone();
        self.settings.push(Setting::Paused(addon, true));
        self.tables.put_pause(pause)
    }

    fn delete_pause(&mut self, addon: &AddonId, job_type: Option<&JobType>) -> Result<bool> {
        self.settings.push(Setting::Paused(addon.clone(), false));
        self.tables.delete_pause(addon, job_type)
    }

    fn fire(&mut self, schedule: ScheduleId, at: Timestamp, job: Option<JobId>) -> Result<bool> {
        let new = self.tables.fire(schedule, at, job)?;
        if new {
            self.settings.push(Setting::Fired(schedule, at, job));
        }
        Ok(new)
    }

    fn write(&mut self, changes: Changes, now: Now) -> Result<()> {
        if self.forgets.fresh_keys {
            let mut writers = self.key_writers.lock();
            for key in &changes.keys {
                writers.insert((key.addon_id.clone(), key.key.clone()), self.node);
            }
        }
        self.tables.write(changes, now)
    }

    passed_on! {
        fn delete_schedule(&mut self, id: ScheduleId) -> Result<bool>;
        fn put_note(&mut self, name: &str, value: Option<&Json>) -> Result<()>;
        fn prune(&mut self, retention: &Retention, limit: usize) -> Result<Pruned>;
    }
}
