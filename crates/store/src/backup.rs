//! A copy of the whole store, made while it is in use.

use std::path::PathBuf;

use crate::answer::{Answer, promise};
use crate::error::StoreError;
use crate::store::Store;

/// A backup that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupDone {
    /// Where it is.
    pub path: PathBuf,
    /// How large it is.
    pub bytes: u64,
    /// The place of the last event in it: what was acknowledged before the call is in it, and perhaps a little more.
    pub last_event: u64,
}

impl Store {
    /// Copies the store into a new file, which can be opened as a store. It is of one moment, and neither readers nor
    /// writers wait for it. The file is there when it is whole and on disk, and not before.
    ///
    /// Only a store in a SQLite file can be copied so; the others say what to use instead.
    pub fn backup(&self, path: impl Into<PathBuf>) -> Answer<BackupDone> {
        let (promise, answer) = promise();
        let (backend, path) = (self.backend(), path.into());
        let started = std::thread::Builder::new()
            .name("jobtree-backup".to_owned())
            .spawn(move || {
                let done = backend.backup(&path);
                // Whoever has the answer can close the store.
                drop(backend);
                promise.keep(done);
            });
        match started {
            Ok(_) => answer,
            Err(error) => Answer::ready(Err(StoreError::NoBackup {
                why: format!("there is no thread for it: {error}"),
            })),
        }
    }
}
