//! The tables, as a connection sees them.

use std::collections::HashSet;

use jiff::Timestamp;
use jobtree_protocol::{
    AddonId, Event, JobId, JobQuery, JobState, JobType, Json, LeaseId, ScheduleId, from_micros,
    to_micros,
};
use jobtree_queue::transitions::Changes;
use jobtree_queue::{JobRecord, KeyRecord, LeaseRecord, LeasedJob, Now};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_postgres::Row;
use uuid::Uuid;

use super::connection::{Connection, Parameter};
use crate::backend::Written;
use crate::error::StoreError;
use crate::tables::{
    Count, Page, Pause, Pruned, Reading, Recorded, Result, Retention, ScheduleRecord, Tables,
};
use crate::writer::Ledger;

pub(crate) struct PgTables {
    connection: Connection,
    database_time: bool,
    /// The transaction writes, so what it reads is locked.
    writing: bool,
    touched: bool,
    with_savepoint: bool,
    written: Vec<Written>,
    written_before: usize,
}

fn text<T: Serialize>(record: &T) -> String {
    serde_json::to_string(record).expect("records have a JSON form")
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| StoreError::Database {
        message: format!("a record is not what this program writes: {error}"),
    })
}

fn records<T: DeserializeOwned>(rows: &[Row]) -> Result<Vec<T>> {
    rows.iter().map(|row| read(row.get(0))).collect()
}

fn state_number(state: JobState) -> i16 {
    state as i16
}

fn state_of(number: i16) -> Result<JobState> {
    usize::try_from(number)
        .ok()
        .and_then(|place| JobState::ALL.get(place))
        .copied()
        .ok_or_else(|| StoreError::Database {
            message: format!("{number} is no state"),
        })
}

