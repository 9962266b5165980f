//! Questions to the file: each a statement that an index answers, whichever connection asks. `tests/plans.rs` holds the
//! plans to that.

use std::collections::BTreeMap;
use std::sync::Arc;

use jobtree_protocol::{AddonId, JobId, JobState, JobType, Json, LeaseId, ScheduleId, from_micros};
use jobtree_queue::{JobRecord, KeyRecord, LeaseRecord, LeasedJob, RequestName};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};

use super::codec::{
    self, Id, JOB_COLUMNS, damaged, job_of, json_of, number, optional_uuid_at, state_of, text_at,
    time, uuid_at,
};
use super::{leases, logs, trail};
use crate::tables::{Count, Pause, Result, ScheduleRecord};

/// Which of the two tables a job is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Hot,
    History,
}

impl Place {
    pub(crate) fn of(state: JobState) -> Self {
        if state.is_ended() {
            Self::History
        } else {
            Self::Hot
        }
    }
}

/// A job as it lies in the file.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) job: Arc<JobRecord>,
    pub(crate) place: Place,
    pub(crate) last_event: Option<i64>,
}

const HOT_BY_ID: &str = "SELECT * FROM scheduler_jobs WHERE id = ?1";
const HISTORY_BY_ID: &str = "SELECT * FROM scheduler_jobs_history WHERE id = ?1";

/// All statements with a fixed text that are asked for often, for the test of their plans.
#[doc(hidden)]
pub const HOT_STATEMENTS: &[&str] = &[
    HOT_BY_ID,
    HISTORY_BY_ID,
    JOBS_OF_LEASE,
    LEASE_BY_ID,
    REQUESTED_LEASE,
    LIVE_LEASES,
    DISPATCHING,
    QUEUED,
    KEY,
    UNIQUE_HOLDER,
    KEY_HOLDERS,
    WAITING_FOR,
    trail::EVENT,
    trail::EVENTS_AFTER,
    trail::LAST_EVENT,
    logs::END,
    logs::CHUNKS,
];

fn payload(db: &Connection, id: JobId) -> Result<Json> {
    let mut statement =
        db.prepare_cached("SELECT payload FROM scheduler_payloads WHERE id = ?1")?;
    let mut rows = statement.query([Id(&id.0)])?;
    match rows.next()? {
        Some(row) => json_of(text_at(row, 0)?),
        None => Err(damaged("a missing payload")),
    }
}

pub(crate) fn read_job(db: &Connection, row: &Row<'_>) -> Result<(JobRecord, Option<i64>)> {
    job_of(row, |id| payload(db, id))
}

pub(crate) fn job(db: &Connection, id: JobId) -> Result<Option<Stored>> {
    for (sql, place) in [(HOT_BY_ID, Place::Hot), (HISTORY_BY_ID, Place::History)] {
        let mut statement = db.prepare_cached(sql)?;
        let mut rows = statement.query([Id(&id.0)])?;
        if let Some(row) = rows.next()? {
            let (job, last_event) = read_job(db, row)?;
            return Ok(Some(Stored {
                job: Arc::new(job),
                place,
                last_event,
            }));
        }
    }
    Ok(None)
}

fn collect_jobs(
    db: &Connection,
    mut statement: CachedStatement<'_>,
    parameters: impl rusqlite::Params,
) -> Result<Vec<Arc<JobRecord>>> {
    let mut rows = statement.query(parameters)?;
    let mut jobs = Vec::new();
    while let Some(row) = rows.next()? {
        jobs.push(Arc::new(read_job(db, row)?.0));
    }
    Ok(jobs)
}

const DISPATCHING: &str = "SELECT job.* FROM scheduler_dispatching AS waiting CROSS JOIN scheduler_jobs AS job \
     ON job.id = waiting.id WHERE waiting.id > x'' ORDER BY waiting.id";

