//! Logs in the file: a row for each chunk, and a small one for each log's end.

use jobtree_protocol::{JobId, LeaseId};
use rusqlite::{Connection, Row, params};

use super::codec::{Id, damaged, micros, number, time, uuid_at};
use super::snapshot::Snapshot;
use super::tables::SqliteTables;
use crate::logs::{CHUNK_BYTES, LogChunk, LogEnd, ReadLogs, WriteLogs};
use crate::tables::Result;

pub(crate) const END: &str = "SELECT * FROM scheduler_log_ends WHERE job_id = ?1";

/// What is between two places has an end behind the first, and no further behind the second than a chunk is long.
pub(crate) const CHUNKS: &str = "SELECT place, text, at FROM scheduler_job_logs WHERE job_id = ?1 AND place > ?2 AND place < ?3 ORDER BY place";

fn end(db: &Connection, job: JobId) -> Result<Option<LogEnd>> {
    let mut statement = db.prepare_cached(END)?;
    let mut rows = statement.query([Id(&job.0)])?;
    rows.next()?.map(end_of).transpose()
}

/// The end of a row with all columns.
pub(crate) fn end_of(row: &Row<'_>) -> Result<LogEnd> {
    Ok(LogEnd {
        lease_id: LeaseId(uuid_at(row, 1)?),
        offset: number(row.get(2)?)?,
        kept: number(row.get(3)?)?,
        left_out: number(row.get(4)?)?,
        full: row.get(5)?,
        run_kept: number(row.get(6)?)?,
    })
}

fn chunks(db: &Connection, job: JobId, from: u64, to: u64) -> Result<Vec<LogChunk>> {
    let place = |place: u64| i64::try_from(place).unwrap_or(i64::MAX);
    let behind = place(to).saturating_add(CHUNK_BYTES as i64);
    let mut statement = db.prepare_cached(CHUNKS)?;
    let mut rows = statement.query(params![Id(&job.0), place(from), behind])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let text = row.get_ref(1)?.as_blob().ok();
        let text = text.and_then(|bytes| std::str::from_utf8(bytes).ok());
        let chunk = LogChunk {
            end: number(row.get(0)?)?,
            text: text.ok_or_else(|| damaged("a log"))?.to_owned(),
            at: time(row.get(2)?),
        };
        let is_last = chunk.end >= to;
        found.push(chunk);
        if is_last {
            break;
        }
    }
    Ok(found)
}

/// Deletes a job's log, as far as there is room for it. Whether all of it is gone.
pub(crate) fn prune(db: &Connection, job: JobId, room: &mut usize) -> Result<bool> {
    if end(db, job)?.is_none() {
        return Ok(true);
    }
    let deleted = db
        .prepare_cached(
            "DELETE FROM scheduler_job_logs WHERE job_id = ?1 AND place IN \
             (SELECT place FROM scheduler_job_logs WHERE job_id = ?1 ORDER BY place LIMIT ?2)",
        )?
        .execute(params![Id(&job.0), *room as i64])?;
    *room -= deleted;
    if *room == 0 {
        return Ok(false);
    }
    db.prepare_cached("DELETE FROM scheduler_log_ends WHERE job_id = ?1")?
        .execute([Id(&job.0)])?;
    Ok(true)
}

impl ReadLogs for Snapshot<'_> {
    fn log_end(&mut self, job: JobId) -> Result<Option<LogEnd>> {
        end(self.0, job)
    }

    fn log_chunks(&mut self, job: JobId, from: u64, to: u64) -> Result<Vec<LogChunk>> {
        chunks(self.0, job, from, to)
    }
}

impl ReadLogs for SqliteTables {
    fn log_end(&mut self, job: JobId) -> Result<Option<LogEnd>> {
        end(self.settled()?, job)
    }

    fn log_chunks(&mut self, job: JobId, from: u64, to: u64) -> Result<Vec<LogChunk>> {
        chunks(self.settled()?, job, from, to)
    }
}

impl WriteLogs for SqliteTables {
    fn append_log(&mut self, job: JobId, end: &LogEnd, chunks: &[LogChunk]) -> Result<()> {
        self.touch()?;
        let db = self.db();
        for chunk in chunks {
            db.prepare_cached("INSERT INTO scheduler_job_logs VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![
                    Id(&job.0),
                    chunk.end as i64,
                    chunk.text.as_bytes(),
                    micros(chunk.at),
                ])?;
        }
        db.prepare_cached(
            "INSERT OR REPLACE INTO scheduler_log_ends VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            Id(&job.0),
            Id(&end.lease_id.0),
            end.offset as i64,
            end.kept as i64,
            end.left_out as i64,
            end.full,
            end.run_kept as i64,
        ])?;
        Ok(())
    }
}
