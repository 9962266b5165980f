//! How a job gets to run: reserved and taken up, or claimed.

use std::sync::Arc;

use jobtree_protocol::{AckRequest, EventKind, JobId, JobState, LeaseId, NodeId};

use super::grant::{Granted, admitted_event, either, leased, leased_event};
use super::state::{Step, after, job_event, lease_event, touched_lease};
use super::{
    Abilities, Changes, Claim, Context, Done, Outcome, Proof, Proposed, Reserve, TakeUp,
    TransitionError, Unclaimed,
};
use crate::record::{JobRecord, LeaseRecord, LeasedJob, Reservation, Stage};

/// Reserves a place for a waiting job. Its cost is in use from now on.
///
/// # Errors
/// If it does not wait, or may not run there or now.
pub fn reserve(cx: &Context<'_>, job: &JobRecord, command: Reserve) -> Outcome<Reservation> {
    if let Some(reservation) = &job.reservation
        && reservation.id == command.reservation_id
    {
        return Ok(Done::repeated(Reservation::clone(reservation)));
    }
    may_run(
        cx,
        job,
        &command.node_id,
        command.key_holders,
        "a reservation",
    )?;
    let mut next = after(cx, job, Step::Reserve);
    let reservation = Reservation {
        id: command.reservation_id,
        node_id: command.node_id.clone(),
        since: cx.wall(),
        until: cx.wall_after(cx.rules.dispatch_timeout()),
    };
    next.node_id = Some(command.node_id.clone());
    next.reservation = Some(Box::new(reservation.clone()));
    let admitted = admitted_event(cx, &next, command.reason);
    let mut dispatching = job_event(cx, &next, EventKind::Dispatching);
    dispatching.node_id = Some(command.node_id);
    let mut changes = Changes {
        events: vec![admitted, dispatching],
        ..Changes::default()
    };
    changes.put(next);
    Ok(Done::new(reservation, changes))
}

/// Gives a reservation up. The job waits again, in its old place, and nothing is counted.
///
/// # Errors
/// [`TransitionError::NotDue`] if the reservation is not there any more, or its time has not come.
pub fn return_unclaimed(
    cx: &Context<'_>,
    job: &JobRecord,
    reservation_id: LeaseId,
    why: &Unclaimed,
) -> Outcome<JobState> {
    let not_due = TransitionError::NotDue {
        what: "the return of a dispatch",
    };
    let Some(reservation) = job
        .reservation
        .as_ref()
        .filter(|reservation| reservation.id == reservation_id)
    else {
        return Err(not_due);
    };
    let reason = match why {
        Unclaimed::TimedOut(proof) => {
            let due = match proof {
                Proof::Seen { revision } => *revision == job.revision,
                Proof::Wall => reservation.until <= cx.wall(),
                // Which worker will accept a dispatch is not known, so no process's end is a reason.
                Proof::OwnerGone => false,
            };
            if !due {
                return Err(not_due);
            }
            format!(
                "not taken up on {} in {} s",
                reservation.node_id, cx.rules.dispatch_timeout_sec
            )
        }
        Unclaimed::Declined { reason } => format!("declined: {reason}"),
    };
    let next = after(cx, job, Step::Return);
    let mut event = job_event(cx, &next, EventKind::Returned);
    event.node_id = Some(reservation.node_id.clone());
    event.reason = Some(reason);
    let mut changes = Changes {
        events: vec![event],
        ..Changes::default()
    };
    changes.put(next);
    Ok(Done::new(JobState::Queued, changes))
}

/// Turns a reservation into a lease: no second admission, and no moment in which neither is there.
///
/// The job begins with it: the worker that takes up one job runs it at once.
///
/// `lease` is the one that the job is held under, if it is: the process that took the job up and asks again gets the
/// same lease again.
///
/// # Errors
/// If the job is not dispatched, or another worker has it.
pub fn take_up(
    cx: &Context<'_>,
    job: &JobRecord,
    lease: Option<&LeaseRecord>,
    command: TakeUp,
) -> Outcome<LeaseRecord> {
    if job.is_held() {
        let held = lease.filter(|lease| job.lease_id == Some(lease.id) && lease.is_live());
        let same = held.filter(|lease| {
            command.instance_id.is_some() && lease.instance_id == command.instance_id
        });
        return match same {
            Some(lease) => Ok(Done::repeated(lease.clone())),
            None => Err(TransitionError::TakenUp {
                job_id: job.id,
                state: job.state,
            }),
        };
    }
    let reservation = dispatched(job, "being taken up")?;
    let lease = Granted {
        lease_id: command.lease_id,
        node_id: reservation.node_id.clone(),
        instance_id: command.instance_id,
        pids: command.pids,
        process_origin: command.process_origin,
        worker: Abilities::default(),
    };
    let lease = lease.of(cx, std::slice::from_ref(&job));
    let next = leased(cx, job, Step::Start, &lease, 0);
    let mut changes = Changes::default();
    changes.events.push(lease_event(
        cx,
        &lease,
        EventKind::LeaseGranted,
        Some("a dispatch was taken up".into()),
    ));
    changes.events.push(leased_event(cx, &next));
    changes.put(next);
    changes.leases.push(lease.clone());
    Ok(Done::new(lease, changes))
}

