//! Errors of the store, as callers of the scheduler are told.

use jobtree_protocol::{ApiError, ErrorCode};
use jobtree_store::StoreError;

/// What a caller is told of a store's error.
pub(crate) fn told(error: &StoreError) -> ApiError {
    match error {
        StoreError::Refused(why) => ApiError::from(&**why),
        StoreError::NoJob(_) | StoreError::NoLease(_) | StoreError::NoSchedule(_) => {
            ApiError::new(ErrorCode::NotFound, error.to_string())
        }
        StoreError::NameTaken { .. } | StoreError::NoBackup { .. } => {
            ApiError::new(ErrorCode::Conflict, error.to_string())
        }
        _ => ApiError::new(ErrorCode::Unavailable, error.to_string()),
    }
}

/// Whether the store said no, rather than failed.
pub(crate) fn is_refusal(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Refused(_)
            | StoreError::NoJob(_)
            | StoreError::NoLease(_)
            | StoreError::NoSchedule(_)
            | StoreError::NameTaken { .. }
    )
}
