//! What jobs print.

use jobtree_protocol::{JobId, LogAppend, LogAppendAnswer};
use jobtree_queue::transitions;

use super::Unit;
use crate::logs::{self, Room};
use crate::tables::Result;

impl Unit<'_> {
    /// Keeps what a running job printed, as far as it is not kept yet and the run has room. Only the lease that
    /// the job runs under may say so.
    pub(crate) fn append_log(&mut self, id: JobId, append: &LogAppend) -> Result<LogAppendAnswer> {
        let job = self.job(id)?;
        let lease = self.lease(append.lease_id)?;
        let told = transitions::log(&self.cx, &lease, &job)?;
        let before = self.tables.log_end(id)?;
        let room = Room::of(&job, self.cx.rules);
        let (end, chunks) = logs::appended(before.clone(), append, self.cx.now.wall, room);
        if before.as_ref() != Some(&end) {
            self.tables.append_log(id, &end, &chunks)?;
        }
        if !chunks.is_empty() {
            self.settle(told)?;
        }
        Ok(LogAppendAnswer {
            next_offset: end.offset,
            full: end.full,
        })
    }
}
