//! What is asked outside of the interface's base path: probes, metrics, the description of the interface.

use std::sync::{Arc, OnceLock};

use axum::body::Bytes;
use jobtree_protocol::ErrorCode;
use jobtree_protocol::operations::{GetMetrics, Health, Openapi, Ready};

use super::route::{Call, routes};
use crate::daemon::Daemon;
use crate::metrics::Page;
use crate::problem::{Answered, Refusal};

jobtree_protocol::probe_operations!(routes);

async fn health(_: Arc<Daemon>, _: Call<Health>) -> Answered<Bytes> {
    Ok(Bytes::from_static(br#"{"status":"ok"}"#))
}

async fn ready(daemon: Arc<Daemon>, _: Call<Ready>) -> Answered<Bytes> {
    let why = match daemon.store_trouble() {
        _ if daemon.is_stopping() => "the server is stopping".to_owned(),
        Some(trouble) => trouble,
        None => return Ok(Bytes::from_static(br#"{"status":"ready"}"#)),
    };
    Err(Refusal::new(ErrorCode::Unavailable, why))
}

async fn openapi(_: Arc<Daemon>, _: Call<Openapi>) -> Answered<Bytes> {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    Ok(TEXT.get_or_init(|| crate::openapi().into()).clone())
}

/// Refuses the token of one addon, since the metrics are of all.
async fn get_metrics(daemon: Arc<Daemon>, call: Call<GetMetrics>) -> Answered<String> {
    if call.caller.addon().is_some() {
        let message = "metrics are of all addons: use a token with read that is bound to none";
        return Err(Refusal::forbidden(message));
    }
    let mut page = Page::default();
    page.status(&daemon.scheduler.status().await?);
    page.stats(&daemon.scheduler.stats().await?);
    page.store(&daemon.store().numbers());
    let taken = daemon.limits().streams - daemon.observing.streams.available_permits();
    page.gauge(
        "jobtree_event_streams",
        "Event streams that are open.",
        [(Vec::new(), taken)],
    );
    Ok(page.finish())
}
