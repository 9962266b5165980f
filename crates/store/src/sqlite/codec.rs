//! How records lie in columns.
//!
//! What an ordinary job has is in columns of its own; what few jobs have is JSON in `rest` (of the intent, which never
//! changes) and `live` (of the record), NULL if there is nothing of the kind. So no JSON is read or written for an
//! ordinary job, and a payload is the text that came. Yes-and-no fields are bits of `flags`.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use jobtree_protocol::{
    Backoff, CompleteStatus, Constraints, Intent, JobId, JobState, Json, Late, LeaseId, NodeId,
    OnDependencyFailure, Priority, Progress, ScheduleId, from_micros, to_micros,
};
use jobtree_queue::{Completion, Denial, JobRecord, Reservation};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Row, ToSql};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::StoreError;
use crate::tables::Result;

/// Longer payloads are in a table of their own: a job's row is written anew with each change.
pub(crate) const INLINE_PAYLOAD: usize = 600;

pub(crate) fn damaged(what: &str) -> StoreError {
    StoreError::Database {
        message: format!("{what} in the file is not what this program writes; check the file"),
    }
}

pub(crate) fn state_number(state: JobState) -> i64 {
    state as i64
}

pub(crate) fn state_of(number: i64) -> Result<JobState> {
    usize::try_from(number)
        .ok()
        .and_then(|number| JobState::ALL.get(number))
        .copied()
        .ok_or_else(|| damaged("a state"))
}

pub(crate) fn priority_of(number: i64) -> Result<Priority> {
    usize::try_from(number)
        .ok()
        .and_then(|number| Priority::ALL.get(number))
        .copied()
        .ok_or_else(|| damaged("a priority"))
}

pub(crate) fn time(micros: Option<i64>) -> Option<Timestamp> {
    micros.map(from_micros)
}

pub(crate) fn micros(time: Option<Timestamp>) -> Option<i64> {
    time.map(to_micros)
}

/// An id as SQLite gets it, without a copy.
pub(crate) struct Id<'a>(pub(crate) &'a Uuid);

impl ToSql for Id<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Blob(self.0.as_bytes())))
    }
}

/// A column that often is nothing.
pub(crate) struct Maybe<T>(pub(crate) Option<T>);

impl<T: ToSql> ToSql for Maybe<T> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match &self.0 {
            Some(value) => value.to_sql(),
            None => Ok(ToSqlOutput::Owned(Value::Null)),
        }
    }
}

pub(crate) fn uuid_at(row: &Row<'_>, column: usize) -> Result<Uuid> {
    optional_uuid_at(row, column)?.ok_or_else(|| damaged("an id"))
}

pub(crate) fn optional_uuid_at(row: &Row<'_>, column: usize) -> Result<Option<Uuid>> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(None),
        ValueRef::Blob(bytes) => Uuid::from_slice(bytes)
            .map(Some)
            .map_err(|_| damaged("an id")),
        _ => Err(damaged("an id")),
    }
}

pub(crate) fn text_at<'row>(row: &'row Row<'_>, column: usize) -> Result<&'row str> {
    row.get_ref(column)?.as_str().map_err(|_| damaged("a text"))
}

pub(crate) fn optional_text_at<'row>(
    row: &'row Row<'_>,
    column: usize,
) -> Result<Option<&'row str>> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(None),
        value => value.as_str().map(Some).map_err(|_| damaged("a text")),
    }
}

pub(crate) fn json_of(text: &str) -> Result<Json> {
    Json::from_text(text.to_owned()).map_err(|_| damaged("JSON"))
}

pub(crate) fn number<T: TryFrom<i64>>(value: i64) -> Result<T> {
    T::try_from(value).map_err(|_| damaged("a number"))
}

pub(crate) fn optional_number<T: TryFrom<i64>>(value: Option<i64>) -> Result<Option<T>> {
    value.map(number).transpose()
}

// The bits of `flags`, of jobs and leases alike.
const CPU_HEAVY: i64 = 1;
const DISK_WRITE_HEAVY: i64 = 1 << 1;
const NETWORK_HEAVY: i64 = 1 << 2;
const MEMORY_HEAVY: i64 = 1 << 3;
const TIME_SENSITIVE: i64 = 1 << 4;
const LATE_FAILS: i64 = 1 << 5;
const RUNS_AFTER_FAILURE: i64 = 1 << 6;
const QUARANTINED: i64 = 1 << 7;
const AT_RISK: i64 = 1 << 8;
const PAYLOAD_APART: i64 = 1 << 9;
const TAGGED: i64 = 1 << 10;

