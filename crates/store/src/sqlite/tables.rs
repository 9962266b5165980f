//! The writer's tables: what the rules see inside of a transaction.

use jiff::Timestamp;
use jobtree_protocol::{
    AddonId, JobId, JobQuery, JobState, JobType, Json, LeaseId, ScheduleId, to_micros,
};
use jobtree_queue::transitions::Changes;
use jobtree_queue::{JobRecord, KeyRecord, LeaseRecord, Now};
use rusqlite::{Connection, params};

use super::cache::Cache;
use super::codec::{Id, Maybe, json_text, micros, payload_is_apart, state_number};
use super::open::SqliteOptions;
use super::queries::{self, Place, Stored};
use super::rows::JobRows;
use super::{failure, leases, list, prune};
use crate::backend::Written;
use crate::tables::{
    Count, Page, Pause, Pruned, Reading, Recorded, Result, Retention, ScheduleRecord, Tables,
};
use crate::writer::Ledger;

/// The connection that writes, and what it remembers.
pub(crate) struct SqliteTables {
    db: Connection,
    jobs: Cache<JobId, Stored>,
    leases: Cache<LeaseId, LeaseRecord>,
    /// The place of the next event. Counted here and not by SQLite, which would use the place of a pruned one again.
    next_event: i64,
    /// The operation has written something.
    touched: bool,
    /// It has a savepoint from then on.
    with_savepoint: bool,
    /// For listeners, once it is committed.
    written: Vec<Written>,
    /// How many of them were there at the savepoint.
    written_before: usize,
    checkpoint_pages: i64,
    pub(crate) prune_from: prune::Position,
}

impl SqliteTables {
    pub(crate) fn new(db: Connection, options: &SqliteOptions) -> Result<Self> {
        queries::check_columns(&db)?;
        let next_event = prune::next_event(&db)?;
        Ok(Self {
            db,
            jobs: Cache::new(options.remembered),
            leases: Cache::new(options.remembered / 16),
            next_event,
            touched: false,
            with_savepoint: false,
            written: Vec::new(),
            written_before: 0,
            checkpoint_pages: options.checkpoint_pages,
            prune_from: prune::Position::default(),
        })
    }

    pub(crate) fn db(&self) -> &Connection {
        &self.db
    }

    /// The operation is about to write.
    fn touch(&mut self) -> Result<()> {
        if !self.touched && self.with_savepoint {
            self.db.prepare_cached("SAVEPOINT operation")?.execute([])?;
        }
        self.touched = true;
        Ok(())
    }

    fn forget_records(&mut self) {
        self.jobs.clear();
        self.leases.clear();
        self.prune_from = prune::Position::default();
    }

    fn stored(&mut self, id: JobId) -> Result<Option<&mut Stored>> {
        if self.jobs.get_mut(id).is_none() {
            let Some(stored) = queries::job(&self.db, id)? else {
                return Ok(None);
            };
            self.jobs.insert(id, stored);
        }
        Ok(self.jobs.get_mut(id))
    }

