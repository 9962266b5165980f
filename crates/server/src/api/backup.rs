//! A copy of the database, while it is used.
//!
//! It is written into the folder `backups` of the data directory, under a name that the caller may choose: a path would let
//! whoever holds a token write anywhere on the machine.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use jiff::Timestamp;
use jobtree_protocol::{
    ApiError, BackupAnswer, BackupRequest, ErrorCode, FieldError, Scope, paths,
};

use crate::auth::Caller;
use crate::daemon::Daemon;
use crate::extract::{Created, MaybeJson};
use crate::problem::Answered;

pub(super) fn routes() -> Router<Arc<Daemon>> {
    Router::new().route(paths::BACKUP, post(backup))
}

async fn backup(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    MaybeJson(request): MaybeJson<BackupRequest>,
) -> Answered<Created<BackupAnswer>> {
    caller.needs(Scope::Admin)?;
    let now = Timestamp::now();
    let name = match request.name {
        Some(name) => checked(name)?,
        None => format!("jobs-{}.db", now.strftime("%Y%m%d-%H%M%S%.3f")),
    };
    let folder = daemon.data_dir.join("backups");
    let made = crate::server::make_folder(&folder);
    made.map_err(|error| ApiError::new(ErrorCode::Unavailable, error.to_string()))?;
    let done = daemon.store().backup(folder.join(name)).await;
    let done = done.map_err(|error| ApiError::new(ErrorCode::Conflict, error.to_string()))?;
    Ok(Created(BackupAnswer {
        path: done.path.to_string_lossy().into_owned(),
        bytes: done.bytes,
        last_event: done.last_event,
        at: now,
    }))
}

/// A name that is one, on every system.
fn checked(name: String) -> Answered<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if (1..=128).contains(&name.len()) && name.chars().all(allowed) && !name.starts_with('.') {
        return Ok(name);
    }
    let message =
        "is no name of a file here: write letters, digits, dots, hyphens, not a dot first";
    Err(ApiError::invalid(vec![FieldError::new("name", message)]).into())
}
