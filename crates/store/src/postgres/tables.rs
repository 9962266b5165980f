//! The tables, as a connection sees them.

use std::sync::Arc;

use jiff::Timestamp;
use jobtree_protocol::{AddonId, Event, JobId, JobState, JobType, Json, ScheduleId, to_micros};
use jobtree_queue::transitions::Changes;
use jobtree_queue::{JobRecord, LeaseRecord, LeasedJob, Now, RequestName};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_postgres::Row;
use uuid::Uuid;

use super::connection::{Connection, Parameter};
use super::hints::Outgoing;
use crate::backend::Written;
use crate::disk_numbers;
use crate::error::StoreError;
use crate::tables::{Pause, Pruned, Result, Retention, ScheduleRecord, Tables};
use crate::writer::Ledger;

pub(crate) struct PgTables {
    connection: Connection,
    pub(super) database_time: bool,
    /// The transaction writes, so what it reads is locked.
    pub(super) writing: bool,
    touched: bool,
    with_savepoint: bool,
    /// What the transaction wrote. Its events are given to the database at the end of it.
    written: Vec<Written>,
    written_before: usize,
    /// Whether it wrote pauses or schedules.
    settings: bool,
    settings_before: bool,
    /// Where it is told to others, if it is.
    outgoing: Option<Arc<Outgoing>>,
}

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
            touched: false,
            with_savepoint: false,
            written: Vec::new(),
            written_before: 0,
            settings: false,
            settings_before: false,
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
        self.connection.connect()?;
        self.writing = false;
        self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    }

    pub(super) fn query(
        &mut self,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>> {
        self.connection.query(sql, parameters)
    }

    pub(super) fn change(
        &mut self,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<u64> {
        if !self.touched && self.with_savepoint {
            self.connection.execute("SAVEPOINT operation")?;
        }
        self.touched = true;
        self.connection.change(sql, parameters)
    }

    pub(super) fn hot(&mut self, ids: &[Uuid]) -> Result<Vec<Arc<JobRecord>>> {
        let rows = if self.writing {
            self.query(
                "SELECT record FROM scheduler_jobs WHERE id = ANY($1) ORDER BY id FOR UPDATE",
                &[&ids],
            )?
        } else {
            self.query(
                "SELECT record FROM scheduler_jobs WHERE id = ANY($1)",
                &[&ids],
            )?
        };
        job_records(&rows)
    }

    pub(super) fn ended(&mut self, ids: &[Uuid]) -> Result<Vec<Arc<JobRecord>>> {
        let rows = if self.writing {
            self.query(
                "SELECT record FROM scheduler_jobs_history WHERE id = ANY($1) ORDER BY id FOR UPDATE",
                &[&ids],
            )?
        } else {
            self.query(
                "SELECT record FROM scheduler_jobs_history WHERE id = ANY($1)",
                &[&ids],
            )?
        };
        job_records(&rows)
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

    /// Writes the events of all that was written. Last in a transaction, since it takes a lock that all others wait for:
    /// whoever waited for a row of theirs while holding it would wait for ever.
    fn write_events(&mut self) -> Result<bool> {
        let events = self.written.iter().flat_map(|it| &it.changes.events);
        let kept: Vec<&Event> = events.filter(|event| event.kind.is_kept()).collect();
        if kept.is_empty() {
            return Ok(false);
        }
        let jobs: Vec<Option<Uuid>> = kept
            .iter()
            .map(|event| event.job_id.map(|id| id.0))
            .collect();
        let times: Vec<i64> = kept.iter().map(|event| to_micros(event.at)).collect();
        let texts: Vec<String> = kept.iter().map(text).collect();
        // Held until the commit: places grow in the order of commits.
        self.query("SELECT pg_advisory_xact_lock(7306086967000000002)", &[])?;
        self.connection.change(
            "INSERT INTO scheduler_job_events (job_id, at, record) \
             SELECT job_id, at, record FROM unnest($1::uuid[], $2::bigint[], $3::text[]) WITH ORDINALITY \
             AS new (job_id, at, record, place) ORDER BY place",
            &[&jobs, &times, &texts],
        )?;
        Ok(true)
    }

    fn write_jobs(&mut self, jobs: &[Arc<JobRecord>]) -> Result<()> {
        let jobs: Vec<&JobRecord> = jobs.iter().map(|job| &**job).collect();
        let (ended, waiting): (Vec<&JobRecord>, Vec<&JobRecord>) =
            jobs.iter().partition(|job| job.state.is_ended());
        let (new, changed): (Vec<&JobRecord>, Vec<&JobRecord>) =
            waiting.into_iter().partition(|job| job.revision == 1);
        self.put_jobs(INSERT_NEW, &new)?;
        if !changed.is_empty() {
            let back: Vec<Uuid> = changed
                .iter()
                .filter(|job| job.redrives > 0 && job.state == JobState::Queued)
                .map(|job| job.id.0)
                .collect();
            if !back.is_empty() {
                self.change(
                    "DELETE FROM scheduler_jobs_history WHERE id = ANY($1)",
                    &[&back],
                )?;
            }
            self.put_jobs(PUT_HOT, &changed)?;
        }
        if !ended.is_empty() {
            let ids: Vec<Uuid> = ended.iter().map(|job| job.id.0).collect();
            self.change("DELETE FROM scheduler_jobs WHERE id = ANY($1)", &[&ids])?;
            self.put_jobs(PUT_ENDED, &ended)?;
        }
        self.write_rows_beside(&jobs, |job| job.revision == 1)
    }

    pub(super) fn put_jobs(&mut self, sql: &'static str, jobs: &[&JobRecord]) -> Result<()> {
        if jobs.is_empty() {
            return Ok(());
        }
        fn each<T>(jobs: &[&JobRecord], of: impl Fn(&JobRecord) -> T) -> Vec<T> {
            jobs.iter().map(|job| of(job)).collect()
        }
        self.change(
            sql,
            &[
                &each(jobs, |job| job.id.0),
                &each(jobs, |job| job.revision as i64),
                &each(jobs, |job| state_number(job.state)),
                &each(jobs, |job| job.intent.addon_id.to_string()),
                &each(jobs, |job| job.intent.job_type.to_string()),
                &each(jobs, |job| job.intent.unique_key.clone()),
                &each(jobs, |job| job.intent.concurrency_key.clone()),
                &each(jobs, |job| job.lease_id.map(|id| id.0)),
                &each(jobs, |job| job.lease_id.map(|_| job.lease_position as i32)),
                &each(jobs, |job| job.quarantined),
                &each(jobs, |job| to_micros(job.created_at)),
                &each(jobs, |job| job.ended_at.map(to_micros)),
                &each(jobs, text),
            ],
        )?;
        Ok(())
    }

    pub(super) fn write_rows_beside(
        &mut self,
        jobs: &[&JobRecord],
        is_new: impl Fn(&JobRecord) -> bool,
    ) -> Result<()> {
        let (mut tags, mut tagged) = (Vec::new(), Vec::new());
        for job in jobs.iter().filter(|job| is_new(job)) {
            for tag in &job.intent.tags {
                tags.push(tag.clone());
                tagged.push(job.id.0);
            }
        }
        if !tags.is_empty() {
            self.change(
                "INSERT INTO scheduler_tags SELECT * FROM unnest($1::text[], $2::uuid[]) ON CONFLICT DO NOTHING",
                &[&tags, &tagged],
            )?;
        }
        let depending: Vec<&&JobRecord> = jobs
            .iter()
            .filter(|job| !job.intent.depends_on.is_empty())
            .collect();
        if depending.is_empty() {
            return Ok(());
        }
        let ids: Vec<Uuid> = depending.iter().map(|job| job.id.0).collect();
        self.change("DELETE FROM scheduler_waits WHERE id = ANY($1)", &[&ids])?;
        let (mut dependencies, mut waiting) = (Vec::new(), Vec::new());
        for job in depending {
            for dependency in &job.waiting_for {
                dependencies.push(dependency.0);
                waiting.push(job.id.0);
            }
        }
        self.change(
            "INSERT INTO scheduler_waits SELECT * FROM unnest($1::uuid[], $2::uuid[])",
            &[&dependencies, &waiting],
        )?;
        Ok(())
    }

    fn write_leases(&mut self, leases: &[LeaseRecord]) -> Result<()> {
        for lease in leases {
            let mut kept = lease.clone();
            kept.jobs = Vec::new();
            self.change(
                "INSERT INTO scheduler_leases VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO UPDATE \
                 SET live = EXCLUDED.live, ended_at = EXCLUDED.ended_at, record = EXCLUDED.record",
                &[
                    &lease.id.0,
                    &lease.is_live(),
                    &lease.ended_at.map(to_micros),
                    &text(&kept),
                    &lease.request_name().as_ref().map(request_text),
                ],
            )?;
        }
        Ok(())
    }
}

macro_rules! put_jobs {
    ($table:literal, $conflict:literal) => {
        concat!(
            "INSERT INTO ",
            $table,
            " SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::text[], $5::text[], $6::text[], \
              $7::text[], $8::uuid[], $9::int[], $10::bool[], $11::bigint[], $12::bigint[], $13::text[])",
            $conflict
        )
    };
}

const INSERT_NEW: &str = put_jobs!("scheduler_jobs", "");
pub(super) const PUT_HOT: &str = put_jobs!(
    "scheduler_jobs",
    " ON CONFLICT (id) DO UPDATE SET revision = EXCLUDED.revision, state = EXCLUDED.state, \
     lease_id = EXCLUDED.lease_id, lease_position = EXCLUDED.lease_position, quarantined = EXCLUDED.quarantined, \
     record = EXCLUDED.record"
);
pub(super) const PUT_ENDED: &str = put_jobs!(
    "scheduler_jobs_history",
    " ON CONFLICT (id) DO UPDATE SET revision = EXCLUDED.revision, state = EXCLUDED.state, \
     quarantined = EXCLUDED.quarantined, ended_at = EXCLUDED.ended_at, record = EXCLUDED.record"
);

impl Ledger for PgTables {
    fn begin_transaction(&mut self) -> Result<()> {
        self.connection.connect()?;
        self.writing = true;
        self.execute("BEGIN")
    }

    fn execute(&mut self, sql: &str) -> Result<()> {
        self.connection.execute(sql)
    }

    fn begin(&mut self, with_savepoint: bool) {
        self.touched = false;
        self.with_savepoint = with_savepoint;
        self.written_before = self.written.len();
        self.settings_before = self.settings;
    }

    fn flush(&mut self) -> Result<bool> {
        self.write_events()
    }

    fn touched(&self) -> bool {
        self.touched
    }

    fn in_savepoint(&self) -> bool {
        self.touched && self.with_savepoint
    }

    fn is_lost(&self) -> bool {
        // After an error only the savepoint can be gone back to, if there is one.
        self.connection.has_failed() && !self.in_savepoint()
    }

    fn undone(&mut self) {
        self.written.truncate(self.written_before);
        self.settings = self.settings_before;
    }

    fn forget(&mut self) {
        self.written.clear();
        self.settings = false;
    }

    fn committed(&mut self) -> Vec<Written> {
        let settings = std::mem::take(&mut self.settings);
        if let Some(outgoing) = &self.outgoing {
            outgoing.note(&self.written, settings);
        }
        std::mem::take(&mut self.written)
    }

    fn tidy(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Tables for PgTables {
    fn free_jobs(&mut self, ids: &[JobId]) -> Result<Vec<Arc<JobRecord>>> {
        let rows = self.query(
            "SELECT record FROM scheduler_jobs WHERE id = ANY($1) ORDER BY id FOR UPDATE SKIP LOCKED",
            &[&uuids(ids)],
        )?;
        let mut found = job_records(&rows)?;
        if found.len() < ids.len() {
            let mut missing = ids.to_vec();
            missing.retain(|id| found.iter().all(|job| job.id != *id));
            found.extend(self.ended(&uuids(&missing))?);
        }
        Ok(found)
    }

    fn write(&mut self, changes: Changes, now: Now) -> Result<()> {
        self.write_jobs(&changes.jobs)?;
        self.write_leases(&changes.leases)?;
        for key in &changes.keys {
            self.change(
                "INSERT INTO scheduler_keys VALUES ($1, $2, $3, $4)",
                &[
                    &key.addon_id.as_str(),
                    &key.key,
                    &to_micros(key.created_at),
                    &text(key),
                ],
            )?;
        }
        self.written.push(Written { changes, now });
        Ok(())
    }

    fn put_schedule(&mut self, schedule: &ScheduleRecord) -> Result<()> {
        self.settings = true;
        self.change(
            "INSERT INTO scheduler_schedules VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE \
             SET name = EXCLUDED.name, record = EXCLUDED.record",
            &[&schedule.id.0, &schedule.spec.name, &text(schedule)],
        )?;
        Ok(())
    }

    fn delete_schedule(&mut self, id: ScheduleId) -> Result<bool> {
        self.settings = true;
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
        self.settings = true;
        let job_type = pause.job_type.as_ref().map_or("", JobType::as_str);
        self.change(
            "INSERT INTO scheduler_pauses VALUES ($1, $2, $3) ON CONFLICT (addon_id, job_type) DO UPDATE \
             SET record = EXCLUDED.record",
            &[&pause.addon_id.as_str(), &job_type, &text(pause)],
        )?;
        Ok(())
    }

    fn delete_pause(&mut self, addon: &AddonId, job_type: Option<&JobType>) -> Result<bool> {
        self.settings = true;
        let job_type = job_type.map_or("", JobType::as_str);
        let rows = self.change(
            "DELETE FROM scheduler_pauses WHERE addon_id = $1 AND job_type = $2",
            &[&addon.as_str(), &job_type],
        )?;
        Ok(rows > 0)
    }

    fn put_note(&mut self, name: &str, value: Option<&Json>) -> Result<()> {
        match value {
            Some(value) => self.change(
                "INSERT INTO scheduler_notes VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value",
                &[&name, &value.text()],
            )?,
            None => self.change("DELETE FROM scheduler_notes WHERE name = $1", &[&name])?,
        };
        Ok(())
    }

    fn prune(&mut self, retention: &Retention, limit: usize) -> Result<Pruned> {
        let mut pruned = Pruned::default();
        let (most, mut chunks) = (limit as i64, 0);
        for state in [JobState::Done, JobState::Failed, JobState::Canceled] {
            let time = retention.of(state).unwrap_or(Timestamp::MIN);
            chunks += self.prune_logs(state, time, most)?;
            let before = to_micros(time);
            let room = most - pruned.jobs as i64;
            let rows = self.query(
                "WITH old AS (DELETE FROM scheduler_jobs_history WHERE id IN (SELECT id FROM scheduler_jobs_history \
                 AS job WHERE state = $1 AND ended_at < $2 \
                 AND NOT EXISTS (SELECT 1 FROM scheduler_job_logs AS log WHERE log.job_id = job.id) \
                 ORDER BY ended_at LIMIT $3 FOR UPDATE SKIP LOCKED) RETURNING id), \
                 untagged AS (DELETE FROM scheduler_tags WHERE id IN (SELECT id FROM old)), \
                 unlogged AS (DELETE FROM scheduler_log_ends WHERE job_id IN (SELECT id FROM old)) \
                 SELECT count(*) FROM old",
                &[&state_number(state), &before, &room],
            )?;
            pruned.jobs += rows[0].get::<_, i64>(0) as u64;
        }
        let before = |time: Timestamp| to_micros(time);
        pruned.events = self.change(
            "DELETE FROM scheduler_job_events WHERE id IN \
             (SELECT id FROM (SELECT id, at FROM scheduler_job_events ORDER BY id LIMIT $2) AS oldest WHERE at < $1)",
            &[&before(retention.events), &most],
        )?;
        pruned.keys = self.change(
            "DELETE FROM scheduler_keys WHERE (addon_id, key) IN \
             (SELECT addon_id, key FROM scheduler_keys WHERE created_at < $1 ORDER BY created_at LIMIT $2)",
            &[&before(retention.keys), &most],
        )?;
        pruned.leases = self.change(
            "DELETE FROM scheduler_leases WHERE id IN (SELECT id FROM scheduler_leases \
             WHERE NOT live AND ended_at < $1 ORDER BY ended_at LIMIT $2)",
            &[&before(retention.leases), &most],
        )?;
        pruned.leases += self.change(
            "DELETE FROM scheduler_firings WHERE (schedule_id, at) IN \
             (SELECT schedule_id, at FROM scheduler_firings WHERE at < $1 LIMIT $2)",
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
