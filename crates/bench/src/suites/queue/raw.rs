//! SQLite itself: rows like ours by prepared statements, and nothing else. No rules, no answers, no other threads.

use std::path::Path;
use std::time::Instant;

use jobtree_protocol::JobId;
use rusqlite::{Connection, params};

use super::{BATCH, BULK, Work};

/// As long as what ours packs of such a job, and of a claim and a completion.
const QUEUED: [u8; 54] = [7; 54];
const RUNNING: [u8; 84] = [7; 84];
const DONE: [u8; 96] = [7; 96];
/// Of events: so many bytes each, and so many in a row.
const EVENT: usize = 26;
const EVENTS: usize = 138;

pub struct Raw {
    db: Connection,
    waiting: Vec<JobId>,
    events: i64,
}

impl Raw {
    /// # Panics
    ///
    /// If the file cannot be made.
    pub fn open(path: &Path) -> Self {
        let db = Connection::open(path).expect("a new file");
        let mode: String = db
            .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
            .expect("a log");
        assert_eq!(mode, "wal");
        db.execute_batch(
            "PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -32768;
             PRAGMA wal_autocheckpoint = 4000;
             CREATE TABLE jobs (id BLOB NOT NULL PRIMARY KEY, revision INTEGER NOT NULL, state INTEGER NOT NULL,
               addon_id TEXT NOT NULL, job_type TEXT NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;
             CREATE TABLE history (id BLOB NOT NULL PRIMARY KEY, revision INTEGER NOT NULL, state INTEGER NOT NULL,
               addon_id TEXT NOT NULL, job_type TEXT NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;
             CREATE TABLE events (id INTEGER PRIMARY KEY, count INTEGER NOT NULL, body BLOB NOT NULL);",
        )
        .expect("tables");
        Self {
            db,
            waiting: Vec::new(),
            events: 0,
        }
    }

    /// How long a job takes.
    ///
    /// # Panics
    ///
    /// If SQLite refuses.
    pub fn micros_each(&mut self, work: Work, count: usize) -> f64 {
        if matches!(work, Work::ProcessOneByOne { .. } | Work::ProcessBatches)
            && self.waiting.len() < count
        {
            self.submit(count - self.waiting.len(), BULK);
        }
        let start = Instant::now();
        match work {
            Work::Submit { callers } => self.submit(count, callers),
            Work::Bulk => self.submit(count, BULK),
            Work::ProcessOneByOne { callers } => self.process(count, callers),
            Work::ProcessBatches => self.process(count, BATCH),
        }
        start.elapsed().as_secs_f64() * 1e6 / count as f64
    }

    fn submit(&mut self, count: usize, at_once: usize) {
        for begin in (0..count).step_by(at_once) {
            let jobs: Vec<JobId> = (begin..count.min(begin + at_once))
                .map(|_| JobId::generate())
                .collect();
            self.commit(|db| {
                let mut insert =
                    db.prepare_cached("INSERT INTO jobs VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
                for job in &jobs {
                    insert.execute(params![
                        job.0.as_bytes(),
                        1,
                        0,
                        "visuals",
                        "indexing",
                        QUEUED
                    ])?;
                }
                Ok(jobs.len())
            });
            self.waiting.extend(jobs);
        }
    }

    /// A claim and a completion, a commit each.
    fn process(&mut self, count: usize, at_once: usize) {
        let jobs: Vec<JobId> = self.waiting.drain(..count).collect();
        for batch in jobs.chunks(at_once) {
            self.commit(|db| {
                let mut update = db.prepare_cached(
                    "UPDATE jobs SET revision = ?1, state = ?2, body = ?3 WHERE id = ?4 AND revision = ?5",
                )?;
                let mut changed = 0;
                for job in batch {
                    changed += update.execute(params![2, 2, RUNNING, job.0.as_bytes(), 1])?;
                }
                Ok(changed)
            });
            self.commit(|db| {
                let mut delete =
                    db.prepare_cached("DELETE FROM jobs WHERE id = ?1 AND revision = ?2")?;
                let mut insert =
                    db.prepare_cached("INSERT INTO history VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
                let mut changed = 0;
                for job in batch {
                    changed += delete.execute(params![job.0.as_bytes(), 2])?;
                    insert.execute(params![job.0.as_bytes(), 3, 3, "visuals", "indexing", DONE])?;
                }
                Ok(changed)
            });
        }
    }

    /// Runs the changes, which say how many jobs they concerned, and writes so many events with them.
    fn commit(&mut self, changes: impl FnOnce(&Connection) -> rusqlite::Result<usize>) {
        let run = || -> rusqlite::Result<i64> {
            self.db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            let mut left = changes(&self.db)?;
            assert!(left > 0, "it changed nothing");
            let mut last = self.events;
            let mut insert = self
                .db
                .prepare_cached("INSERT INTO events VALUES (?1, ?2, ?3)")?;
            while left > 0 {
                let count = left.min(EVENTS);
                last += count as i64;
                insert.execute(params![
                    last,
                    count as i64,
                    &[7_u8; EVENT * EVENTS][..count * EVENT]
                ])?;
                left -= count;
            }
            self.db.prepare_cached("COMMIT")?.execute([])?;
            Ok(last)
        };
        self.events = run().expect("SQLite takes it");
    }
}
