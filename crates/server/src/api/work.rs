//! What workers do with jobs: claim them, accept dispatches, report how they ended.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::operations::{AckJob, ClaimJobs, CompleteJobs, ListDispatchable};
use jobtree_protocol::{
    ClaimedLeases, CompleteManyAnswer, DispatchableJobs, Each, JobId, LeaseView,
};

use super::ownership;
use super::route::{Call, routes};
use crate::daemon::Daemon;
use crate::problem::Answered;

jobtree_protocol::work_operations!(routes);

async fn claim_jobs(daemon: Arc<Daemon>, call: Call<ClaimJobs>) -> Answered<ClaimedLeases> {
    call.caller.acts_for(call.body.addon_id.as_str())?;
    daemon.observing.live.claimed(&call.body, Timestamp::now());
    let leases = daemon.scheduler.claim(call.body).await?;
    Ok(ClaimedLeases { leases })
}

async fn list_dispatchable(
    daemon: Arc<Daemon>,
    call: Call<ListDispatchable>,
) -> Answered<DispatchableJobs> {
    let wait = Duration::from_secs(call.query.wait_sec.unwrap_or(0).into());
    let Some(addon) = call.caller.narrowed(call.query.addon_id) else {
        return Ok(DispatchableJobs::default());
    };
    let jobs = daemon.scheduler.dispatchable(addon, wait).await?;
    Ok(DispatchableJobs { jobs })
}

async fn ack_job(daemon: Arc<Daemon>, call: Call<AckJob>) -> Answered<LeaseView> {
    if let Some(lease) = call.body.lease_id {
        ownership::check(&daemon, &call.caller, lease).await?;
    }
    Ok(daemon.scheduler.ack(call.id, call.body).await?)
}

async fn complete_jobs(
    daemon: Arc<Daemon>,
    call: Call<CompleteJobs>,
) -> Answered<CompleteManyAnswer> {
    let (caller, mut request) = (call.caller, call.body);
    ownership::check(&daemon, &caller, request.lease_id).await?;
    let ids: Vec<JobId> = request.jobs.iter().map(|job| job.job_id).collect();
    let hidden = ownership::hidden_jobs(&daemon, &caller, ids.clone()).await?;
    request.jobs.retain(|job| !hidden.contains(&job.job_id));
    let answer = daemon.scheduler.complete_many(request).await?;
    let mut answers = answer.jobs.into_iter();
    let jobs = ids.into_iter().filter_map(|id| {
        if hidden.contains(&id) {
            let error = ownership::no_job(id);
            return Some(Each::Refused { error });
        }
        answers.next()
    });
    Ok(CompleteManyAnswer {
        jobs: jobs.collect(),
    })
}