    /// Writes the events, each with the place of the one before it of the same job, and adds them to the jobs' trails.
    fn write_events(&mut self, changes: &Changes, before: &mut [Before]) -> Result<()> {
        let mut statement = self.db.prepare_cached(
            "INSERT INTO scheduler_job_events VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?;
        // Events mostly come in the order of their jobs, so the next one's job is near.
        let mut near = 0;
        for event in changes.events.iter().filter(|event| event.kind.is_kept()) {
            let id = self.next_event;
            self.next_event += 1;
            let place = event
                .job_id
                .and_then(|id| place_of(&changes.jobs, id, near));
            near = place.unwrap_or(near);
            let previous = place.and_then(|place| before[place].last_event);
            statement.execute(params![
                id,
                previous,
                Maybe(event.job_id.as_ref().map(|id| Id(&id.0))),
                to_micros(event.at),
                event.kind as i64,
                event.state.map(state_number),
                Maybe(event.lease_id.as_ref().map(|id| Id(&id.0))),
                Maybe(event.node_id.as_ref().map(AsRef::<str>::as_ref)),
                event.attempt,
                event.revision.map(|revision| revision as i64),
                event.reason,
            ])?;
            if let Some(place) = place {
                before[place].last_event = Some(id);
            }
        }
        Ok(())
    }

    fn write_jobs(&mut self, jobs: &[JobRecord], before: Vec<Before>) -> Result<()> {
        let mut rows = JobRows::new(&self.db);
        for (job, before) in jobs.iter().zip(before) {
            let to = Place::of(job.state);
            let stored = before.stored.as_ref();
            match stored {
                Some(stored) if stored.place == to => {
                    rows.update(job, stored.job.revision, to, before.last_event)?;
                }
                Some(stored) => {
                    rows.delete(job.id, stored.job.revision, stored.place)?;
                    rows.insert(job, to, before.last_event)?;
                }
                None => {
                    rows.insert(job, to, before.last_event)?;
                    self.write_rows_apart(job)?;
                }
            }
            let waited_for = stored.map_or(&[][..], |stored| &stored.job.waiting_for);
            if waited_for != job.waiting_for {
                self.write_waits(job, waited_for)?;
            }
            if to == Place::Hot {
                let stored = Stored {
                    job: job.clone(),
                    place: to,
                    last_event: before.last_event,
                };
                self.jobs.insert(job.id, stored);
            }
        }
        Ok(())
    }

    fn write_rows_apart(&self, job: &JobRecord) -> Result<()> {
        let intent = &*job.intent;
        if let Some(payload) = intent.payload.as_ref().filter(|_| payload_is_apart(intent)) {
            self.db
                .prepare_cached("INSERT INTO scheduler_payloads VALUES (?1, ?2)")?
                .execute(params![Id(&job.id.0), payload.text()])?;
        }
        for tag in &intent.tags {
            self.db
                .prepare_cached("INSERT OR IGNORE INTO scheduler_tags VALUES (?1, ?2)")?
                .execute(params![tag, Id(&job.id.0)])?;
        }
        Ok(())
    }

    fn write_waits(&self, job: &JobRecord, before: &[JobId]) -> Result<()> {
        for gone in before.iter().filter(|id| !job.waiting_for.contains(id)) {
            self.db
                .prepare_cached("DELETE FROM scheduler_waits WHERE dependency = ?1 AND id = ?2")?
                .execute([Id(&gone.0), Id(&job.id.0)])?;
        }
        for new in job.waiting_for.iter().filter(|id| !before.contains(id)) {
            self.db
                .prepare_cached("INSERT OR IGNORE INTO scheduler_waits VALUES (?1, ?2)")?
                .execute([Id(&new.0), Id(&job.id.0)])?;
        }
        Ok(())
    }

    fn write_leases(&mut self, changes: &Changes) -> Result<()> {
        for job in &changes.jobs {
            // A lease that is not written with its job may know something old of it.
            if let Some(lease) = job.lease_id
                && !changes.leases.iter().any(|changed| changed.id == lease)
            {
                self.leases.remove(lease);
            }
        }
        for lease in &changes.leases {
            leases::write_lease(&self.db, lease)?;
            if lease.is_live() {
                self.leases.insert(lease.id, lease.clone());
            } else {
                self.leases.remove(lease.id);
            }
        }
        Ok(())
    }

    fn write_keys(&self, keys: &[KeyRecord]) -> Result<()> {
        for key in keys {
            self.db
                .prepare_cached(
                    "INSERT OR REPLACE INTO scheduler_keys VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                )?
                .execute(params![
                    key.addon_id.as_str(),
                    key.key,
                    key.fingerprint.0,
                    Id(&key.job_id.0),
                    state_number(key.state),
                    to_micros(key.created_at),
                ])?;
        }
        Ok(())
    }
}

/// A job before a write, and where its trail ends after the events that were written so far.
struct Before {
    stored: Option<Stored>,
    last_event: Option<i64>,
}

/// Where a job stands in a list, looked for from a place on.
fn place_of(jobs: &[JobRecord], id: JobId, from: usize) -> Option<usize> {
    let (behind, ahead) = jobs.split_at(from.min(jobs.len()));
    let is = |job: &JobRecord| job.id == id;
    let place = ahead.iter().position(is).map(|place| from + place);
    place.or_else(|| behind.iter().position(is))
}

impl Ledger for SqliteTables {
    fn begin_transaction(&mut self) -> Result<()> {
        self.execute("BEGIN IMMEDIATE")
    }

    fn execute(&mut self, sql: &str) -> Result<()> {
        self.db.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    fn begin(&mut self, with_savepoint: bool) {
        self.touched = false;
        self.with_savepoint = with_savepoint;
        self.written_before = self.written.len();
        self.jobs.settle();
        self.leases.settle();
    }

    fn touched(&self) -> bool {
        self.touched
    }

    fn in_savepoint(&self) -> bool {
        self.touched && self.with_savepoint
    }

    fn is_lost(&self) -> bool {
        self.db.is_autocommit()
    }

    fn undone(&mut self) {
        self.written.truncate(self.written_before);
        if self.touched {
            self.forget_records();
        }
    }

    fn forget(&mut self) {
        self.written.clear();
        self.forget_records();
    }

    fn committed(&mut self) -> Vec<Written> {
        std::mem::take(&mut self.written)
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
    fn jobs(&mut self, ids: &[JobId]) -> Result<Vec<JobRecord>> {
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            found.extend(self.stored(*id)?.map(|stored| stored.job.clone()));
        }
        Ok(found)
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<LeaseRecord>> {
        if let Some(lease) = self.leases.get_mut(id) {
            return Ok(Some(lease.clone()));
        }
        let lease = queries::lease(&self.db, id)?;
        if let Some(lease) = lease.as_ref().filter(|lease| lease.is_live()) {
            self.leases.insert(id, lease.clone());
        }
        Ok(lease)
    }

    fn live_leases(&mut self) -> Result<Vec<LeaseRecord>> {
        queries::live_leases(&self.db)
    }

    fn dispatching(&mut self) -> Result<Vec<JobRecord>> {
        queries::dispatching(&self.db)
    }

    fn queued(&mut self, after: Option<JobId>, limit: usize) -> Result<Vec<JobRecord>> {
        queries::queued(&self.db, after, limit)
    }

    fn list(&mut self, query: &JobQuery, limit: usize) -> Result<Page> {
        list::list(&self.db, query, limit)
    }

    fn counts(&mut self, ended: bool) -> Result<Vec<Count>> {
        queries::counts(&self.db, ended)
    }

    fn key(&mut self, addon: &AddonId, key: &str) -> Result<Option<KeyRecord>> {
        queries::key(&self.db, addon, key)
    }

    fn unique_holder(
        &mut self,
        addon: &AddonId,
        job_type: &JobType,
        key: &str,
    ) -> Result<Option<(JobId, JobState)>> {
        queries::unique_holder(&self.db, addon, job_type, key)
    }

    fn key_holders(&mut self, addon: &AddonId, key: &str) -> Result<u32> {
        queries::key_holders(&self.db, addon, key)
    }

    fn waiting_for(&mut self, dependency: JobId) -> Result<Vec<JobId>> {
        queries::waiting_for(&self.db, dependency)
    }

    fn events_of(&mut self, job: JobId) -> Result<Vec<Recorded>> {
        let last = self.stored(job)?.and_then(|stored| stored.last_event);
        queries::events_before(&self.db, last)
    }

    fn events_after(&mut self, cursor: u64, limit: usize) -> Result<Vec<Recorded>> {
        queries::events_after(&self.db, cursor, limit)
    }

    fn last_event(&mut self) -> Result<u64> {
        Ok(self.next_event as u64 - 1)
    }

    fn schedules(&mut self) -> Result<Vec<ScheduleRecord>> {
        queries::schedules(&self.db)
    }

    fn pauses(&mut self) -> Result<Vec<Pause>> {
        queries::pauses(&self.db)
    }

    fn note(&mut self, name: &str) -> Result<Option<Json>> {
        queries::note(&self.db, name)
    }

    fn notes(&mut self, prefix: &str) -> Result<Vec<(String, Json)>> {
        queries::notes(&self.db, prefix)
    }
}

impl Tables for SqliteTables {
    fn write(&mut self, changes: Changes, now: Now) -> Result<()> {
        self.touch()?;
        let mut before = Vec::with_capacity(changes.jobs.len());
        for job in &changes.jobs {
            let mut stored = None;
            if job.revision > 1 {
                self.stored(job.id)?;
                stored = self.jobs.remove(job.id);
            }
            before.push(Before {
                last_event: stored.as_ref().and_then(|stored| stored.last_event),
                stored,
            });
        }
        self.write_events(&changes, &mut before)?;
        self.write_jobs(&changes.jobs, before)?;
        self.write_leases(&changes)?;
        self.write_keys(&changes.keys)?;
        self.written.push(Written { changes, now });
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
            .prepare_cached("INSERT OR REPLACE INTO scheduler_pauses VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![
                pause.addon_id.as_str(),
                pause.job_type.as_ref().map_or("", AsRef::as_ref),
                to_micros(pause.since),
                pause.reason,
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
