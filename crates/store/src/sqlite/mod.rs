//! The queue in one SQLite file: one thread writes, others read.

mod backup;
mod beside;
mod codec;
mod failure;
mod flush;
mod inspect;
mod leases;
mod list;
mod logs;
mod migrate;
mod moving;
mod open;
mod pack;
mod prune;
mod queries;
mod readers;
mod rows;
mod snapshot;
mod tables;
pub(crate) mod trail;

use std::sync::{Arc, Weak};

use jobtree_protocol::LeaseId;

pub use open::SqliteOptions;

use crate::backend::{Backend, Listen, Listeners, Query, Work};
use crate::error::{OpenError, StoreError};
use crate::moving::MOVING;
use crate::writer::{Bounds, Writer};

/// Statements whose plans the tests hold to an index.
#[doc(hidden)]
pub mod plans {
    pub use super::list::statements as list_statements;
    pub use super::queries::{COUNTED, HOT_STATEMENTS};
}

/// An open file. Fields are dropped in this order: the readers let go of the log before the writer closes the file, and
/// the lock goes last.
pub(crate) struct Sqlite {
    readers: readers::Readers,
    writer: Writer,
    listeners: Arc<Listeners>,
    options: SqliteOptions,
    orphaned: Vec<LeaseId>,
    lock: open::ProcessLock,
}

pub(crate) use inspect::inspect;

impl Sqlite {
    pub(crate) fn open(options: &SqliteOptions) -> Result<Self, OpenError> {
        let lock = open::ProcessLock::take(options)?;
        let db = open::writer(options)?;
        let damaged = |error: StoreError| OpenError::Database(error.to_string());
        if queries::note(&db, MOVING).map_err(damaged)?.is_some() {
            return Err(OpenError::HalfMoved);
        }
        let orphaned = match lock.is_held() {
            true => queries::leases_in_process(&db).map_err(damaged)?,
            false => Vec::new(),
        };
        let tables = tables::SqliteTables::new(db, options).map_err(damaged)?;
        let readers = readers::Readers::start(options)?;
        let listeners = Arc::new(Listeners::default());
        let bounds = Bounds {
            max_waiting: options.max_waiting,
            max_group: options.max_group,
        };
        let writer = Writer::start(move || tables, bounds, Arc::clone(&listeners))?;
        Ok(Self {
            readers,
            writer,
            listeners,
            options: options.clone(),
            orphaned,
            lock,
        })
    }
}

impl Backend for Sqlite {
    fn transact(&self, work: Box<dyn Work>) {
        self.writer.transact(work);
    }

    fn snapshot(&self, query: Box<dyn Query>) {
        if let Some(error) = self.stopped() {
            return query.refuse(error);
        }
        self.readers.ask(query);
    }

    fn listen(&self, listener: Weak<Listen>) {
        self.listeners.add(listener);
    }

    fn stopped(&self) -> Option<StoreError> {
        self.writer.stopped()
    }

    fn trouble(&self) -> Option<StoreError> {
        self.writer.trouble()
    }

    fn is_owned(&self) -> bool {
        self.lock.is_held()
    }

    fn orphaned_leases(&self) -> &[LeaseId] {
        &self.orphaned
    }

    fn numbers(&self) -> crate::StoreNumbers {
        self.writer.numbers()
    }

    fn backup(&self, path: &std::path::Path) -> Result<crate::BackupDone, StoreError> {
        match self.stopped() {
            Some(error) => Err(error),
            None => backup::make(&self.options, path),
        }
    }
}
