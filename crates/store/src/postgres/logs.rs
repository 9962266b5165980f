//! Logs in the database: a row for each chunk, and a small one for each log's end. Texts are bytes there, since a
//! program may print what a text of PostgreSQL cannot hold.

use jiff::Timestamp;
use jobtree_protocol::{JobId, JobState, LeaseId, from_micros, to_micros};
use tokio_postgres::Row;

use super::tables::{PgTables, state_number};
use crate::error::StoreError;
use crate::logs::{CHUNK_BYTES, LogChunk, LogEnd, ReadLogs, WriteLogs};
use crate::tables::Result;

/// The end of a row that begins with its lease, the run's offset, what is kept, what is not, whether it is full, and what is
/// kept of the run.
pub(super) fn end_of(row: &Row) -> LogEnd {
    LogEnd {
        lease_id: LeaseId(row.get(0)),
        offset: row.get::<_, i64>(1) as u64,
        kept: row.get::<_, i64>(2) as u64,
        left_out: row.get::<_, i64>(3) as u64,
        full: row.get(4),
        run_kept: row.get::<_, i64>(5) as u64,
    }
}

impl ReadLogs for PgTables {
    fn log_end(&mut self, job: JobId) -> Result<Option<LogEnd>> {
        let rows = self.query(
            "SELECT lease_id, run_offset, kept, left_out, is_full, run_kept FROM scheduler_log_ends WHERE job_id = $1",
            &[&job.0],
        )?;
        Ok(rows.first().map(end_of))
    }

    fn log_chunks(&mut self, job: JobId, from: u64, to: u64) -> Result<Vec<LogChunk>> {
        let place = |place: u64| i64::try_from(place).unwrap_or(i64::MAX);
        let behind = place(to).saturating_add(CHUNK_BYTES as i64);
        let rows = self.query(
            "SELECT place, chunk, at FROM scheduler_job_logs WHERE job_id = $1 AND place > $2 AND place < $3 \
             ORDER BY place",
            &[&job.0, &place(from), &behind],
        )?;
        let mut found = Vec::new();
        for row in rows {
            let text = std::str::from_utf8(row.get(1)).map_err(|_| StoreError::Database {
                message: "a log is no text".into(),
            })?;
            let chunk = LogChunk {
                end: row.get::<_, i64>(0) as u64,
                text: text.to_owned(),
                at: row.get::<_, Option<i64>>(2).map(from_micros),
            };
            let is_last = chunk.end >= to;
            found.push(chunk);
            if is_last {
                break;
            }
        }
        Ok(found)
    }
}

impl WriteLogs for PgTables {
    fn append_log(&mut self, job: JobId, end: &LogEnd, chunks: &[LogChunk]) -> Result<()> {
        for chunk in chunks {
            self.change(
                "INSERT INTO scheduler_job_logs VALUES ($1, $2, $3, $4)",
                &[
                    &job.0,
                    &(chunk.end as i64),
                    &chunk.text.as_bytes(),
                    &chunk.at.map(to_micros),
                ],
            )?;
        }
        self.change(
            "INSERT INTO scheduler_log_ends VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (job_id) DO UPDATE SET \
             lease_id = $2, run_offset = $3, kept = $4, left_out = $5, is_full = $6, run_kept = $7",
            &[
                &job.0,
                &end.lease_id.0,
                &(end.offset as i64),
                &(end.kept as i64),
                &(end.left_out as i64),
                &end.full,
                &(end.run_kept as i64),
            ],
        )?;
        Ok(())
    }
}

impl PgTables {
    /// Deletes logs of jobs that ended so before that time, at most so many chunks. How many.
    pub(super) fn prune_logs(
        &mut self,
        state: JobState,
        before: Timestamp,
        most: i64,
    ) -> Result<u64> {
        self.change(
            "DELETE FROM scheduler_job_logs WHERE (job_id, place) IN (SELECT log.job_id, log.place FROM \
             (SELECT id FROM scheduler_jobs_history WHERE state = $1 AND ended_at < $2 ORDER BY ended_at LIMIT $3) \
             AS old JOIN scheduler_job_logs AS log ON log.job_id = old.id LIMIT $3)",
            &[&state_number(state), &to_micros(before), &most],
        )
    }
}
