//! Schedules. Writing one is submitting its jobs ahead of time, and needs the same right.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use jobtree_protocol::{
    ScheduleId, ScheduleList, ScheduleSpec, ScheduleView, Scope, SubmitRequest, paths,
};
use jobtree_store::StoreError;

use crate::auth::Caller;
use crate::daemon::Daemon;
use crate::extract::{Created, Id, Json, Told};
use crate::problem::{Answered, Refusal};

pub(super) fn routes() -> Router<Arc<Daemon>> {
    Router::new()
        .route(paths::SCHEDULES, get(list).post(create))
        .route(paths::SCHEDULE, get(one).put(replace).delete(delete))
        .route(paths::SCHEDULE_PAUSE, post(pause))
        .route(paths::SCHEDULE_RESUME, post(resume))
}

fn sees(caller: &Caller, job: &SubmitRequest) -> bool {
    caller
        .addon()
        .is_none_or(|own| own.as_str() == job.addon_id)
}

/// A schedule that the caller may do this to.
async fn own(
    daemon: &Daemon,
    caller: &Caller,
    scope: Scope,
    id: ScheduleId,
) -> Answered<ScheduleView> {
    caller.needs(scope)?;
    let schedule = daemon.scheduler.schedule(id).await?;
    if sees(caller, &schedule.spec.job) {
        return Ok(schedule);
    }
    Err(Refusal::not_found(StoreError::NoSchedule(id).to_string()))
}

async fn list(State(daemon): State<Arc<Daemon>>, caller: Caller) -> Answered<Told<ScheduleList>> {
    caller.needs(Scope::Read)?;
    let mut schedules = daemon.scheduler.schedules().await?;
    schedules.retain(|schedule| sees(&caller, &schedule.spec.job));
    Ok(Told(ScheduleList { schedules }))
}

async fn one(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(id): Id<ScheduleId>,
) -> Answered<Told<ScheduleView>> {
    own(&daemon, &caller, Scope::Read, id).await.map(Told)
}

async fn create(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Json(spec): Json<ScheduleSpec>,
) -> Answered<Created<ScheduleView>> {
    caller.may(Scope::Submit, &spec.job.addon_id)?;
    Ok(Created(daemon.scheduler.put_schedule(None, spec).await?))
}

async fn replace(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(id): Id<ScheduleId>,
    Json(spec): Json<ScheduleSpec>,
) -> Answered<Told<ScheduleView>> {
    own(&daemon, &caller, Scope::Submit, id).await?;
    caller.may(Scope::Submit, &spec.job.addon_id)?;
    Ok(Told(daemon.scheduler.put_schedule(Some(id), spec).await?))
}

async fn delete(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(id): Id<ScheduleId>,
) -> Answered<StatusCode> {
    own(&daemon, &caller, Scope::Submit, id).await?;
    daemon.scheduler.delete_schedule(id).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn pause(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(id): Id<ScheduleId>,
) -> Answered<Told<ScheduleView>> {
    own(&daemon, &caller, Scope::Submit, id).await?;
    Ok(Told(daemon.scheduler.pause_schedule(id, true).await?))
}

async fn resume(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(id): Id<ScheduleId>,
) -> Answered<Told<ScheduleView>> {
    own(&daemon, &caller, Scope::Submit, id).await?;
    Ok(Told(daemon.scheduler.pause_schedule(id, false).await?))
}
