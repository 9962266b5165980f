//! Jobs: submitted, looked at, stopped.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::Uri;
use axum::routing::{get, post};
use jobtree_protocol::{
    CancelRequest, JobId, JobList, JobQuery, JobState, JobView, Scope, StateAnswer, SubmitAnswer,
    SubmitRequest, paths,
};

use super::{MOST_ROWS, MOST_WAIT, ROWS, may_touch, own_job};
use crate::auth::Caller;
use crate::daemon::Daemon;
use crate::extract::{Id, Json, MaybeJson, Params, Told};
use crate::problem::{Answered, Refusal};

pub(super) fn routes() -> Router<Arc<Daemon>> {
    Router::new()
        .route(paths::SUBMIT, post(submit))
        .route(paths::JOBS, get(list))
        .route(paths::JOB, get(job))
        .route(paths::CANCEL, post(cancel))
}

async fn submit(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Json(request): Json<SubmitRequest>,
) -> Answered<Told<SubmitAnswer>> {
    caller.may(Scope::Submit, &request.addon_id)?;
    Ok(Told(daemon.scheduler.submit(request).await?))
}

async fn job(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(id): Id<JobId>,
    uri: Uri,
) -> Answered<Told<JobView>> {
    let mut params = Params::of(uri.query())?;
    let wait = params.number("wait_sec", 0, MOST_WAIT)?.unwrap_or(0);
    params.end()?;
    let job = own_job(&daemon, &caller, Scope::Read, id).await?;
    if wait == 0 || job.state.is_ended() {
        return Ok(Told(job));
    }
    let wait = Duration::from_secs(wait.into());
    Ok(Told(daemon.scheduler.wait_for(id, wait).await?))
}

async fn list(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    uri: Uri,
) -> Answered<Told<JobList>> {
    caller.needs(Scope::Read)?;
    let query = read_query(&uri)?;
    let Some(addon_id) = caller.narrowed(query.addon_id.clone()) else {
        return Ok(Told(JobList::default()));
    };
    let query = JobQuery { addon_id, ..query };
    Ok(Told(daemon.scheduler.jobs(query).await?))
}

fn read_query(uri: &Uri) -> Answered<JobQuery> {
    let mut params = Params::of(uri.query())?;
    let mut state: Vec<JobState> = Vec::new();
    for given in params.all("state") {
        for one in given.split(',') {
            state.push(one.parse().map_err(|wrong: jobtree_protocol::FieldError| {
                Refusal::malformed(wrong.to_string())
            })?);
        }
    }
    let query = JobQuery {
        state,
        addon_id: params.one("addon_id")?,
        job_type: params.one("job_type")?,
        tag: params.text("tag")?.map(Into::into),
        text: params.text("text")?.map(Into::into),
        quarantined: params.flag("quarantined")?,
        after: params.one("after")?,
        limit: Some(params.number("limit", 1, MOST_ROWS)?.unwrap_or(ROWS)),
    };
    params.end()?;
    Ok(query)
}

async fn cancel(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(job_id): Id<JobId>,
    MaybeJson(request): MaybeJson<CancelRequest>,
) -> Answered<Told<StateAnswer>> {
    may_touch(&daemon, &caller, Scope::Cancel, job_id).await?;
    let state = daemon.scheduler.cancel(job_id, request).await?;
    Ok(Told(StateAnswer { job_id, state }))
}
