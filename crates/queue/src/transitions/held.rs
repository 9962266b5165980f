//! What happens to a lease while it is held, and how it ends other than by its jobs' ends.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use jobtree_protocol::{
    Advice, EventKind, Heartbeat, HeartbeatAnswer, JobId, JobState, LeaseId, Progress,
    ReleaseRequest, ReportRequest, RevokeRequest,
};

use super::begin::{take_in_hand, told_time};
use super::state::{Step, after, job_event, lease_event, touched, touched_lease};
use super::{Changes, Context, Done, LoadAdvice, Outcome, Proof, TransitionError};
use crate::record::{JobRecord, LeaseEnd, LeaseRecord};

/// The jobs whose records [`heartbeat`] needs: the one it is about if that begins or tells progress, and those that it gives
/// back. Most heartbeats need none.
pub fn heartbeat_needs(lease: &LeaseRecord, request: &Heartbeat) -> Vec<JobId> {
    let named = request.job_id.and_then(|id| lease.job(id));
    let begins = named.is_some_and(|job| !job.begun);
    let mut needed: Vec<JobId> = about(lease, request.job_id)
        .filter(|_| begins || request.progress.is_some())
        .into_iter()
        .collect();
    let given_back = request.given_back.iter().copied();
    needed.extend(given_back.filter(|id| lease.job(*id).is_some()));
    needed.sort_unstable();
    needed.dedup();
    needed
}

/// The job that a call is about: the one it names, else the one in hand.
fn about(lease: &LeaseRecord, named: Option<JobId>) -> Option<JobId> {
    named.or_else(|| lease.in_hand().map(|job| job.id))
}

/// Renews a lease, takes what its worker tells of its jobs, and answers what the worker should do.
///
/// A job that the heartbeat names is in its worker's hand, and has begun. A worker that reports begins and names none has none in
/// hand: a run that it had has ended, and its time does not go on while its completion waits. Jobs that it gives back wait again, and nothing is
/// counted; a lease that has no other ends. A heartbeat that names a job that has ended in the meantime renews all the
/// same: it comes from a thread of its own, and may be a step behind.
///
/// `jobs` are the records that [`heartbeat_needs`] names; those that are missing have ended.
///
/// # Errors
/// If the lease has ended: the worker must stop. If jobs are given back by a worker that did not declare that it does so.
pub fn heartbeat(
    cx: &Context<'_>,
    lease: &LeaseRecord,
    jobs: &[Arc<JobRecord>],
    request: Heartbeat,
    load: LoadAdvice,
) -> Outcome<HeartbeatAnswer> {
    same_lease(lease, request.lease_id)?;
    live(lease)?;
    if !request.given_back.is_empty() && !lease.returns_unbegun {
        return Err(TransitionError::KeepsBatch { lease_id: lease.id });
    }
    let mut next = touched_lease(lease);
    next.renewed_at = cx.wall();
    next.renewals += 1;
    next.expires_at = crate::lease::expiry(cx.wall(), next.ttl_sec);
    if let Some(pids) = request.pids {
        next.set_processes(pids, request.process_origin);
    }
    let mut changes = Changes::default();
    let record = |id: JobId| {
        let held = |job: &&Arc<JobRecord>| job.id == id && job.lease_id == Some(lease.id);
        jobs.iter().find(held)
    };
    let mut told = None;
    if let Some(named) = request.job_id.filter(|id| lease.job(*id).is_some()) {
        let at = told_time(cx, lease, request.began_ms_ago.unwrap_or(0));
        match (record(named), lease.job(named).is_some_and(|job| job.begun)) {
            (Some(job), _) => told = take_in_hand(cx, &mut next, job, at, &mut changes)?,
            // Nothing is to be written of the job, so its record was not asked for.
            (None, true) if next.in_hand().is_none_or(|job| job.id != named) => {
                next.named_current = Some(named);
                next.current_since = cx.wall();
            }
            (None, true) => {}
            (None, false) => {
                return Err(TransitionError::Inconsistent {
                    lease_id: lease.id,
                    job_id: named,
                });
            }
        }
    }
    if request.job_id.is_none() && lease.reports_begin && lease.running().is_some() {
        next.current_since = cx.wall();
    }
    let given_back: Vec<&Arc<JobRecord>> = request
        .given_back
        .iter()
        .filter(|id| Some(**id) != request.job_id)
        .filter_map(|id| record(*id))
        .collect();
    return_unbegun(cx, &mut next, &given_back, &mut changes);
    if let Some(progress) = request.progress
        && let Some(id) = about(&next, request.job_id).filter(|id| next.job(*id).is_some())
        && let Some(job) = record(id)
    {
        let job = told.get_or_insert_with(|| touched(job));
        tell(cx, job, Some(progress), None, &mut changes);
    }
    if let Some(told) = told {
        changes.put(told);
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
        give_back: next.asked_back.clone(),
        paused: false,
    };
    if next.jobs.is_empty() && !given_back.is_empty() && next.own_cost == 0 {
        let reason = "its worker gave its last jobs back";
        end(cx, lease, LeaseEnd::Released, reason, &mut changes);
    } else {
        changes.leases.push(next);
    }
    Ok(Done::new(answer, changes))
}

