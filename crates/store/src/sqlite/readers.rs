//! Threads that answer queries, each with a connection of its own that cannot write. A query sees one snapshot, the
//! last commit at its beginning, and never waits for the writer, nor the writer for it.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;

use super::open::{self, SqliteOptions};
use super::snapshot::Snapshot;
use crate::backend::Query;
use crate::error::{OpenError, StoreError};

pub(crate) struct Readers {
    queries: Option<SyncSender<Box<dyn Query>>>,
    max_waiting: usize,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    pub(crate) fn start(options: &SqliteOptions) -> Result<Self, OpenError> {
        let (sender, receiver) = sync_channel(options.max_waiting);
        let receiver = Arc::new(Mutex::new(receiver));
        let threads = (0..options.readers)
            .map(|_| {
                let db = open::reader(options)?;
                let receiver = Arc::clone(&receiver);
                let thread = std::thread::Builder::new()
                    .name("jobtree-reader".to_owned())
                    .spawn(move || answer_all(&db, &receiver))?;
                Ok(thread)
            })
            .collect::<Result<_, OpenError>>()?;
        Ok(Self {
            queries: Some(sender),
            max_waiting: options.max_waiting,
            threads,
        })
    }

    pub(crate) fn ask(&self, query: Box<dyn Query>) {
        let sender = self.queries.as_ref().expect("only taken by drop");
        match sender.try_send(query) {
            Ok(()) => {}
            Err(TrySendError::Full(query)) => query.refuse(StoreError::Overloaded {
                waiting: self.max_waiting,
            }),
            Err(TrySendError::Disconnected(query)) => query.refuse(StoreError::closed()),
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        drop(self.queries.take());
        for thread in self.threads.drain(..) {
            // A query that panicked was answered as stopped; there is nobody else to tell.
            let _ = thread.join();
        }
    }
}

fn answer_all(db: &Connection, queries: &Mutex<Receiver<Box<dyn Query>>>) {
    loop {
        // The lock is held while waiting for a query, not while it runs.
        let next = queries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok(query) = next else { return };
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| in_snapshot(db, query)));
        if ran.is_err() && !db.is_autocommit() {
            let _ = db.execute_batch("ROLLBACK");
        }
    }
}

fn in_snapshot(db: &Connection, query: Box<dyn Query>) {
    let begun = db
        .prepare_cached("BEGIN")
        .and_then(|mut begin| begin.execute([]));
    match begun {
        Err(error) => query.refuse(error.into()),
        Ok(_) => query.ask(&mut Snapshot(db)),
    }
    if !db.is_autocommit() {
        // A transaction that only read leaves nothing behind either way.
        let _ = db.execute_batch("ROLLBACK");
    }
}
