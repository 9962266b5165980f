//! The tables, as a connection sees them.

use std::sync::Arc;

use jiff::Timestamp;
use jobtree_protocol::{AddonId, JobId, JobState, JobType, Json, ScheduleId, to_micros};
use jobtree_queue::transitions::Changes;
use jobtree_queue::{JobRecord, LeaseRecord, LeasedJob, Now, RequestName};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_postgres::Row;
use uuid::Uuid;

use super::connection::{Call, Connection, Parameter, Sent};
use super::events::Horizon;
use super::flush;
use super::hints::Outgoing;
use super::locking::Begin;
use super::overlay::Overlay;
use super::pruned::PrunedUntil;
use crate::backend::Written;
use crate::cache::Cache;
use crate::disk_numbers;
use crate::error::StoreError;
use crate::needs::Needs;
use crate::tables::{Pause, Pruned, Result, Retention, ScheduleRecord, Tables};
use crate::writer::Ledger;

pub(crate) struct PgTables {
    pub(super) connection: Connection,
    pub(super) database_time: bool,
    /// The transaction writes, so what it reads is locked.
    pub(super) writing: bool,
    /// What the transaction that writes has locked, read and decided.
    pub(super) overlay: Overlay,
    /// Jobs as they were last read or written. One is used if the database has the same revision of it.
    pub(super) remembered: Cache<JobId, Arc<JobRecord>>,
    /// The command has written something directly.
    touched: bool,
    with_savepoint: bool,
    /// Some command of the transaction has.
    changed: bool,
    /// The snapshot has shown nothing yet.
    pub(super) is_fresh: bool,
    pub(super) horizon: Horizon,
    /// How many commands had decided on changes when this one began.
    written_before: usize,
    /// How far old rows were deleted.
    pub(super) pruned: PrunedUntil,
    /// A commit that was sent, and whether it changes anything.
    committing: Option<(Sent, bool)>,
    /// A transaction that was begun behind that commit.
    begun: Option<(Begin, Sent)>,
    /// Where it is told to others, if it is.
    outgoing: Option<Arc<Outgoing>>,
}

/// How many jobs a writer remembers.
const REMEMBERED: usize = 16_384;

pub(super) fn text<T: Serialize>(record: &T) -> String {
    serde_json::to_string(record).expect("records have a JSON form")
}

pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| StoreError::Database {
        message: format!("a record is not what this program writes: {error}"),
    })
}

pub(super) fn records<T: DeserializeOwned>(rows: &[Row]) -> Result<Vec<T>> {
    rows.iter().map(|row| read(row.get(0))).collect()
}

pub(super) fn job_records(rows: &[Row]) -> Result<Vec<Arc<JobRecord>>> {
    let job = |row: &Row| read(row.get(0)).map(Arc::new);
    rows.iter().map(job).collect()
}

pub(super) fn state_number(state: JobState) -> i16 {
    disk_numbers::state_number(state).into()
}

pub(super) fn state_of(number: i16) -> Result<JobState> {
    u8::try_from(number)
        .ok()
        .and_then(disk_numbers::state_of)
        .ok_or_else(|| StoreError::Database {
            message: format!("{number} is no state"),
        })
}

pub(super) fn uuids(ids: &[JobId]) -> Vec<Uuid> {
    ids.iter().map(|id| id.0).collect()
}

/// The name of a request as it is searched for: neither addons nor ids have spaces.
pub(super) fn request_text(request: &RequestName) -> String {
    let RequestName {
        addon_id,
        instance_id,
        key,
    } = request;
    format!("{addon_id} {instance_id} {key}")
}

impl PgTables {
    pub(crate) fn new(connection: Connection, database_time: bool) -> Self {
        Self {
            connection,
            database_time,
            writing: false,
            overlay: Overlay::default(),
            remembered: Cache::new(REMEMBERED),
            touched: false,
            with_savepoint: false,
            changed: false,
            is_fresh: false,
            horizon: Horizon::default(),
            written_before: 0,
            pruned: PrunedUntil::default(),
            committing: None,
            begun: None,
            outgoing: None,
        }
    }

