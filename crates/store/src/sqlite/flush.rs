//! What a transaction has decided and not yet written.
//!
//! A command's changes are taken when it has decided, and given to SQLite together with those of the other commands of
//! the transaction: before its commit, or before something is read that is not remembered. So a savepoint is not needed
//! for each of them, nor each statement once for each of them: a command that is refused after all is taken back from
//! the list. What could be refused by the file on its own account, an id that is there already, is looked for before it
//! is taken; whatever else SQLite says when the list is written is no fault of one command, and the whole group fails.

use std::collections::VecDeque;
use std::sync::Arc;

use jobtree_protocol::{JobId, LeaseId, to_micros};
use jobtree_queue::transitions::Changes;
use jobtree_queue::{JobRecord, KeyRecord};
use rusqlite::{Connection, OptionalExtension, params};

use super::codec::{Id, state_number};
use super::queries::{Place, Stored};
use super::rows::JobRows;
use super::trail::{Mark, Scroll};
use super::{beside, leases};
use crate::backend::Written;
use crate::error::StoreError;
use crate::ids::{IdMap, IdSet};
use crate::tables::Result;

/// A job before a write, and where its trail ends after it.
pub(crate) struct Before {
    pub(crate) stored: Option<Stored>,
    pub(crate) last_event: Option<i64>,
}

/// Changes of the transaction: those in the file, and behind them those that are not.
pub(crate) struct Pending {
    /// For listeners, once it is committed.
    written: Vec<Written>,
    /// For each that is not in the file: its jobs as they were.
    before: VecDeque<Vec<Before>>,
    pub(crate) scroll: Scroll,
    /// Ids of jobs that are not in the file yet.
    new: IdSet<JobId>,
    /// No job in the file has a greater id. Ids begin with their time, so nearly every new one is greater.
    newest: JobId,
    /// How much there was when the operation began.
    operation: (usize, Mark),
}

impl Pending {
    pub(crate) fn new(db: &Connection, next_event: i64) -> Result<Self> {
        let mut newest = JobId(uuid::Uuid::nil());
        for table in ["scheduler_jobs", "scheduler_jobs_history"] {
            let last: Option<[u8; 16]> =
                db.query_row(&format!("SELECT max(id) FROM {table}"), [], |row| {
                    row.get(0)
                })?;
            newest = newest.max(JobId(uuid::Uuid::from_bytes(last.unwrap_or_default())));
        }
        let scroll = Scroll::new(next_event);
        Ok(Self {
            written: Vec::new(),
            before: VecDeque::new(),
            new: IdSet::default(),
            newest,
            operation: (0, scroll.mark()),
            scroll,
        })
    }

    pub(crate) fn begin_operation(&mut self) {
        self.operation = (self.written.len(), self.scroll.mark());
    }

    /// Whether everything is in the file.
    pub(crate) fn is_flushed(&self) -> bool {
        self.before.is_empty()
    }

    /// Whether the transaction has changed records.
    pub(crate) fn has_changes(&self) -> bool {
        !self.written.is_empty()
    }

    /// Whether the operation has changed records.
    pub(crate) fn operation_has_changes(&self) -> bool {
        self.written.len() > self.operation.0
    }

    /// Whether the file must be asked for this id to know whether it is new.
    pub(crate) fn may_be_known(&self, id: JobId) -> bool {
        id <= self.newest
    }

    /// Takes the ids of new jobs; an error if one is among those that were taken before.
    pub(crate) fn take_ids(&mut self, jobs: &[Arc<JobRecord>]) -> Result<()> {
        let fresh = || jobs.iter().filter(|job| job.revision == 1);
        for (count, job) in fresh().enumerate() {
            if !self.new.insert(job.id) {
                fresh().take(count).for_each(|job| {
                    self.new.remove(&job.id);
                });
                return Err(there_already(job.id));
            }
        }
        Ok(())
    }

    /// The file has a job with this id.
    pub(crate) fn took_in(&mut self, id: JobId) {
        self.newest = self.newest.max(id);
    }

    pub(crate) fn push(&mut self, written: Written, before: Vec<Before>) {
        self.written.push(written);
        self.before.push_back(before);
    }

    /// Takes back what the operation has added and was not flushed.
    pub(crate) fn undo_operation(&mut self) {
        let (start, mark) = self.operation;
        let in_file = self.written.len() - self.before.len();
        for undone in self.written.drain(start..) {
            for job in undone.changes.jobs.iter().filter(|job| job.revision == 1) {
                self.new.remove(&job.id);
            }
        }
        self.before.truncate(start.saturating_sub(in_file));
        self.scroll.take_back(mark);
    }

    /// The transaction was undone.
    pub(crate) fn clear(&mut self) {
        self.written.clear();
        self.before.clear();
        self.scroll.clear();
        self.new.clear();
        self.begin_operation();
    }

    /// What the transaction changed, once it is committed.
    pub(crate) fn committed(&mut self) -> Vec<Written> {
        debug_assert!(self.is_flushed());
        std::mem::take(&mut self.written)
    }

