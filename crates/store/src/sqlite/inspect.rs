//! A look at a file without opening it as a store.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::{migrate, open};
use crate::error::OpenError;
use crate::inspect::Inspected;

/// The length up to which all of a file is read: some seconds of a slow disk. Picked by feel.
const READ_WHOLE: u64 = 256 << 20;

/// Returns what is in the file. It must not be one that this process has open as a store: to close a file ends the locks that the
/// process holds on it.
pub(crate) fn inspect(path: &Path) -> Result<Inspected, OpenError> {
    let about = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Inspected::Missing),
        about => about?,
    };
    if about.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory).into());
    }
    // SQLite does not say that it may not read a file.
    drop(File::open(path)?);
    if about.len() == 0 {
        return Ok(Inspected::Missing);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(address(path), flags)?;
    db.execute_batch("PRAGMA query_only = ON; PRAGMA trusted_schema = OFF")?;
    open::check_owner(&db)?;
    let version = open::pragma(&db, "user_version")?;
    let whole = about.len() <= READ_WHOLE;
    if whole {
        let told: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if told != "ok" {
            return Err(OpenError::Database(told));
        }
    }
    Ok(Inspected::Sound {
        version,
        newest: migrate::NEWEST,
        whole,
    })
}

/// The file as SQLite is to open it. Where no process has it open and no log is left, it is read as it is: else SQLite would make
/// the files of a log.
fn address(path: &Path) -> OsString {
    let beside = |end: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let has_log = fs::metadata(beside("-wal")).is_ok_and(|log| log.len() > 0);
    let is_still = !has_log && !beside("-shm").exists();
    let mut address = String::from("file:");
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => address.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => address.push(byte.into()),
            _ => address.push_str(&format!("%{byte:02x}")),
        }
    }
    address.push_str(match is_still {
        true => "?immutable=1",
        false => "?mode=ro",
    });
    address.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SqliteOptions, Store};

    #[test]
    fn a_file_is_looked_at_without_a_trace() {
        let name = format!("jobtree inspect #{}?", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("100% jobs.db");
        let names = || {
            let all = fs::read_dir(&folder).unwrap();
            let mut all: Vec<_> = all.map(|entry| entry.unwrap().file_name()).collect();
            all.sort();
            all
        };
        assert_eq!(inspect(&path).unwrap(), Inspected::Missing);
        assert!(names().is_empty(), "nothing is made");
        let store = Store::open(&SqliteOptions::new(&path)).unwrap();
        drop(store);
        let before = names();
        let sound = Inspected::Sound {
            version: migrate::NEWEST,
            newest: migrate::NEWEST,
            whole: true,
        };
        assert_eq!(inspect(&path).unwrap(), sound);
        assert_eq!(names(), before);

        let whole = fs::read(&path).unwrap();
        let mut damaged = whole.clone();
        damaged[4096..].fill(0xa5);
        fs::write(&path, &damaged).unwrap();
        assert!(matches!(inspect(&path), Err(OpenError::Database(_))));
        fs::write(&path, "no database".repeat(1000)).unwrap();
        assert!(matches!(inspect(&path), Err(OpenError::Database(_))));
        fs::write(&path, &whole).unwrap();
        let db = Connection::open(&path).unwrap();
        db.pragma_update(None, "user_version", 99).unwrap();
        drop(db);
        let newer = inspect(&path);
        assert!(
            matches!(newer, Err(OpenError::Newer { found: 99, .. })),
            "{newer:?}"
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}
