//! Jobs that programs submit in transactions of their own, by the function `jobtree_submit` (`migration_4.sql`): a scheduler moves
//! them into the queue.
//!
//! The function does not write into the queue's own tables: a program's transaction may take minutes, and would hold locks on
//! names and places of events all that time, for which every scheduler would wait.
//!
//! The rows that are being moved are locked, and other schedulers skip them. If this process or its connection is lost in
//! between, another scheduler finds them again and submits them under the same ids, which is the same jobs.

use jobtree_protocol::{JobId, SubmitRequest};
use uuid::Uuid;

use super::connection::Connection;
use crate::backend::Submissions;
use crate::outbox::Waiting;
use crate::tables::Result;

/// A process that stands still must not keep others from moving what it has locked.
pub(super) const GREETING: &str = "SET idle_in_transaction_session_timeout = '5s'";

const LOCK: &str = "SELECT job_id, request FROM scheduler_submissions WHERE refused IS NULL ORDER BY place LIMIT $1 \
    FOR UPDATE SKIP LOCKED";
const FORGET: &str = "DELETE FROM scheduler_submissions WHERE job_id = ANY($1)";
const REFUSE: &str = "UPDATE scheduler_submissions AS waiting SET refused = new.reason, key = NULL \
    FROM unnest($1::uuid[], $2::text[]) AS new (job_id, reason) WHERE waiting.job_id = new.job_id";

/// The connection that moves them.
pub(super) struct PgSubmissions {
    connection: Connection,
    /// Rows are locked.
    is_open: bool,
}

impl PgSubmissions {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection,
            is_open: false,
        }
    }
}

fn waiting(id: Uuid, text: &str) -> Waiting {
    let id = JobId(id);
    let request = serde_json::from_str::<SubmitRequest>(text);
    let request = request.map(|request| SubmitRequest {
        job_id: Some(id),
        ..request
    });
    Waiting {
        id,
        request: request.map_err(|error| error.to_string()),
    }
}

impl Submissions for PgSubmissions {
    fn lock(&mut self, most: usize) -> Result<Vec<Waiting>> {
        if std::mem::take(&mut self.is_open) {
            // What was locked before was not settled. If this fails, the connection is lost, and its locks with it.
            let _ = self.connection.execute("ROLLBACK");
        }
        self.connection.connect()?;
        self.connection.execute("BEGIN")?;
        self.is_open = true;
        let rows = self.connection.query(LOCK, &[&(most as i64)])?;
        if rows.is_empty() {
            self.connection.execute("ROLLBACK")?;
            self.is_open = false;
        }
        let all = rows.iter().map(|row| waiting(row.get(0), row.get(1)));
        Ok(all.collect())
    }

    fn settle(&mut self, moved: &[JobId], refused: &[(JobId, String)]) -> Result<()> {
        let moved: Vec<Uuid> = moved.iter().map(|id| id.0).collect();
        self.connection.change(FORGET, &[&moved])?;
        let ids: Vec<Uuid> = refused.iter().map(|(id, _)| id.0).collect();
        let reasons: Vec<&str> = refused.iter().map(|(_, why)| why.as_str()).collect();
        self.connection.change(REFUSE, &[&ids, &reasons])?;
        self.connection.execute("COMMIT")?;
        self.is_open = false;
        Ok(())
    }
}
