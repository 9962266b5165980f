//! Events: the stream of all events, and webhooks.

use std::sync::Arc;

use axum::body::Body;
use axum::http::HeaderValue;
use jobtree_protocol::operations::{CreateWebhook, DeleteWebhook, ListWebhooks, StreamEvents};
use jobtree_protocol::{ErrorCode, EventKind, WebhookList, WebhookView};

use super::route::{Call, routes};
use crate::daemon::Daemon;
use crate::events::sse::{self, Filter};
use crate::events::{LOAD, Position};
use crate::problem::{Answered, Refusal};

jobtree_protocol::event_operations!(routes);

/// What browsers send of the last event they have seen.
const LAST_EVENT_ID: &str = "last-event-id";

async fn stream_events(daemon: Arc<Daemon>, call: Call<StreamEvents>) -> Answered<Body> {
    let kinds = call.query.event.iter().map(|event| kind(event));
    let kinds = kinds.collect::<Answered<Vec<_>>>()?;
    // A header that says less than the query was sent by a browser that came back: it counts.
    let header = call.headers.get(LAST_EVENT_ID).map(HeaderValue::as_bytes);
    let after = match header.filter(|header| !header.is_empty()) {
        Some(header) => Some(place(&String::from_utf8_lossy(header))?),
        None => call.query.after,
    };
    let Some(addon_id) = call.caller.narrowed(call.query.addon_id) else {
        return Err(Refusal::forbidden(
            "the token is for another addon: leave addon_id out, or use another token",
        ));
    };
    let filter = Filter {
        job_type: call.query.job_type,
        job_id: call.query.job_id,
        kinds,
        addon_id,
    };

    let streams = Arc::clone(&daemon.observing.streams);
    let permit = streams.try_acquire_owned().map_err(|_| {
        let most = daemon.limits().streams;
        let message =
            format!("there are {most} event streams, which is the limit: close one, or wait");
        Refusal::new(ErrorCode::TooMany, message).retry_after(10)
    })?;
    let begun = sse::begin(
        &daemon.observing.hub,
        &daemon.observing.dispatches,
        filter,
        after.map_or(Position::Now, Position::After),
        permit,
        {
            let (daemon, caller) = (Arc::clone(&daemon), call.caller.clone());
            async move { daemon.turned_away(&caller).await }
        },
        daemon.stopping(),
    );
    let body = begun.await.map_err(|error| {
        Refusal::new(
            ErrorCode::Unavailable,
            format!("the events cannot be read: {error}"),
        )
    })?;
    Ok(Body::new(body))
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
        Refusal::malformed("Last-Event-ID is the id of an event: a whole number, as it was sent")
    })
}

async fn list_webhooks(daemon: Arc<Daemon>, _: Call<ListWebhooks>) -> Answered<WebhookList> {
    Ok(WebhookList {
        webhooks: daemon.observing.webhooks.all(),
    })
}

async fn create_webhook(daemon: Arc<Daemon>, call: Call<CreateWebhook>) -> Answered<WebhookView> {
    Ok(daemon.observing.webhooks.add(call.body).await?)
}

async fn delete_webhook(daemon: Arc<Daemon>, call: Call<DeleteWebhook>) -> Answered<()> {
    Ok(daemon.observing.webhooks.delete(call.id).await?)
}