/// Takes up a dispatch: without a lease as [`take_up`], with one that was granted before (`lease` is its record) the job
/// is run under that. Then the reservation is dropped and the lease is charged for the dearer of both, which is at most what
/// both were charged before.
///
/// # Errors
/// If the job is not dispatched, another worker has it, or the lease is not one for it.
pub fn ack(
    cx: &Context<'_>,
    job: &JobRecord,
    lease: Option<&LeaseRecord>,
    request: AckRequest,
    new_lease_id: LeaseId,
) -> Outcome<LeaseRecord> {
    let AckRequest {
        lease_id,
        instance_id,
        pids,
        process_origin,
    } = request;
    let Some(lease_id) = lease_id else {
        return take_up(
            cx,
            job,
            lease,
            TakeUp {
                lease_id: new_lease_id,
                instance_id,
                pids,
                process_origin,
            },
        );
    };
    let not_yours = TransitionError::NotYourLease {
        job_id: job.id,
        state: job.state,
        given: lease_id,
    };
    let Some(lease) = lease.filter(|lease| lease.id == lease_id) else {
        return Err(not_yours);
    };
    if let Some(end) = lease.end {
        return Err(TransitionError::LeaseEnded { lease_id, end });
    }
    if job.is_held() {
        return if job.lease_id == Some(lease_id) {
            Ok(Done::repeated(lease.clone()))
        } else {
            Err(not_yours)
        };
    }
    let reservation = dispatched(job, "ack")?;
    if lease.addon_id != job.intent.addon_id {
        return Err(TransitionError::OtherAddon {
            job_id: job.id,
            lease_id,
        });
    }
    if lease.node_id != reservation.node_id {
        let (wanted, given) = (reservation.node_id.clone(), lease.node_id.clone());
        return Err(TransitionError::WrongNode {
            job_id: job.id,
            wanted,
            given,
        });
    }
    // One job at a time: two would be a batch, and a batch is claimed.
    if !lease.jobs.is_empty() {
        let jobs = lease.jobs.iter().map(|job| job.id).collect();
        return Err(TransitionError::UnfinishedJobs { lease_id, jobs });
    }
    let mut joined = touched_lease(lease);
    let next = leased(cx, job, Step::Start, lease, 0);
    joined.current_since = cx.wall();
    joined.begun = true;
    joined.jobs.push(LeasedJob::of(&next));
    joined.constraints = either(joined.constraints, job.intent.constraints);
    joined.priority = joined.priority.max(job.intent.priority);
    if !pids.is_empty() {
        joined.set_processes(pids, process_origin);
    }
    let mut changes = Changes {
        events: vec![leased_event(cx, &next)],
        ..Changes::default()
    };
    changes.put(next);
    changes.leases.push(joined.clone());
    Ok(Done::new(joined, changes))
}

/// What a claim gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    /// The lease.
    pub lease: LeaseRecord,
    /// Its jobs, in the order they are to be run. Empty in a repeated answer: they are the lease's.
    pub jobs: Vec<Arc<JobRecord>>,
    /// Proposed jobs that are not in it, and why.
    pub skipped: Vec<(JobId, TransitionError)>,
}