fn uuids(ids: &[JobId]) -> Vec<Uuid> {
    ids.iter().map(|id| id.0).collect()
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
        }
    }

    /// Begins a transaction that sees one moment.
    pub(crate) fn begin_snapshot(&mut self) -> Result<()> {
        self.connection.connect()?;
        self.writing = false;
        self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    }

    fn query(&mut self, sql: &'static str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>> {
        self.connection.query(sql, parameters)
    }

    fn change(&mut self, sql: &'static str, parameters: &[Parameter<'_>]) -> Result<u64> {
        if !self.touched && self.with_savepoint {
            self.connection.execute("SAVEPOINT operation")?;
        }
        self.touched = true;
        self.connection.change(sql, parameters)
    }

    fn hot(&mut self, ids: &[Uuid]) -> Result<Vec<JobRecord>> {
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
        records(&rows)
    }

    fn ended(&mut self, ids: &[Uuid]) -> Result<Vec<JobRecord>> {
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
        records(&rows)
    }

    fn with_jobs(&mut self, mut lease: LeaseRecord) -> Result<LeaseRecord> {
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

    fn write_events(&mut self, events: &[Event]) -> Result<()> {
        let kept: Vec<&Event> = events.iter().filter(|event| event.kind.is_kept()).collect();
        if kept.is_empty() {
            return Ok(());
        }
        // Held until the commit: places grow in the order of commits.
        self.query("SELECT pg_advisory_xact_lock(7306086967000000002)", &[])?;
        let jobs: Vec<Option<Uuid>> = kept
            .iter()
            .map(|event| event.job_id.map(|id| id.0))
            .collect();
        let times: Vec<i64> = kept.iter().map(|event| to_micros(event.at)).collect();
        let texts: Vec<String> = kept.iter().map(|event| text(event)).collect();
        self.change(
            "INSERT INTO scheduler_job_events (job_id, at, record) \
             SELECT job_id, at, record FROM unnest($1::uuid[], $2::bigint[], $3::text[]) WITH ORDINALITY \
             AS new (job_id, at, record, place) ORDER BY place",
            &[&jobs, &times, &texts],
        )?;
        Ok(())
    }

    fn write_jobs(&mut self, jobs: &[JobRecord]) -> Result<()> {
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
        self.write_rows_beside(jobs)
    }

    fn put_jobs(&mut self, sql: &'static str, jobs: &[&JobRecord]) -> Result<()> {
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

    fn write_rows_beside(&mut self, jobs: &[JobRecord]) -> Result<()> {
        let (mut tags, mut tagged) = (Vec::new(), Vec::new());
        for job in jobs.iter().filter(|job| job.revision == 1) {
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
        let depending: Vec<&JobRecord> = jobs
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
                "INSERT INTO scheduler_leases VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO UPDATE \
                 SET live = EXCLUDED.live, ended_at = EXCLUDED.ended_at, record = EXCLUDED.record",
                &[
                    &lease.id.0,
                    &lease.is_live(),
                    &lease.ended_at.map(to_micros),
                    &text(&kept),
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
const PUT_HOT: &str = put_jobs!(
    "scheduler_jobs",
    " ON CONFLICT (id) DO UPDATE SET revision = EXCLUDED.revision, state = EXCLUDED.state, \
     lease_id = EXCLUDED.lease_id, lease_position = EXCLUDED.lease_position, quarantined = EXCLUDED.quarantined, \
     record = EXCLUDED.record"
);
const PUT_ENDED: &str = put_jobs!(
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
    }

    fn forget(&mut self) {
        self.written.clear();
    }

    fn committed(&mut self) -> Vec<Written> {
        std::mem::take(&mut self.written)
    }

    fn tidy(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Reading for PgTables {
    fn wall(&mut self) -> Result<Option<Timestamp>> {
        if !self.database_time {
            return Ok(None);
        }
        let rows = self.query(
            "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
            &[],
        )?;
        Ok(Some(from_micros(rows[0].get(0))))
    }

    fn jobs(&mut self, ids: &[JobId]) -> Result<Vec<JobRecord>> {
        let mut missing: HashSet<JobId> = ids.iter().copied().collect();
        let mut found = Vec::with_capacity(ids.len());
        // Twice: a job that comes back from history between the questions is in neither the first time.
        for round in 0..4 {
            let left: Vec<JobId> = missing.iter().copied().collect();
            if left.is_empty() || (round > 1 && !self.writing) {
                break;
            }
            let more = if round % 2 == 0 {
                self.hot(&uuids(&left))?
            } else {
                self.ended(&uuids(&left))?
            };
            for job in &more {
                missing.remove(&job.id);
            }
            found.extend(more);
        }
        Ok(found)
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<LeaseRecord>> {
        let rows = if self.writing {
            self.query(
                "SELECT record FROM scheduler_leases WHERE id = $1 FOR UPDATE",
                &[&id.0],
            )?
        } else {
            self.query(
                "SELECT record FROM scheduler_leases WHERE id = $1",
                &[&id.0],
            )?
        };
        match records(&rows)?.pop() {
            None => Ok(None),
            Some(lease) => self.with_jobs(lease).map(Some),
        }
    }

    fn live_leases(&mut self) -> Result<Vec<LeaseRecord>> {
        let rows = self.query(
            "SELECT record FROM scheduler_leases WHERE live ORDER BY id",
            &[],
        )?;
        records(&rows)?
            .into_iter()
            .map(|lease| self.with_jobs(lease))
            .collect()
    }

    fn dispatching(&mut self) -> Result<Vec<JobRecord>> {
        let rows = self.query(
            "SELECT record FROM scheduler_jobs WHERE state = 1 ORDER BY id",
            &[],
        )?;
        records(&rows)
    }

    fn queued(&mut self, after: Option<JobId>, limit: usize) -> Result<Vec<JobRecord>> {
        let after = after.map_or(Uuid::nil(), |id| id.0);
        let rows = self.query(
            "SELECT record FROM scheduler_jobs WHERE id > $1 AND state = 0 ORDER BY id LIMIT $2",
            &[&after, &(limit as i64)],
        )?;
        records(&rows)
    }

    fn list(&mut self, query: &JobQuery, limit: usize) -> Result<Page> {
        let limit = limit.max(1);
        let after = query.after.map_or(Uuid::nil(), |id| id.0);
        let states: Vec<i16> = query.state.iter().copied().map(state_number).collect();
        let rows = self.query(
            "SELECT record FROM (SELECT id, state, addon_id, job_type, quarantined, record FROM scheduler_jobs \
             UNION ALL SELECT id, state, addon_id, job_type, quarantined, record FROM scheduler_jobs_history) AS job \
             WHERE id > $1 AND (cardinality($2::smallint[]) = 0 OR state = ANY($2)) \
             AND ($3::text IS NULL OR addon_id = $3) AND ($4::text IS NULL OR job_type = $4) \
             AND (NOT $5 OR quarantined) AND ($6::text IS NULL OR EXISTS \
             (SELECT 1 FROM scheduler_tags WHERE tag = $6 AND scheduler_tags.id = job.id)) ORDER BY id LIMIT $7",
            &[
                &after,
                &states,
                &query.addon_id.as_ref().map(AddonId::as_str),
                &query.job_type.as_ref().map(JobType::as_str),
                &query.quarantined,
                &query.tag,
                &(limit as i64 + 1),
            ],
        )?;
        let mut jobs: Vec<JobRecord> = records(&rows)?;
        let more = jobs.len() > limit;
        jobs.truncate(limit);
        let next = jobs.last().map(|job| job.id).filter(|_| more);
        Ok(Page { jobs, next })
    }

    fn counts(&mut self, ended: bool) -> Result<Vec<Count>> {
        let rows = self.query(
            "SELECT addon_id, state, count(*) FROM (SELECT addon_id, state FROM scheduler_jobs UNION ALL \
             SELECT addon_id, state FROM scheduler_jobs_history WHERE $1) AS job GROUP BY addon_id, state",
            &[&ended],
        )?;
        rows.iter()
            .map(|row| {
                Ok(Count {
                    addon_id: row
                        .get::<_, &str>(0)
                        .parse()
                        .map_err(|_| StoreError::Database {
                            message: "an addon's name is none".into(),
                        })?,
                    state: state_of(row.get(1))?,
                    jobs: row.get::<_, i64>(2) as u64,
                })
            })
            .collect()
    }

    fn key(&mut self, addon: &AddonId, key: &str) -> Result<Option<KeyRecord>> {
        let rows = self.query(
            "SELECT record FROM scheduler_keys WHERE addon_id = $1 AND key = $2",
            &[&addon.as_str(), &key],
        )?;
        Ok(records(&rows)?.pop())
    }

    fn unique_holder(
        &mut self,
        addon: &AddonId,
        job_type: &JobType,
        key: &str,
    ) -> Result<Option<(JobId, JobState)>> {
        let rows = self.query(
            "SELECT id, state FROM scheduler_jobs WHERE addon_id = $1 AND job_type = $2 AND unique_key = $3",
            &[&addon.as_str(), &job_type.as_str(), &key],
        )?;
        match rows.first() {
            None => Ok(None),
            Some(row) => Ok(Some((JobId(row.get(0)), state_of(row.get(1))?))),
        }
    }

    fn key_holders(&mut self, addon: &AddonId, key: &str) -> Result<u32> {
        if self.writing {
            // Nobody else counts this key until this transaction has ended.
            let name = format!("{addon}/{key}");
            self.query(
                "SELECT pg_advisory_xact_lock(hashtextextended($1, 7306))",
                &[&name],
            )?;
        }
        let rows = self.query(
            "SELECT count(DISTINCT coalesce(lease_id, id)) FROM scheduler_jobs \
             WHERE addon_id = $1 AND concurrency_key = $2 AND state <> 0",
            &[&addon.as_str(), &key],
        )?;
        Ok(rows[0].get::<_, i64>(0) as u32)
    }

    fn waiting_for(&mut self, dependency: JobId) -> Result<Vec<JobId>> {
        let rows = self.query(
            "SELECT id FROM scheduler_waits WHERE dependency = $1 ORDER BY id",
            &[&dependency.0],
        )?;
        Ok(rows.iter().map(|row| JobId(row.get(0))).collect())
    }

    fn events_of(&mut self, job: JobId) -> Result<Vec<Recorded>> {
        let rows = self.query(
            "SELECT id, record FROM scheduler_job_events WHERE job_id = $1 ORDER BY id",
            &[&job.0],
        )?;
        recorded(&rows)
    }

    fn events_after(&mut self, cursor: u64, limit: usize) -> Result<Vec<Recorded>> {
        let cursor = i64::try_from(cursor).unwrap_or(i64::MAX);
        let rows = self.query(
            "SELECT id, record FROM scheduler_job_events WHERE id > $1 ORDER BY id LIMIT $2",
            &[&cursor, &(limit as i64)],
        )?;
        recorded(&rows)
    }

    fn last_event(&mut self) -> Result<u64> {
        let rows = self.query("SELECT coalesce(max(id), 0) FROM scheduler_job_events", &[])?;
        Ok(rows[0].get::<_, i64>(0) as u64)
    }

    fn schedules(&mut self) -> Result<Vec<ScheduleRecord>> {
        let rows = self.query(
            "SELECT record FROM scheduler_schedules ORDER BY name COLLATE \"C\"",
            &[],
        )?;
        records(&rows)
    }

    fn pauses(&mut self) -> Result<Vec<Pause>> {
        let rows = self.query(
            "SELECT record FROM scheduler_pauses ORDER BY addon_id COLLATE \"C\", job_type COLLATE \"C\"",
            &[],
        )?;
        records(&rows)
    }

    fn note(&mut self, name: &str) -> Result<Option<Json>> {
        let rows = self.query(
            "SELECT value FROM scheduler_notes WHERE name = $1",
            &[&name],
        )?;
        Ok(records(&rows)?.pop())
    }

    fn notes(&mut self, prefix: &str) -> Result<Vec<(String, Json)>> {
        let rows = self.query(
            "SELECT value, name FROM scheduler_notes WHERE starts_with(name, $1) ORDER BY name COLLATE \"C\"",
            &[&prefix],
        )?;
        rows.iter()
            .map(|row| Ok((row.get(1), read(row.get(0))?)))
            .collect()
    }
}

fn recorded(rows: &[Row]) -> Result<Vec<Recorded>> {
    rows.iter()
        .map(|row| {
            Ok(Recorded {
                cursor: row.get::<_, i64>(0) as u64,
                event: read(row.get(1))?,
            })
        })
        .collect()
}

impl Tables for PgTables {
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
        // Last, since it takes the lock that others wait for.
        self.write_events(&changes.events)?;
        self.written.push(Written { changes, now });
        Ok(())
    }

    fn put_schedule(&mut self, schedule: &ScheduleRecord) -> Result<()> {
        self.change(
            "INSERT INTO scheduler_schedules VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE \
             SET name = EXCLUDED.name, record = EXCLUDED.record",
            &[&schedule.id.0, &schedule.spec.name, &text(schedule)],
        )?;
        Ok(())
    }

    fn delete_schedule(&mut self, id: ScheduleId) -> Result<bool> {
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
        let job_type = pause.job_type.as_ref().map_or("", JobType::as_str);
        self.change(
            "INSERT INTO scheduler_pauses VALUES ($1, $2, $3) ON CONFLICT (addon_id, job_type) DO UPDATE \
             SET record = EXCLUDED.record",
            &[&pause.addon_id.as_str(), &job_type, &text(pause)],
        )?;
        Ok(())
    }

    fn delete_pause(&mut self, addon: &AddonId, job_type: Option<&JobType>) -> Result<bool> {
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
        let most = limit as i64;
        for state in [JobState::Done, JobState::Failed, JobState::Canceled] {
            let before = retention.of(state).map_or(i64::MIN, to_micros);
            let room = most - pruned.jobs as i64;
            let rows = self.query(
                "WITH old AS (DELETE FROM scheduler_jobs_history WHERE id IN (SELECT id FROM scheduler_jobs_history \
                 WHERE state = $1 AND ended_at < $2 ORDER BY ended_at LIMIT $3 FOR UPDATE SKIP LOCKED) RETURNING id), \
                 untagged AS (DELETE FROM scheduler_tags WHERE id IN (SELECT id FROM old)) SELECT count(*) FROM old",
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
        let counts = [pruned.jobs, pruned.events, pruned.keys, pruned.leases];
        pruned.more = counts.iter().any(|count| *count >= full);
        Ok(pruned)
    }
}
