//! Changing one's mind about jobs: cancel, retry, redrive, one by one or all that a query finds.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use jobtree_protocol::{
    BulkAnswer, BulkFailure, CancelManyRequest, CancelRequest, ErrorCode, JobId, JobQuery,
    RedriveRequest, RetryRequest, Scope, StateAnswer, paths,
};
use jobtree_scheduler::Reply;

use super::{check_count, check_reason, invalid, own};
use crate::auth::Caller;
use crate::daemon::Daemon;
use crate::extract::{Id, Json, MaybeJson, Told};
use crate::problem::{Answered, Refusal};

pub(super) fn routes() -> Router<Arc<Daemon>> {
    Router::new()
        .route(paths::CANCEL, post(cancel))
        .route(paths::RETRY, post(retry))
        .route(paths::CANCEL_MANY, post(cancel_many))
        .route(paths::REDRIVE, post(redrive))
}

async fn cancel(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(job_id): Id<JobId>,
    MaybeJson(request): MaybeJson<CancelRequest>,
) -> Answered<Told<StateAnswer>> {
    own::may_touch_job(&daemon, &caller, Scope::Cancel, job_id).await?;
    check_reason(request.reason.as_deref())?;
    let state = daemon.scheduler.cancel(job_id, request).await?;
    Ok(Told(StateAnswer { job_id, state }))
}

async fn retry(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(job_id): Id<JobId>,
    MaybeJson(request): MaybeJson<RetryRequest>,
) -> Answered<Told<StateAnswer>> {
    own::may_touch_job(&daemon, &caller, Scope::Cancel, job_id).await?;
    check_reason(request.reason.as_deref())?;
    let state = daemon.scheduler.retry(job_id, request.reason).await?;
    Ok(Told(StateAnswer { job_id, state }))
}

async fn cancel_many(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Json(request): Json<CancelManyRequest>,
) -> Answered<Told<BulkAnswer>> {
    caller.needs(Scope::Cancel)?;
    check_reason(request.reason.as_deref())?;
    let Some(query) = narrowed(&caller, request.query) else {
        return Ok(Told(BulkAnswer::default()));
    };
    let reason = request.reason;
    let all = daemon
        .scheduler
        .cancel_many(query, CancelRequest { reason });
    to_its_end(all).await.map(Told)
}

async fn redrive(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Json(request): Json<RedriveRequest>,
) -> Answered<Told<BulkAnswer>> {
    caller.needs(Scope::Cancel)?;
    check_reason(request.reason.as_deref())?;
    check_count("job_ids", request.job_ids.len())?;
    let RedriveRequest {
        mut job_ids,
        query,
        reason,
    } = request;
    if job_ids.is_empty() == query.is_none() {
        let message =
            "or query must be given, and not both: name the jobs, or say how to find them";
        return Err(invalid("job_ids", message));
    }
    let mut failed = Vec::new();
    let query = match query.map(|query| narrowed(&caller, query)) {
        Some(None) => return Ok(Told(BulkAnswer::default())),
        Some(Some(query)) => Some(query),
        None => {
            let hidden = own::hidden_jobs(&daemon, &caller, job_ids.clone()).await?;
            job_ids.retain(|id| !hidden.contains(id));
            failed.extend(hidden.into_iter().map(|job_id| BulkFailure {
                job_id,
                error: own::no_job(job_id),
            }));
            None
        }
    };
    let request = RedriveRequest {
        job_ids,
        query,
        reason,
    };
    let mut answer = to_its_end(daemon.scheduler.redrive(request)).await?;
    answer.failed.extend(failed);
    Ok(Told(answer))
}

/// The query, within what the caller sees; none if that is nothing.
fn narrowed(caller: &Caller, query: JobQuery) -> Option<JobQuery> {
    let addon_id = caller.narrowed(query.addon_id.clone())?;
    Some(JobQuery { addon_id, ..query })
}

/// Goes on when the client does not wait: a command on many jobs is done to all that it named.
async fn to_its_end<T: Send + 'static>(reply: Reply<T>) -> Answered<T> {
    match tokio::spawn(reply).await {
        Ok(answer) => Ok(answer?),
        Err(_) => {
            let message = "the command was broken off, and some of it may have happened: ask again, repeating is safe";
            Err(Refusal::new(ErrorCode::Unavailable, message))
        }
    }
}
