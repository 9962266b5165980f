//! The writer's tables: what the rules see inside of a transaction.

use jiff::Timestamp;
use jobtree_protocol::{
    AddonId, Event, JobId, JobQuery, JobState, JobType, Json, LeaseId, ScheduleId, to_micros,
};
use jobtree_queue::transitions::Changes;
use jobtree_queue::{JobRecord, KeyRecord, LeaseRecord, Now};
use rusqlite::{Connection, params};

use super::cache::Cache;
use super::codec::{Id, Maybe, json_text, micros, payload_is_apart, state_number, with_job_values};
use super::queries::{self, Place, Stored};
use super::{leases, list, prune};
use crate::backend::Written;
use crate::error::StoreError;
use crate::tables::{
    Count, Page, Pause, Pruned, Reading, Recorded, Result, Retention, ScheduleRecord, Tables,
};

/// Which columns can change, by their place among all.
const MUTABLE: [usize; 18] = [
    1, 2, 7, 9, 10, 11, 13, 17, 18, 19, 20, 21, 22, 27, 28, 29, 30, 32,
];

macro_rules! update {
    ($table:literal) => {
        concat!(
            "UPDATE ",
            $table,
            " SET revision = ?1, state = ?2, flags = ?3, enqueued_at = ?4, attempts = ?5, rescues = ?6, not_before = \
              ?7, lease_id = ?8, lease_position = ?9, node_id = ?10, started_at = ?11, ended_at = ?12, \
              cancel_requested_at = ?13, completions = ?14, last_event = ?15, last_error = ?16, result = ?17, live \
              = ?18 \
              WHERE id = ?19 AND revision = ?20"
        )
    };
}

macro_rules! insert {
    ($table:literal) => {
        concat!(
            "INSERT INTO ",
            $table,
            " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, \
              ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34)"
        )
    };
}

const INSERT_HOT: &str = insert!("scheduler_jobs");
const INSERT_HISTORY: &str = insert!("scheduler_jobs_history");
const UPDATE_HOT: &str = update!("scheduler_jobs");
const UPDATE_HISTORY: &str = update!("scheduler_jobs_history");

/// The connection that writes, and what it remembers.
pub(crate) struct SqliteTables {
    db: Connection,
    jobs: Cache<JobId, Stored>,
    leases: Cache<LeaseId, LeaseRecord>,
    /// The place of the next event. Counted here and not by SQLite, which would use the place of a pruned one again.
    next_event: i64,
    /// Something was written since the savepoint.
    touched: bool,
    /// For listeners, once it is committed.
    written: Vec<Written>,
    /// How many of them were there at the savepoint.
    written_before: usize,
    pub(crate) prune_from: prune::Position,
}

impl SqliteTables {
    pub(crate) fn new(db: Connection, remembered: usize) -> Result<Self> {
        queries::check_columns(&db)?;
        let next_event = prune::next_event(&db)?;
        Ok(Self {
            db,
            jobs: Cache::new(remembered),
            leases: Cache::new(remembered / 16),
            next_event,
            touched: false,
            written: Vec::new(),
            written_before: 0,
            prune_from: prune::Position::default(),
        })
    }

    pub(crate) fn db(&self) -> &Connection {
        &self.db
    }

    /// A savepoint begins.
    pub(crate) fn begin(&mut self) {
        self.touched = false;
        self.written_before = self.written.len();
        self.jobs.settle();
        self.leases.settle();
    }

    /// What was written since the savepoint was undone.
    pub(crate) fn undone(&mut self) {
        self.written.truncate(self.written_before);
        if self.touched {
            self.forget_records();
        }
    }

    /// The whole transaction was undone, or nobody knows: read everything again.
    pub(crate) fn forget(&mut self) {
        self.written.clear();
        self.forget_records();
    }

