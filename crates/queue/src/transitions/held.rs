//! What happens to a lease while it is held, and how it ends other than by its jobs' ends.

use std::sync::Arc;

use jobtree_protocol::{
    Advice, EventKind, Heartbeat, HeartbeatAnswer, JobId, LeaseId, Progress, ReleaseRequest,
    ReportRequest, RevokeRequest,
};

use super::state::{Step, after, job_event, lease_event, touched, touched_lease};
use super::{Changes, Context, Done, LoadAdvice, Outcome, Proof, TransitionError};
use crate::record::{JobRecord, LeaseEnd, LeaseRecord};

/// Renews a lease, and tells its worker what to do.
///
/// `job` is the record of the job that the heartbeat is about (the one it names, else the current one); it is needed only
/// if the heartbeat tells progress. A heartbeat that names a job that has ended in the meantime renews all the same: it
/// comes from a thread of its own, and may be a step behind.
///
/// # Errors
/// If the lease has ended: the worker must stop.
pub fn heartbeat(
    cx: &Context<'_>,
    lease: &LeaseRecord,
    job: Option<&JobRecord>,
    request: Heartbeat,
    load: LoadAdvice,
) -> Outcome<HeartbeatAnswer> {
    same_lease(lease, request.lease_id)?;
    live(lease)?;
    let mut next = touched_lease(lease);
    next.renewed_at = cx.wall();
    next.renewals += 1;
    next.expires_at = crate::lease::expiry(cx.wall(), next.ttl_sec);
    if let Some(pids) = request.pids {
        next.pids = pids;
    }
    if let Some(named) = request.job_id.filter(|id| lease.job(*id).is_some())
        && lease.current().is_none_or(|job| job.id != named)
    {
        next.named_current = Some(named);
        next.current_since = cx.wall();
    }
    let cancel: Vec<JobId> = next
        .jobs
        .iter()
        .filter(|job| job.cancel)
        .map(|job| job.id)
        .collect();
    let advice = if cancel.is_empty() {
        load.0
    } else {
        Advice::Cancel
    };
    let answer = HeartbeatAnswer {
        advice,
        ttl_sec: next.ttl_sec,
        cancel,
    };

    let mut changes = Changes::default();
    let about = request.job_id.or_else(|| next.current().map(|job| job.id));
    if let (Some(progress), Some(job)) = (request.progress, job)
        && Some(job.id) == about
        && job.lease_id == Some(lease.id)
    {
        tell(cx, job, Some(progress), None, &mut changes);
    }
    changes.leases.push(next);
    Ok(Done::new(answer, changes))
}

/// Notes what a running job tells. It does not renew: a report may have been under way for long.
///
/// `job` is the record of the job it is about (the one it names, else the current one); none for a lease without jobs.
///
/// # Errors
/// If the lease has ended, or the job is not, or no longer, in it.
pub fn report(
    cx: &Context<'_>,
    lease: &LeaseRecord,
    job: Option<&JobRecord>,
    request: ReportRequest,
) -> Outcome<()> {
    same_lease(lease, request.lease_id)?;
    live(lease)?;
    let mut changes = Changes::default();
    if let Some(job_id) = request.job_id.or_else(|| lease.current().map(|job| job.id)) {
        let held = job.filter(|job| job.id == job_id && job.lease_id == Some(lease.id));
        let Some(job) = held.filter(|_| lease.job(job_id).is_some()) else {
            return Err(TransitionError::NotInLease {
                job_id,
                lease_id: lease.id,
            });
        };
        let metrics = Some(request.metrics).filter(|metrics| !metrics.is_empty());
        tell(cx, job, request.progress, metrics, &mut changes);
    } else {
        let words = request.progress.and_then(|progress| progress.message);
        changes
            .events
            .push(lease_event(cx, lease, EventKind::Progress, words));
    }
    if let Some(pids) = request.pids {
        let mut next = touched_lease(lease);
        next.pids = pids;
        changes.leases.push(next);
    }
    Ok(Done::new((), changes))
}

