//! What few jobs have, in small tables beside those of jobs: unique keys, concurrency keys, places that wait to be taken
//! up, ends that were not well, long payloads, tags, and what is waited for. Each row is written when its job comes to
//! need it and deleted when it does not any more; an ordinary job has none.

use jobtree_protocol::{JobId, JobState};
use jobtree_queue::JobRecord;
use rusqlite::{Connection, params};

use super::codec::{Id, payload_is_apart, state_number};
use crate::tables::Result;

/// Writes what changed beside a job. Without a job before, it is new.
pub(crate) fn write(db: &Connection, before: Option<&JobRecord>, job: &JobRecord) -> Result<()> {
    match before {
        None => of_the_intent(db, job)?,
        // An edit; otherwise both share their intent.
        Some(before) if before.intent.tags != job.intent.tags => {
            for gone in before.intent.tags.iter() {
                db.prepare_cached("DELETE FROM scheduler_tags WHERE tag = ?1 AND id = ?2")?
                    .execute(params![gone, Id(&job.id.0)])?;
            }
            tags(db, job)?;
        }
        Some(_) => {}
    }
    let was_reserved = before.is_some_and(JobRecord::is_reserved);
    if was_reserved != job.is_reserved() {
        db.prepare_cached(if job.is_reserved() {
            "INSERT INTO scheduler_dispatching VALUES (?1)"
        } else {
            "DELETE FROM scheduler_dispatching WHERE id = ?1"
        })?
        .execute([Id(&job.id.0)])?;
    }
    if job.intent.unique_key.is_some() {
        unique(db, before, job)?;
    }
    if job.intent.concurrency_key.is_some() {
        holder(db, before, job)?;
    }
    let ended_badly = |job: &JobRecord| job.state.is_ended() && job.state != JobState::Done;
    let (was, is) = (before.filter(|job| ended_badly(job)), ended_badly(job));
    if was.map(|job| job.state) != is.then_some(job.state) {
        if let Some(was) = was {
            not_done(db, was, false)?;
        }
        if is {
            not_done(db, job, true)?;
        }
    }
    let waited_for = before.map_or(&[][..], |job| &job.waiting_for);
    if waited_for != job.waiting_for {
        waits(db, job, waited_for)?;
    }
    Ok(())
}

fn of_the_intent(db: &Connection, job: &JobRecord) -> Result<()> {
    let intent = &*job.intent;
    if let Some(payload) = intent.payload.as_ref().filter(|_| payload_is_apart(intent)) {
        db.prepare_cached("INSERT INTO scheduler_payloads VALUES (?1, ?2)")?
            .execute(params![Id(&job.id.0), payload.text()])?;
    }
    tags(db, job)
}

fn tags(db: &Connection, job: &JobRecord) -> Result<()> {
    for tag in &job.intent.tags {
        db.prepare_cached("INSERT OR IGNORE INTO scheduler_tags VALUES (?1, ?2)")?
            .execute(params![tag, Id(&job.id.0)])?;
    }
    Ok(())
}

fn unique(db: &Connection, before: Option<&JobRecord>, job: &JobRecord) -> Result<()> {
    let was_held = before.is_some_and(|job| !job.state.is_ended());
    let is_held = !job.state.is_ended();
    if was_held == is_held {
        return Ok(());
    }
    let intent = &*job.intent;
    db.prepare_cached(if is_held {
        "INSERT INTO scheduler_unique VALUES (?1, ?2, ?3, ?4)"
    } else {
        "DELETE FROM scheduler_unique WHERE addon_id = ?1 AND job_type = ?2 AND unique_key = ?3 AND id = ?4"
    })?
    .execute(params![
        intent.addon_id.as_str(),
        intent.job_type.as_str(),
        intent.unique_key,
        Id(&job.id.0),
    ])?;
    Ok(())
}

fn holder(db: &Connection, before: Option<&JobRecord>, job: &JobRecord) -> Result<()> {
    let (was, is) = (before.and_then(JobRecord::key_holder), job.key_holder());
    if was == is {
        return Ok(());
    }
    let (addon, key) = (job.intent.addon_id.as_str(), &job.intent.concurrency_key);
    match is {
        Some(holder) => db
            .prepare_cached("INSERT OR REPLACE INTO scheduler_holders VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![addon, key, Id(&job.id.0), Id(&holder.0)])?,
        None => db
            .prepare_cached(
                "DELETE FROM scheduler_holders WHERE addon_id = ?1 AND concurrency_key = ?2 AND id = ?3",
            )?
            .execute(params![addon, key, Id(&job.id.0)])?,
    };
    Ok(())
}

/// Adds a job to those that ended other than well, or takes it out.
pub(crate) fn not_done(db: &Connection, job: &JobRecord, add: bool) -> Result<()> {
    db.prepare_cached(if add {
        "INSERT INTO scheduler_not_done VALUES (?1, ?2)"
    } else {
        "DELETE FROM scheduler_not_done WHERE state = ?1 AND id = ?2"
    })?
    .execute(params![state_number(job.state), Id(&job.id.0)])?;
    Ok(())
}

fn waits(db: &Connection, job: &JobRecord, before: &[JobId]) -> Result<()> {
    for gone in before.iter().filter(|id| !job.waiting_for.contains(id)) {
        db.prepare_cached("DELETE FROM scheduler_waits WHERE dependency = ?1 AND id = ?2")?
            .execute([Id(&gone.0), Id(&job.id.0)])?;
    }
    for new in job.waiting_for.iter().filter(|id| !before.contains(id)) {
        db.prepare_cached("INSERT OR IGNORE INTO scheduler_waits VALUES (?1, ?2)")?
            .execute([Id(&new.0), Id(&job.id.0)])?;
    }
    Ok(())
}
