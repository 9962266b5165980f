//! What a transaction decided, as statements: each table is written once, whatever the number of commands, rows as
//! arrays. They are sent together with the COMMIT. Many rows of jobs are cut into several statements, each built when it
//! is sent: the server writes the first rows while the next ones are put into JSON.
//!
//! Rows that exist are locked since the transaction began, so none of these statements waits for another transaction, but
//! for rows that are new. Those are guarded by the locks on their names; the unique indexes are the proof.

use jobtree_protocol::to_micros;
use jobtree_queue::{JobRecord, LeaseRecord};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::connection::Call;
use super::overlay::{Overlay, Place};
use super::tables::{request_text, state_number, text};

// Each array is a column of the select list, and not of a table function in FROM: that would keep all rows of each of its arrays
// in memory first, and cost as much as the insertion itself.
macro_rules! put_hot {
    ($conflict:literal) => {
        concat!(
            "INSERT INTO scheduler_jobs (id, revision, state, addon_id, job_type, quarantined, created_at, record, \
               last_event, unique_key, concurrency_key, lease_id, lease_position, cost, max_runtime_sec, cancel) \
             SELECT unnest($1::uuid[]), unnest($2::bigint[]), unnest($3::smallint[]), unnest($4::text[]), \
               unnest($5::text[]), unnest($6::bool[]), unnest($7::bigint[]), unnest($8::text[]), unnest($9::bigint[]), \
               unnest($10::text[]), unnest($11::text[]), unnest($12::uuid[]), unnest($13::int[]), unnest($14::int[]), \
               unnest($15::bigint[]), unnest($16::bool[])",
            $conflict
        )
    };
}

// What is found by keys and leases has not ended, so the history has none of these.
macro_rules! put_ended {
    ($conflict:literal) => {
        concat!(
            "INSERT INTO scheduler_jobs_history (id, revision, state, addon_id, job_type, quarantined, created_at, record, \
               last_event, ended_at) \
             SELECT unnest($1::uuid[]), unnest($2::bigint[]), unnest($3::smallint[]), unnest($4::text[]), \
               unnest($5::text[]), unnest($6::bool[]), unnest($7::bigint[]), unnest($8::text[]), unnest($9::bigint[]), \
               unnest($10::bigint[])",
            $conflict
        )
    };
}

const INSERT_HOT: &str = put_hot!("");
const INSERT_ENDED: &str = put_ended!("");
/// For rows that may be there.
pub(super) const PUT_HOT: &str = put_hot!(
    " ON CONFLICT (id) DO UPDATE SET revision = EXCLUDED.revision, state = EXCLUDED.state, \
     lease_id = EXCLUDED.lease_id, lease_position = EXCLUDED.lease_position, quarantined = EXCLUDED.quarantined, \
     record = EXCLUDED.record, last_event = EXCLUDED.last_event, cancel = EXCLUDED.cancel"
);
pub(super) const PUT_ENDED: &str = put_ended!(
    " ON CONFLICT (id) DO UPDATE SET revision = EXCLUDED.revision, state = EXCLUDED.state, \
     quarantined = EXCLUDED.quarantined, ended_at = EXCLUDED.ended_at, record = EXCLUDED.record, \
     last_event = EXCLUDED.last_event"
);
const UPDATE_HOT: &str = "UPDATE scheduler_jobs AS job SET revision = new.revision, state = new.state, \
    lease_id = new.lease_id, lease_position = new.lease_position, quarantined = new.quarantined, record = new.record, \
    last_event = new.last_event, cancel = new.cancel \
    FROM (SELECT unnest($1::uuid[]), unnest($2::bigint[]), unnest($3::smallint[]), unnest($4::uuid[]), unnest($5::int[]), \
    unnest($6::bool[]), unnest($7::text[]), unnest($8::bigint[]), unnest($9::bool[])) AS new (id, revision, state, lease_id, lease_position, quarantined, record, last_event, cancel) \
    WHERE job.id = new.id";

/// A statement that is built when it is sent.
pub(super) type Pending<'a> = Box<dyn FnOnce() -> Call + 'a>;

/// Rows of jobs in one statement. Picked by feel: a statement costs the server some 20 µs, a row 4 µs.
const ROWS: usize = 256;

