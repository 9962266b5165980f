//! Logs in memory.

use jobtree_protocol::JobId;

use super::Data;
use crate::logs::{LogChunk, LogEnd, ReadLogs, WriteLogs};
use crate::tables::Result;

/// A job's log.
#[derive(Clone)]
pub(super) struct Log {
    pub(super) end: LogEnd,
    chunks: Vec<LogChunk>,
}

impl Data {
    /// Forgets a job's log, as far as there is room for it. Whether all of it is gone.
    pub(super) fn prune_log(&mut self, job: JobId, room: &mut usize) -> bool {
        if let Some(log) = self.logs.get_mut(&job) {
            let gone = log.chunks.len().min(*room);
            log.chunks.drain(..gone);
            *room -= gone;
        }
        *room > 0
    }
}

impl ReadLogs for Data {
    fn log_end(&mut self, job: JobId) -> Result<Option<LogEnd>> {
        Ok(self.logs.get(&job).map(|log| log.end.clone()))
    }

    fn log_chunks(&mut self, job: JobId, from: u64, to: u64) -> Result<Vec<LogChunk>> {
        let Some(log) = self.logs.get(&job) else {
            return Ok(Vec::new());
        };
        let first = log.chunks.partition_point(|chunk| chunk.end <= from);
        let behind = log.chunks.partition_point(|chunk| chunk.end < to) + 1;
        Ok(log.chunks[first..behind.min(log.chunks.len())].to_vec())
    }
}

impl WriteLogs for Data {
    fn append_log(&mut self, job: JobId, end: &LogEnd, chunks: &[LogChunk]) -> Result<()> {
        let log = self.logs.entry(job).or_insert_with(|| Log {
            end: end.clone(),
            chunks: Vec::new(),
        });
        log.end = end.clone();
        log.chunks.extend_from_slice(chunks);
        Ok(())
    }
}
