//! The writer's tables: what the rules see inside of a transaction.

use std::sync::Arc;

use jiff::Timestamp;
use jobtree_protocol::{
    AddonId, JobId, JobQuery, JobState, JobType, Json, LeaseId, ScheduleId, to_micros,
};
use jobtree_queue::transitions::Changes;
use jobtree_queue::{JobRecord, KeyRecord, LeaseRecord, Now, RequestName};
use rusqlite::{Connection, params};

use super::codec::{Id, Maybe, json_text, micros};
use super::flush::{Before, Pending};
use super::open::SqliteOptions;
use super::queries::{self, Place, Stored};
use super::{failure, flush, list, prune, trail};
use crate::backend::Written;
use crate::cache::Cache;
use crate::error::StoreError;
use crate::tables::{
    Count, Page, Pause, Pruned, Reading, Recorded, Result, Retention, ScheduleRecord, Tables,
};
use crate::writer::Ledger;

/// The connection that writes, and what it remembers.
pub(crate) struct SqliteTables {
    db: Connection,
    jobs: Cache<JobId, Stored>,
    leases: Cache<LeaseId, LeaseRecord>,
    /// Ended jobs that the operation has read. They are forgotten with it: nobody is likely to ask again, and nothing that
    /// happens later would make room for them sooner than the whole memory is full of such.
    ended_read: Vec<JobId>,
    pending: Pending,
    /// Whether some job waits for another, if that is known.
    somebody_waits: Option<bool>,
    /// The operation has written something into the file.
    touched: bool,
    /// It is to have a savepoint from then on.
    with_savepoint: bool,
    in_savepoint: bool,
    /// Half of what is pending was written: only a rollback helps.
    is_torn: bool,
    checkpoint_pages: i64,
    /// What [`version`] said when the file was opened.
    version: i64,
    pub(crate) prune_from: prune::Position,
}

impl SqliteTables {
    pub(crate) fn new(db: Connection, options: &SqliteOptions) -> Result<Self> {
        queries::check_columns(&db)?;
        let pending = Pending::new(&db, prune::next_event(&db)?)?;
        let version = version(&db)?;
        Ok(Self {
            db,
            version,
            jobs: Cache::new(options.remembered),
            leases: Cache::new(options.remembered / 16),
            ended_read: Vec::new(),
            pending,
            somebody_waits: None,
            touched: false,
            with_savepoint: false,
            in_savepoint: false,
            is_torn: false,
            checkpoint_pages: options.checkpoint_pages,
            prune_from: prune::Position::default(),
        })
    }

    pub(crate) fn db(&self) -> &Connection {
        &self.db
    }

    /// The file as the transaction has left it.
    pub(super) fn settled(&mut self) -> Result<&Connection> {
        if !self.pending.is_flushed() {
            // An operation that reads after it has written can only be undone with all others. None does.
            self.touched |= self.pending.operation_has_changes();
            let flushed = self.pending.flush(&self.db);
            self.is_torn = flushed.is_err();
            flushed?;
        }
        Ok(&self.db)
    }

    /// The operation is about to write into the file itself.
    pub(super) fn touch(&mut self) -> Result<()> {
        self.settled()?;
        if !self.touched && self.with_savepoint {
            self.db.prepare_cached("SAVEPOINT operation")?.execute([])?;
            self.in_savepoint = true;
        }
        self.touched = true;
        Ok(())
    }

    /// Jobs up to this id were written past everything that is remembered.
    pub(super) fn took_in(&mut self, newest: JobId) {
        self.pending.took_in(newest);
        self.forget_records();
    }

    /// The next event gets this place. All before were written.
    pub(super) fn write_events_from(&mut self, next: i64) {
        if next > self.pending.scroll.next() {
            self.pending.scroll = trail::Scroll::new(next);
        }
    }

    fn forget_records(&mut self) {
        self.jobs.clear();
        self.leases.clear();
        self.prune_from = prune::Position::default();
        self.somebody_waits = None;
    }

    fn stored(&mut self, id: JobId) -> Result<Option<&mut Stored>> {
        if self.jobs.get_mut(id).is_none() {
            let Some(stored) = queries::job(self.settled()?, id)? else {
                return Ok(None);
            };
            if stored.place != Place::Hot {
                self.ended_read.push(id);
            }
            self.jobs.insert(id, stored);
        }
        Ok(self.jobs.get_mut(id))
    }

    /// An id that the file may have is looked for there.
    fn check_new(&mut self, jobs: &[Arc<JobRecord>]) -> Result<()> {
        for job in jobs.iter().filter(|job| job.revision == 1) {
            if self.pending.may_be_known(job.id) && flush::is_known(self.settled()?, job.id)? {
                return Err(flush::there_already(job.id));
            }
        }
        self.pending.take_ids(jobs)
    }