/// A job, and where its trail ends.
pub(super) type Row<'a> = (&'a JobRecord, Option<i64>);

fn each<'a, T>(jobs: &[Row<'a>], of: impl Fn(&'a JobRecord) -> T) -> Vec<T> {
    jobs.iter().map(|(job, _)| of(job)).collect()
}

fn last_events(jobs: &[Row<'_>]) -> Vec<Option<i64>> {
    jobs.iter().map(|(_, last_event)| *last_event).collect()
}

/// Inserts jobs that have not ended, by one of the statements above, with what a lease knows of each of its jobs.
pub(super) fn put_hot(sql: &'static str, jobs: &[Row<'_>]) -> Call {
    put_jobs(sql, jobs)
        .with(each(jobs, |job| job.intent.unique_key.clone()))
        .with(each(jobs, |job| job.intent.concurrency_key.clone()))
        .with(each(jobs, |job| job.lease_id.map(|id| id.0)))
        .with(each(jobs, |job| {
            job.lease_id.map(|_| job.lease_position as i32)
        }))
        .with(each(jobs, |job| job.cost() as i32))
        .with(each(jobs, |job| job.intent.max_runtime_sec.map(i64::from)))
        .with(cancelled(jobs))
}

fn cancelled(jobs: &[Row<'_>]) -> Vec<bool> {
    each(jobs, |job| job.cancel_requested_at.is_some())
}

/// Inserts jobs that have ended, likewise.
pub(super) fn put_ended(sql: &'static str, jobs: &[Row<'_>]) -> Call {
    put_jobs(sql, jobs).with(each(jobs, |job| job.ended_at.map(to_micros)))
}

fn put_jobs(sql: &'static str, jobs: &[Row<'_>]) -> Call {
    Call::new(sql)
        .with(each(jobs, |job| job.id.0))
        .with(each(jobs, |job| job.revision as i64))
        .with(each(jobs, |job| state_number(job.state)))
        .with(each(jobs, |job| job.intent.addon_id.to_string()))
        .with(each(jobs, |job| job.intent.job_type.to_string()))
        .with(each(jobs, |job| job.quarantined))
        .with(each(jobs, |job| to_micros(job.created_at)))
        .with(each(jobs, text))
        .with(last_events(jobs))
}