/// Takes jobs out of a lease whose worker will not begin them. They wait again in their old place, and nothing is counted.
fn return_unbegun(
    cx: &Context<'_>,
    lease: &mut LeaseRecord,
    given_back: &[&Arc<JobRecord>],
    changes: &mut Changes,
) {
    for job in given_back {
        let Some(place) = lease.place_of(job) else {
            continue;
        };
        lease.jobs.remove(place);
        lease.asked_back.retain(|id| *id != job.id);
        give_back(
            cx,
            job,
            lease.id,
            "its worker gave it back before its turn",
            changes,
        );
    }
}

/// Notes what a running job tells. It does not renew: a report may have been under way for long. A job that tells
/// something has begun.
///
/// `job` is the record of the job it is about (the one it names, else the one in hand); none for a lease without jobs.
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
    let mut next = None;
    if let Some(job_id) = about(lease, request.job_id) {
        let held = job.filter(|job| job.id == job_id && job.lease_id == Some(lease.id));
        let Some(job) = held.filter(|_| lease.job(job_id).is_some()) else {
            return Err(TransitionError::NotInLease {
                job_id,
                lease_id: lease.id,
            });
        };
        let metrics = Some(request.metrics).filter(|metrics| !metrics.is_empty());
        let mut told = if job.has_begun() {
            touched(job)
        } else {
            let lease = next.insert(touched_lease(lease));
            let begun = take_in_hand(cx, lease, job, cx.wall(), &mut changes)?;
            begun.unwrap_or_else(|| touched(job))
        };
        tell(cx, &mut told, request.progress, metrics, &mut changes);
        changes.put(told);
    } else {
        let words = request.progress.and_then(|progress| progress.message);
        changes
            .events
            .push(lease_event(cx, lease, EventKind::Progress, words));
    }
    if let Some(pids) = request.pids {
        next.get_or_insert_with(|| touched_lease(lease))
            .set_processes(pids, request.process_origin);
    }
    changes.leases.extend(next);
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