pub(crate) fn dispatching(db: &Connection) -> Result<Vec<Arc<JobRecord>>> {
    collect_jobs(db, db.prepare_cached(DISPATCHING)?, [])
}

const QUEUED: &str =
    "SELECT * FROM scheduler_jobs WHERE id > ?1 AND state = 0 ORDER BY id LIMIT ?2";

pub(crate) fn queued(
    db: &Connection,
    after: Option<JobId>,
    limit: usize,
) -> Result<Vec<Arc<JobRecord>>> {
    collect_jobs(
        db,
        db.prepare_cached(QUEUED)?,
        params![after_bytes(after), limit as i64],
    )
}

/// What every id is greater than, if none is given.
pub(crate) fn after_bytes(after: Option<JobId>) -> Vec<u8> {
    after.map_or(Vec::new(), |id| id.0.as_bytes().to_vec())
}

const JOBS_OF_LEASE: &str = "SELECT jobs FROM scheduler_leased WHERE lease_id = ?1";

fn leased_jobs(db: &Connection, lease: LeaseId) -> Result<Vec<LeasedJob>> {
    let mut statement = db.prepare_cached(JOBS_OF_LEASE)?;
    let mut rows = statement.query([Id(&lease.0)])?;
    let mut jobs = Vec::new();
    while let Some(row) = rows.next()? {
        for id in leases::leased_of(row, 0)? {
            let stored = job(db, id)?.filter(|stored| stored.job.lease_id == Some(lease));
            jobs.extend(stored.map(|stored| LeasedJob::of(&stored.job)));
        }
    }
    jobs.sort_by_key(|job| job.position);
    jobs.dedup_by_key(|job| job.id);
    Ok(jobs)
}

/// Jobs after an id that run or have just stopped to, in order: no more than the leases that hold were granted for.
pub(crate) fn leased_after(db: &Connection, after: Option<JobId>) -> Result<Vec<JobId>> {
    let mut statement = db.prepare_cached("SELECT jobs FROM scheduler_leased")?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let ids = leases::leased_of(row, 0)?;
        found.extend(
            ids.into_iter()
                .filter(|id| after.is_none_or(|after| *id > after)),
        );
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

const LEASE_BY_ID: &str = "SELECT * FROM scheduler_leases WHERE id = ?1";

pub(crate) fn lease(db: &Connection, id: LeaseId) -> Result<Option<LeaseRecord>> {
    let mut statement = db.prepare_cached(LEASE_BY_ID)?;
    let mut rows = statement.query([Id(&id.0)])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    leases::lease_of(row, leased_jobs(db, id)?).map(Some)
}

const REQUESTED_LEASE: &str = "SELECT id FROM scheduler_leases WHERE addon_id = ?1 AND instance_id = ?2 AND request_key = ?3 \
     AND request_key IS NOT NULL AND lease_end IS NULL";

pub(crate) fn requested_lease(db: &Connection, request: &RequestName) -> Result<Option<LeaseId>> {
    let RequestName {
        addon_id,
        instance_id,
        key,
    } = request;
    let mut statement = db.prepare_cached(REQUESTED_LEASE)?;
    let mut rows = statement.query(params![addon_id.as_str(), Id(&instance_id.0), key])?;
    match rows.next()? {
        None => Ok(None),
        Some(row) => Ok(Some(LeaseId(uuid_at(row, 0)?))),
    }
}

const LIVE_LEASES: &str = "SELECT * FROM scheduler_leases WHERE lease_end IS NULL ORDER BY id";

pub(crate) fn live_leases(db: &Connection) -> Result<Vec<LeaseRecord>> {
    let mut statement = db.prepare_cached(LIVE_LEASES)?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(lease_of_row(db, row)?);
    }
    Ok(found)
}

/// The live leases of workers inside the process that owns the file.
pub(crate) fn leases_in_process(db: &Connection) -> Result<Vec<LeaseId>> {
    let live = live_leases(db)?.into_iter();
    let in_process = live.filter(|lease| lease.in_process);
    Ok(in_process.map(|lease| lease.id).collect())
}