    /// What the transaction wrote, once it is committed.
    pub(crate) fn committed(&mut self) -> Vec<Written> {
        std::mem::take(&mut self.written)
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

    /// Writes the event, and says where it is.
    fn write_event(&mut self, event: &Event, previous: Option<i64>) -> Result<i64> {
        let id = self.next_event;
        self.next_event += 1;
        let mut statement = self.db.prepare_cached(
            "INSERT INTO scheduler_job_events VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?;
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
        Ok(id)
    }

    fn write_job(
        &mut self,
        job: &JobRecord,
        before: Option<&Stored>,
        last_event: Option<i64>,
    ) -> Result<()> {
        let to = if job.state.is_ended() {
            Place::History
        } else {
            Place::Hot
        };
        match before {
            Some(stored) if stored.place == to => {
                self.update(job, stored.job.revision, to, last_event)?
            }
            Some(stored) => {
                self.delete(job, stored.job.revision, stored.place)?;
                self.insert(job, to, last_event)?;
            }
            None => {
                self.insert(job, to, last_event)?;
                self.write_rows_apart(job)?;
            }
        }
        let waited_for = before.map_or(&[][..], |stored| &stored.job.waiting_for);
        if waited_for != job.waiting_for {
            self.write_waits(job, waited_for)?;
        }
        Ok(())
    }

    fn insert(&self, job: &JobRecord, place: Place, last_event: Option<i64>) -> Result<()> {
        let mut statement = self.db.prepare_cached(match place {
            Place::Hot => INSERT_HOT,
            Place::History => INSERT_HISTORY,
        })?;
        with_job_values(job, last_event, |values| statement.execute(values))?;
        Ok(())
    }

    fn update(
        &self,
        job: &JobRecord,
        revision: u64,
        place: Place,
        last_event: Option<i64>,
    ) -> Result<()> {
        let mut statement = self.db.prepare_cached(match place {
            Place::Hot => UPDATE_HOT,
            Place::History => UPDATE_HISTORY,
        })?;
        let rows = with_job_values(job, last_event, |values| {
            for (index, column) in MUTABLE.iter().enumerate() {
                statement.raw_bind_parameter(index + 1, values[*column])?;
            }
            statement.raw_bind_parameter(MUTABLE.len() + 1, values[0])?;
            statement.raw_bind_parameter(MUTABLE.len() + 2, revision as i64)?;
            statement.raw_execute()
        })?;
        one_row(rows, job.id)
    }

    fn delete(&self, job: &JobRecord, revision: u64, place: Place) -> Result<()> {
        let mut statement = self.db.prepare_cached(match place {
            Place::Hot => "DELETE FROM scheduler_jobs WHERE id = ?1 AND revision = ?2",
            Place::History => "DELETE FROM scheduler_jobs_history WHERE id = ?1 AND revision = ?2",
        })?;
        let rows = statement.execute(params![Id(&job.id.0), revision as i64])?;
        one_row(rows, job.id)
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

fn one_row(rows: usize, job: JobId) -> Result<()> {
    if rows == 1 {
        return Ok(());
    }
    Err(StoreError::Database {
        message: format!(
            "job {job} was changed by somebody else: only one program may use the file"
        ),
    })
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
        self.touched = true;
        // The new records go into memory first, so that events find where their job's trail ends, and add to it.
        let mut before = Vec::with_capacity(changes.jobs.len());
        for job in &changes.jobs {
            let stored = if job.revision == 1 {
                None
            } else {
                self.stored(job.id)?;
                self.jobs.remove(job.id)
            };
            self.jobs.insert(
                job.id,
                Stored {
                    job: job.clone(),
                    // Those that ended are not remembered.
                    place: Place::Hot,
                    last_event: stored.as_ref().and_then(|stored| stored.last_event),
                },
            );
            before.push(stored);
        }
        for event in changes.events.iter().filter(|event| event.kind.is_kept()) {
            let known = match event.job_id {
                None => None,
                Some(id) => self.jobs.get_mut(id).map(|stored| stored.last_event),
            };
            let place = self.write_event(event, known.flatten())?;
            if let (Some(id), Some(_)) = (event.job_id, known)
                && let Some(stored) = self.jobs.get_mut(id)
            {
                stored.last_event = Some(place);
            }
        }
        for (job, before) in changes.jobs.iter().zip(&before) {
            let stored = self.jobs.get_mut(job.id).expect("it was put there above");
            let last_event = stored.last_event;
            self.write_job(job, before.as_ref(), last_event)?;
            if job.state.is_ended() {
                self.jobs.remove(job.id);
            }
        }
        self.write_leases(&changes)?;
        self.write_keys(&changes.keys)?;
        self.written.push(Written { changes, now });
        Ok(())
    }

    fn put_schedule(&mut self, schedule: &ScheduleRecord) -> Result<()> {
        self.touched = true;
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
        self.touched = true;
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
        self.touched = true;
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
        self.touched = true;
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
        self.touched = true;
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
        self.touched = true;
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
        self.touched = true;
        prune::step(self, retention, limit)
    }
}
