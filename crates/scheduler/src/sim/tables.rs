//! Tables that tell the database's own time, and are otherwise those of the backend underneath.

use jiff::Timestamp;
use jobtree_protocol::{AddonId, JobId, JobQuery, JobState, JobType, Json, LeaseId, ScheduleId};
use jobtree_queue::transitions::Changes;
use jobtree_queue::{JobRecord, KeyRecord, LeaseRecord, Now};
use jobtree_store::{
    Count, LogChunk, LogEnd, Page, Pause, Pruned, ReadLogs, Reading, Recorded, Retention,
    ScheduleRecord, StoreError, Tables, WriteLogs,
};

type Result<T> = std::result::Result<T, StoreError>;

/// Tables with a clock.
pub(super) struct Timed<'a> {
    pub(super) tables: &'a mut dyn Tables,
    pub(super) wall: Option<Timestamp>,
}

macro_rules! passed_on {
    ($(fn $name:ident(&mut self $(, $arg:ident: $type:ty)*) -> $result:ty;)*) => {
        $(fn $name(&mut self $(, $arg: $type)*) -> $result {
            self.tables.$name($($arg),*)
        })*
    };
}

impl Reading for Timed<'_> {
    fn wall(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.wall)
    }

    passed_on! {
        fn jobs(&mut self, ids: &[JobId]) -> Result<Vec<JobRecord>>;
        fn lease(&mut self, id: LeaseId) -> Result<Option<LeaseRecord>>;
        fn live_leases(&mut self) -> Result<Vec<LeaseRecord>>;
        fn dispatching(&mut self) -> Result<Vec<JobRecord>>;
        fn queued(&mut self, after: Option<JobId>, limit: usize) -> Result<Vec<JobRecord>>;
        fn list(&mut self, query: &JobQuery, limit: usize) -> Result<Page>;
        fn counts(&mut self, ended: bool) -> Result<Vec<Count>>;
        fn key(&mut self, addon: &AddonId, key: &str) -> Result<Option<KeyRecord>>;
        fn unique_holder(&mut self, addon: &AddonId, job_type: &JobType, key: &str) -> Result<Option<(JobId, JobState)>>;
        fn key_holders(&mut self, addon: &AddonId, key: &str) -> Result<u32>;
        fn waiting_for(&mut self, dependency: JobId) -> Result<Vec<JobId>>;
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

impl WriteLogs for Timed<'_> {
    passed_on! {
        fn append_log(&mut self, job: JobId, end: &LogEnd, chunks: &[LogChunk]) -> Result<()>;
    }
}

impl Tables for Timed<'_> {
    passed_on! {
        fn write(&mut self, changes: Changes, now: Now) -> Result<()>;
        fn put_schedule(&mut self, schedule: &ScheduleRecord) -> Result<()>;
        fn delete_schedule(&mut self, id: ScheduleId) -> Result<bool>;
        fn fire(&mut self, schedule: ScheduleId, at: Timestamp, job: Option<JobId>) -> Result<bool>;
        fn put_pause(&mut self, pause: &Pause) -> Result<()>;
        fn delete_pause(&mut self, addon: &AddonId, job_type: Option<&JobType>) -> Result<bool>;
        fn put_note(&mut self, name: &str, value: Option<&Json>) -> Result<()>;
        fn prune(&mut self, retention: &Retention, limit: usize) -> Result<Pruned>;
    }
}
