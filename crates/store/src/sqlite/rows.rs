//! The rows of jobs: inserted, updated, moved. The statements of one write are prepared once, and only columns that
//! hold something are bound, since an ordinary job leaves most of them empty.

use jobtree_protocol::JobId;
use jobtree_queue::JobRecord;
use rusqlite::{CachedStatement, Connection, params};

use super::codec::{Id, job_cells};
use super::queries::Place;
use crate::error::StoreError;
use crate::tables::Result;

/// Which columns can change, by their place among all.
const MUTABLE: [usize; 18] = [
    1, 2, 7, 9, 10, 11, 13, 17, 18, 19, 20, 21, 22, 27, 28, 29, 30, 32,
];

macro_rules! update {
    ($table:literal) => {
        concat!(
            "UPDATE ",
            $table,
            " SET revision = ?1, state = ?2, flags = ?3, enqueued_at = ?4, attempts = ?5, rescues = ?6, not_before = \
              ?7, lease_id = ?8, lease_position = ?9, node_id = ?10, started_at = ?11, ended_at = ?12, \
              cancel_requested_at = ?13, completions = ?14, last_event = ?15, last_error = ?16, result = ?17, live \
              = ?18 \
              WHERE id = ?19 AND revision = ?20"
        )
    };
}

macro_rules! insert {
    ($table:literal) => {
        concat!(
            "INSERT INTO ",
            $table,
            " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, \
              ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34)"
        )
    };
}

const INSERT_HOT: &str = insert!("scheduler_jobs");
const INSERT_HISTORY: &str = insert!("scheduler_jobs_history");
const UPDATE_HOT: &str = update!("scheduler_jobs");
const UPDATE_HISTORY: &str = update!("scheduler_jobs_history");

/// The statements of one write.
pub(crate) struct JobRows<'db> {
    db: &'db Connection,
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
    let statement = slot.as_mut().expect("it was just put there");
    statement.clear_bindings();
    Ok(statement)
}

impl<'db> JobRows<'db> {
    pub(crate) fn new(db: &'db Connection) -> Self {
        Self {
            db,
            insert: [None, None],
            update: [None, None],
            delete: [None, None],
        }
    }

    pub(crate) fn insert(
        &mut self,
        job: &JobRecord,
        place: Place,
        last_event: Option<i64>,
    ) -> Result<()> {
        let sql = [INSERT_HOT, INSERT_HISTORY];
        let statement = prepared(self.db, &mut self.insert, place, sql)?;
        let cells = job_cells(job, last_event);
        for (index, cell) in cells.iter().enumerate().filter(|(_, cell)| !cell.is_null()) {
            statement.raw_bind_parameter(index + 1, cell)?;
        }
        statement.raw_execute()?;
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
        let sql = [UPDATE_HOT, UPDATE_HISTORY];
        let statement = prepared(self.db, &mut self.update, place, sql)?;
        let cells = job_cells(job, last_event);
        for (index, column) in MUTABLE.iter().enumerate() {
            if !cells[*column].is_null() {
                statement.raw_bind_parameter(index + 1, &cells[*column])?;
            }
        }
        statement.raw_bind_parameter(MUTABLE.len() + 1, &cells[0])?;
        statement.raw_bind_parameter(MUTABLE.len() + 2, revision as i64)?;
        one_row(statement.raw_execute()?, job.id)
    }

    pub(crate) fn delete(&mut self, id: JobId, revision: u64, place: Place) -> Result<()> {
        let sql = [
            "DELETE FROM scheduler_jobs WHERE id = ?1 AND revision = ?2",
            "DELETE FROM scheduler_jobs_history WHERE id = ?1 AND revision = ?2",
        ];
        let statement = prepared(self.db, &mut self.delete, place, sql)?;
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
