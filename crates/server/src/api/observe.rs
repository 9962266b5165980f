//! For people and dashboards: who works, what a running job looks like inside, what it printed, how busy the machine was,
//! and numbers for Prometheus.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Response, Uri};
use axum::routing::get;
use jiff::Timestamp;
use jobtree_protocol::{
    JobId, LoadList, LogAppend, LogAppendAnswer, LogPage, Scope, TreeView, WorkerList, paths,
};

use super::{MOST_WAIT, own};
use crate::auth::Caller;
use crate::daemon::Daemon;
use crate::extract::{Id, Json, Params, Told};
use crate::metrics::{CONTENT_TYPE as PROMETHEUS, Page};
use crate::problem::{Answered, Refusal};

pub(super) fn routes() -> Router<Arc<Daemon>> {
    Router::new()
        .route(paths::WORKERS, get(workers))
        .route(paths::TREE, get(tree))
        .route(paths::LOG, get(log).post(append_log))
        .route(paths::LOAD, get(load))
        .route(paths::METRICS, get(metrics))
}

async fn workers(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    uri: Uri,
) -> Answered<Told<WorkerList>> {
    caller.needs(Scope::Read)?;
    let mut params = Params::of(uri.query())?;
    let asked = params.one("addon_id")?;
    let workers = caller
        .narrowed(asked)
        .map(|addon| daemon.observing.live.workers(addon.as_ref()));
    Ok(Told(WorkerList {
        workers: workers.unwrap_or_default(),
    }))
}

async fn tree(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(id): Id<JobId>,
) -> Answered<Told<TreeView>> {
    own::job(&daemon, &caller, Scope::Read, id).await?;
    let tree = daemon.observing.live.tree(id);
    tree.map(Told).ok_or_else(|| {
        Refusal::not_found(
            "no worker has told of this job's tree: it does not run, or not in a jobtree worker",
        )
    })
}

async fn log(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(id): Id<JobId>,
    uri: Uri,
) -> Answered<Told<LogPage>> {
    let mut params = Params::of(uri.query())?;
    let after = params.one::<u64>("after")?.unwrap_or(0);
    let wait = params.number("wait_sec", 0, MOST_WAIT)?.unwrap_or(0);
    own::may_touch_job(&daemon, &caller, Scope::Read, id).await?;
    let wait = Duration::from_secs(wait.into());
    Ok(Told(daemon.scheduler.log(id, after, wait).await?))
}

async fn append_log(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(id): Id<JobId>,
    Json(append): Json<LogAppend>,
) -> Answered<Told<LogAppendAnswer>> {
    own::may_touch_job(&daemon, &caller, Scope::Lease, id).await?;
    Ok(Told(daemon.scheduler.append_log(id, append).await?))
}

/// As many as a chart is wide.
const MOST_SAMPLES: u32 = 2000;
const SAMPLES: u32 = 500;

async fn load(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    uri: Uri,
) -> Answered<Told<LoadList>> {
    caller.needs(Scope::Read)?;
    let mut params = Params::of(uri.query())?;
    let since: Timestamp = params.one("since")?.unwrap_or(Timestamp::UNIX_EPOCH);
    let limit = params.number("limit", 1, MOST_SAMPLES)?.unwrap_or(SAMPLES);
    let by_minute = match params.text("by")?.as_deref() {
        None | Some("sample") => false,
        Some("minute") => true,
        Some(_) => {
            return Err(Refusal::malformed(
                "by is how fine it is told: write sample or minute",
            ));
        }
    };
    let log = &daemon.observing.load;
    let samples = if by_minute {
        log.minutes(since, limit as usize)
    } else {
        log.recent(since, limit as usize)
    };
    Ok(Told(LoadList { samples }))
}

async fn metrics(State(daemon): State<Arc<Daemon>>, caller: Caller) -> Answered<Response<Body>> {
    // They tell of all addons.
    caller.needs(Scope::Admin)?;
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
    let mut response = Response::new(Body::from(page.finish()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROMETHEUS));
    Ok(response)
}