/// Writes into a running job's trail that its run is to stand still, or to go on. Whether it does is between its worker and
/// the daemon that the worker calls.
///
/// # Errors
/// If the job does not run.
pub fn pause_run(cx: &Context<'_>, job: &JobRecord, paused: bool, reason: String) -> Outcome<()> {
    if job.state != JobState::Running {
        return Err(TransitionError::WrongState {
            job_id: job.id,
            state: job.state,
            command: "a pause of its run",
            advice: "only what runs is paused",
        });
    }
    let next = touched(job);
    let kind = match paused {
        true => EventKind::Paused,
        false => EventKind::Resumed,
    };
    let mut event = job_event(cx, &next, kind);
    event.node_id = next.node_id.clone();
    event.reason = Some(reason);
    let mut changes = Changes {
        events: vec![event],
        ..Changes::default()
    };
    changes.put(next);
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
    // Jobs of a lease are begun in their order: without a begin that is known, the first is the one in hand.
    let in_hand = lease.in_hand().or(lease.jobs.first()).map(|job| job.id);
    for job in held_jobs(lease, jobs)? {
        let snooze = request.snooze_sec.filter(|_| in_hand == Some(job.id));
        let not_before = snooze.map(|seconds| cx.wall_after(Duration::from_secs(seconds.into())));
        give_back_until(cx, job, lease.id, reason, not_before, &mut changes);
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

/// Ends a lease that was not renewed, or whose worker has ended with its process. The job in its worker's hand is rescued: that is counted, and a job that took too many
/// workers with it is quarantined. Jobs of the batch whose turn had not come wait again, and nothing is counted; in a lease
/// that no job of has begun, that is all of them.
///
/// `jobs` are the records of all jobs of the lease.
///
/// # Errors
/// [`TransitionError::NotDue`] if it was renewed or has ended, or if its worker ran in another process than the one that
/// ended.
pub fn expire(
    cx: &Context<'_>,
    lease: &LeaseRecord,
    jobs: &[Arc<JobRecord>],
    proof: Proof,
) -> Outcome<()> {
    let due = match proof {
        Proof::Seen { revision } => revision == lease.revision,
        Proof::Wall => lease.expires_at <= cx.wall(),
        Proof::OwnerGone => lease.in_process,
    };
    if !due || !lease.is_live() {
        return Err(TransitionError::NotDue {
            what: "the end of a lease",
        });
    }
    let mut changes = Changes::default();
    let (reason, fate) = match proof {
        Proof::Seen { .. } | Proof::Wall => (
            format!("not renewed for {} s", lease.ttl_sec),
            "its worker fell silent",
        ),
        Proof::OwnerGone => (
            "the process of its worker has ended".to_owned(),
            "the process of its worker ended",
        ),
    };
    end(cx, lease, LeaseEnd::Expired, &reason, &mut changes);
    let in_hand = lease.in_hand().map(|job| job.id);
    for job in held_jobs(lease, jobs)? {
        if Some(job.id) == in_hand {
            rescue(cx, job, lease.id, fate, &mut changes);
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

/// Counts the loss of the worker for the job that it had in hand. `fate` says what became of the worker.
fn rescue(cx: &Context<'_>, job: &JobRecord, lease_id: LeaseId, fate: &str, changes: &mut Changes) {
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
    let told = format!("{fate}: rescue {rescues} of {most}");
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
    give_back_until(cx, job, lease_id, reason, None, changes);
}

/// The job waits again, and at least until `not_before`, if there is such a time.
fn give_back_until(
    cx: &Context<'_>,
    job: &JobRecord,
    lease_id: LeaseId,
    reason: &str,
    not_before: Option<Timestamp>,
    changes: &mut Changes,
) {
    let canceled = job.cancel_requested_at.is_some();
    let mut next = after(cx, job, if canceled { Step::Cancel } else { Step::Return });
    if !canceled && not_before.is_some() {
        next.not_before = not_before;
    }
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
    next.asked_back.clear();
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

pub(super) fn live(lease: &LeaseRecord) -> Result<(), TransitionError> {
    match lease.end {
        None => Ok(()),
        Some(end) => Err(TransitionError::LeaseEnded {
            lease_id: lease.id,
            end,
        }),
    }
}

/// Notes progress in the revision that is being made; the event is told to listeners and not kept.
fn tell(
    cx: &Context<'_>,
    next: &mut JobRecord,
    progress: Option<Progress>,
    metrics: Option<std::collections::BTreeMap<String, f64>>,
    changes: &mut Changes,
) {
    let mut event = job_event(cx, next, EventKind::Progress);
    if let Some(progress) = progress {
        event.reason = progress.message.clone();
        next.progress = Some(progress);
    }
    if let Some(metrics) = metrics {
        next.metrics = metrics;
    }
    changes.events.push(event);
}
