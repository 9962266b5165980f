//! What an error of SQLite means for the store: whether the operation is to blame, the group, or the disk.

use rusqlite::ErrorCode;

use crate::error::StoreError;

/// Whether the file can still be trusted after this error. After a failed write the old contents are whole; after a
/// failed sync the kernel may have thrown our pages away while reads still show them, and nothing that is written
/// later would help. So whatever smells of a broken disk stops the store; a full disk does not.
pub(crate) fn is_fatal(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::SystemIoFailure
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::CannotOpen
                | ErrorCode::OutOfMemory
        )
    )
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        let fatal = is_fatal(&error);
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::NoSpace,
            _ if fatal => Self::Stopped {
                why: error.to_string().into(),
            },
            _ => Self::Database {
                message: error.to_string(),
            },
        }
    }
}