/// Grants one lease for jobs that one worker runs one after the other.
///
/// The first job begins with the grant, unless its worker reports begins and does not begin it at once. Each other one is
/// held: DISPATCHING under the lease, with its place in it.
///
/// A job may be QUEUED, and is admitted by this, with an event of its own that says by which numbers; or DISPATCHING with a
/// reservation on the same node: then the reservation becomes the lease, and the job keeps what it was admitted for.
///
/// A proposed job that cannot run (canceled in the meantime, its concurrency key full) is left out and told; the others
/// are not made to wait for it. Jobs with one concurrency key may be in one batch, since they do not run at a time. A
/// job whose worker crashed before is claimed alone.
///
/// `existing` is the lease that has this id already: a worker that draws the id itself may ask again.
///
/// # Errors
/// If no job is left.
pub fn claim(
    cx: &Context<'_>,
    proposed: &[Proposed<'_>],
    existing: Option<&LeaseRecord>,
    command: Claim,
) -> Outcome<Claimed> {
    if let Some(lease) = existing {
        if let Some(end) = lease.end {
            return Err(TransitionError::LeaseEnded {
                lease_id: lease.id,
                end,
            });
        }
        return Ok(Done::repeated(Claimed {
            lease: lease.clone(),
            jobs: Vec::new(),
            skipped: Vec::new(),
        }));
    }
    let mut taken: Vec<&JobRecord> = Vec::with_capacity(proposed.len());
    let mut skipped = Vec::new();
    for Proposed { job, key_holders } in proposed {
        let may = may_be_claimed(cx, job, &command.node_id, *key_holders);
        match may.and_then(|()| joins(job, taken.first().copied())) {
            Ok(()) => taken.push(job),
            Err(why) => skipped.push((job.id, why)),
        }
    }
    if taken.is_empty() {
        let skipped = skipped
            .into_iter()
            .map(|(id, why)| (id, Box::new(why)))
            .collect();
        return Err(TransitionError::NothingToClaim { skipped });
    }
    let Claim {
        lease_id,
        node_id,
        instance_id,
        pids,
        process_origin,
        reason,
        worker,
    } = command;
    let lease = Granted {
        lease_id,
        node_id,
        instance_id,
        pids,
        process_origin,
        worker,
    }
    .of(cx, &taken);
    let mut changes = Changes::for_jobs(taken.len());
    changes.events.push(lease_event(
        cx,
        &lease,
        EventKind::LeaseGranted,
        Some(reason.clone()),
    ));
    let mut jobs = Vec::with_capacity(taken.len());
    for (job, member) in taken.iter().zip(&lease.jobs) {
        let step = if member.begun {
            Step::Start
        } else {
            Step::Hold
        };
        let next = leased(cx, job, step, &lease, member.position);
        // One that was reserved was admitted then.
        if !job.is_reserved() {
            changes
                .events
                .push(admitted_event(cx, &next, reason.clone()));
        }
        changes.events.push(leased_event(cx, &next));
        jobs.push(Arc::clone(changes.put(next)));
    }
    changes.leases.push(lease.clone());
    Ok(Done::new(
        Claimed {
            lease,
            jobs,
            skipped,
        },
        changes,
    ))
}

/// Whether a claim on `node` may take a job: it is reserved there, or it waits and may run.
fn may_be_claimed(
    cx: &Context<'_>,
    job: &JobRecord,
    node: &NodeId,
    key_holders: u32,
) -> Result<(), TransitionError> {
    let reservation = job.reservation.as_deref().filter(|_| job.is_reserved());
    if reservation.is_some_and(|it| it.node_id == *node) {
        return Ok(());
    }
    may_run(cx, job, node, key_holders, "a claim")
}

/// Whether a job that waits may get a place on this node now, as far as it itself is concerned.
fn may_run(
    cx: &Context<'_>,
    job: &JobRecord,
    node: &NodeId,
    key_holders: u32,
    command: &'static str,
) -> Result<(), TransitionError> {
    let job_id = job.id;
    if job.stage() != Stage::Waiting {
        let advice = "only a job that is QUEUED can be given to a worker; take another";
        return Err(TransitionError::WrongState {
            job_id,
            state: job.state,
            command,
            advice,
        });
    }
    if !job.waiting_for.is_empty() {
        return Err(TransitionError::Waiting {
            job_id,
            count: job.waiting_for.len(),
        });
    }
    if let Some(not_before) = job.not_before.filter(|start| *start > cx.wall()) {
        return Err(TransitionError::TooEarly { job_id, not_before });
    }
    if let Some(wanted) = job
        .intent
        .required_node
        .as_ref()
        .filter(|wanted| *wanted != node)
    {
        return Err(TransitionError::WrongNode {
            job_id,
            wanted: wanted.clone(),
            given: node.clone(),
        });
    }
    match &job.intent.concurrency_key {
        Some(key) if key_holders >= job.intent.concurrency_limit => Err(TransitionError::KeyFull {
            job_id,
            key: key.clone(),
            limit: job.intent.concurrency_limit,
        }),
        _ => Ok(()),
    }
}

/// Whether a job may be in the batch that begins with `first`.
fn joins(job: &JobRecord, first: Option<&JobRecord>) -> Result<(), TransitionError> {
    let Some(first) = first else { return Ok(()) };
    if job.runs_alone() || first.runs_alone() {
        return Err(TransitionError::RunsAlone { job_id: job.id });
    }
    if job.intent.addon_id != first.intent.addon_id {
        return Err(TransitionError::MixedAddons { job_id: job.id });
    }
    Ok(())
}

fn dispatched<'a>(
    job: &'a JobRecord,
    command: &'static str,
) -> Result<&'a Reservation, TransitionError> {
    let advice = match job.state {
        JobState::Queued => "its dispatch was not taken up in time, or it has none; wait for one",
        _ => "it has ended; do not start it",
    };
    let wrong = TransitionError::WrongState {
        job_id: job.id,
        state: job.state,
        command,
        advice,
    };
    job.reservation
        .as_deref()
        .filter(|_| job.is_reserved())
        .ok_or(wrong)
}
