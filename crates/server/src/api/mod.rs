//! What can be asked: one file for each kind of thing, each with its routes.
//!
//! A handler reads its request, asks its caller's rights, and awaits the scheduler. It checks rights before it says
//! whether something exists.

mod events;
mod jobs;
mod observe;
mod status;

use std::sync::Arc;

use axum::Router;
use jobtree_protocol::{ErrorCode, JobId, JobView, Scope};

use crate::auth::Caller;
use crate::daemon::Daemon;
use crate::problem::{Answered, Refusal};

/// Rows of one page, at most and if nothing is said.
pub(crate) const MOST_ROWS: u32 = 500;
pub(crate) const ROWS: u32 = 50;
/// The longest wait that may be asked for.
pub(crate) const MOST_WAIT: u32 = 600;

/// All routes.
pub(crate) fn router(daemon: Arc<Daemon>) -> Router {
    Router::new()
        .merge(status::routes())
        .merge(jobs::routes())
        .merge(events::routes())
        .merge(observe::routes())
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

/// A job that the caller may do this to. Somebody else's does not exist.
pub(crate) async fn own_job(
    daemon: &Daemon,
    caller: &Caller,
    scope: Scope,
    id: JobId,
) -> Answered<JobView> {
    caller.needs(scope)?;
    let job = daemon.scheduler.job(id).await?;
    if caller.sees(&job.addon_id) {
        return Ok(job);
    }
    Err(no_job(id))
}

/// Like [`own_job`], for whoever does not need the job itself: an admin's calls are not looked up twice.
pub(crate) async fn may_touch(
    daemon: &Daemon,
    caller: &Caller,
    scope: Scope,
    id: JobId,
) -> Answered<()> {
    caller.needs(scope)?;
    if caller.addon().is_some() {
        own_job(daemon, caller, scope, id).await?;
    }
    Ok(())
}

/// As the store says it, so that a job that is somebody else's cannot be told from one that is not there.
fn no_job(id: JobId) -> Refusal {
    Refusal::not_found(jobtree_store::StoreError::NoJob(id).to_string())
}