    /// The jobs as they were. They are taken out of memory, since they will change.
    fn take_before(&mut self, jobs: &[Arc<JobRecord>]) -> Result<Vec<Before>> {
        let mut before = Vec::with_capacity(jobs.len());
        for job in jobs {
            let mut stored = None;
            if job.revision > 1 {
                stored = self.jobs.remove(job.id);
                if stored.is_none() {
                    stored = queries::job(self.settled()?, job.id)?;
                }
            }
            before.push(Before {
                last_event: stored.as_ref().and_then(|stored| stored.last_event),
                stored,
            });
        }
        Ok(before)
    }

    /// Gives the events their places, and adds them to the jobs' trails.
    fn take_events(&mut self, changes: &Changes, before: &mut [Before]) {
        // Events mostly come in the order of their jobs, so the next one's job is near.
        let mut near = 0;
        for event in changes.events.iter().filter(|event| event.kind.is_kept()) {
            let job = event
                .job_id
                .and_then(|id| place_of(&changes.jobs, id, near));
            near = job.unwrap_or(near);
            let previous = job.and_then(|job| before[job].last_event);
            let place = self.pending.scroll.push(event, previous);
            if let Some(job) = job {
                before[job].last_event = Some(place);
            }
        }
    }

    fn remember(&mut self, changes: &Changes, before: &[Before]) {
        for (job, before) in changes.jobs.iter().zip(before) {
            let place = Place::of(job.state);
            if place == Place::Hot {
                let stored = Stored {
                    job: Arc::clone(job),
                    place,
                    last_event: before.last_event,
                };
                self.jobs.insert(job.id, stored);
            }
            let waited = |stored: &Stored| !stored.job.waiting_for.is_empty();
            if !job.waiting_for.is_empty() {
                self.somebody_waits = Some(true);
            } else if before.stored.as_ref().is_some_and(waited) {
                // Perhaps it was the last.
                self.somebody_waits = None;
            }
            // A lease that is not written with its job may know something old of it.
            if let Some(lease) = job.lease_id
                && !changes.leases.iter().any(|changed| changed.id == lease)
            {
                self.leases.remove(lease);
            }
        }
        for lease in &changes.leases {
            if lease.is_live() {
                self.leases.insert(lease.id, lease.clone());
            } else {
                self.leases.remove(lease.id);
            }
        }
    }
}

/// A number that changes when another connection has changed the file.
fn version(db: &Connection) -> Result<i64> {
    let mut statement = db.prepare_cached("PRAGMA data_version")?;
    Ok(statement.query_row([], |row| row.get(0))?)
}

/// Where a job stands in a list, looked for from a place on.
fn place_of(jobs: &[Arc<JobRecord>], id: JobId, from: usize) -> Option<usize> {
    let (behind, ahead) = jobs.split_at(from.min(jobs.len()));
    let is = |job: &Arc<JobRecord>| job.id == id;
    let place = ahead.iter().position(is).map(|place| from + place);
    place.or_else(|| behind.iter().position(is))
}

impl Ledger for SqliteTables {
    /// What is remembered, and what is replaced without a look at it, counts on nobody else having written.
    fn begin_transaction(&mut self) -> Result<()> {
        self.execute("BEGIN IMMEDIATE")?;
        if version(&self.db)? == self.version {
            return Ok(());
        }
        // Nothing is in the transaction that could fail to be undone.
        let _ = self.execute("ROLLBACK");
        Err(StoreError::Database {
            message: "another program changed the file: only one may use it; open it again"
                .to_owned(),
        })
    }

