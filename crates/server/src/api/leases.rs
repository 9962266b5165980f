//! Leases: requesting, renewing, reporting under them, releasing, revoking.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use jobtree_protocol::operations::{
    DEFAULT_ROWS, GetLease, ListLeases, RegisterPids, RenewLease, RenewLeases, ReportJob,
    RequestLease,
};
use jobtree_protocol::{
    ApiError, Each, Heartbeat, HeartbeatAnswer, HeartbeatManyAnswer, HeartbeatManyRequest, JobId,
    LeaseAnswer, LeaseList, LeaseView, ReportBody,
};

use super::ownership;
use super::route::{Call, routes};
use crate::daemon::Daemon;
use crate::live::Live;
use crate::problem::Answered;

jobtree_protocol::lease_operations!(routes);

async fn request_lease(daemon: Arc<Daemon>, call: Call<RequestLease>) -> Answered<LeaseAnswer> {
    match call.body.job_id {
        Some(job) => drop(ownership::check(&daemon, &call.caller, job).await?),
        None => call.caller.acts_for(&call.body.addon_id)?,
    }
    Ok(daemon.scheduler.lease_request(call.body).await?)
}

async fn list_leases(daemon: Arc<Daemon>, call: Call<ListLeases>) -> Answered<LeaseList> {
    let after = call.query.after;
    let limit = call.query.limit.unwrap_or(DEFAULT_ROWS) as usize;
    let Some(addon) = call.caller.narrowed(call.query.addon_id) else {
        return Ok(LeaseList::default());
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
    Ok(LeaseList { leases, next })
}

async fn get_lease(daemon: Arc<Daemon>, mut call: Call<GetLease>) -> Answered<LeaseView> {
    call.view(&daemon).await
}

async fn heartbeat(daemon: Arc<Daemon>, call: Call<RenewLease>) -> Answered<HeartbeatAnswer> {
    beaten(&daemon, call.body.of(call.id))
        .await
        .map_err(Into::into)
}

/// Renews a lease. The answer tells whether its run is paused.
fn beaten(
    daemon: &Daemon,
    beat: Heartbeat,
) -> impl Future<Output = Result<HeartbeatAnswer, ApiError>> {
    let (lease, in_hand, stands_still) = (beat.lease_id, beat.job_id, beat.paused);
    // Begun here and awaited later: calls that are begun together share a commit.
    let renewed = daemon.scheduler.heartbeat(beat);
    async move {
        let mut answer = renewed.await?;
        answer.paused = daemon.beaten(lease, in_hand, stands_still);
        Ok(answer)
    }
}

async fn heartbeat_many(
    daemon: Arc<Daemon>,
    call: Call<RenewLeases>,
) -> Answered<HeartbeatManyAnswer> {
    let caller = call.caller;
    let HeartbeatManyRequest { leases, worker } = call.body;
    if let Some(worker) = &worker {
        caller.acts_for(worker.addon_id.as_str())?;
        let wrong = Live::check(worker);
        if !wrong.is_empty() {
            return Err(ApiError::invalid(wrong).into());
        }
    }
    let ids = leases.iter().map(|beat| beat.lease_id).collect();
    // An admin's worker that reports nothing of itself is not looked up.
    let known = match caller.addon().is_some() || worker.is_some() {
        true => Some(ownership::leases(&daemon, &caller, ids).await?),
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
                return Err(ownership::no_lease(id));
            }
            Ok(beaten(&daemon, beat))
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
    Ok(HeartbeatManyAnswer { leases })
}

async fn report(daemon: Arc<Daemon>, call: Call<ReportJob>) -> Answered<()> {
    Ok(daemon.scheduler.report(call.body.of(call.id)).await?)
}

async fn register_pids(daemon: Arc<Daemon>, call: Call<RegisterPids>) -> Answered<()> {
    let body = ReportBody {
        pids: Some(call.body.pids),
        process_origin: call.body.process_origin,
        ..ReportBody::default()
    };
    Ok(daemon.scheduler.report(body.of(call.id)).await?)
}
