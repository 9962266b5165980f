//! How records lie in columns.
//!
//! What statements ask for, and what somebody who looks into the file wants to see, has columns of its own; everything
//! else of a job is packed into one, `body`. It begins with `flags`: yes-and-no fields, and which of the others are there
//! at all, so an ordinary job is short. Times are told by their distance from the job's creation. What few jobs have is
//! JSON in it: `rest` (of the intent, which never changes) and `live` (of the record). So no JSON is read or written for
//! an ordinary job, and a payload is the text that came.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use jobtree_protocol::{
    Backoff, Constraints, Intent, JobId, JobState, Json, Late, LeaseId, NodeId,
    OnDependencyFailure, Priority, Progress, ScheduleId, Start, TraceParent, from_micros,
    to_micros,
};
use jobtree_queue::{Completion, Denial, JobRecord, Reservation};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Row, ToSql};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::pack::{Unpack, packed_number, put_bytes, put_id, put_number, put_signed};
use crate::disk_numbers;
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
    disk_numbers::state_number(state).into()
}

pub(crate) fn state_of(number: i64) -> Result<JobState> {
    meaning(number, disk_numbers::state_of, "a state")
}

pub(crate) fn priority_of(number: i64) -> Result<Priority> {
    meaning(number, disk_numbers::priority_of, "a priority")
}

/// Reads the meaning of a number on disk.
pub(crate) fn meaning<T>(number: i64, of: impl FnOnce(u8) -> Option<T>, what: &str) -> Result<T> {
    let number = u8::try_from(number).ok();
    number.and_then(of).ok_or_else(|| damaged(what))
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

// And, of jobs, which fields are there.
const HAS_ENQUEUED_AT: i64 = 1 << 10;
const HAS_NOT_BEFORE: i64 = 1 << 11;
const HAS_DEADLINE: i64 = 1 << 12;
const HAS_STARTED_AT: i64 = 1 << 13;
const HAS_ENDED_AT: i64 = 1 << 14;
const HAS_CANCEL_REQUEST: i64 = 1 << 15;
const HAS_LAST_EVENT: i64 = 1 << 16;
const HAS_ATTEMPTS: i64 = 1 << 17;
const HAS_RESCUES: i64 = 1 << 18;
const HAS_DURATION: i64 = 1 << 19;
const HAS_MAX_RUNTIME: i64 = 1 << 20;
const HAS_LIMIT: i64 = 1 << 21;
const HAS_LEASE: i64 = 1 << 22;
const HAS_SCHEDULE: i64 = 1 << 23;
const HAS_NODE: i64 = 1 << 24;
const HAS_UNIQUE_KEY: i64 = 1 << 25;
const HAS_CONCURRENCY_KEY: i64 = 1 << 26;
const HAS_LAST_ERROR: i64 = 1 << 27;
const HAS_RESULT: i64 = 1 << 28;
const HAS_REST: i64 = 1 << 29;
const HAS_LIVE: i64 = 1 << 30;
const HAS_PAYLOAD: i64 = 1 << 31;
const HAS_COMPLETIONS: i64 = 1 << 32;
const HAS_TRACE: i64 = 1 << 33;

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
    #[serde(skip_serializing_if = "Start::is_default")]
    start: Start,
}