    fn execute(&mut self, sql: &str) -> Result<()> {
        self.db.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    fn begin(&mut self, with_savepoint: bool) {
        self.touched = false;
        self.with_savepoint = with_savepoint;
        self.in_savepoint = false;
        self.pending.begin_operation();
        for id in self.ended_read.drain(..) {
            let found = self.jobs.get_mut(id);
            if found.is_some_and(|stored| stored.place != Place::Hot) {
                self.jobs.remove(id);
            }
        }
        self.jobs.settle();
        self.leases.settle();
    }

    fn touched(&self) -> bool {
        self.touched
    }

    fn in_savepoint(&self) -> bool {
        self.in_savepoint
    }

    fn flush(&mut self) -> Result<bool> {
        self.settled()?;
        Ok(self.pending.has_changes())
    }

    fn is_lost(&self) -> bool {
        self.is_torn || self.db.is_autocommit()
    }

    fn undone(&mut self) {
        if self.touched || self.pending.operation_has_changes() {
            self.pending.undo_operation();
            self.forget_records();
        }
    }

    fn forget(&mut self) {
        self.pending.clear();
        self.is_torn = false;
        self.forget_records();
    }

    fn committed(&mut self) -> Vec<Written> {
        self.pending.committed()
    }

    /// Copies the log into the file when it has grown. What is in the log is durable already.
    fn tidy(&mut self) -> Result<()> {
        let pages: i64 = self
            .db
            .prepare_cached("PRAGMA wal_checkpoint(NOOP)")?
            .query_row([], |row| row.get(1))?;
        if pages < self.checkpoint_pages {
            return Ok(());
        }
        let checkpoint = self
            .db
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        match checkpoint {
            Err(error) if failure::is_fatal(&error) => Err(error.into()),
            // A full disk, or a reader in the way: the log goes on growing, and the next commit tries again.
            _ => Ok(()),
        }
    }
}

impl Reading for SqliteTables {
    fn jobs(&mut self, ids: &[JobId]) -> Result<Vec<Arc<JobRecord>>> {
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            found.extend(self.stored(*id)?.map(|stored| Arc::clone(&stored.job)));
        }
        Ok(found)
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<LeaseRecord>> {
        if let Some(lease) = self.leases.get_mut(id) {
            return Ok(Some(lease.clone()));
        }
        let lease = queries::lease(self.settled()?, id)?;
        if let Some(lease) = lease.as_ref().filter(|lease| lease.is_live()) {
            self.leases.insert(id, lease.clone());
        }
        Ok(lease)
    }

    fn requested_lease(&mut self, request: &RequestName) -> Result<Option<LeaseId>> {
        queries::requested_lease(self.settled()?, request)
    }

    fn live_leases(&mut self) -> Result<Vec<LeaseRecord>> {
        queries::live_leases(self.settled()?)
    }

    fn dispatching(&mut self) -> Result<Vec<Arc<JobRecord>>> {
        queries::dispatching(self.settled()?)
    }

    fn queued(&mut self, after: Option<JobId>, limit: usize) -> Result<Vec<Arc<JobRecord>>> {
        queries::queued(self.settled()?, after, limit)
    }

    fn list(&mut self, query: &JobQuery, limit: usize) -> Result<Page> {
        list::list(self.settled()?, query, limit)
    }

    fn counts(&mut self, ended: bool) -> Result<Vec<Count>> {
        queries::counts(self.settled()?, ended)
    }

    fn key(&mut self, addon: &AddonId, key: &str) -> Result<Option<KeyRecord>> {
        queries::key(self.settled()?, addon, key)
    }

    fn unique_holder(
        &mut self,
        addon: &AddonId,
        job_type: &JobType,
        key: &str,
    ) -> Result<Option<(JobId, JobState)>> {
        queries::unique_holder(self.settled()?, addon, job_type, key)
    }

    fn key_holders(&mut self, addon: &AddonId, key: &str) -> Result<u32> {
        queries::key_holders(self.settled()?, addon, key)
    }

    fn waiting_for(&mut self, dependency: JobId) -> Result<Vec<JobId>> {
        if self.somebody_waits.is_none() {
            self.somebody_waits = Some(queries::somebody_waits(self.settled()?)?);
        }
        if self.somebody_waits == Some(false) {
            return Ok(Vec::new());
        }
        queries::waiting_for(self.settled()?, dependency)
    }

    fn events_of(&mut self, job: JobId) -> Result<Vec<Recorded>> {
        let last = self.stored(job)?.and_then(|stored| stored.last_event);
        trail::events_before(self.settled()?, last)
    }

    fn events_after(&mut self, cursor: u64, limit: usize) -> Result<Vec<Recorded>> {
        trail::events_after(self.settled()?, cursor, limit)
    }

    fn last_event(&mut self) -> Result<u64> {
        Ok(self.pending.scroll.next() as u64 - 1)
    }

    fn schedules(&mut self) -> Result<Vec<ScheduleRecord>> {
        queries::schedules(self.settled()?)
    }

    fn pauses(&mut self) -> Result<Vec<Pause>> {
        queries::pauses(self.settled()?)
    }

    fn note(&mut self, name: &str) -> Result<Option<Json>> {
        queries::note(self.settled()?, name)
    }

    fn notes(&mut self, prefix: &str) -> Result<Vec<(String, Json)>> {
        queries::notes(self.settled()?, prefix)
    }
}

impl Tables for SqliteTables {
    fn write(&mut self, changes: Changes, now: Now) -> Result<()> {
        self.check_new(&changes.jobs)?;
        let mut before = self.take_before(&changes.jobs)?;
        self.take_events(&changes, &mut before);
        self.remember(&changes, &before);
        self.pending.push(Written { changes, now }, before);
        Ok(())
    }