pub(crate) fn constraints_bits(constraints: &Constraints) -> i64 {
    let bit = |set: bool, bit: i64| if set { bit } else { 0 };
    bit(constraints.cpu_heavy, CPU_HEAVY)
        | bit(constraints.disk_write_heavy, DISK_WRITE_HEAVY)
        | bit(constraints.network_heavy, NETWORK_HEAVY)
        | bit(constraints.memory_heavy, MEMORY_HEAVY)
}

pub(crate) fn constraints_of(bits: i64) -> Constraints {
    Constraints {
        cpu_heavy: bits & CPU_HEAVY != 0,
        disk_write_heavy: bits & DISK_WRITE_HEAVY != 0,
        network_heavy: bits & NETWORK_HEAVY != 0,
        memory_heavy: bits & MEMORY_HEAVY != 0,
    }
}

fn flags(job: &JobRecord) -> i64 {
    let intent = &*job.intent;
    let bit = |set: bool, bit: i64| if set { bit } else { 0 };
    constraints_bits(&intent.constraints)
        | bit(intent.time_sensitive, TIME_SENSITIVE)
        | bit(intent.late == Late::Fail, LATE_FAILS)
        | bit(
            intent.on_dependency_failure == OnDependencyFailure::Run,
            RUNS_AFTER_FAILURE,
        )
        | bit(job.quarantined, QUARANTINED)
        | bit(job.at_risk, AT_RISK)
        | bit(payload_is_apart(intent), PAYLOAD_APART)
        | bit(!intent.tags.is_empty(), TAGGED)
}

pub(crate) fn is_quarantined(flags: i64) -> bool {
    flags & QUARANTINED != 0
}

pub(crate) fn payload_is_apart(intent: &Intent) -> bool {
    intent
        .payload
        .as_ref()
        .is_some_and(|payload| payload.text().len() > INLINE_PAYLOAD)
}

/// Whether rows beside the job's own belong to it, by its flags.
pub(crate) fn has_rows_apart(flags: i64) -> bool {
    flags & (PAYLOAD_APART | TAGGED) != 0
}

fn is_default_backoff(backoff: &Backoff) -> bool {
    *backoff == Backoff::default()
}

/// What few intents have.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Rest {
    #[serde(skip_serializing_if = "Option::is_none")]
    earliest_start_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<String>,
    #[serde(skip_serializing_if = "is_default_backoff")]
    backoff: Backoff,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    depends_on: Vec<JobId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    required_node: Option<NodeId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    required_labels: Vec<String>,
}

impl Rest {
    fn text(intent: &Intent) -> Option<String> {
        let ordinary = intent.earliest_start_at.is_none()
            && intent.tags.is_empty()
            && intent.idempotency_key.is_none()
            && is_default_backoff(&intent.backoff)
            && intent.depends_on.is_empty()
            && intent.required_node.is_none()
            && intent.required_labels.is_empty();
        (!ordinary).then(|| {
            json_text(&Self {
                earliest_start_at: intent.earliest_start_at,
                tags: intent.tags.clone(),
                idempotency_key: intent.idempotency_key.clone(),
                backoff: intent.backoff,
                depends_on: intent.depends_on.clone(),
                required_node: intent.required_node.clone(),
                required_labels: intent.required_labels.clone(),
            })
        })
    }
}

/// The tags that are in a job's `rest`.
pub(crate) fn tags_of(rest: Option<&str>) -> Result<Vec<String>> {
    let Some(text) = rest else {
        return Ok(Vec::new());
    };
    let rest: Rest = serde_json::from_str(text).map_err(|_| damaged("an intent"))?;
    Ok(rest.tags)
}

/// What few jobs have at a time.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Live {
    #[serde(skip_serializing_if = "is_zero")]
    redrives: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waiting_for: Vec<JobId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<Reservation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    denial: Option<Denial>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<Progress>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metrics: BTreeMap<String, f64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Live {
    fn text(job: &JobRecord) -> Option<String> {
        let ordinary = job.redrives == 0
            && job.waiting_for.is_empty()
            && job.reservation.is_none()
            && job.denial.is_none()
            && job.progress.is_none()
            && job.metrics.is_empty();
        (!ordinary).then(|| {
            json_text(&Self {
                redrives: job.redrives,
                waiting_for: job.waiting_for.clone(),
                reservation: job.reservation.clone(),
                denial: job.denial.clone(),
                progress: job.progress.clone(),
                metrics: job.metrics.clone(),
            })
        })
    }
}

pub(crate) fn json_text<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("records have a JSON form")
}

