//! Commands on jobs: cancel, retry, edit, pause, redrive, one by one or all that a query finds.

use std::sync::Arc;

use jiff::Timestamp;
use jobtree_protocol::operations::{
    CancelJob, CancelJobs, PauseJob, RedriveJobs, ResumeJob, RetryJob,
};
use jobtree_protocol::{
    ApiError, BulkAnswer, BulkFailure, CancelRequest, ErrorCode, JobId, JobQuery, JobState,
    RedriveRequest, StateAnswer,
};
use jobtree_scheduler::Reply;

use super::route::{Call, routes};
use super::{explain, invalid, ownership};
use crate::auth::Caller;
use crate::daemon::{Daemon, PausedRun};
use crate::problem::{Answered, Refusal};

jobtree_protocol::command_operations!(routes);

async fn cancel_job(daemon: Arc<Daemon>, call: Call<CancelJob>) -> Answered<StateAnswer> {
    let job_id = call.id;
    let state = daemon.scheduler.cancel(job_id, call.body).await?;
    Ok(StateAnswer { job_id, state })
}

async fn retry_job(daemon: Arc<Daemon>, call: Call<RetryJob>) -> Answered<StateAnswer> {
    let job_id = call.id;
    let state = daemon.scheduler.retry(job_id, call.body.reason).await?;
    Ok(StateAnswer { job_id, state })
}

async fn pause_job(daemon: Arc<Daemon>, call: Call<PauseJob>) -> Answered<StateAnswer> {
    let (by, reason) = (call.caller.name().to_owned(), call.body.reason);
    set_paused(&daemon, call.id, true, by, reason).await
}

async fn resume_job(daemon: Arc<Daemon>, call: Call<ResumeJob>) -> Answered<StateAnswer> {
    let (by, reason) = (call.caller.name().to_owned(), call.body.reason);
    set_paused(&daemon, call.id, false, by, reason).await
}

async fn set_paused(
    daemon: &Daemon,
    job_id: JobId,
    paused: bool,
    by: String,
    reason: Option<String>,
) -> Answered<StateAnswer> {
    let (job, lease) = explain::held(daemon, job_id).await?;
    let Some(job) = job else {
        return Err(ownership::no_job(job_id).into());
    };
    let state = job.state;
    let running = lease.filter(|_| state == JobState::Running);
    let Some(lease) = running else {
        let message = format!(
            "job {job_id} is {state}, which allows neither a pause nor a resumption: only what runs is paused"
        );
        let error = ApiError {
            state: Some(state),
            ..ApiError::new(ErrorCode::WrongState, message)
        };
        return Err(error.into());
    };
    let node = &daemon.scheduler.options().node;
    if lease.node_id != *node {
        let message = format!(
            "job {job_id} runs on {}: call the daemon there, this one is {node}",
            lease.node_id
        );
        return Err(Refusal::new(ErrorCode::Conflict, message));
    }
    let run = PausedRun {
        job: job_id,
        since: Timestamp::now(),
        by,
        reason,
        still_since: None,
    };
    let told = run.told();
    let before = daemon.paused_run(lease.id);
    // Before its event: a worker that receives the event asks what to do.
    if daemon.set_paused(lease.id, paused.then_some(run)) {
        let told = daemon.scheduler.tell_run_paused(job_id, paused, told);
        if let Err(error) = told.await {
            daemon.set_paused(lease.id, before);
            return Err(error.into());
        }
    }
    Ok(StateAnswer { job_id, state })
}

async fn cancel_jobs(daemon: Arc<Daemon>, call: Call<CancelJobs>) -> Answered<BulkAnswer> {
    check_limit(&call.body.query)?;
    let Some(query) = narrowed(&call.caller, call.body.query) else {
        return Ok(BulkAnswer::default());
    };
    let reason = call.body.reason;
    let all = daemon
        .scheduler
        .cancel_many(query, CancelRequest { reason });
    to_its_end(all).await
}

async fn redrive_jobs(daemon: Arc<Daemon>, call: Call<RedriveJobs>) -> Answered<BulkAnswer> {
    let RedriveRequest {
        mut job_ids,
        query,
        reason,
    } = call.body;
    if job_ids.is_empty() == query.is_none() {
        let message =
            "or query must be given, and not both: name the jobs, or say how to find them";
        return Err(invalid("job_ids", message));
    }
    query.as_ref().map_or(Ok(()), check_limit)?;
    let mut failed = Vec::new();
    let query = match query.map(|query| narrowed(&call.caller, query)) {
        Some(None) => return Ok(BulkAnswer::default()),
        Some(Some(query)) => Some(query),
        None => {
            let hidden = ownership::hidden_jobs(&daemon, &call.caller, job_ids.clone()).await?;
            job_ids.retain(|id| !hidden.contains(id));
            failed.extend(hidden.into_iter().map(|job_id| BulkFailure {
                job_id,
                error: ownership::no_job(job_id),
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
    Ok(answer)
}

/// Refuses a limit that clients with 32-bit numbers cannot send back.
fn check_limit(query: &JobQuery) -> Answered<()> {
    if query.limit.is_some_and(|limit| limit > i32::MAX as u32) {
        let message = format!("must be at most {}", i32::MAX);
        return Err(invalid("query.limit", message));
    }
    Ok(())
}

/// Narrows a query to what the caller sees; returns none if that is nothing.
fn narrowed(caller: &Caller, query: JobQuery) -> Option<JobQuery> {
    let addon_id = caller.narrowed(query.addon_id.clone())?;
    Some(JobQuery { addon_id, ..query })
}

/// Completes a command on many jobs even if the client no longer waits.
async fn to_its_end<T: Send + 'static>(reply: Reply<T>) -> Answered<T> {
    match tokio::spawn(reply).await {
        Ok(answer) => Ok(answer?),
        Err(_) => {
            let message = "the command was broken off, and some of it may have happened: ask again, repeating is safe";
            Err(Refusal::new(ErrorCode::Unavailable, message))
        }
    }
}