    /// Tells others of what is committed.
    pub(crate) fn telling(mut self, outgoing: Option<Arc<Outgoing>>) -> Self {
        self.outgoing = outgoing;
        self
    }

    /// Begins a transaction that sees one moment.
    pub(crate) fn begin_snapshot(&mut self) -> Result<()> {
        if self.connection.connect()? {
            // The server may be another one, which took over.
            self.horizon = Horizon::default();
        }
        self.writing = false;
        self.is_fresh = true;
        self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    }

    pub(super) fn query(
        &mut self,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>> {
        self.is_fresh = false;
        if self.writing {
            self.settle()?;
        }
        self.connection.query(sql, parameters)
    }

    pub(super) fn change(
        &mut self,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<u64> {
        self.touch()?;
        self.connection.change(sql, parameters)
    }

    /// Gives the database what the commands so far decided, before something is read there or written to it directly.
    pub(super) fn settle(&mut self) -> Result<()> {
        if self.overlay.is_dirty() {
            let calls = flush::records(&self.overlay);
            let calls = calls.into_iter().map(|build| build());
            self.connection.pipeline(None, calls, None)?;
            self.overlay.flushed();
        }
        Ok(())
    }

    pub(super) fn hot(&mut self, ids: &[Uuid]) -> Result<Vec<Arc<JobRecord>>> {
        let sql = "SELECT record FROM scheduler_jobs WHERE id = ANY($1)";
        job_records(&self.query(sql, &[&ids])?)
    }

    pub(super) fn ended(&mut self, ids: &[Uuid]) -> Result<Vec<Arc<JobRecord>>> {
        let sql = "SELECT record FROM scheduler_jobs_history WHERE id = ANY($1)";
        job_records(&self.query(sql, &[&ids])?)
    }

    pub(super) fn with_jobs(&mut self, mut lease: LeaseRecord) -> Result<LeaseRecord> {
        let rows = self.query(
            "SELECT record FROM scheduler_jobs WHERE lease_id = $1 ORDER BY lease_position",
            &[&lease.id.0],
        )?;
        lease.jobs = records::<JobRecord>(&rows)?
            .iter()
            .map(LeasedJob::of)
            .collect();
        Ok(lease)
    }

    /// Runs statements that write directly.
    pub(super) fn change_all(&mut self, calls: impl IntoIterator<Item = Call>) -> Result<()> {
        self.touch()?;
        self.connection.pipeline(None, calls, None)?;
        Ok(())
    }

    fn touch(&mut self) -> Result<()> {
        self.settle()?;
        if !self.touched && self.with_savepoint {
            self.connection.execute("SAVEPOINT operation")?;
        }
        self.touched = true;
        self.changed = true;
        Ok(())
    }
}

impl Ledger for PgTables {
    fn begin_transaction(&mut self) -> Result<()> {
        self.begin_announced(&Needs::default())
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn begin_announced(&mut self, needs: &Needs) -> Result<()> {
        self.connection.connect()?;
        self.remembered.settle();
        let mut begin = self.plan_begin(needs);
        let sent = self.send_begin_of(&mut begin)?;
        self.begun = Some((begin, sent));
        self.take_announced(needs)
    }

    fn send_announced(&mut self, needs: &Needs) -> bool {
        let mut begin = self.plan_begin(needs);
        if !self.can_be_sent(&begin) {
            return false;
        }
        // If nothing can be sent, the commit before it says why.
        let sent = self.send_begin_of(&mut begin);
        self.begun = sent.ok().map(|sent| (begin, sent));
        self.begun.is_some()
    }

    fn take_announced(&mut self, needs: &Needs) -> Result<()> {
        self.writing = true;
        self.changed = false;
        self.overlay = Overlay::default();
        let (begin, sent) = self.begun.take().ok_or_else(StoreError::closed)?;
        self.take_begin(begin, &sent, needs)
    }

    fn take_missed(&mut self) -> Option<Needs> {
        self.overlay.missed.take()
    }

    fn commit(&mut self) -> Result<bool> {
        self.send_commit()?;
        self.take_commit()
    }

    fn send_commit(&mut self) -> Result<()> {
        let calls = flush::everything(&mut self.overlay);
        let changed = self.changed || !calls.is_empty();
        let calls = calls.into_iter().map(|build| build());
        let sent = self.connection.send(None, calls, Some("COMMIT"))?;
        self.committing = Some((sent, changed));
        Ok(())
    }

    fn take_commit(&mut self) -> Result<bool> {
        let (sent, changed) = self.committing.take().ok_or_else(StoreError::closed)?;
        self.connection.receive(&sent)?;
        Ok(changed)
    }

    fn execute(&mut self, sql: &str) -> Result<()> {
        self.connection.execute(sql)
    }

    fn begin(&mut self, with_savepoint: bool) {
        self.touched = false;
        self.with_savepoint = with_savepoint;
        self.written_before = self.overlay.written.len();
    }

    fn touched(&self) -> bool {
        self.touched
    }

    fn in_savepoint(&self) -> bool {
        self.touched && self.with_savepoint
    }

    fn is_lost(&self) -> bool {
        // What a command decided cannot be taken back, and none fails after it has decided, but by the database's fault.
        // After an error only the savepoint can be gone back to, if there is one.
        self.overlay.written.len() > self.written_before
            || (self.connection.has_failed() && !self.in_savepoint())
    }

    fn undone(&mut self) {}

    fn forget(&mut self) {
        self.overlay = Overlay::default();
        self.committing = None;
        self.begun = None;
    }

    fn committed(&mut self) -> Vec<Written> {
        let overlay = std::mem::take(&mut self.overlay);
        if let Some(outgoing) = &self.outgoing {
            outgoing.note(&overlay.written, overlay.settings_changed);
        }
        for job in overlay.written.iter().flat_map(|it| &it.changes.jobs) {
            match job.state.is_ended() {
                false => self.remembered.insert(job.id, Arc::clone(job)),
                true => drop(self.remembered.remove(job.id)),
            }
        }
        overlay.written
    }

    fn tidy(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Tables for PgTables {
    fn may_run_again(&self) -> bool {
        true
    }

    fn free_jobs(&mut self, ids: &[JobId]) -> Result<Vec<Arc<JobRecord>>> {
        let overlay = &self.overlay;
        let missing = |id: &&JobId| overlay.job(**id).is_none() && !overlay.skipped.contains(id);
        let missing: Vec<JobId> = ids.iter().filter(missing).copied().collect();
        if !missing.is_empty() {
            self.lock_free_ended(&missing)?;
        }
        let known = ids.iter().filter_map(|id| self.overlay.job(*id));
        Ok(known.filter_map(|known| known.job.clone()).collect())
    }

    fn write(&mut self, changes: Changes, now: Now) -> Result<()> {
        let events = changes.events.iter().filter(|event| event.kind.is_kept());
        self.draw_places(events.count())?;
        self.overlay.write(Written { changes, now })
    }

    fn put_schedule(&mut self, schedule: &ScheduleRecord) -> Result<()> {
        self.overlay.settings_changed = true;
        self.change(
            "INSERT INTO scheduler_schedules VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE \
             SET name = EXCLUDED.name, record = EXCLUDED.record",
            &[&schedule.id.0, &schedule.spec.name, &text(schedule)],
        )?;
        Ok(())
    }

    fn delete_schedule(&mut self, id: ScheduleId) -> Result<bool> {
        self.overlay.settings_changed = true;
        self.change(
            "DELETE FROM scheduler_firings WHERE schedule_id = $1",
            &[&id.0],
        )?;
        let rows = self.change("DELETE FROM scheduler_schedules WHERE id = $1", &[&id.0])?;
        Ok(rows > 0)
    }

    fn fire(&mut self, schedule: ScheduleId, at: Timestamp, job: Option<JobId>) -> Result<bool> {
        let rows = self.change(
            "INSERT INTO scheduler_firings VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
            &[&schedule.0, &to_micros(at), &job.map(|id| id.0)],
        )?;
        Ok(rows > 0)
    }

    fn put_pause(&mut self, pause: &Pause) -> Result<()> {
        self.overlay.settings_changed = true;
        let job_type = pause.job_type.as_ref().map_or("", JobType::as_str);
        self.change(
            "INSERT INTO scheduler_pauses VALUES ($1, $2, $3) ON CONFLICT (addon_id, job_type) DO UPDATE \
             SET record = EXCLUDED.record",
            &[&pause.addon_id.as_str(), &job_type, &text(pause)],
        )?;
        Ok(())
    }

    fn delete_pause(&mut self, addon: &AddonId, job_type: Option<&JobType>) -> Result<bool> {
        self.overlay.settings_changed = true;
        let job_type = job_type.map_or("", JobType::as_str);
        let rows = self.change(
            "DELETE FROM scheduler_pauses WHERE addon_id = $1 AND job_type = $2",
            &[&addon.as_str(), &job_type],
        )?;
        Ok(rows > 0)
    }

    fn put_note(&mut self, name: &str, value: Option<&Json>) -> Result<()> {
        let value = value.map(|value| value.text().to_owned());
        self.overlay.notes.insert(name.to_owned(), value);
        Ok(())
    }

    fn prune(&mut self, retention: &Retention, limit: usize) -> Result<Pruned> {
        let mut pruned = Pruned::default();
        // One process at a time: two would choose the same rows, and wait for each other.
        let locked = self.query("SELECT pg_try_advisory_xact_lock(7306086967000000006)", &[])?;
        if !locked[0].get::<_, bool>(0) {
            return Ok(pruned);
        }
        self.pruned.renew();
        let (most, mut chunks) = (limit as i64, 0);
        for state in [JobState::Done, JobState::Failed, JobState::Canceled] {
            let time = retention.of(state).unwrap_or(Timestamp::MIN);
            chunks += self.prune_logs(state, time, most)?;
            let before = to_micros(time);
            let room = most - pruned.jobs as i64;
            let from = self.pruned.jobs_from(state);
            let rows = self.query(
                "WITH old AS (DELETE FROM scheduler_jobs_history WHERE id IN (SELECT id FROM scheduler_jobs_history \
                 AS job WHERE state = $1 AND ended_at < $2 AND ended_at >= $4 \
                 AND NOT EXISTS (SELECT 1 FROM scheduler_job_logs AS log WHERE log.job_id = job.id) \
                 ORDER BY ended_at LIMIT $3 FOR UPDATE SKIP LOCKED) RETURNING id, ended_at), \
                 untagged AS (DELETE FROM scheduler_tags WHERE id IN (SELECT id FROM old)), \
                 unlogged AS (DELETE FROM scheduler_log_ends WHERE job_id IN (SELECT id FROM old)) \
                 SELECT count(*), max(ended_at) FROM old",
                &[&state_number(state), &before, &room, &from],
            )?;
            pruned.jobs += rows[0].get::<_, i64>(0) as u64;
            if let Some(last) = rows[0].get::<_, Option<i64>>(1) {
                self.pruned.jobs_until(state, last);
            }
        }
        let before = |time: Timestamp| to_micros(time);
        pruned.events = self.prune_trail(retention.events, limit)?;
        pruned.keys = self.change(
            "DELETE FROM scheduler_keys WHERE (addon_id, key) IN \
             (SELECT addon_id, key FROM scheduler_keys WHERE created_at < $1 ORDER BY created_at LIMIT $2 \
             FOR UPDATE SKIP LOCKED)",
            &[&before(retention.keys), &most],
        )?;
        pruned.leases = self.change(
            "DELETE FROM scheduler_leases WHERE id IN (SELECT id FROM scheduler_leases \
             WHERE NOT live AND ended_at < $1 ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED)",
            &[&before(retention.leases), &most],
        )?;
        pruned.leases += self.change(
            "DELETE FROM scheduler_firings WHERE (schedule_id, at) IN \
             (SELECT schedule_id, at FROM scheduler_firings WHERE at < $1 LIMIT $2 FOR UPDATE SKIP LOCKED)",
            &[&before(retention.leases), &most],
        )?;
        let full = limit as u64;
        let counts = [
            pruned.jobs,
            pruned.events,
            pruned.keys,
            pruned.leases,
            chunks,
        ];
        pruned.more = counts.iter().any(|count| *count >= full);
        Ok(pruned)
    }
}
