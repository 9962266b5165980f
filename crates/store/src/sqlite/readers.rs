//! Threads that answer queries, each with a connection of its own that cannot write. A query sees one snapshot, the
//! last commit at its beginning, and never waits for the writer, nor the writer for it.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;

use super::open::{self, SqliteOptions};
use crate::answer::{Answer, promise};
use crate::error::{OpenError, StoreError};

type Query = Box<dyn FnOnce(&Connection) + Send>;

pub(crate) struct Readers {
    queries: Option<SyncSender<Query>>,
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

    pub(crate) fn query<T, F>(&self, query: F) -> Answer<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let (promise, answer) = promise();
        let run: Query = Box::new(move |db| promise.keep(in_snapshot(db, query)));
        let sender = self.queries.as_ref().expect("only taken by drop");
        match sender.try_send(run) {
            Ok(()) => answer,
            Err(TrySendError::Full(_)) => Answer::ready(Err(StoreError::Overloaded {
                waiting: self.max_waiting,
            })),
            Err(TrySendError::Disconnected(_)) => Answer::ready(Err(StoreError::closed())),
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

fn answer_all(db: &Connection, queries: &Mutex<Receiver<Query>>) {
    loop {
        // The lock is held while waiting for a query, not while it runs.
        let next = queries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok(query) = next else { return };
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| query(db)));
        if ran.is_err() && !db.is_autocommit() {
            let _ = db.execute_batch("ROLLBACK");
        }
    }
}

fn in_snapshot<T>(
    db: &Connection,
    query: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    db.prepare_cached("BEGIN")?.execute([])?;
    let result = query(db);
    if !db.is_autocommit() {
        db.prepare_cached("ROLLBACK")?.execute([])?;
    }
    result
}
