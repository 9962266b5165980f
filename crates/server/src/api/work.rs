//! What workers do with jobs: claim them, take up dispatches, tell how they ended.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::Uri;
use axum::routing::{get, post};
use jobtree_protocol::{
    AckRequest, ClaimRequest, ClaimedLeases, CompleteAnswer, CompleteManyAnswer,
    CompleteManyRequest, CompleteRequest, DispatchableJobs, Each, JobId, LeaseView, Scope, paths,
};

use super::{MOST_WAIT, check_count, invalid, own};
use crate::auth::Caller;
use crate::daemon::Daemon;
use crate::extract::{Id, Json, MaybeJson, Params, Told};
use crate::problem::Answered;

pub(super) fn routes() -> Router<Arc<Daemon>> {
    Router::new()
        .route(paths::CLAIM, post(claim))
        .route(paths::DISPATCHABLE, get(dispatchable))
        .route(paths::ACK, post(ack))
        .route(paths::COMPLETE, post(complete))
        .route(paths::COMPLETE_MANY, post(complete_many))
}

async fn claim(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Json(request): Json<ClaimRequest>,
) -> Answered<Told<ClaimedLeases>> {
    caller.may(Scope::Lease, request.addon_id.as_str())?;
    if request.wait_sec > MOST_WAIT {
        let message = format!("is {}: write 0 to {MOST_WAIT}", request.wait_sec);
        return Err(invalid("wait_sec", message));
    }
    check_count("job_types", request.job_types.len())?;
    let leases = daemon.scheduler.claim(request).await?;
    Ok(Told(ClaimedLeases { leases }))
}

async fn dispatchable(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    uri: Uri,
) -> Answered<Told<DispatchableJobs>> {
    caller.needs(Scope::Lease)?;
    let mut params = Params::of(uri.query())?;
    let asked = params.one("addon_id")?;
    let wait = params.number("wait_sec", 0, MOST_WAIT)?.unwrap_or(0);
    let Some(addon) = caller.narrowed(asked) else {
        return Ok(Told(DispatchableJobs::default()));
    };
    let wait = Duration::from_secs(wait.into());
    let jobs = daemon.scheduler.dispatchable(addon, wait).await?;
    Ok(Told(DispatchableJobs { jobs }))
}

async fn ack(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(job): Id<JobId>,
    MaybeJson(request): MaybeJson<AckRequest>,
) -> Answered<Told<LeaseView>> {
    own::may_touch_job(&daemon, &caller, Scope::Lease, job).await?;
    if let Some(lease) = request.lease_id {
        own::may_touch_lease(&daemon, &caller, Scope::Lease, lease).await?;
    }
    Ok(Told(daemon.scheduler.ack(job, request).await?))
}

async fn complete(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(job): Id<JobId>,
    Json(request): Json<CompleteRequest>,
) -> Answered<Told<CompleteAnswer>> {
    own::may_touch_job(&daemon, &caller, Scope::Lease, job).await?;
    Ok(Told(daemon.scheduler.complete(job, request).await?))
}

async fn complete_many(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Json(mut request): Json<CompleteManyRequest>,
) -> Answered<Told<CompleteManyAnswer>> {
    own::may_touch_lease(&daemon, &caller, Scope::Lease, request.lease_id).await?;
    check_count("jobs", request.jobs.len())?;
    let ids: Vec<JobId> = request.jobs.iter().map(|job| job.job_id).collect();
    let hidden = own::hidden_jobs(&daemon, &caller, ids.clone()).await?;
    request.jobs.retain(|job| !hidden.contains(&job.job_id));
    let answer = daemon.scheduler.complete_many(request).await?;
    let mut told = answer.jobs.into_iter();
    let jobs = ids.into_iter().filter_map(|id| {
        if hidden.contains(&id) {
            let error = own::no_job(id);
            return Some(Each::Refused { error });
        }
        told.next()
    });
    Ok(Told(CompleteManyAnswer {
        jobs: jobs.collect(),
    }))
}
