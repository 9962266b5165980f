//! A copy of the file, made while it is in use.
//!
//! SQLite writes it from one snapshot, by a connection of its own: the writer goes on, only the log cannot be emptied
//! until the copy is done. The copy gets its name last, when all of it is synced: whatever is found under that name is
//! whole. It is readable by its owner alone, as the file is.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::open::{self, SqliteOptions};
use super::trail;
use crate::backup::BackupDone;
use crate::error::StoreError;
use crate::tables::Result;

fn failed(why: impl std::fmt::Display) -> StoreError {
    StoreError::NoBackup {
        why: why.to_string(),
    }
}

fn exists(path: &Path) -> StoreError {
    failed(format_args!(
        "{} exists already; choose another name, or delete it",
        path.display()
    ))
}

/// The unfinished copy, which goes with this.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // It has its name by now, or is of no use; what cannot be deleted is told by its name.
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(crate) fn make(options: &SqliteOptions, path: &Path) -> Result<BackupDone> {
    if options.vfs.is_some() {
        return Err(failed("this store is not in a file of its own"));
    }
    if path.try_exists().map_err(failed)? {
        return Err(exists(path));
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let name = format!(".jobtree-backup-{}.partial", uuid::Uuid::now_v7());
    let unfinished = Unfinished(folder.join(name));
    let file = new_file(&unfinished.0).map_err(failed)?;
    copy(options, &unfinished.0)?;
    file.sync_all().map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    let last_event = last_event(&unfinished.0)?;
    name_it(&unfinished.0, path)?;
    sync_folder(folder)?;
    Ok(BackupDone {
        path: path.to_owned(),
        bytes,
        last_event,
    })
}

fn new_file(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn copy(options: &SqliteOptions, to: &Path) -> Result<()> {
    let db = open::connect(options, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    let to = to
        .to_str()
        .ok_or_else(|| failed("the name of the file is not UTF-8; choose another"))?;
    db.execute("VACUUM INTO ?1", [to]).map_err(failed)?;
    Ok(())
}

fn last_event(path: &Path) -> Result<u64> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    Ok(trail::last_event(&db).map_err(failed)? as u64)
}

/// Gives it its name, unless that was taken meanwhile.
fn name_it(from: &Path, to: &Path) -> Result<()> {
    match std::fs::hard_link(from, to) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(exists(to)),
        // There are file systems without links. There, what came in between is replaced.
        Err(_) => std::fs::rename(from, to).map_err(failed),
    }
}

/// Syncs the new name.
fn sync_folder(folder: &Path) -> Result<()> {
    if cfg!(unix) {
        let folder = File::open(folder).map_err(failed)?;
        folder.sync_all().map_err(failed)?;
    }
    Ok(())
}
