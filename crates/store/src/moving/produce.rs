//! Everything of a snapshot, in parts.

use std::sync::Arc;

use jobtree_protocol::{JobId, JobQuery, Json};
use jobtree_queue::{JobRecord, KeyRecord, LeaseRecord};

use super::taking::Fired;
use crate::logs::{LogChunk, LogEnd};
use crate::tables::{Pause, Reading, Recorded, Result, ScheduleRecord};

/// Rows of a part. Jobs may have large payloads.
const ROWS: usize = 1000;
const JOBS: usize = 100;
/// Bytes of a log in a part.
const LOG_BYTES: u64 = 256 << 10;

/// What is written in one transaction.
pub(super) enum Part {
    Events(Vec<Recorded>),
    Jobs(Vec<Arc<JobRecord>>),
    Leases(Vec<LeaseRecord>),
    Keys(Vec<KeyRecord>),
    Firings(Vec<Fired>),
    Log {
        job: JobId,
        end: LogEnd,
        chunks: Vec<LogChunk>,
        is_first: bool,
    },
    Last {
        schedules: Vec<ScheduleRecord>,
        pauses: Vec<Pause>,
        notes: Vec<(String, Json)>,
        next_event: u64,
    },
}

/// Hands over all parts. Events come first: a job is written with the place of its last.
pub(super) fn produce(
    tables: &mut dyn Reading,
    give: &mut dyn FnMut(Part) -> Result<()>,
) -> Result<()> {
    let mut cursor = 0;
    loop {
        let events = tables.shown_events_after(cursor, ROWS)?;
        let Some(last) = events.last() else { break };
        cursor = last.cursor;
        give(Part::Events(events))?;
    }
    let mut query = JobQuery::default();
    loop {
        let page = tables.list(&query, JOBS)?;
        if !page.jobs.is_empty() {
            give(Part::Jobs(page.jobs))?;
        }
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    let mut after = None;
    loop {
        let leases = tables.all_leases(after, ROWS)?;
        let Some(last) = leases.last() else { break };
        after = Some(last.id);
        give(Part::Leases(leases))?;
    }
    let mut after = None;
    loop {
        let keys = tables.all_keys(after, ROWS)?;
        let Some(last) = keys.last() else { break };
        after = Some((last.addon_id.clone(), last.key.clone()));
        give(Part::Keys(keys))?;
    }
    let mut after = None;
    loop {
        let firings = tables.all_firings(after, ROWS)?;
        let Some(last) = firings.last() else { break };
        after = Some((last.schedule_id, last.at));
        give(Part::Firings(firings))?;
    }
    logs(tables, give)?;
    give(Part::Last {
        schedules: tables.schedules()?,
        pauses: tables.pauses()?,
        notes: super::notes(tables)?,
        next_event: tables.next_event()?,
    })
}

fn logs(tables: &mut dyn Reading, give: &mut dyn FnMut(Part) -> Result<()>) -> Result<()> {
    let mut after = None;
    loop {
        let ends = tables.all_logs(after, ROWS)?;
        let Some((last, _)) = ends.last() else {
            return Ok(());
        };
        after = Some(*last);
        for (job, end) in ends {
            let mut at = 0;
            loop {
                let to = end.kept.min(at + LOG_BYTES);
                let chunks = if at < to {
                    tables.log_chunks(job, at, to)?
                } else {
                    Vec::new()
                };
                let is_first = at == 0;
                // Chunks are whole, so the next ones begin where the last ends.
                at = chunks.last().map_or(end.kept, |chunk| chunk.end);
                give(Part::Log {
                    job,
                    end: end.clone(),
                    chunks,
                    is_first,
                })?;
                if at >= end.kept {
                    break;
                }
            }
        }
    }
}
