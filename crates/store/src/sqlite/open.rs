//! Opening the file: who may, with which settings, and what must hold before the first answer.
//!
//! - One process at a time, by a lock on a file beside it: a second writer would only ever find it busy, and leases
//!   counted by one engine must not be swept by another. The process that gets the lock knows that its former owner has
//!   ended, and that owner's own workers with it. The lock lies beside the file that symbolic links lead to. Two hard links
//!   have two locks, so each process also keeps the files that it has open, by device and number.
//! - Write-ahead log and `synchronous=FULL`: each commit is synced before it is answered. SQLite answers the switch to
//!   the log before it has committed it, so the answer is read to its end, and then the file is asked again.
//! - All of the log is moved into the file before anything is answered. If an earlier process met a failed sync, parts
//!   of the log may exist in the kernel's cache only, called clean; what was appended behind such a hole would be lost
//!   with it in a power cut. Copying writes those pages anew.
//! - No foreign keys: the only writer is `execute.rs`, and a check for each row would be paid by every job.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::migrate;
use crate::error::OpenError;

/// The first release without the defect that may damage a file when its log is reset.
const SQLITE_AT_LEAST: i32 = 3_051_003;

/// "jobt": marks the file as ours.
const APPLICATION_ID: i64 = 0x6a6f_6274;

/// How a store on SQLite is opened.
///
/// ```
/// use jobtree_store::SqliteOptions;
/// let options = SqliteOptions::new("jobs.db").max_waiting(1000);
/// ```
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    pub(crate) path: PathBuf,
    pub(crate) vfs: Option<String>,
    pub(crate) sync: bool,
    pub(crate) max_waiting: usize,
    pub(crate) max_group: usize,
    pub(crate) readers: usize,
    pub(crate) checkpoint_pages: i64,
    pub(crate) remembered: usize,
}

impl SqliteOptions {
    /// A store in this file, which is made if it is missing, readable by its owner alone. A symbolic link is followed. A file
    /// with several hard links must always be opened by the same one: SQLite looks for its log beside the name that it is given.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            vfs: None,
            sync: true,
            max_waiting: 16_384,
            max_group: 2048,
            readers: 2,
            checkpoint_pages: 4000,
            remembered: 16_384,
        }
    }

    /// How many calls may wait for the writer; one more is refused as overloaded.
    pub fn max_waiting(mut self, calls: usize) -> Self {
        self.max_waiting = calls.max(1);
        self
    }

    /// How many calls may share a commit.
    pub fn max_group(mut self, calls: usize) -> Self {
        self.max_group = calls.max(1);
        self
    }

    /// How many threads answer queries.
    pub fn readers(mut self, threads: usize) -> Self {
        self.readers = threads.max(1);
        self
    }

    /// How long the log may grow, in pages, before it is copied into the file.
    pub fn checkpoint_pages(mut self, pages: u32) -> Self {
        self.checkpoint_pages = pages.max(1).into();
        self
    }

    /// How many jobs the writer keeps in memory, so that it need not read them again: some hundred bytes each, and
    /// short payloads. With 0, each command reads what it needs.
    pub fn remembered(mut self, jobs: usize) -> Self {
        self.remembered = jobs;
        self
    }

    /// Uses a file system that was registered with SQLite under this name. It is taken as private to this process:
    /// there is no lock against others.
    pub fn vfs(mut self, name: impl Into<String>) -> Self {
        self.vfs = Some(name.into());
        self
    }

    /// Answers before the disk has it. A power cut loses acknowledged jobs: only to show that the tests notice.
    #[doc(hidden)]
    pub fn without_sync(mut self) -> Self {
        self.sync = false;
        self
    }
}

/// Device and number of a file: what all its names have in common.
type FileId = (u64, u64);

/// The files that stores of this process have open.
static OPEN_FILES: Mutex<Vec<FileId>> = Mutex::new(Vec::new());

/// Holds the lock as long as the store is open.
#[derive(Debug)]
pub(crate) struct ProcessLock {
    file: Option<File>,
    id: Option<FileId>,
}