/// One completion: the lease, two bytes, and a time (or the smallest number).
const COMPLETION: usize = 16 + 2 + 8;

fn completions_bytes(completions: &[Completion]) -> Option<Vec<u8>> {
    if completions.is_empty() {
        return None;
    }
    let mut bytes = Vec::with_capacity(completions.len() * COMPLETION);
    for completion in completions {
        bytes.extend_from_slice(completion.lease_id.0.as_bytes());
        bytes.push(match completion.status {
            CompleteStatus::Done => 0,
            CompleteStatus::Failed => 1,
        });
        bytes.push(completion.state as u8);
        let not_before = completion.not_before.map_or(i64::MIN, to_micros);
        bytes.extend_from_slice(&not_before.to_be_bytes());
    }
    Some(bytes)
}

fn completions_of(bytes: &[u8]) -> Result<Vec<Completion>> {
    let completion = |part: &[u8]| -> Result<Completion> {
        let (lease, rest) = part.split_at(16);
        let micros = i64::from_be_bytes(rest[2..].try_into().expect("the parts have this length"));
        Ok(Completion {
            lease_id: LeaseId(Uuid::from_slice(lease).expect("16 bytes")),
            status: if rest[0] == 0 {
                CompleteStatus::Done
            } else {
                CompleteStatus::Failed
            },
            state: state_of(rest[1].into())?,
            not_before: (micros != i64::MIN).then(|| from_micros(micros)),
        })
    };
    if !bytes.len().is_multiple_of(COMPLETION) {
        return Err(damaged("a list of completions"));
    }
    bytes.chunks_exact(COMPLETION).map(completion).collect()
}

/// The columns of a job, in the order of the tables.
pub(crate) const JOB_COLUMNS: &str = "id, revision, state, addon_id, job_type, cost_units, priority, flags, created_at, \
     enqueued_at, attempts, rescues, max_attempts, not_before, deadline_at, expected_duration_sec, max_runtime_sec, \
     lease_id, lease_position, node_id, started_at, ended_at, cancel_requested_at, schedule_id, unique_key, \
     concurrency_key, concurrency_limit, completions, last_event, last_error, result, rest, live, payload";

/// Where `last_event` stands in them.
pub(crate) const LAST_EVENT_COLUMN: usize = 28;

/// The value of a column.
pub(crate) enum Cell<'a> {
    Null,
    Number(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
    OwnText(String),
    OwnBytes(Vec<u8>),
}

impl Cell<'_> {
    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
}

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Owned(Value::Null),
            Self::Number(number) => ToSqlOutput::Owned(Value::Integer(*number)),
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
            Self::OwnText(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::OwnBytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}

/// How many columns a job has.
pub(crate) const JOB_WIDTH: usize = 34;

/// The values of all columns, in their order.
pub(crate) fn job_cells(job: &JobRecord, last_event: Option<i64>) -> [Cell<'_>; JOB_WIDTH] {
    let number = |value: Option<i64>| value.map_or(Cell::Null, Cell::Number);
    let small = |value: Option<u32>| value.map_or(Cell::Null, |value| Cell::Number(value.into()));
    fn text(value: Option<&str>) -> Cell<'_> {
        value.map_or(Cell::Null, Cell::Text)
    }
    fn id(value: Option<&Uuid>) -> Cell<'_> {
        value.map_or(Cell::Null, |id| Cell::Bytes(id.as_bytes()))
    }
    let intent = &*job.intent;
    let payload = intent
        .payload
        .as_ref()
        .filter(|_| !payload_is_apart(intent));
    let created_at = to_micros(job.created_at);
    let enqueued_at = to_micros(job.enqueued_at);
    [
        id(Some(&job.id.0)),
        Cell::Number(job.revision as i64),
        Cell::Number(state_number(job.state)),
        Cell::Text(intent.addon_id.as_str()),
        Cell::Text(intent.job_type.as_str()),
        small(Some(intent.cost_units)),
        Cell::Number(intent.priority as i64),
        Cell::Number(flags(job)),
        Cell::Number(created_at),
        number((enqueued_at != created_at).then_some(enqueued_at)),
        small(Some(job.attempts)),
        small(Some(job.rescues)),
        small(Some(intent.max_attempts)),
        number(micros(job.not_before)),
        number(micros(intent.deadline_at)),
        small(intent.expected_duration_sec),
        small(intent.max_runtime_sec),
        id(job.lease_id.as_ref().map(|id| &id.0)),
        small(job.lease_id.map(|_| job.lease_position)),
        text(job.node_id.as_ref().map(NodeId::as_str)),
        number(micros(job.started_at)),
        number(micros(job.ended_at)),
        number(micros(job.cancel_requested_at)),
        id(intent.schedule_id.as_ref().map(|id| &id.0)),
        text(intent.unique_key.as_deref()),
        text(intent.concurrency_key.as_deref()),
        small((intent.concurrency_limit != 1).then_some(intent.concurrency_limit)),
        completions_bytes(&job.completions).map_or(Cell::Null, Cell::OwnBytes),
        number(last_event),
        text(job.last_error.as_deref()),
        text(job.result.as_ref().map(Json::text)),
        Rest::text(intent).map_or(Cell::Null, Cell::OwnText),
        Live::text(job).map_or(Cell::Null, Cell::OwnText),
        text(payload.map(Json::text)),
    ]
}