fn update_jobs(jobs: &[Row<'_>]) -> Call {
    Call::new(UPDATE_HOT)
        .with(each(jobs, |job| job.id.0))
        .with(each(jobs, |job| job.revision as i64))
        .with(each(jobs, |job| state_number(job.state)))
        .with(each(jobs, |job| job.lease_id.map(|id| id.0)))
        .with(each(jobs, |job| {
            job.lease_id.map(|_| job.lease_position as i32)
        }))
        .with(each(jobs, |job| job.quarantined))
        .with(each(jobs, text))
        .with(last_events(jobs))
        .with(cancelled(jobs))
}

/// Adds the statements for these rows.
fn in_parts<'a>(
    calls: &mut Vec<Pending<'a>>,
    rows: &[Row<'a>],
    build: impl Fn(&[Row<'a>]) -> Call + Copy + 'a,
) {
    for part in rows.chunks(ROWS) {
        let part = part.to_vec();
        calls.push(Box::new(move || build(&part)));
    }
}

/// Adds a statement, unless it would concern no row.
fn add<T: ToSql + Send + Sync + 'static>(calls: &mut Vec<Call>, sql: &'static str, ids: Vec<T>) {
    if !ids.is_empty() {
        calls.push(Call::new(sql).with(ids));
    }
}

/// Tags of jobs that have none in the database, and what jobs with dependencies wait for.
pub(super) fn side_tables<'a>(
    calls: &mut Vec<Call>,
    new: impl Iterator<Item = &'a JobRecord>,
    depending: impl Iterator<Item = &'a JobRecord>,
) {
    let (mut tags, mut tagged) = (Vec::new(), Vec::new());
    for job in new {
        for tag in &job.intent.tags {
            tags.push(tag.clone());
            tagged.push(job.id.0);
        }
    }
    if !tags.is_empty() {
        let sql = "INSERT INTO scheduler_tags SELECT * FROM unnest($1::text[], $2::uuid[]) \
                   ON CONFLICT DO NOTHING";
        calls.push(Call::new(sql).with(tags).with(tagged));
    }
    let (mut ids, mut dependencies, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
    for job in depending.filter(|job| !job.intent.depends_on.is_empty()) {
        ids.push(job.id.0);
        for dependency in &job.waiting_for {
            dependencies.push(dependency.0);
            waiting.push(job.id.0);
        }
    }
    add(calls, "DELETE FROM scheduler_waits WHERE id = ANY($1)", ids);
    if !waiting.is_empty() {
        let sql = "INSERT INTO scheduler_waits SELECT * FROM unnest($1::uuid[], $2::uuid[])";
        calls.push(Call::new(sql).with(dependencies).with(waiting));
    }
}

/// Returns a statement that is built already.
fn at_once<'a>(call: Call) -> Pending<'a> {
    Box::new(move || call)
}

fn jobs<'a>(overlay: &'a Overlay, calls: &mut Vec<Pending<'a>>) {
    let (mut new, mut changed, mut ended) = (Vec::new(), Vec::new(), Vec::new());
    let (mut new_ended, mut changed_ended) = (Vec::new(), Vec::new());
    let (mut leaving_hot, mut leaving_history) = (Vec::new(), Vec::new());
    let mut all = Vec::with_capacity(overlay.dirty_jobs.len());
    for id in &overlay.dirty_jobs {
        let Some(known) = overlay.job(*id) else {
            continue;
        };
        let Some(job) = known.job.as_deref() else {
            continue;
        };
        all.push((job, known.place.is_none()));
        let row = (job, known.last_event);
        match (known.place, Place::of(job.state)) {
            (None, Place::Hot) => new.push(row),
            (None, Place::History) => new_ended.push(row),
            (Some(Place::Hot), Place::Hot) => changed.push(row),
            (Some(Place::Hot), Place::History) => {
                leaving_hot.push(id.0);
                ended.push(row);
            }
            (Some(Place::History), Place::Hot) => {
                leaving_history.push(id.0);
                new.push(row);
            }
            (Some(Place::History), Place::History) => changed_ended.push(row),
        }
    }
    ended.extend(new_ended);
    let mut small = Vec::new();
    add(
        &mut small,
        "DELETE FROM scheduler_jobs WHERE id = ANY($1)",
        leaving_hot,
    );
    add(
        &mut small,
        "DELETE FROM scheduler_jobs_history WHERE id = ANY($1)",
        leaving_history,
    );
    calls.extend(small.drain(..).map(at_once));
    // Should two transactions insert the same unique keys, they come to them in the same order.
    new.sort_by(|(a, _), (b, _)| a.intent.unique_key.cmp(&b.intent.unique_key));
    in_parts(calls, &new, |rows| put_hot(INSERT_HOT, rows));
    in_parts(calls, &changed, update_jobs);
    in_parts(calls, &ended, |rows| put_ended(INSERT_ENDED, rows));
    in_parts(calls, &changed_ended, |rows| put_ended(PUT_ENDED, rows));
    let retagged: Vec<Uuid> = overlay.retagged.iter().map(|id| id.0).collect();
    add(
        &mut small,
        "DELETE FROM scheduler_tags WHERE id = ANY($1)",
        retagged,
    );
    let new = all
        .iter()
        .filter(|(job, is_new)| *is_new || overlay.retagged.contains(&job.id));
    side_tables(
        &mut small,
        new.map(|(job, _)| *job),
        all.iter().map(|(job, _)| *job),
    );
    calls.extend(small.into_iter().map(at_once));
}

fn leases(overlay: &Overlay, calls: &mut Vec<Call>) {
    let (mut new, mut changed): (Vec<&LeaseRecord>, Vec<&LeaseRecord>) = Default::default();
    for id in &overlay.dirty_leases {
        let Some(known) = overlay.lease(*id) else {
            continue;
        };
        let Some(lease) = &known.lease else { continue };
        if known.is_stored {
            changed.push(lease);
        } else {
            new.push(lease);
        }
    }
    fn columns(sql: &'static str, mut leases: Vec<&LeaseRecord>) -> Call {
        leases.sort_by_key(|lease| lease.id);
        let record = |lease: &&LeaseRecord| {
            text(&LeaseRecord {
                jobs: Vec::new(),
                ..LeaseRecord::clone(lease)
            })
        };
        Call::new(sql)
            .with(leases.iter().map(|lease| lease.id.0).collect::<Vec<Uuid>>())
            .with(leases.iter().map(|it| it.is_live()).collect::<Vec<bool>>())
            .with(
                leases
                    .iter()
                    .map(|lease| lease.ended_at.map(to_micros))
                    .collect::<Vec<Option<i64>>>(),
            )
            .with(leases.iter().map(record).collect::<Vec<String>>())
            .with(
                leases
                    .iter()
                    .map(|lease| lease.request_name().as_ref().map(request_text))
                    .collect::<Vec<Option<String>>>(),
            )
    }
    if !new.is_empty() {
        let sql = "INSERT INTO scheduler_leases (id, live, ended_at, record, request) \
                   SELECT * FROM unnest($1::uuid[], $2::bool[], $3::bigint[], $4::text[], $5::text[])";
        calls.push(columns(sql, new));
    }
    if !changed.is_empty() {
        let sql = "UPDATE scheduler_leases AS lease SET live = new.live, ended_at = new.ended_at, \
                   record = new.record, request = new.request \
                   FROM unnest($1::uuid[], $2::bool[], $3::bigint[], $4::text[], $5::text[]) \
                   AS new (id, live, ended_at, record, request) WHERE lease.id = new.id";
        calls.push(columns(sql, changed));
    }
}

fn keys(overlay: &Overlay, calls: &mut Vec<Call>) {
    if overlay.new_keys.is_empty() {
        return;
    }
    let mut keys: Vec<_> = overlay.new_keys.iter().collect();
    keys.sort_by(|a, b| (&a.addon_id, &a.key).cmp(&(&b.addon_id, &b.key)));
    let sql = "INSERT INTO scheduler_keys (addon_id, key, created_at, record) \
               SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[])";
    let addons: Vec<String> = keys.iter().map(|key| key.addon_id.to_string()).collect();
    let names: Vec<String> = keys.iter().map(|key| key.key.clone()).collect();
    let times: Vec<i64> = keys.iter().map(|key| to_micros(key.created_at)).collect();
    let records: Vec<String> = keys.iter().map(text).collect();
    let call = Call::new(sql).with(addons).with(names);
    calls.push(call.with(times).with(records));
}

fn notes(overlay: &Overlay, calls: &mut Vec<Call>) {
    let (mut names, mut values, mut deleted) = (Vec::new(), Vec::new(), Vec::new());
    for (name, value) in &overlay.notes {
        match value {
            Some(value) => {
                names.push(name.clone());
                values.push(value.clone());
            }
            None => deleted.push(name.clone()),
        }
    }
    if !deleted.is_empty() {
        let all: Vec<String> = overlay.notes.keys().cloned().collect();
        let sql = "SELECT FROM scheduler_notes WHERE name = ANY($1) ORDER BY name FOR UPDATE";
        calls.push(Call::new(sql).with(all));
    }
    if !names.is_empty() {
        // By name: two transactions that write the same notes come to them in the same order.
        let sql = "INSERT INTO scheduler_notes SELECT * FROM unnest($1::text[], $2::text[]) \
                   ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value";
        calls.push(Call::new(sql).with(names).with(values));
    }
    let sql = "DELETE FROM scheduler_notes WHERE name = ANY($1)";
    add(calls, sql, deleted);
}

/// The statements that give the database all that it lacks, but for the events.
pub(super) fn records(overlay: &Overlay) -> Vec<Pending<'_>> {
    let mut calls = Vec::new();
    let mut small = Vec::new();
    keys(overlay, &mut small);
    calls.extend(small.drain(..).map(at_once));
    jobs(overlay, &mut calls);
    leases(overlay, &mut small);
    notes(overlay, &mut small);
    calls.extend(small.into_iter().map(at_once));
    calls
}

/// The statements that give the database all that it lacks.
pub(super) fn everything(overlay: &mut Overlay) -> Vec<Pending<'_>> {
    let events = overlay.events.write();
    let mut calls = records(overlay);
    calls.extend(events.map(at_once));
    calls
}
