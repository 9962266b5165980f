//! Whose a thing is. An addon's token is shown nothing of others: their things are answered like ones that do not exist,
//! to the letter.
//!
//! A thing's addon never changes, so looking first and acting then leaves no gap. An admin's calls are not looked up.

use std::collections::{HashMap, HashSet};

use jobtree_protocol::{ApiError, ErrorCode, JobId, JobView, LeaseId, LeaseView, Scope};
use jobtree_store::StoreError;

use crate::auth::Caller;
use crate::daemon::Daemon;
use crate::problem::{Answered, Refusal};

/// A job that the caller may do this to.
pub(crate) async fn job(
    daemon: &Daemon,
    caller: &Caller,
    scope: Scope,
    id: JobId,
) -> Answered<JobView> {
    caller.needs(scope)?;
    let job = daemon.scheduler.job(id).await?;
    if caller.sees(&job.addon_id) {
        return Ok(job);
    }
    Err(no_job(id).into())
}

/// The same, for who does not need the job itself.
pub(crate) async fn may_touch_job(
    daemon: &Daemon,
    caller: &Caller,
    scope: Scope,
    id: JobId,
) -> Answered<()> {
    caller.needs(scope)?;
    if caller.addon().is_some() {
        job(daemon, caller, scope, id).await?;
    }
    Ok(())
}

/// A lease that the caller may do this to.
pub(crate) async fn lease(
    daemon: &Daemon,
    caller: &Caller,
    scope: Scope,
    id: LeaseId,
) -> Answered<LeaseView> {
    caller.needs(scope)?;
    let lease = daemon.scheduler.lease(id).await?;
    if caller.sees(&lease.addon_id) {
        return Ok(lease);
    }
    Err(no_lease(id).into())
}

/// The same, for who does not need the lease itself.
pub(crate) async fn may_touch_lease(
    daemon: &Daemon,
    caller: &Caller,
    scope: Scope,
    id: LeaseId,
) -> Answered<()> {
    caller.needs(scope)?;
    if caller.addon().is_some() {
        lease(daemon, caller, scope, id).await?;
    }
    Ok(())
}

/// Those of the jobs that do not exist for the caller; none for an admin, whose calls find out by themselves.
pub(crate) async fn hidden_jobs(
    daemon: &Daemon,
    caller: &Caller,
    ids: Vec<JobId>,
) -> Answered<HashSet<JobId>> {
    let Some(own) = caller.addon().cloned() else {
        return Ok(HashSet::new());
    };
    let mut hidden: HashSet<JobId> = ids.iter().copied().collect();
    let found = daemon.store().read(move |tables| tables.jobs(&ids)).await;
    for job in found.map_err(unreadable)? {
        if job.intent.addon_id == own {
            hidden.remove(&job.id);
        }
    }
    Ok(hidden)
}

/// The leases that exist for the caller, each with its jobs.
pub(crate) async fn leases(
    daemon: &Daemon,
    caller: &Caller,
    ids: Vec<LeaseId>,
) -> Answered<HashMap<LeaseId, Vec<JobId>>> {
    let caller = caller.clone();
    let found = daemon.store().read(move |tables| {
        let mut found = HashMap::with_capacity(ids.len());
        for id in ids {
            let lease = tables.lease(id)?.map(|lease| lease.view());
            if let Some(lease) = lease.filter(|lease| caller.sees(&lease.addon_id)) {
                found.insert(id, lease.jobs);
            }
        }
        Ok(found)
    });
    found.await.map_err(unreadable)
}

pub(crate) fn no_job(id: JobId) -> ApiError {
    ApiError::new(ErrorCode::NotFound, StoreError::NoJob(id).to_string())
}

pub(crate) fn no_lease(id: LeaseId) -> ApiError {
    ApiError::new(ErrorCode::NotFound, StoreError::NoLease(id).to_string())
}

fn unreadable(error: StoreError) -> Refusal {
    Refusal::new(ErrorCode::Unavailable, error.to_string())
}
