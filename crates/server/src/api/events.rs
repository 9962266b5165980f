//! Events: the stream of all that happens, and who else is told.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, Uri};
use axum::routing::{delete, get};
use jobtree_protocol::{
    ErrorCode, EventKind, Scope, WebhookList, WebhookRequest, WebhookView, paths,
};
use uuid::Uuid;

use crate::auth::Caller;
use crate::daemon::Daemon;
use crate::events::sse::{self, Filter};
use crate::events::{LOAD, Position};
use crate::extract::{Created, Id, Json, Params, Told};
use crate::problem::{Answered, Refusal};

pub(super) fn routes() -> Router<Arc<Daemon>> {
    Router::new()
        .route(paths::EVENTS, get(stream))
        .route(paths::WEBHOOKS, get(webhooks).post(add_webhook))
        .route(paths::WEBHOOK, delete(delete_webhook))
}

/// What browsers send of the last event they have seen.
const LAST_EVENT_ID: &str = "last-event-id";

async fn stream(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    headers: HeaderMap,
    uri: Uri,
) -> Answered<Response<Body>> {
    caller.needs(Scope::Read)?;
    let mut params = Params::of(uri.query())?;
    let mut kinds = Vec::new();
    for given in params.all("event") {
        for one in given.split(',') {
            kinds.push(kind(one)?);
        }
    }
    let asked = params.one("addon_id")?;
    let filter = Filter {
        job_type: params.one("job_type")?,
        job_id: params.one("job_id")?,
        kinds,
        addon_id: None,
    };
    // A header that says less than the query was sent by a browser that came back: it counts.
    let header = headers.get(LAST_EVENT_ID).map(HeaderValue::as_bytes);
    let given = params.text("after")?;
    let after = match header.filter(|header| !header.is_empty()) {
        Some(header) => Some(place(&String::from_utf8_lossy(header))?),
        None => given.map(|given| place(&given)).transpose()?,
    };
    let Some(addon_id) = caller.narrowed(asked) else {
        return Err(Refusal::forbidden(
            "the token is for another addon: leave addon_id out, or use another token",
        ));
    };
    let filter = Filter { addon_id, ..filter };

    let streams = Arc::clone(&daemon.observing.streams);
    let permit = streams.try_acquire_owned().map_err(|_| {
        let most = daemon.limits().streams;
        let message =
            format!("there are {most} event streams, which is the limit: close one, or wait");
        Refusal::new(ErrorCode::TooMany, message).retry_after(10)
    })?;
    let begun = sse::begin(
        &daemon.observing.hub,
        filter,
        after.map_or(Position::Now, Position::After),
        permit,
        daemon.stopping(),
    );
    let body = begun.await.map_err(|error| {
        Refusal::new(
            ErrorCode::Unavailable,
            format!("the events cannot be read: {error}"),
        )
    })?;
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // A proxy that collects would hold events back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

fn kind(text: &str) -> Answered<&'static str> {
    let kinds = EventKind::ALL.iter().map(|kind| kind.as_str());
    let mut known = kinds.chain([LOAD]);
    known
        .find(|kind| kind.eq_ignore_ascii_case(text))
        .ok_or_else(|| {
            let shown: String = text.chars().take(64).collect();
            Refusal::malformed(format!(
                "event is {shown:?}, which does not happen: write DONE, FAILED, LOAD, …"
            ))
        })
}

fn place(text: &str) -> Answered<u64> {
    text.parse().map_err(|_| {
        Refusal::malformed(
            "Last-Event-ID and after are the id of an event: a whole number, as it was sent",
        )
    })
}

async fn webhooks(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
) -> Answered<Told<WebhookList>> {
    caller.needs(Scope::Admin)?;
    Ok(Told(WebhookList {
        webhooks: daemon.observing.webhooks.all(),
    }))
}

async fn add_webhook(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Json(request): Json<WebhookRequest>,
) -> Answered<Created<WebhookView>> {
    caller.needs(Scope::Admin)?;
    Ok(Created(daemon.observing.webhooks.add(request).await?))
}

async fn delete_webhook(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(id): Id<Uuid>,
) -> Answered<StatusCode> {
    caller.needs(Scope::Admin)?;
    daemon.observing.webhooks.delete(id).await?;
    Ok(StatusCode::NO_CONTENT)
}