/// A job of a row with all columns. `payload_apart` finds a payload that is not in the row.
pub(crate) fn job_of(
    row: &Row<'_>,
    payload_apart: impl FnOnce(JobId) -> Result<Json>,
) -> Result<JobRecord> {
    let id = JobId(uuid_at(row, 0)?);
    let state = state_of(row.get(2)?)?;
    let flags: i64 = row.get(7)?;
    let created_at = from_micros(row.get(8)?);
    let rest: Rest = match optional_text_at(row, 31)? {
        None => Rest::default(),
        Some(text) => serde_json::from_str(text).map_err(|_| damaged("an intent"))?,
    };
    let live: Live = match optional_text_at(row, 32)? {
        None => Live::default(),
        Some(text) => serde_json::from_str(text).map_err(|_| damaged("a job"))?,
    };
    let payload = if flags & PAYLOAD_APART != 0 {
        Some(payload_apart(id)?)
    } else {
        optional_text_at(row, 33)?.map(json_of).transpose()?
    };
    let name = |_| damaged("a name");
    let intent = Intent {
        addon_id: text_at(row, 3)?.parse().map_err(name)?,
        job_type: text_at(row, 4)?.parse().map_err(name)?,
        cost_units: number(row.get(5)?)?,
        priority: priority_of(row.get(6)?)?,
        constraints: constraints_of(flags),
        expected_duration_sec: optional_number(row.get(15)?)?,
        payload,
        time_sensitive: flags & TIME_SENSITIVE != 0,
        earliest_start_at: rest.earliest_start_at,
        deadline_at: time(row.get(14)?),
        late: if flags & LATE_FAILS == 0 {
            Late::Run
        } else {
            Late::Fail
        },
        max_runtime_sec: optional_number(row.get(16)?)?,
        tags: rest.tags,
        idempotency_key: rest.idempotency_key,
        unique_key: row.get(24)?,
        concurrency_key: row.get(25)?,
        concurrency_limit: optional_number(row.get(26)?)?.unwrap_or(1),
        max_attempts: number(row.get(12)?)?,
        backoff: rest.backoff,
        depends_on: rest.depends_on,
        on_dependency_failure: if flags & RUNS_AFTER_FAILURE == 0 {
            OnDependencyFailure::Cancel
        } else {
            OnDependencyFailure::Run
        },
        required_node: rest.required_node,
        required_labels: rest.required_labels,
        schedule_id: optional_uuid_at(row, 23)?.map(ScheduleId),
    };
    Ok(JobRecord {
        id,
        revision: number(row.get(1)?)?,
        intent: Arc::new(intent),
        created_at,
        enqueued_at: time(row.get(9)?).unwrap_or(created_at),
        state,
        attempts: number(row.get(10)?)?,
        rescues: number(row.get(11)?)?,
        redrives: live.redrives,
        not_before: time(row.get(13)?),
        waiting_for: live.waiting_for,
        reservation: live.reservation,
        lease_id: optional_uuid_at(row, 17)?.map(LeaseId),
        lease_position: optional_number(row.get(18)?)?.unwrap_or(0),
        node_id: optional_text_at(row, 19)?
            .map(str::parse)
            .transpose()
            .map_err(name)?,
        started_at: time(row.get(20)?),
        ended_at: time(row.get(21)?),
        cancel_requested_at: time(row.get(22)?),
        quarantined: flags & QUARANTINED != 0,
        at_risk: flags & AT_RISK != 0,
        denial: live.denial,
        progress: live.progress,
        metrics: live.metrics,
        result: optional_text_at(row, 30)?.map(json_of).transpose()?,
        last_error: row.get(29)?,
        completions: match row.get_ref(27)? {
            ValueRef::Null => Vec::new(),
            ValueRef::Blob(bytes) => completions_of(bytes)?,
            _ => return Err(damaged("a list of completions")),
        },
    })
}
