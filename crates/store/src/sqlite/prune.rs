//! Forgetting what is old, a little at a time.
//!
//! There is no index on ages, which every job would pay for. The history lies in the order of ids, which is about that
//! of age: a step looks at the next rows after the last step's, deletes those that are too old, and the pass begins
//! anew when it has come to rows too young for any rule. Events lie in the order of time.

use jobtree_protocol::{JobId, JobState, to_micros};
use jobtree_queue::JobRecord;
use rusqlite::{Connection, params};

use super::codec::{Id, payload_is_apart};
use super::tables::SqliteTables;
use super::{beside, logs, queries, trail};
use crate::moving::PRUNED_EVENTS;
use crate::tables::{Pruned, Result, Retention};

/// Where a pass is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Position(Option<JobId>);

/// Where the place of the last event is remembered when events are pruned: without it, a restart after all of them were
/// pruned would use places again.
const LAST_EVENT_NOTE: &str = PRUNED_EVENTS;

pub(crate) fn next_event(db: &Connection) -> Result<i64> {
    let pruned = queries::note(db, LAST_EVENT_NOTE)?.and_then(|note| note.read::<i64>().ok());
    Ok(trail::last_event(db)?.max(pruned.unwrap_or(0)) + 1)
}

pub(crate) fn step(
    tables: &mut SqliteTables,
    retention: &Retention,
    limit: usize,
) -> Result<Pruned> {
    let mut pruned = Pruned::default();
    tables.prune_from = jobs(
        tables.db(),
        tables.prune_from,
        retention,
        limit,
        &mut pruned,
    )?;
    let db = tables.db();
    events(db, retention, limit, &mut pruned)?;
    let delete = |sql: &str, before| -> Result<u64> {
        Ok(db
            .prepare_cached(sql)?
            .execute(params![to_micros(before), limit as i64])? as u64)
    };
    pruned.keys = delete(
        "DELETE FROM scheduler_keys WHERE (addon_id, key) IN \
         (SELECT addon_id, key FROM scheduler_keys WHERE created_at < ?1 ORDER BY created_at LIMIT ?2)",
        retention.keys,
    )?;
    pruned.leases = delete(
        "DELETE FROM scheduler_leases WHERE id IN (SELECT id FROM scheduler_leases \
         WHERE lease_end IS NOT NULL AND ended_at < ?1 ORDER BY ended_at LIMIT ?2)",
        retention.leases,
    )?;
    // Few, and in no order of time; the newest of each schedule stays in the schedule itself.
    pruned.leases += delete(
        "DELETE FROM scheduler_firings WHERE (schedule_id, at) IN \
         (SELECT schedule_id, at FROM scheduler_firings WHERE at < ?1 LIMIT ?2)",
        retention.leases,
    )?;
    let full = limit as u64;
    pruned.more |= pruned.events >= full || pruned.keys >= full || pruned.leases >= full;
    Ok(pruned)
}

fn jobs(
    db: &Connection,
    from: Position,
    retention: &Retention,
    limit: usize,
    pruned: &mut Pruned,
) -> Result<Position> {
    let mut statement = db.prepare_cached(
        "SELECT * FROM scheduler_jobs_history WHERE id > ?1 ORDER BY id LIMIT ?2",
    )?;
    let mut rows = statement.query(params![queries::after_bytes(from.0), limit as i64])?;
    let mut old = Vec::new();
    let (mut looked_at, mut last, mut all_young) = (0, None, false);
    while let Some(row) = rows.next()? {
        let (job, _) = queries::read_job(db, row)?;
        looked_at += 1;
        last = Some(job.id);
        all_young = job.created_at >= retention.newest_for_jobs();
        let before = retention.of(job.state);
        if before.is_some_and(|before| job.ended_at.is_some_and(|ended| ended < before)) {
            old.push(job);
        }
    }
    drop(rows);
    let (mut chunks, mut before) = (limit, from.0);
    for job in &old {
        if !logs::prune(db, job.id, &mut chunks)? {
            // The rest of its log goes with the next step, which comes to it again.
            pruned.more = true;
            return Ok(Position(before));
        }
        db.prepare_cached("DELETE FROM scheduler_jobs_history WHERE id = ?1")?
            .execute([Id(&job.id.0)])?;
        delete_rows_apart(db, job)?;
        pruned.jobs += 1;
        before = Some(job.id);
    }
    let all_old_behind = looked_at < limit || all_young;
    pruned.more |= !all_old_behind;
    Ok(Position(last.filter(|_| !all_old_behind)))
}

fn delete_rows_apart(db: &Connection, job: &JobRecord) -> Result<()> {
    if payload_is_apart(&job.intent) {
        db.prepare_cached("DELETE FROM scheduler_payloads WHERE id = ?1")?
            .execute([Id(&job.id.0)])?;
    }
    for tag in &job.intent.tags {
        db.prepare_cached("DELETE FROM scheduler_tags WHERE tag = ?1 AND id = ?2")?
            .execute(params![tag, Id(&job.id.0)])?;
    }
    if job.state != JobState::Done {
        beside::not_done(db, job, false)?;
    }
    Ok(())
}

fn events(db: &Connection, retention: &Retention, limit: usize, pruned: &mut Pruned) -> Result<()> {
    let last = trail::last_event(db)?;
    pruned.events = trail::prune(db, retention.events, limit)?;
    if pruned.events > 0 {
        db.prepare_cached("INSERT OR REPLACE INTO scheduler_notes VALUES (?1, ?2)")?
            .execute(params![LAST_EVENT_NOTE, last.to_string()])?;
    }
    Ok(())
}
