//! The handlers of operations: one file per topic of the table in `jobtree_protocol::operations`.
//!
//! Rights come before existence: a caller without the scope is told so, and one with the scope cannot tell another addon's
//! thing from none. Both are checked before a handler is called; see [`route`].

mod bulk;
mod commands;
mod events;
mod explain;
mod jobs;
mod leases;
mod observing;
mod operating;
mod output;
mod ownership;
mod preview;
mod probes;
mod recent;
mod route;
mod schedules;
mod sessions;
mod tokens;
mod work;

use std::sync::Arc;

use axum::Router;
use jobtree_protocol::{ApiError, ErrorCode, FieldError};

pub(crate) use route::Routes;

use crate::daemon::Daemon;
use crate::problem::Refusal;

/// Returns all routes, with their description.
pub(crate) fn routes() -> Routes {
    let topics = [
        probes::routes,
        jobs::routes,
        commands::routes,
        bulk::routes,
        work::routes,
        leases::routes,
        schedules::routes,
        operating::routes,
        observing::routes,
        events::routes,
        tokens::routes,
        sessions::routes,
    ];
    let none = Routes::default();
    topics.into_iter().fold(none, |routes, topic| topic(routes))
}

/// Returns what answers requests.
pub(crate) fn router(daemon: Arc<Daemon>) -> Router {
    routes()
        .router
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

pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Refusal {
    ApiError::invalid(vec![FieldError::new(field, message)]).into()
}