/// A lease of a row with all columns, with its jobs.
pub(crate) fn lease_of_row(db: &Connection, row: &Row<'_>) -> Result<LeaseRecord> {
    let id = LeaseId(uuid_at(row, 0)?);
    leases::lease_of(row, leased_jobs(db, id)?)
}

const KEY: &str = "SELECT fingerprint, job_id, state, created_at FROM scheduler_keys WHERE addon_id = ?1 AND key = ?2";

pub(crate) fn key(db: &Connection, addon: &AddonId, key: &str) -> Result<Option<KeyRecord>> {
    let mut statement = db.prepare_cached(KEY)?;
    let mut rows = statement.query(params![addon.as_str(), key])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    key_of(row, addon.clone(), key.to_owned()).map(Some)
}

/// A key of a row that begins with its fingerprint, job, state and time.
pub(crate) fn key_of(row: &Row<'_>, addon_id: AddonId, key: String) -> Result<KeyRecord> {
    let fingerprint: [u8; 16] = row.get(0)?;
    Ok(KeyRecord {
        addon_id,
        key,
        fingerprint: jobtree_protocol::Fingerprint(fingerprint),
        job_id: JobId(uuid_at(row, 1)?),
        state: state_of(row.get(2)?)?,
        created_at: from_micros(row.get(3)?),
    })
}

pub(crate) fn addon_at(row: &Row<'_>, column: usize) -> Result<AddonId> {
    text_at(row, column)?.parse().map_err(|_| damaged("a name"))
}

const UNIQUE_HOLDER: &str = "SELECT job.id, job.state FROM scheduler_unique AS held CROSS JOIN scheduler_jobs AS job \
     ON job.id = held.id WHERE held.addon_id = ?1 AND held.job_type = ?2 AND held.unique_key = ?3";

pub(crate) fn unique_holder(
    db: &Connection,
    addon: &AddonId,
    job_type: &JobType,
    key: &str,
) -> Result<Option<(JobId, JobState)>> {
    let mut statement = db.prepare_cached(UNIQUE_HOLDER)?;
    let mut rows = statement.query(params![addon.as_str(), job_type.as_str(), key])?;
    match rows.next()? {
        None => Ok(None),
        Some(row) => Ok(Some((JobId(uuid_at(row, 0)?), state_of(row.get(1)?)?))),
    }
}

const KEY_HOLDERS: &str = "SELECT count(DISTINCT holder) FROM scheduler_holders WHERE addon_id = ?1 AND concurrency_key = ?2";

pub(crate) fn key_holders(db: &Connection, addon: &AddonId, key: &str) -> Result<u32> {
    let mut statement = db.prepare_cached(KEY_HOLDERS)?;
    Ok(statement.query_row(params![addon.as_str(), key], |row| row.get(0))?)
}

/// Whether any job waits for another.
pub(crate) fn somebody_waits(db: &Connection) -> Result<bool> {
    Ok(db
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM scheduler_waits)")?
        .query_row([], |row| row.get(0))?)
}

const WAITING_FOR: &str = "SELECT id FROM scheduler_waits WHERE dependency = ?1";