/// Tells that a running job printed something. The text itself is the store's to keep; neither record changes, and the
/// event is told to listeners and not kept.
///
/// # Errors
/// If the lease has ended, or the job is not, or no longer, in it.
pub fn log(cx: &Context<'_>, lease: &LeaseRecord, job: &JobRecord) -> Outcome<()> {
    live(lease)?;
    if job.lease_id != Some(lease.id) || lease.job(job.id).is_none() {
        return Err(TransitionError::NotInLease {
            job_id: job.id,
            lease_id: lease.id,
        });
    }
    let mut changes = Changes::default();
    changes.events.push(job_event(cx, job, EventKind::Log));
    Ok(Done::new((), changes))
}

/// Gives a lease back. Its jobs that have not ended wait again if the request says so, and nothing is counted; those that
/// somebody wanted to stop are CANCELED by it.
///
/// `jobs` are the records of all jobs of the lease.
///
/// # Errors
/// If there are unfinished jobs and the request says nothing of them; if the lease ended in another way.
pub fn release(
    cx: &Context<'_>,
    lease: &LeaseRecord,
    jobs: &[Arc<JobRecord>],
    request: &ReleaseRequest,
) -> Outcome<()> {
    if let Some(LeaseEnd::Released | LeaseEnd::Completed) = lease.end {
        return Ok(Done::repeated(()));
    }
    live(lease)?;
    let unfinished: Vec<JobId> = lease
        .jobs
        .iter()
        .filter(|job| !job.cancel)
        .map(|job| job.id)
        .collect();
    if !unfinished.is_empty() && !request.return_jobs {
        return Err(TransitionError::UnfinishedJobs {
            lease_id: lease.id,
            jobs: unfinished,
        });
    }
    let mut changes = Changes::default();
    let reason = request
        .reason
        .as_deref()
        .unwrap_or("its worker gave it back");
    end(cx, lease, LeaseEnd::Released, reason, &mut changes);
    for job in held_jobs(lease, jobs)? {
        give_back(cx, job, lease.id, reason, &mut changes);
    }
    Ok(Done::new((), changes))
}

/// Takes a lease away. Its jobs wait again; its worker learns of it with its next call, and whatever that says of the
/// jobs is refused.
///
/// `jobs` are the records of all jobs of the lease.
///
/// # Errors
/// If the records do not belong together.
pub fn revoke(
    cx: &Context<'_>,
    lease: &LeaseRecord,
    jobs: &[Arc<JobRecord>],
    request: &RevokeRequest,
) -> Outcome<()> {
    if !lease.is_live() {
        return Ok(Done::repeated(()));
    }
    let mut changes = Changes::default();
    let reason = request.reason.as_deref().unwrap_or("its lease was revoked");
    end(cx, lease, LeaseEnd::Revoked, reason, &mut changes);
    for job in held_jobs(lease, jobs)? {
        give_back(cx, job, lease.id, reason, &mut changes);
    }
    Ok(Done::new((), changes))
}

/// Ends a lease that was not renewed. The job that was running is rescued: that is counted, and a job that took too many
/// workers with it is quarantined. Jobs of the batch whose turn had not come wait again, and nothing is counted.
///
/// `jobs` are the records of all jobs of the lease.
///
/// # Errors
/// [`TransitionError::NotDue`] if it was renewed or has ended.
pub fn expire(
    cx: &Context<'_>,
    lease: &LeaseRecord,
    jobs: &[Arc<JobRecord>],
    proof: Proof,
) -> Outcome<()> {
    let due = match proof {
        Proof::Seen { revision } => revision == lease.revision,
        Proof::Wall => lease.expires_at <= cx.wall(),
    };
    if !due || !lease.is_live() {
        return Err(TransitionError::NotDue {
            what: "the end of a lease",
        });
    }
    let mut changes = Changes::default();
    let reason = format!("not renewed for {} s", lease.ttl_sec);
    end(cx, lease, LeaseEnd::Expired, &reason, &mut changes);
    let current = lease.current().map(|job| job.id);
    for job in held_jobs(lease, jobs)? {
        if Some(job.id) == current {
            rescue(cx, job, lease.id, &mut changes);
        } else {
            give_back(
                cx,
                job,
                lease.id,
                "its batch ended before its turn",
                &mut changes,
            );
        }
    }
    Ok(Done::new((), changes))
}

