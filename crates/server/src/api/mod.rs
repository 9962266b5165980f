//! What can be asked: one file for each kind of thing, each with its routes.
//!
//! A handler reads its request, asks its caller's rights, and awaits the scheduler. Rights come before existence: a
//! caller without the scope is told so, and one with the scope cannot tell another addon's thing from none.

mod backup;
mod commands;
mod events;
mod jobs;
mod leases;
mod observe;
mod operating;
mod own;
mod questions;
mod schedules;
mod status;
mod tokens;
mod work;

use std::sync::Arc;

use axum::Router;
use jobtree_protocol::{ApiError, ErrorCode, FieldError};

use crate::daemon::Daemon;
use crate::problem::{Answered, Refusal};

/// Rows of one page, at most and if nothing is said.
pub(crate) const MOST_ROWS: u32 = 500;
pub(crate) const ROWS: u32 = 50;
/// The longest wait that may be asked for.
pub(crate) const MOST_WAIT: u32 = 600;
/// Things of one request.
pub(crate) const MOST_AT_ONCE: usize = 1000;
/// Bytes of a reason.
const REASON_BYTES: usize = 1024;

/// All routes.
pub(crate) fn router(daemon: Arc<Daemon>) -> Router {
    Router::new()
        .merge(status::routes())
        .merge(questions::routes())
        .merge(jobs::routes())
        .merge(commands::routes())
        .merge(work::routes())
        .merge(leases::routes())
        .merge(schedules::routes())
        .merge(operating::routes())
        .merge(tokens::routes())
        .merge(events::routes())
        .merge(backup::routes())
        .merge(observe::routes())
        .merge(crate::openapi::routes())
        .fallback(nothing_here)
        .method_not_allowed_fallback(other_method)
        .with_state(daemon)
}

async fn nothing_here() -> Refusal {
    Refusal::not_found("there is nothing at this path: see /openapi.json for what there is")
}

async fn other_method() -> Refusal {
    let message = "this path takes other methods: see the Allow header";
    Refusal::with_status(405, ErrorCode::Malformed, message)
}

/// A reason that is kept with the trail, and shown.
pub(crate) fn check_reason(reason: Option<&str>) -> Answered<()> {
    let Some(reason) = reason else { return Ok(()) };
    let message = if reason.len() > REASON_BYTES {
        format!(
            "has {} bytes: shorten it to {REASON_BYTES} at most",
            reason.len()
        )
    } else if let Some(c) = reason.chars().find(|c| c.is_control()) {
        format!("holds the control character {c:?}: leave it out")
    } else {
        return Ok(());
    };
    Err(invalid("reason", message))
}

/// Not too many at once.
pub(crate) fn check_count(field: &str, count: usize) -> Answered<()> {
    if count <= MOST_AT_ONCE {
        return Ok(());
    }
    let message = format!("has {count} entries: send {MOST_AT_ONCE} at most at once");
    Err(invalid(field, message))
}

pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Refusal {
    ApiError::invalid(vec![FieldError::new(field, message)]).into()
}