    /// Writes everything into the file.
    pub(crate) fn flush(&mut self, db: &Connection) -> Result<()> {
        if self.is_flushed() {
            return Ok(());
        }
        let in_file = self.written.len() - self.before.len();
        let mut last = LastOnes::of(&self.written[in_file..]);
        for (written, before) in self.written[in_file..].iter().zip(&self.before) {
            last.take(&written.changes, before);
            write_beside(db, &written.changes, before)?;
            write_leases(db, &written.changes)?;
            write_keys(db, &written.changes.keys)?;
        }
        last.write(db)?;
        self.scroll.write(db)?;
        self.newest = self.new.drain().fold(self.newest, JobId::max);
        self.before.clear();
        self.operation.1 = self.scroll.mark();
        Ok(())
    }
}

pub(crate) fn there_already(id: JobId) -> StoreError {
    StoreError::Database {
        message: format!("job {id} is there already; give each job an id of its own"),
    }
}

/// Whether the file has this job.
pub(crate) fn is_known(db: &Connection, id: JobId) -> Result<bool> {
    for sql in [
        "SELECT 1 FROM scheduler_jobs WHERE id = ?1",
        "SELECT 1 FROM scheduler_jobs_history WHERE id = ?1",
    ] {
        let found = db
            .prepare_cached(sql)?
            .query_row([Id(&id.0)], |_| Ok(()))
            .optional()?;
        if found.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What is to be written of a job that may have changed several times: the last of it.
struct LastOne<'a> {
    job: &'a JobRecord,
    last_event: Option<i64>,
    /// The row that the file has.
    row: Option<(Place, u64)>,
}

/// Each job once, in the order in which they first changed.
struct LastOnes<'a> {
    jobs: Vec<LastOne<'a>>,
    /// Where each is. A single write has each of its jobs once, so nobody asks.
    places: Option<IdMap<JobId, usize>>,
}

impl<'a> LastOnes<'a> {
    /// None yet, with room for those of all these.
    fn of(written: &[Written]) -> Self {
        let count = written.iter().map(|it| it.changes.jobs.len()).sum();
        Self {
            jobs: Vec::with_capacity(count),
            places: (written.len() > 1)
                .then(|| IdMap::with_capacity_and_hasher(count, Default::default())),
        }
    }

    fn take(&mut self, changes: &'a Changes, before: &[Before]) {
        for (job, before) in changes.jobs.iter().zip(before) {
            if let Some(places) = &mut self.places {
                // A new job cannot have been changed before.
                let known = (job.revision > 1).then(|| places.get(&job.id)).flatten();
                if let Some(place) = known {
                    let known = &mut self.jobs[*place];
                    known.job = job;
                    known.last_event = before.last_event;
                    continue;
                }
                places.insert(job.id, self.jobs.len());
            }
            let stored = before.stored.as_ref();
            self.jobs.push(LastOne {
                job,
                last_event: before.last_event,
                row: stored.map(|stored| (stored.place, stored.job.revision)),
            });
        }
    }

    fn write(self, db: &Connection) -> Result<()> {
        let mut rows = JobRows::new(db);
        for last in &self.jobs {
            let to = Place::of(last.job.state);
            let elsewhere = last.row.filter(|(place, _)| *place != to);
            if let Some((place, revision)) = elsewhere {
                rows.delete(last.job.id, revision, place)?;
            }
            let is_new = last.row.is_none() || elsewhere.is_some();
            rows.put(last.job, to, is_new, last.last_event)?;
        }
        rows.finish()
    }
}

fn write_beside(db: &Connection, changes: &Changes, before: &[Before]) -> Result<()> {
    let mut granted: Vec<(LeaseId, Vec<JobId>)> = Vec::new();
    for (job, before) in changes.jobs.iter().zip(before) {
        let stored = before.stored.as_ref();
        beside::write(db, stored.map(|stored| &*stored.job), job)?;
        if let Some(lease) = job.lease_id
            && stored.is_none_or(|stored| stored.job.lease_id != Some(lease))
        {
            match granted.iter_mut().find(|(known, _)| *known == lease) {
                Some((_, jobs)) => jobs.push(job.id),
                None => granted.push((lease, vec![job.id])),
            }
        }
    }
    for (lease, jobs) in granted {
        leases::write_leased(db, lease, &jobs)?;
    }
    Ok(())
}

fn write_leases(db: &Connection, changes: &Changes) -> Result<()> {
    for lease in &changes.leases {
        leases::write_lease(db, lease)?;
        if !lease.is_live() {
            leases::delete_leased(db, lease.id)?;
        }
    }
    Ok(())
}

fn write_keys(db: &Connection, keys: &[KeyRecord]) -> Result<()> {
    for key in keys {
        db.prepare_cached("INSERT OR REPLACE INTO scheduler_keys VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
            .execute(params![
                key.addon_id.as_str(),
                key.key,
                key.fingerprint.0,
                Id(&key.job_id.0),
                state_number(key.state),
                to_micros(key.created_at),
            ])?;
    }
    Ok(())
}