impl Rest {
    fn text(intent: &Intent) -> Option<String> {
        let ordinary = intent.earliest_start_at.is_none()
            && intent.tags.is_empty()
            && intent.idempotency_key.is_none()
            && is_default_backoff(&intent.backoff)
            && intent.depends_on.is_empty()
            && intent.required_node.is_none()
            && intent.required_labels.is_empty()
            && intent.start.is_default();
        (!ordinary).then(|| {
            json_text(&Self {
                earliest_start_at: intent.earliest_start_at,
                tags: intent.tags.clone(),
                idempotency_key: intent.idempotency_key.clone(),
                backoff: intent.backoff,
                depends_on: intent.depends_on.clone(),
                required_node: intent.required_node.clone(),
                required_labels: intent.required_labels.clone(),
                start: intent.start,
            })
        })
    }
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
    reservation: Option<Box<Reservation>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    denial: Option<Box<Denial>>,
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

fn put_completions(bytes: &mut Vec<u8>, completions: &[Completion]) {
    put_number(bytes, (completions.len() * COMPLETION) as u64);
    for completion in completions {
        bytes.extend_from_slice(completion.lease_id.0.as_bytes());
        bytes.push(disk_numbers::status_number(completion.status));
        bytes.push(disk_numbers::state_number(completion.state));
        let not_before = completion.not_before.map_or(i64::MIN, to_micros);
        bytes.extend_from_slice(&not_before.to_be_bytes());
    }
}

fn completions_of(bytes: &[u8]) -> Result<Vec<Completion>> {
    let completion = |part: &[u8]| -> Result<Completion> {
        let (lease, rest) = part.split_at(16);
        let micros = i64::from_be_bytes(rest[2..].try_into().expect("the parts have this length"));
        Ok(Completion {
            lease_id: LeaseId(Uuid::from_slice(lease).expect("16 bytes")),
            status: meaning(rest[0].into(), disk_numbers::status_of, "a completion")?,
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
pub(crate) const JOB_COLUMNS: &str = "id, revision, state, addon_id, job_type, body";

/// Packs what has no column of its own.
pub(crate) fn pack_body(bytes: &mut Vec<u8>, job: &JobRecord, last_event: Option<i64>) {
    let intent = &*job.intent;
    let payload = intent.payload.as_ref();
    let payload = payload.filter(|_| !payload_is_apart(intent));
    let enqueued_at = (job.enqueued_at != job.created_at).then_some(job.enqueued_at);
    let limit = intent.concurrency_limit;
    let mut body = Body::begin(bytes, flags(job), job.created_at);
    put_number(body.bytes, intent.cost_units.into());
    body.bytes
        .push(disk_numbers::priority_number(intent.priority));
    put_number(body.bytes, intent.max_attempts.into());

    body.time(HAS_ENQUEUED_AT, enqueued_at);
    body.time(HAS_NOT_BEFORE, job.not_before);
    body.time(HAS_DEADLINE, intent.deadline_at);
    body.time(HAS_STARTED_AT, job.started_at);
    body.time(HAS_ENDED_AT, job.ended_at);
    body.time(HAS_CANCEL_REQUEST, job.cancel_requested_at);

    body.number(HAS_LAST_EVENT, last_event.map(|place| place as u64));
    body.number(HAS_ATTEMPTS, positive(job.attempts));
    body.number(HAS_RESCUES, positive(job.rescues));
    body.number(HAS_DURATION, intent.expected_duration_sec.map(u64::from));
    body.number(HAS_MAX_RUNTIME, intent.max_runtime_sec.map(u64::from));
    body.number(HAS_LIMIT, (limit != 1).then(|| limit.into()));
    body.number(HAS_LEASE, job.lease_id.map(|_| job.lease_position.into()));

    body.id(HAS_LEASE, job.lease_id.as_ref().map(|id| &id.0));
    body.id(HAS_SCHEDULE, intent.schedule_id.as_ref().map(|id| &id.0));

    body.text(HAS_NODE, job.node_id.as_ref().map(NodeId::as_str));
    body.text(HAS_UNIQUE_KEY, intent.unique_key.as_deref());
    body.text(HAS_CONCURRENCY_KEY, intent.concurrency_key.as_deref());
    body.text(HAS_LAST_ERROR, job.last_error.as_deref());
    body.text(HAS_RESULT, job.result.as_ref().map(Json::text));
    body.text(HAS_REST, Rest::text(intent).as_deref());
    body.text(HAS_LIVE, Live::text(job).as_deref());
    body.text(HAS_PAYLOAD, payload.map(Json::text));

    if !job.completions.is_empty() {
        body.flags |= HAS_COMPLETIONS;
        put_completions(body.bytes, &job.completions);
    }
    if let Some(traceparent) = &intent.traceparent {
        body.flags |= HAS_TRACE;
        body.bytes.extend_from_slice(&traceparent.to_bytes());
    }
    body.end();
}

/// A body that is being packed. Its flags come first and are known last: room is left for as many bytes as they take in
/// most jobs, and what follows moves up if they take fewer.
struct Body<'a> {
    bytes: &'a mut Vec<u8>,
    begin: usize,
    flags: i64,
    created_at: i64,
}

/// All flags fit.
const FLAGS_BYTES: usize = 5;
const _: () = assert!(HAS_TRACE < 1 << (7 * FLAGS_BYTES));

impl<'a> Body<'a> {
    fn begin(bytes: &'a mut Vec<u8>, flags: i64, created_at: Timestamp) -> Self {
        let (begin, created_at) = (bytes.len(), to_micros(created_at));
        bytes.extend_from_slice(&[0; FLAGS_BYTES]);
        put_signed(bytes, created_at);
        Self {
            bytes,
            begin,
            flags,
            created_at,
        }
    }

    fn time(&mut self, bit: i64, time: Option<Timestamp>) {
        if let Some(time) = time {
            self.flags |= bit;
            put_signed(self.bytes, to_micros(time).wrapping_sub(self.created_at));
        }
    }

    fn number(&mut self, bit: i64, number: Option<u64>) {
        if let Some(number) = number {
            self.flags |= bit;
            put_number(self.bytes, number);
        }
    }

    fn id(&mut self, bit: i64, id: Option<&Uuid>) {
        if let Some(id) = id {
            self.flags |= bit;
            put_id(self.bytes, id);
        }
    }

    fn text(&mut self, bit: i64, text: Option<&str>) {
        if let Some(text) = text {
            self.flags |= bit;
            put_bytes(self.bytes, text.as_bytes());
        }
    }

    fn end(self) {
        let Self {
            bytes,
            begin,
            flags,
            ..
        } = self;
        let (packed, taken) = packed_number(flags as u64);
        if taken < FLAGS_BYTES {
            bytes.copy_within(begin + FLAGS_BYTES.., begin + taken);
            bytes.truncate(bytes.len() - (FLAGS_BYTES - taken));
        }
        bytes[begin..begin + taken].copy_from_slice(&packed[..taken]);
    }
}

fn positive(number: u32) -> Option<u64> {
    (number != 0).then_some(number.into())
}

/// The flags of a job's body.
pub(crate) fn flags_of(body: &[u8]) -> Result<i64> {
    Unpack::new(body).number()
}

/// The body of a row with all columns.
pub(crate) fn body_of<'row>(row: &'row Row<'_>) -> Result<&'row [u8]> {
    row.get_ref(5)?.as_blob().map_err(|_| damaged("a job"))
}

/// A job of a row with all columns, and the place of its last event. `payload_apart` finds a payload that is not in the
/// row.
pub(crate) fn job_of(
    row: &Row<'_>,
    payload_apart: impl FnOnce(JobId) -> Result<Json>,
) -> Result<(JobRecord, Option<i64>)> {
    let id = JobId(uuid_at(row, 0)?);
    let name = |_| damaged("a name");
    let mut unpack = Unpack::new(body_of(row)?);
    let flags: i64 = unpack.number()?;
    let has = |bit: i64| flags & bit != 0;
    let created = unpack.signed()?;
    let cost_units = unpack.number()?;
    let priority = priority_of(unpack.byte()?.into())?;
    let max_attempts = unpack.number()?;

    let mut time = |bit| -> Result<Option<Timestamp>> {
        let later = has(bit).then(|| unpack.signed()).transpose()?;
        Ok(later.map(|later| from_micros(created.wrapping_add(later))))
    };
    let enqueued_at = time(HAS_ENQUEUED_AT)?;
    let not_before = time(HAS_NOT_BEFORE)?;
    let deadline_at = time(HAS_DEADLINE)?;
    let started_at = time(HAS_STARTED_AT)?;
    let ended_at = time(HAS_ENDED_AT)?;
    let cancel_requested_at = time(HAS_CANCEL_REQUEST)?;

    let last_event = has(HAS_LAST_EVENT).then(|| unpack.number()).transpose()?;
    let mut number = |bit| -> Result<Option<u32>> { has(bit).then(|| unpack.number()).transpose() };
    let attempts = number(HAS_ATTEMPTS)?.unwrap_or(0);
    let rescues = number(HAS_RESCUES)?.unwrap_or(0);
    let expected_duration_sec = number(HAS_DURATION)?;
    let max_runtime_sec = number(HAS_MAX_RUNTIME)?;
    let concurrency_limit = number(HAS_LIMIT)?.unwrap_or(1);
    let lease_position = number(HAS_LEASE)?.unwrap_or(0);

    let mut uuid = |bit| has(bit).then(|| unpack.id()).transpose();
    let lease_id = uuid(HAS_LEASE)?.map(LeaseId);
    let schedule_id = uuid(HAS_SCHEDULE)?.map(ScheduleId);

    let mut text = |bit| has(bit).then(|| unpack.text()).transpose();
    let node_id = text(HAS_NODE)?.map(str::parse).transpose().map_err(name)?;
    let unique_key = text(HAS_UNIQUE_KEY)?.map(str::to_owned);
    let concurrency_key = text(HAS_CONCURRENCY_KEY)?.map(str::to_owned);
    let last_error = text(HAS_LAST_ERROR)?.map(str::to_owned);
    let result = text(HAS_RESULT)?.map(json_of).transpose()?;
    let rest: Rest = match text(HAS_REST)? {
        None => Rest::default(),
        Some(text) => serde_json::from_str(text).map_err(|_| damaged("an intent"))?,
    };
    let live: Live = match text(HAS_LIVE)? {
        None => Live::default(),
        Some(text) => serde_json::from_str(text).map_err(|_| damaged("a job"))?,
    };
    let payload = match text(HAS_PAYLOAD)? {
        Some(text) => Some(json_of(text)?),
        None if has(PAYLOAD_APART) => Some(payload_apart(id)?),
        None => None,
    };
    let completions = if has(HAS_COMPLETIONS) {
        completions_of(unpack.bytes()?)?
    } else {
        Vec::new()
    };
    let trace = |bytes| TraceParent::from_bytes(bytes).map_err(|_| damaged("a trace"));
    let traceparent = match has(HAS_TRACE) {
        true => Some(trace(unpack.array()?)?),
        false => None,
    };
    if !unpack.is_empty() {
        return Err(damaged("a job"));
    }

    let intent = Intent {
        addon_id: text_at(row, 3)?.parse().map_err(name)?,
        job_type: text_at(row, 4)?.parse().map_err(name)?,
        cost_units,
        priority,
        constraints: constraints_of(flags),
        expected_duration_sec,
        payload,
        time_sensitive: has(TIME_SENSITIVE),
        start: rest.start,
        earliest_start_at: rest.earliest_start_at,
        deadline_at,
        late: if has(LATE_FAILS) {
            Late::Fail
        } else {
            Late::Run
        },
        max_runtime_sec,
        tags: rest.tags,
        idempotency_key: rest.idempotency_key,
        unique_key,
        concurrency_key,
        concurrency_limit,
        max_attempts,
        backoff: rest.backoff,
        depends_on: rest.depends_on,
        on_dependency_failure: if has(RUNS_AFTER_FAILURE) {
            OnDependencyFailure::Run
        } else {
            OnDependencyFailure::Cancel
        },
        required_node: rest.required_node,
        required_labels: rest.required_labels,
        schedule_id,
        traceparent,
    };
    let created_at = from_micros(created);
    let job = JobRecord {
        id,
        revision: self::number(row.get(1)?)?,
        intent: Arc::new(intent),
        created_at,
        enqueued_at: enqueued_at.unwrap_or(created_at),
        state: state_of(row.get(2)?)?,
        attempts,
        rescues,
        redrives: live.redrives,
        not_before,
        waiting_for: live.waiting_for,
        reservation: live.reservation,
        lease_id,
        lease_position,
        node_id,
        started_at,
        ended_at,
        cancel_requested_at,
        quarantined: has(QUARANTINED),
        at_risk: has(AT_RISK),
        denial: live.denial,
        progress: live.progress,
        metrics: live.metrics,
        result,
        last_error,
        completions,
    };
    Ok((job, last_event))
}
