//! The rows of jobs: inserted, updated, moved. The statements of one write are prepared once.

use jobtree_protocol::JobId;
use jobtree_queue::JobRecord;
use rusqlite::{CachedStatement, Connection, params};

use super::codec::{Id, pack_body, state_number};
use super::queries::Place;
use crate::error::StoreError;
use crate::tables::Result;

const INSERT: [&str; 2] = [
    "INSERT INTO scheduler_jobs VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    "INSERT INTO scheduler_jobs_history VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
];
const UPDATE: [&str; 2] = [
    "UPDATE scheduler_jobs SET revision = ?1, state = ?2, body = ?3 WHERE id = ?4 AND revision = ?5",
    "UPDATE scheduler_jobs_history SET revision = ?1, state = ?2, body = ?3 WHERE id = ?4 AND revision = ?5",
];
const DELETE: [&str; 2] = [
    "DELETE FROM scheduler_jobs WHERE id = ?1 AND revision = ?2",
    "DELETE FROM scheduler_jobs_history WHERE id = ?1 AND revision = ?2",
];

/// The statements of one write.
pub(crate) struct JobRows<'db> {
    db: &'db Connection,
    body: Vec<u8>,
    insert: [Option<CachedStatement<'db>>; 2],
    update: [Option<CachedStatement<'db>>; 2],
    delete: [Option<CachedStatement<'db>>; 2],
}

fn prepared<'a, 'db>(
    db: &'db Connection,
    statements: &'a mut [Option<CachedStatement<'db>>; 2],
    place: Place,
    sql: [&str; 2],
) -> Result<&'a mut CachedStatement<'db>> {
    let slot = &mut statements[place as usize];
    if slot.is_none() {
        *slot = Some(db.prepare_cached(sql[place as usize])?);
    }
    Ok(slot.as_mut().expect("it was just put there"))
}

impl<'db> JobRows<'db> {
    pub(crate) fn new(db: &'db Connection) -> Self {
        Self {
            db,
            body: Vec::with_capacity(256),
            insert: [None, None],
            update: [None, None],
            delete: [None, None],
        }
    }

    fn pack(&mut self, job: &JobRecord, last_event: Option<i64>) {
        self.body.clear();
        pack_body(&mut self.body, job, last_event);
    }

    pub(crate) fn insert(
        &mut self,
        job: &JobRecord,
        place: Place,
        last_event: Option<i64>,
    ) -> Result<()> {
        self.pack(job, last_event);
        let statement = prepared(self.db, &mut self.insert, place, INSERT)?;
        statement.execute(params![
            Id(&job.id.0),
            job.revision as i64,
            state_number(job.state),
            job.intent.addon_id.as_str(),
            job.intent.job_type.as_str(),
            self.body.as_slice(),
        ])?;
        Ok(())
    }

    /// Writes what can change, if the row has the revision that it was read with.
    pub(crate) fn update(
        &mut self,
        job: &JobRecord,
        revision: u64,
        place: Place,
        last_event: Option<i64>,
    ) -> Result<()> {
        self.pack(job, last_event);
        let statement = prepared(self.db, &mut self.update, place, UPDATE)?;
        let rows = statement.execute(params![
            job.revision as i64,
            state_number(job.state),
            self.body.as_slice(),
            Id(&job.id.0),
            revision as i64,
        ])?;
        one_row(rows, job.id)
    }

    pub(crate) fn delete(&mut self, id: JobId, revision: u64, place: Place) -> Result<()> {
        let statement = prepared(self.db, &mut self.delete, place, DELETE)?;
        one_row(statement.execute(params![Id(&id.0), revision as i64])?, id)
    }
}

fn one_row(rows: usize, job: JobId) -> Result<()> {
    if rows == 1 {
        return Ok(());
    }
    Err(StoreError::Database {
        message: format!(
            "job {job} was changed by somebody else: only one program may use the file"
        ),
    })
}
