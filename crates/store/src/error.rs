//! What can go wrong in a store, and what the caller can do about it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use jobtree_protocol::{JobId, LeaseId, ScheduleId};
use jobtree_queue::transitions::TransitionError;

/// Why a call did not take effect, or may not have.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StoreError {
    /// The rules do not allow it. Nothing took effect.
    Refused(Box<TransitionError>),
    /// There is no such job.
    NoJob(JobId),
    /// There is no such lease, or it ended so long ago that it was forgotten.
    NoLease(LeaseId),
    /// There is no such schedule.
    NoSchedule(ScheduleId),
    /// Another schedule has this name.
    NameTaken {
        /// The name.
        name: String,
    },
    /// Too many calls wait for the writer already. Nothing took effect: try again later.
    Overloaded {
        /// How many are waiting.
        waiting: usize,
    },
    /// The disk is full. Nothing took effect.
    NoSpace,
    /// The commit that this call shared with others failed. Nothing took effect: try again.
    CommitFailed {
        /// What the database said.
        why: Arc<str>,
    },
    /// The connection to the database was lost. Whether the call took effect is not known: repeat it, which is safe.
    Disconnected {
        /// What happened.
        why: Arc<str>,
    },
    /// The store has stopped: it was closed, or its disk failed, after which nothing that it says could be trusted.
    /// Whether the call took effect will be known when the store has been opened again.
    Stopped {
        /// What happened.
        why: Arc<str>,
    },
    /// No backup was made.
    NoBackup {
        /// What stood in the way, or what to use instead.
        why: String,
    },
    /// The database refused a statement. Nothing took effect. This is a defect, or a file that was changed by others.
    Database {
        /// What the database said.
        message: String,
    },
}

impl StoreError {
    pub(crate) fn closed() -> Self {
        Self::Stopped {
            why: "it was closed".into(),
        }
    }

    /// Whether the same call may succeed later without anything else being done.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Overloaded { .. } | Self::CommitFailed { .. } | Self::Disconnected { .. }
        )
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::NoJob(id) => write!(
                f,
                "there is no job {id}: check the id; its history may have been pruned"
            ),
            Self::NoLease(id) => write!(
                f,
                "there is no lease {id}: stop what ran under it, and ask for a new one"
            ),
            Self::NoSchedule(id) => write!(f, "there is no schedule {id}: check the id"),
            Self::NameTaken { name } => write!(
                f,
                "another schedule is called {name:?}: choose another name"
            ),
            Self::Overloaded { waiting } => write!(
                f,
                "{waiting} calls wait for the store already; try again later"
            ),
            Self::NoSpace => write!(f, "the store's disk is full; make room and try again"),
            Self::CommitFailed { why } => {
                write!(
                    f,
                    "the commit failed and nothing took effect, try again: {why}"
                )
            }
            Self::Disconnected { why } => write!(
                f,
                "the connection to the database was lost, and whether the call took effect is not known; repeat it: {why}"
            ),
            Self::Stopped { why } => write!(f, "the store has stopped, open it again: {why}"),
            Self::NoBackup { why } => write!(f, "no backup was made: {why}"),
            Self::Database { message } => write!(f, "the database refused: {message}"),
        }
    }
}

impl std::error::Error for StoreError {}

impl From<TransitionError> for StoreError {
    fn from(error: TransitionError) -> Self {
        Self::Refused(Box::new(error))
    }
}

/// Why a store could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or another store of this one, has the file open.
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a newer version of jobtree.
    Newer {
        /// Its version.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// Another store was being moved here, and that did not come to its end.
    HalfMoved,
    /// Another scheduler of the shared store has the same name.
    NameTaken {
        /// The name.
        node: String,
    },
    /// The tables have to be changed, and other transactions kept them locked.
    Locked {
        /// The version that the tables should get.
        version: i64,
    },
    /// The server is reached through a pooler that gives each transaction another connection.
    Pooled,
    /// The file is a database of something else.
    Foreign {
        /// The mark of the program that it belongs to.
        application_id: i64,
    },
    /// This program was linked with a SQLite that may damage files.
    SqliteTooOld {
        /// Its version.
        found: String,
    },
    /// The file cannot keep its promises: the write-ahead log is not available there.
    NoLog {
        /// What SQLite uses instead.
        mode: String,
    },
    /// The file could not be read, written or made.
    Io(std::io::Error),
    /// The database said no.
    Database(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { path } => write!(
                f,
                "{} is in use by another process, or by another store of this one; stop that one, or choose another file",
                path.display()
            ),
            Self::Newer { found, known } => write!(
                f,
                "the file has version {found}, and this program knows versions up to {known}; use a newer jobtree"
            ),
            Self::HalfMoved => f.write_str(
                "another store was being moved here and that did not come to its end; delete this one (the file, or the \
                 tables whose names begin with scheduler_) and move again",
            ),
            Self::NameTaken { node } => write!(
                f,
                "another scheduler of this store is called '{node}', too; give each machine a name of its own with --node"
            ),
            Self::Locked { version } => write!(
                f,
                "the tables have to be brought to version {version}, and other transactions kept them locked for a minute; \
                 end those that are open for long (pg_dump, a program with an open transaction) and start again"
            ),
            Self::Pooled => f.write_str(
                "the server is reached through a pooler in transaction mode (PgBouncer's pool_mode=transaction): LISTEN, \
                 prepared statements and settings of a session do not work there; connect to the server itself, or to a \
                 pool with pool_mode=session",
            ),
            Self::Foreign { application_id } => write!(
                f,
                "the file is a database of another program (application id {application_id}); choose another file"
            ),
            Self::SqliteTooOld { found } => write!(
                f,
                "SQLite {found} can damage a database in write-ahead mode; link 3.51.3 or newer"
            ),
            Self::NoLog { mode } => write!(
                f,
                "SQLite uses journal mode '{mode}' here instead of a write-ahead log; choose a local disk"
            ),
            Self::Io(error) => write!(f, "the file cannot be opened: {error}"),
            Self::Database(message) => write!(f, "the database cannot be opened: {message}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<std::io::Error> for OpenError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error.to_string())
    }
}