pub(crate) fn waiting_for(db: &Connection, dependency: JobId) -> Result<Vec<JobId>> {
    let mut statement = db.prepare_cached(WAITING_FOR)?;
    let mut rows = statement.query([Id(&dependency.0)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(JobId(uuid_at(row, 0)?));
    }
    Ok(found)
}

/// The statements that read every row, in the order of a table: what they return is counted here, because SQLite would sort
/// all rows in memory to group them (a quarter of a gigabyte for two million jobs).
#[doc(hidden)]
pub const COUNTED: [&str; 2] = [
    "SELECT addon_id, state FROM scheduler_jobs",
    "SELECT addon_id, state FROM scheduler_jobs_history",
];

pub(crate) fn counts(db: &Connection, ended: bool) -> Result<Vec<Count>> {
    let tables = if ended { &COUNTED[..] } else { &COUNTED[..1] };
    let mut found = Vec::new();
    for sql in tables {
        let mut counted: BTreeMap<String, BTreeMap<i64, u64>> = BTreeMap::new();
        let mut statement = db.prepare_cached(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (addon, state) = (text_at(row, 0)?, row.get(1)?);
            match counted.get_mut(addon) {
                Some(states) => *states.entry(state).or_default() += 1,
                None => drop(counted.insert(addon.to_owned(), BTreeMap::from([(state, 1)]))),
            }
        }
        for (addon, states) in counted {
            let addon_id: AddonId = addon.parse().map_err(|_| damaged("a name"))?;
            for (state, jobs) in states {
                found.push(Count {
                    addon_id: addon_id.clone(),
                    state: state_of(state)?,
                    jobs,
                });
            }
        }
    }
    Ok(found)
}

pub(crate) fn schedules(db: &Connection) -> Result<Vec<ScheduleRecord>> {
    let mut statement = db.prepare_cached(
        "SELECT id, revision, spec, next_at, last_at, last_job FROM scheduler_schedules ORDER BY name",
    )?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(ScheduleRecord {
            id: ScheduleId(uuid_at(row, 0)?),
            revision: number(row.get(1)?)?,
            spec: serde_json::from_str(text_at(row, 2)?).map_err(|_| damaged("a schedule"))?,
            next_at: time(row.get(3)?),
            last_at: time(row.get(4)?),
            last_job: optional_uuid_at(row, 5)?.map(JobId),
        });
    }
    Ok(found)
}

pub(crate) fn pauses(db: &Connection) -> Result<Vec<Pause>> {
    let mut statement =
        db.prepare_cached("SELECT addon_id, job_type, since, reason, paused_by FROM scheduler_pauses ORDER BY addon_id, job_type")?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    let name = |_| damaged("a name");
    while let Some(row) = rows.next()? {
        let job_type = text_at(row, 1)?;
        found.push(Pause {
            addon_id: text_at(row, 0)?.parse().map_err(name)?,
            job_type: if job_type.is_empty() {
                None
            } else {
                Some(job_type.parse().map_err(name)?)
            },
            since: from_micros(row.get(2)?),
            reason: row.get(3)?,
            by: row.get(4)?,
        });
    }
    Ok(found)
}

pub(crate) fn note(db: &Connection, name: &str) -> Result<Option<Json>> {
    let text: Option<String> = db
        .prepare_cached("SELECT value FROM scheduler_notes WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()?;
    text.as_deref().map(json_of).transpose()
}

pub(crate) fn notes(db: &Connection, prefix: &str) -> Result<Vec<(String, Json)>> {
    let mut statement = db
        .prepare_cached("SELECT name, value FROM scheduler_notes WHERE name >= ?1 ORDER BY name")?;
    let mut rows = statement.query([prefix])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let name = text_at(row, 0)?;
        if !name.starts_with(prefix) {
            break;
        }
        found.push((name.to_owned(), json_of(text_at(row, 1)?)?));
    }
    Ok(found)
}

/// Whether the tables have the columns that the statements count on, in their order.
pub(crate) fn check_columns(db: &Connection) -> Result<()> {
    for (table, columns) in [
        ("scheduler_jobs", JOB_COLUMNS),
        ("scheduler_jobs_history", JOB_COLUMNS),
        ("scheduler_leases", leases::LEASE_COLUMNS),
        ("scheduler_job_events", trail::EVENT_COLUMNS),
    ] {
        let statement = db.prepare(&format!("SELECT * FROM {table}"))?;
        if !statement.column_names().eq(columns.split(", ")) {
            return Err(codec::damaged(table));
        }
    }
    Ok(())
}
