//! Whether it is alive, whether it is ready, how things stand.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use jobtree_protocol::{ErrorCode, JobState, Scope, StatusView, paths};
use serde::Serialize;

use crate::auth::Caller;
use crate::daemon::Daemon;
use crate::extract::Told;
use crate::problem::{Answered, Refusal};

pub(super) fn routes() -> Router<Arc<Daemon>> {
    Router::new()
        .route(paths::HEALTH, get(health))
        .route(paths::READY, get(ready))
        .route(paths::STATUS, get(status))
}

/// The answer to a probe that found all well.
#[derive(Serialize)]
struct Well {
    status: &'static str,
}

async fn health() -> Told<Well> {
    Told(Well { status: "ok" })
}

async fn ready(State(daemon): State<Arc<Daemon>>) -> Answered<Told<Well>> {
    let why = match daemon.store().stopped() {
        _ if daemon.is_stopping() => "the server is stopping".to_owned(),
        Some(error) => error.to_string(),
        None => return Ok(Told(Well { status: "ready" })),
    };
    Err(Refusal::new(ErrorCode::Unavailable, why))
}

async fn status(State(daemon): State<Arc<Daemon>>, caller: Caller) -> Answered<Told<StatusView>> {
    caller.needs(Scope::Read)?;
    let mut status = daemon.scheduler.status().await?;
    if let Some(own) = caller.addon() {
        status.addons.retain(|addon, _| addon == own);
        let counts = status.addons.get(own).cloned().unwrap_or_default();
        status.jobs = BTreeMap::from([
            (JobState::Queued, counts.queued),
            (JobState::Dispatching, counts.dispatching),
            (JobState::Running, counts.running),
        ]);
        status.oldest_queued_sec = None;
    }
    Ok(Told(status))
}