    fn put_schedule(&mut self, schedule: &ScheduleRecord) -> Result<()> {
        self.touch()?;
        self.db
            .prepare_cached(
                "INSERT INTO scheduler_schedules VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (id) DO UPDATE SET \
                 name = ?2, revision = ?3, spec = ?4, next_at = ?5, last_at = ?6, last_job = ?7",
            )?
            .execute(params![
                Id(&schedule.id.0),
                schedule.spec.name,
                schedule.revision as i64,
                json_text(&schedule.spec),
                micros(schedule.next_at),
                micros(schedule.last_at),
                Maybe(schedule.last_job.as_ref().map(|id| Id(&id.0))),
            ])?;
        Ok(())
    }

    fn delete_schedule(&mut self, id: ScheduleId) -> Result<bool> {
        self.touch()?;
        self.db
            .prepare_cached("DELETE FROM scheduler_firings WHERE schedule_id = ?1")?
            .execute([Id(&id.0)])?;
        let rows = self
            .db
            .prepare_cached("DELETE FROM scheduler_schedules WHERE id = ?1")?
            .execute([Id(&id.0)])?;
        Ok(rows > 0)
    }

    fn fire(&mut self, schedule: ScheduleId, at: Timestamp, job: Option<JobId>) -> Result<bool> {
        self.touch()?;
        let rows = self
            .db
            .prepare_cached("INSERT OR IGNORE INTO scheduler_firings VALUES (?1, ?2, ?3)")?
            .execute(params![
                Id(&schedule.0),
                to_micros(at),
                Maybe(job.as_ref().map(|id| Id(&id.0)))
            ])?;
        Ok(rows > 0)
    }

    fn put_pause(&mut self, pause: &Pause) -> Result<()> {
        self.touch()?;
        self.db
            .prepare_cached("INSERT OR REPLACE INTO scheduler_pauses VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![
                pause.addon_id.as_str(),
                pause.job_type.as_ref().map_or("", AsRef::as_ref),
                to_micros(pause.since),
                pause.reason,
                pause.by,
            ])?;
        Ok(())
    }

    fn delete_pause(&mut self, addon: &AddonId, job_type: Option<&JobType>) -> Result<bool> {
        self.touch()?;
        let rows = self
            .db
            .prepare_cached("DELETE FROM scheduler_pauses WHERE addon_id = ?1 AND job_type = ?2")?
            .execute(params![
                addon.as_str(),
                job_type.map_or("", AsRef::<str>::as_ref)
            ])?;
        Ok(rows > 0)
    }

    fn put_note(&mut self, name: &str, value: Option<&Json>) -> Result<()> {
        self.touch()?;
        match value {
            Some(value) => self
                .db
                .prepare_cached("INSERT OR REPLACE INTO scheduler_notes VALUES (?1, ?2)")?
                .execute([name, value.text()])?,
            None => self
                .db
                .prepare_cached("DELETE FROM scheduler_notes WHERE name = ?1")?
                .execute([name])?,
        };
        Ok(())
    }

    fn prune(&mut self, retention: &Retention, limit: usize) -> Result<Pruned> {
        self.touch()?;
        prune::step(self, retention, limit)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jobtree_protocol::{CancelRequest, Limits, SubmitRequest};
    use jobtree_queue::transitions::Rules;

    use super::*;
    use crate::execute::{Stamp, Submission, Unit};
    use crate::sqlite::migrate;

    fn tables() -> SqliteTables {
        let db = Connection::open_in_memory().expect("memory");
        migrate::to_newest(&db, 0).expect("the tables");
        SqliteTables::new(db, &SqliteOptions::new("memory")).expect("the columns")
    }

    #[test]
    fn ended_jobs_that_are_read_are_not_remembered() {
        let mut tables = tables();
        let stamp = Stamp {
            now: Now {
                wall: "2026-01-01T00:00:00Z".parse().expect("a time"),
                mono: Duration::ZERO,
            },
            roll: 0,
            rules: Arc::new(Rules::default()),
        };
        tables.begin_transaction().expect("nobody else writes");
        let mut ids = Vec::new();
        for _ in 0..20 {
            let intent = SubmitRequest::new("a", "t", 1).validate(&Limits::default());
            let submission = Submission::new(intent.expect("valid"));
            ids.push(submission.id);
            tables.begin(false);
            let mut unit = Unit::new(&mut tables, &stamp).expect("a unit");
            unit.submit(submission).expect("it is new");
        }
        assert_eq!(tables.jobs.len(), 20, "what waits is asked for again");
        for id in &ids {
            tables.begin(false);
            let mut unit = Unit::new(&mut tables, &stamp).expect("a unit");
            let request = CancelRequest::default();
            assert_eq!(unit.cancel(*id, &request), Ok(JobState::Canceled));
        }
        tables.begin(false);
        assert_eq!(Reading::jobs(&mut tables, &ids).expect("all").len(), 20);
        tables.begin(false);
        assert_eq!(tables.jobs.len(), 0);
    }
}
