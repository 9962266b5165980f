//! The description of all this, OpenAPI 3.1: the schemas are those of the protocol's types, the operations are listed in
//! one place, and what every operation has in common is written once.
//!
//! It is checked in as `openapi.json` in this crate, so that a change of the interface is seen in a review; a test compares
//! the two, and another asks a running server whether it has exactly these operations.

mod book;
mod bounds;
mod operations;
mod refine;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Response};
use axum::routing::get;
use jobtree_protocol::paths;
use serde_json::Value;

use crate::auth::Caller;
use crate::daemon::Daemon;

/// The description.
pub(crate) fn describe() -> Value {
    let mut book = book::Book::default();
    operations::all(&mut book);
    let mut whole = book.finish();
    refine::refine(&mut whole);
    whole
}

/// As text, as it is checked in and served.
///
/// ```
/// let text = jobtree_server::openapi();
/// assert!(text.contains("\"openapi\": \"3.1.0\""));
/// ```
pub fn openapi() -> String {
    let mut text = serde_json::to_string_pretty(&describe()).expect("it is JSON");
    text.push('\n');
    text
}

pub(crate) fn routes() -> Router<Arc<Daemon>> {
    Router::new().route(paths::OPENAPI, get(serve))
}

/// For whoever has a token, whatever it allows.
async fn serve(_: Caller) -> Response<Body> {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    let text = TEXT.get_or_init(|| openapi().into()).clone();
    let mut response = Response::new(Body::from(text));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
