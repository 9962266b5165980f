//! The rows of jobs: put, many with one statement, and deleted.
//!
//! A statement costs more to begin and to end than to write one row, and within one the place of the last row is a good
//! guess for that of the next. So rows of one table that are alike in addon and type are collected, and written some
//! dozens at a time. What remains is written in smaller statements.
//!
//! A new row must not be there yet; one that is put again is there, and is replaced: SQLite overwrites it where it lies,
//! since the tables have no other index. That nobody else has changed it is known from the whole file
//! (`SqliteTables::begin_transaction`).

use std::sync::LazyLock;

use jobtree_protocol::JobId;
use jobtree_queue::JobRecord;
use rusqlite::{CachedStatement, Connection, params};

use super::codec::{Id, pack_body, state_number};
use super::queries::Place;
use crate::error::StoreError;
use crate::tables::Result;

const TABLES: [&str; 2] = ["scheduler_jobs", "scheduler_jobs_history"];

/// One at a time: a list of ids has to be put in order first, which costs what it saves.
const DELETE: [&str; 2] = [
    "DELETE FROM scheduler_jobs WHERE id = ?1 AND revision = ?2",
    "DELETE FROM scheduler_jobs_history WHERE id = ?1 AND revision = ?2",
];

/// How many rows a statement writes, the most first.
const SIZES: [usize; 3] = [32, 8, 1];

/// By place, whether the rows are new, and size.
type Each<T> = [[[T; SIZES.len()]; 2]; 2];

/// Addon and type first, then four values for each row.
static PUT: LazyLock<Each<String>> = LazyLock::new(|| {
    let sql = |table: &str, verb: &str, rows: usize| {
        let row = |row: usize| {
            let at = 3 + row * 4;
            format!("(?{at}, ?{}, ?{}, ?1, ?2, ?{})", at + 1, at + 2, at + 3)
        };
        let rows: Vec<String> = (0..rows).map(row).collect();
        format!("{verb} INTO {table} VALUES {}", rows.join(", "))
    };
    // Half of a statement that fails is not undone: the whole transaction will be, and until then SQLite need not keep
    // a copy of each page for it.
    let verbs = ["INSERT OR REPLACE", "INSERT OR FAIL"];
    TABLES.map(|table| verbs.map(|verb| SIZES.map(|size| sql(table, verb, size))))
});

/// What rows have in common that are written together.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind<'a> {
    place: Place,
    is_new: bool,
    addon: &'a str,
    job_type: &'a str,
}

/// The rows of one write.
pub(crate) struct JobRows<'a, 'db> {
    db: &'db Connection,
    kind: Option<Kind<'a>>,
    /// Those that are not written yet, each with the end of its body.
    jobs: Vec<(&'a JobRecord, usize)>,
    bodies: Vec<u8>,
    put: Each<Option<CachedStatement<'db>>>,
    delete: [Option<CachedStatement<'db>>; 2],
}

impl<'a, 'db> JobRows<'a, 'db> {
    pub(crate) fn new(db: &'db Connection) -> Self {
        Self {
            db,
            kind: None,
            jobs: Vec::with_capacity(SIZES[0]),
            bodies: Vec::with_capacity(SIZES[0] * 128),
            put: Each::default(),
            delete: [None, None],
        }
    }

    /// Writes the row of a job, now or with others: [`JobRows::finish`] has to follow.
    pub(crate) fn put(
        &mut self,
        job: &'a JobRecord,
        place: Place,
        is_new: bool,
        last_event: Option<i64>,
    ) -> Result<()> {
        let kind = Kind {
            place,
            is_new,
            addon: job.intent.addon_id.as_str(),
            job_type: job.intent.job_type.as_str(),
        };
        if self.kind != Some(kind) || self.jobs.len() == SIZES[0] {
            self.finish()?;
            self.kind = Some(kind);
        }
        pack_body(&mut self.bodies, job, last_event);
        self.jobs.push((job, self.bodies.len()));
        Ok(())
    }

    /// Writes what is left.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let Some(kind) = self.kind else {
            return Ok(());
        };
        let (mut left, mut begin) = (self.jobs.as_slice(), 0);
        while !left.is_empty() {
            let size = largest(left.len());
            let (now, later) = left.split_at(SIZES[size]);
            left = later;
            let [place, is_new] = [kind.place as usize, usize::from(kind.is_new)];
            let slot = &mut self.put[place][is_new][size];
            let statement = match slot {
                Some(statement) => statement,
                None => slot.insert(self.db.prepare_cached(&PUT[place][is_new][size])?),
            };
            statement.raw_bind_parameter(1, kind.addon)?;
            statement.raw_bind_parameter(2, kind.job_type)?;
            for (place, (job, end)) in now.iter().enumerate() {
                let at = 3 + place * 4;
                statement.raw_bind_parameter(at, Id(&job.id.0))?;
                statement.raw_bind_parameter(at + 1, job.revision as i64)?;
                statement.raw_bind_parameter(at + 2, state_number(job.state))?;
                statement.raw_bind_parameter(at + 3, &self.bodies[begin..*end])?;
                begin = *end;
            }
            statement.raw_execute()?;
        }
        self.jobs.clear();
        self.bodies.clear();
        Ok(())
    }

    /// Deletes a row, which is there in this revision.
    pub(crate) fn delete(&mut self, id: JobId, revision: u64, place: Place) -> Result<()> {
        let slot = &mut self.delete[place as usize];
        let statement = match slot {
            Some(statement) => statement,
            None => slot.insert(self.db.prepare_cached(DELETE[place as usize])?),
        };
        if statement.execute(params![Id(&id.0), revision as i64])? == 1 {
            return Ok(());
        }
        Err(StoreError::Database {
            message: format!("another program changed job {id}: only one may use the file"),
        })
    }
}

/// The size of the next statement for so many rows.
fn largest(rows: usize) -> usize {
    let size = SIZES.iter().position(|size| *size <= rows);
    size.expect("the last is 1, and there is a row")
}