impl ProcessLock {
    pub(crate) fn take(options: &SqliteOptions) -> Result<Self, OpenError> {
        if options.vfs.is_some() {
            return Ok(Self {
                file: None,
                id: None,
            });
        }
        let in_use = || OpenError::InUse {
            path: options.path.clone(),
        };
        // Held to the end, so that two threads that open one file come one after the other.
        let mut open_files = OPEN_FILES.lock().unwrap_or_else(PoisonError::into_inner);
        if !options.path.try_exists()? {
            // SQLite gives its log the rights of the file.
            drop(private_file(&options.path)?);
        }
        // Not by opening a file that is there: closing it again would end the locks that SQLite holds on it in this process.
        let id = file_id(&options.path)?;
        if id.is_some_and(|id| open_files.contains(&id)) {
            return Err(in_use());
        }
        let mut name = options.path.canonicalize()?.into_os_string();
        name.push(".lock");
        let file = private_file(Path::new(&name))?;
        match file.try_lock() {
            Ok(()) => {
                open_files.extend(id);
                Ok(Self {
                    file: Some(file),
                    id,
                })
            }
            Err(TryLockError::WouldBlock) => Err(in_use()),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }

    /// Returns `true` if there is a lock: a private file system has none.
    pub(crate) fn is_held(&self) -> bool {
        self.file.is_some()
    }
}

impl Drop for ProcessLock {
    fn drop(&mut self) {
        let mut open_files = OPEN_FILES.lock().unwrap_or_else(PoisonError::into_inner);
        open_files.retain(|open| Some(*open) != self.id);
        // With the list still locked, so that a store finds both as they were, or both free. Closing the file is not enough:
        // a process that another thread is starting has a copy of the descriptor until its program begins, and the lock
        // would last as long. An error leaves just that.
        if let Some(file) = self.file.take() {
            let _ = file.unlock();
        }
    }
}

/// The identity of a file; `None` where the system has none to show.
fn file_id(path: &Path) -> std::io::Result<Option<FileId>> {
    let metadata = path.metadata()?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        Ok(Some((metadata.dev(), metadata.ino())))
    }
    #[cfg(not(unix))]
    {
        drop(metadata);
        Ok(None)
    }
}

/// Opens or makes a file for its owner alone.
fn private_file(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// The writer's connection, with the newest tables in the file.
pub(crate) fn writer(options: &SqliteOptions) -> Result<Connection, OpenError> {
    if rusqlite::version_number() < SQLITE_AT_LEAST {
        return Err(OpenError::SqliteTooOld {
            found: rusqlite::version().to_owned(),
        });
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let db = connect(options, flags)?;
    check_owner(&db)?;
    use_log(&db)?;
    db.execute_batch(if options.sync {
        "PRAGMA synchronous = FULL"
    } else {
        "PRAGMA synchronous = OFF"
    })?;
    // The writer does it, where its errors are seen: SQLite's own way hides them.
    db.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))?;
    settle_log(&db)?;
    migrate::to_newest(&db, APPLICATION_ID)?;
    db.set_prepared_statement_cache_capacity(128);
    Ok(db)
}

/// A connection that only reads.
pub(crate) fn reader(options: &SqliteOptions) -> Result<Connection, OpenError> {
    let db = connect(options, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    db.execute_batch("PRAGMA query_only = ON")?;
    db.set_prepared_statement_cache_capacity(64);
    Ok(db)
}

pub(crate) fn connect(options: &SqliteOptions, flags: OpenFlags) -> Result<Connection, OpenError> {
    // Each connection stays on one thread at a time, so SQLite's own locks around it are not needed.
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = match &options.vfs {
        None => Connection::open_with_flags(&options.path, flags)?,
        Some(vfs) => Connection::open_with_flags_and_vfs(&options.path, flags, vfs.as_str())?,
    };
    db.busy_timeout(Duration::from_secs(5))?;
    db.execute_batch(
        "PRAGMA foreign_keys = OFF; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -32768; PRAGMA trusted_schema = OFF",
    )?;
    Ok(db)
}

/// Refuses a file of another program before anything is written to it.
pub(crate) fn check_owner(db: &Connection) -> Result<(), OpenError> {
    let id = pragma(db, "application_id")?;
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if id == APPLICATION_ID || (id == 0 && tables == 0) {
        migrate::refuse_newer(db)
    } else {
        Err(OpenError::Foreign { application_id: id })
    }
}

fn use_log(db: &Connection) -> Result<(), OpenError> {
    let mut mode = String::new();
    let mut statement = db.prepare("PRAGMA journal_mode = WAL")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        mode = row.get(0)?;
    }
    if mode == "wal" {
        Ok(())
    } else {
        Err(OpenError::NoLog { mode })
    }
}

/// Moves all of the log into the file, and empties it.
fn settle_log(db: &Connection) -> Result<(), OpenError> {
    let busy: i64 = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if busy == 0 {
        Ok(())
    } else {
        Err(OpenError::Database(
            "another program reads the file; close it there".to_owned(),
        ))
    }
}

pub(crate) fn pragma(db: &Connection, name: &str) -> Result<i64, OpenError> {
    Ok(db.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_with_its_store_though_a_process_that_is_starting_has_a_copy() {
        let name = format!("jobtree-lock-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let options = SqliteOptions::new(folder.join("jobs.db"));
        let lock = ProcessLock::take(&options).unwrap();
        let refused = ProcessLock::take(&options);
        assert!(matches!(refused, Err(OpenError::InUse { .. })));
        // What a fork leaves in the child, until that runs its program.
        let copy = lock.file.as_ref().unwrap().try_clone().unwrap();
        drop(lock);
        let taken = ProcessLock::take(&options);
        drop(copy);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(taken.is_ok(), "{taken:?}");
    }
}