fn rescue(cx: &Context<'_>, job: &JobRecord, lease_id: LeaseId, changes: &mut Changes) {
    let rescues = job.rescues + 1;
    let most = cx.rules.quarantine_after;
    let (step, more) = if job.cancel_requested_at.is_some() {
        (Step::Cancel, vec![EventKind::Canceled])
    } else if rescues >= most {
        (Step::Fail, vec![EventKind::Quarantined, EventKind::Failed])
    } else {
        (Step::Rescue, Vec::new())
    };
    let mut next = after(cx, job, step);
    next.rescues = rescues;
    next.quarantined = step == Step::Fail;
    let told = format!("its worker fell silent: rescue {rescues} of {most}");
    next.last_error = Some(told.clone());
    for kind in std::iter::once(EventKind::LeaseExpired).chain(more) {
        let mut event = job_event(cx, &next, kind);
        event.lease_id = Some(lease_id);
        event.reason = Some(told.clone());
        changes.events.push(event);
    }
    changes.put(next);
}

/// The job waits again, or is canceled if somebody wanted that.
pub(super) fn give_back(
    cx: &Context<'_>,
    job: &JobRecord,
    lease_id: LeaseId,
    reason: &str,
    changes: &mut Changes,
) {
    let canceled = job.cancel_requested_at.is_some();
    let next = after(cx, job, if canceled { Step::Cancel } else { Step::Return });
    let mut event = job_event(
        cx,
        &next,
        if canceled {
            EventKind::Canceled
        } else {
            EventKind::Returned
        },
    );
    event.lease_id = Some(lease_id);
    event.reason = Some(reason.to_owned());
    changes.events.push(event);
    changes.put(next);
}

/// Ends a lease. What becomes of its jobs is up to the caller.
pub(super) fn end(
    cx: &Context<'_>,
    lease: &LeaseRecord,
    how: LeaseEnd,
    reason: &str,
    changes: &mut Changes,
) {
    let mut next = touched_lease(lease);
    next.end = Some(how);
    next.ended_at = Some(cx.wall());
    next.end_reason = Some(reason.to_owned());
    next.jobs.clear();
    next.named_current = None;
    let kind = match how {
        LeaseEnd::Completed | LeaseEnd::Released => EventKind::LeaseReleased,
        LeaseEnd::Revoked => EventKind::LeaseRevoked,
        LeaseEnd::Expired => EventKind::LeaseExpired,
    };
    changes
        .events
        .push(lease_event(cx, &next, kind, Some(reason.to_owned())));
    changes.leases.push(next);
}

/// The records of a lease's jobs, in their order; an error if one is missing or is not the lease's.
pub(super) fn held_jobs<'a>(
    lease: &LeaseRecord,
    jobs: &'a [Arc<JobRecord>],
) -> Result<Vec<&'a JobRecord>, TransitionError> {
    let wrong = |job_id| TransitionError::Inconsistent {
        lease_id: lease.id,
        job_id,
    };
    if let Some(stranger) = jobs.iter().find(|job| job.lease_id != Some(lease.id)) {
        return Err(wrong(stranger.id));
    }
    let by_id: std::collections::HashMap<JobId, &JobRecord> =
        jobs.iter().map(|job| (job.id, &**job)).collect();
    lease
        .jobs
        .iter()
        .map(|leased| {
            by_id
                .get(&leased.id)
                .copied()
                .ok_or_else(|| wrong(leased.id))
        })
        .collect()
}

fn same_lease(lease: &LeaseRecord, given: LeaseId) -> Result<(), TransitionError> {
    if lease.id == given {
        Ok(())
    } else {
        Err(TransitionError::OtherLease {
            given,
            found: lease.id,
        })
    }
}

fn live(lease: &LeaseRecord) -> Result<(), TransitionError> {
    match lease.end {
        None => Ok(()),
        Some(end) => Err(TransitionError::LeaseEnded {
            lease_id: lease.id,
            end,
        }),
    }
}

/// Notes progress; the event is told to listeners and not kept.
fn tell(
    cx: &Context<'_>,
    job: &JobRecord,
    progress: Option<Progress>,
    metrics: Option<std::collections::BTreeMap<String, f64>>,
    changes: &mut Changes,
) {
    let mut next = touched(job);
    let mut event = job_event(cx, &next, EventKind::Progress);
    if let Some(progress) = progress {
        event.reason = progress.message.clone();
        next.progress = Some(progress);
    }
    if let Some(metrics) = metrics {
        next.metrics = metrics;
    }
    changes.events.push(event);
    changes.put(next);
}
