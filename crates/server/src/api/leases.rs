//! Leases: asked for, renewed, reported under, given back, taken away.

use std::collections::HashSet;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::routing::{get, post};
use jiff::Timestamp;
use jobtree_protocol::{
    ApiError, Each, HeartbeatAnswer, HeartbeatBody, HeartbeatManyAnswer, HeartbeatManyRequest,
    JobId, LeaseAnswer, LeaseId, LeaseList, LeaseRequest, LeaseView, PidsRequest, ReleaseRequest,
    ReportBody, RevokeRequest, Scope, paths,
};

use super::{MOST_ROWS, ROWS, check_count, check_reason, own};
use crate::auth::Caller;
use crate::daemon::Daemon;
use crate::extract::{Id, Json, MaybeJson, Params, Told};
use crate::live::Live;
use crate::problem::Answered;

pub(super) fn routes() -> Router<Arc<Daemon>> {
    Router::new()
        .route(paths::LEASE_REQUEST, post(request))
        .route(paths::LEASES, get(list))
        .route(paths::LEASE, get(lease))
        .route(paths::HEARTBEAT, post(heartbeat))
        .route(paths::HEARTBEAT_MANY, post(heartbeat_many))
        .route(paths::REPORT, post(report))
        .route(paths::RELEASE, post(release))
        .route(paths::REVOKE, post(revoke))
        .route(paths::PID, post(pids))
}

async fn request(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Json(request): Json<LeaseRequest>,
) -> Answered<Told<LeaseAnswer>> {
    match request.job_id {
        Some(job) => own::may_touch_job(&daemon, &caller, Scope::Lease, job).await?,
        None => caller.may(Scope::Lease, &request.addon_id)?,
    }
    Ok(Told(daemon.scheduler.lease_request(request).await?))
}

async fn list(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    uri: Uri,
) -> Answered<Told<LeaseList>> {
    caller.needs(Scope::Read)?;
    let mut params = Params::of(uri.query())?;
    let asked = params.one("addon_id")?;
    let after: Option<LeaseId> = params.one("after")?;
    let limit = params.number("limit", 1, MOST_ROWS)?.unwrap_or(ROWS) as usize;
    let Some(addon) = caller.narrowed(asked) else {
        return Ok(Told(LeaseList::default()));
    };
    let mut leases = daemon.scheduler.leases().await?;
    leases.retain(|lease| {
        addon.as_ref().is_none_or(|addon| lease.addon_id == *addon)
            && after.is_none_or(|after| lease.lease_id > after)
    });
    leases.sort_unstable_by_key(|lease| lease.lease_id);
    let more = leases.len() > limit;
    leases.truncate(limit);
    let next = leases.last().filter(|_| more).map(|last| last.lease_id);
    Ok(Told(LeaseList { leases, next }))
}

async fn lease(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(id): Id<LeaseId>,
) -> Answered<Told<LeaseView>> {
    own::lease(&daemon, &caller, Scope::Read, id)
        .await
        .map(Told)
}

async fn heartbeat(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(lease): Id<LeaseId>,
    MaybeJson(body): MaybeJson<HeartbeatBody>,
) -> Answered<Told<HeartbeatAnswer>> {
    own::may_touch_lease(&daemon, &caller, Scope::Lease, lease).await?;
    Ok(Told(daemon.scheduler.heartbeat(body.of(lease)).await?))
}

async fn heartbeat_many(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Json(request): Json<HeartbeatManyRequest>,
) -> Answered<Told<HeartbeatManyAnswer>> {
    caller.needs(Scope::Lease)?;
    check_count("leases", request.leases.len())?;
    let HeartbeatManyRequest { leases, worker } = request;
    if let Some(worker) = &worker {
        caller.may(Scope::Lease, worker.addon_id.as_str())?;
        let wrong = Live::check(worker);
        if !wrong.is_empty() {
            return Err(ApiError::invalid(wrong).into());
        }
    }
    let ids = leases.iter().map(|beat| beat.lease_id).collect();
    // An admin's worker that tells nothing of itself is not looked up.
    let known = match caller.addon().is_some() || worker.is_some() {
        true => Some(own::leases(&daemon, &caller, ids).await?),
        false => None,
    };
    if let (Some(mut worker), Some(known)) = (worker, &known) {
        // Of its own jobs alone: what is told of a job is shown to that job's owner.
        let jobs: HashSet<JobId> = known.values().flatten().copied().collect();
        worker.trees.retain(|tree| jobs.contains(&tree.job_id));
        let live = &daemon.observing.live;
        live.see(worker, jobs.into_iter().collect(), Timestamp::now());
    }
    // All begin before any is awaited: they share a commit.
    let begun: Vec<_> = leases
        .into_iter()
        .map(|beat| {
            let id = beat.lease_id;
            let hidden = known.as_ref().is_some_and(|known| !known.contains_key(&id));
            if caller.addon().is_some() && hidden {
                return Err(own::no_lease(id));
            }
            Ok(daemon.scheduler.heartbeat(beat))
        })
        .collect();
    let mut leases = Vec::with_capacity(begun.len());
    for beat in begun {
        let answer = match beat {
            Ok(reply) => reply.await,
            Err(error) => Err(error),
        };
        leases.push(match answer {
            Ok(answer) => Each::Done(answer),
            Err(error) => Each::Refused { error },
        });
    }
    Ok(Told(HeartbeatManyAnswer { leases }))
}

async fn report(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(lease): Id<LeaseId>,
    Json(body): Json<ReportBody>,
) -> Answered<StatusCode> {
    own::may_touch_lease(&daemon, &caller, Scope::Lease, lease).await?;
    daemon.scheduler.report(body.of(lease)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn pids(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(lease): Id<LeaseId>,
    Json(PidsRequest { pids }): Json<PidsRequest>,
) -> Answered<StatusCode> {
    own::may_touch_lease(&daemon, &caller, Scope::Lease, lease).await?;
    let body = ReportBody {
        pids: Some(pids),
        ..ReportBody::default()
    };
    daemon.scheduler.report(body.of(lease)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn release(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(lease): Id<LeaseId>,
    MaybeJson(request): MaybeJson<ReleaseRequest>,
) -> Answered<StatusCode> {
    own::may_touch_lease(&daemon, &caller, Scope::Lease, lease).await?;
    check_reason(request.reason.as_deref())?;
    daemon.scheduler.release(lease, request).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn revoke(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(lease): Id<LeaseId>,
    MaybeJson(request): MaybeJson<RevokeRequest>,
) -> Answered<StatusCode> {
    own::may_touch_lease(&daemon, &caller, Scope::Cancel, lease).await?;
    check_reason(request.reason.as_deref())?;
    daemon.scheduler.revoke(lease, request).await?;
    Ok(StatusCode::NO_CONTENT)
}
