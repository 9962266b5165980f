//! How a job gets to run: reserved and taken up, or claimed. Also leases without a job, and what is noted about jobs that
//! do not get to run.

use jobtree_protocol::{AckRequest, Constraints, Event, EventKind, JobState, LeaseId, NodeId};

use super::state::{Step, after, allows, job_event, lease_event, touched, touched_lease};
use super::{
    Admit, Changes, Claim, Context, Done, Outcome, Proof, Proposed, Reserve, TakeUp,
    TransitionError, Unclaimed,
};
use crate::record::{Denial, JobRecord, LeaseRecord, LeasedJob, Reservation};

/// Reserves a place for a waiting job. Its cost is in use from now on.
///
/// # Errors
/// If it does not wait, or may not run there or now.
pub fn reserve(cx: &Context<'_>, job: &JobRecord, command: Reserve) -> Outcome<Reservation> {
    if let Some(reservation) = &job.reservation
        && reservation.id == command.reservation_id
    {
        return Ok(Done::repeated(reservation.clone()));
    }
    may_run(
        cx,
        job,
        &command.node_id,
        command.key_holders,
        Step::Reserve,
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
    next.reservation = Some(reservation.clone());
    let mut admitted = job_event(cx, &next, EventKind::Admitted);
    admitted.reason = Some(command.reason);
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
/// `lease` is the one that the job runs under, if it does: the process that took the job up and asks again gets the
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
    if job.state == JobState::Running {
        let held = lease.filter(|lease| job.lease_id == Some(lease.id) && lease.is_live());
        let same = held.filter(|lease| {
            command.instance_id.is_some() && lease.instance_id == command.instance_id
        });
        return match same {
            Some(lease) => Ok(Done::repeated(lease.clone())),
            None => Err(TransitionError::TakenUp { job_id: job.id }),
        };
    }
    let reservation = dispatched(job, "being taken up")?;
    let lease = Granted {
        lease_id: command.lease_id,
        node_id: reservation.node_id.clone(),
        instance_id: command.instance_id,
        pids: command.pids,
    };
    let lease = lease.of(cx, std::slice::from_ref(&job));
    let next = running(cx, job, Step::TakeUp, &lease, 0);
    let mut changes = Changes::default();
    changes.events.push(lease_event(
        cx,
        &lease,
        EventKind::LeaseGranted,
        Some("a dispatch was taken up".into()),
    ));
    changes.events.push(running_event(cx, &next));
    changes.put(next);
    changes.leases.push(lease.clone());
    Ok(Done::new(lease, changes))
}

/// Takes up a dispatch: without a lease as [`take_up`], with one that was granted before (`lease` is its record) the job
/// joins that. Then the reservation is dropped and the lease is charged for the dearer of both, which is at most what
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
    if job.state == JobState::Running {
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
    let position = lease.jobs.last().map_or(0, |last| last.position + 1);
    let mut joined = touched_lease(lease);
    let next = running(cx, job, Step::TakeUp, lease, position);
    if joined.jobs.is_empty() {
        joined.current_since = cx.wall();
    }
    joined.jobs.push(LeasedJob::of(&next));
    joined.constraints = either(joined.constraints, job.intent.constraints);
    joined.priority = joined.priority.max(job.intent.priority);
    if !pids.is_empty() {
        joined.pids = pids;
    }
    let mut changes = Changes {
        events: vec![running_event(cx, &next)],
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
    pub jobs: Vec<JobRecord>,
    /// Proposed jobs that are not in it, and why.
    pub skipped: Vec<(jobtree_protocol::JobId, TransitionError)>,
}

/// Grants one lease for jobs that one worker runs one after the other.
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
        let fits = may_run(
            cx,
            job,
            &command.node_id,
            *key_holders,
            Step::Claim,
            "a claim",
        );
        let fits = fits.and_then(|()| joins(job, taken.first().copied()));
        match fits {
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
        reason,
    } = command;
    let lease = Granted {
        lease_id,
        node_id,
        instance_id,
        pids,
    }
    .of(cx, &taken);
    let mut changes = Changes::default();
    changes.events.push(lease_event(
        cx,
        &lease,
        EventKind::LeaseGranted,
        Some(reason),
    ));
    let mut jobs = Vec::with_capacity(taken.len());
    for (job, leased) in taken.iter().zip(&lease.jobs) {
        let next = running(cx, job, Step::Claim, &lease, leased.position);
        changes.events.push(running_event(cx, &next));
        changes.put(next.clone());
        jobs.push(next);
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

/// Grants a lease of capacity alone.
pub fn admit(cx: &Context<'_>, command: Admit) -> Done<LeaseRecord> {
    let granted = Granted {
        lease_id: command.lease_id,
        node_id: command.node_id,
        instance_id: command.instance_id,
        pids: command.pids,
    };
    let lease = LeaseRecord {
        priority: command.priority,
        constraints: command.constraints,
        expected_duration_sec: command.expected_duration_sec,
        own_cost: command.cost_units,
        ..granted.bare(cx, command.addon_id, command.job_type)
    };
    let event = lease_event(cx, &lease, EventKind::LeaseGranted, Some(command.reason));
    let changes = Changes {
        leases: vec![lease.clone()],
        events: vec![event],
        ..Changes::default()
    };
    Done::new(lease, changes)
}

/// Notes why a waiting job was not admitted: written when the reason's code changes, not each time it is asked for.
///
/// # Errors
/// If it does not wait.
pub fn deny(cx: &Context<'_>, job: &JobRecord, code: &str, reason: &str) -> Outcome<()> {
    waiting(job, "a denial")?;
    if job
        .denial
        .as_ref()
        .is_some_and(|denial| denial.code == code)
    {
        return Ok(Done::repeated(()));
    }
    let mut next = touched(job);
    next.denial = Some(Denial {
        code: code.into(),
        reason: reason.into(),
        since: cx.wall(),
    });
    let mut event = job_event(cx, &next, EventKind::Denied);
    event.reason = Some(reason.into());
    let mut changes = Changes {
        events: vec![event],
        ..Changes::default()
    };
    changes.put(next);
    Ok(Done::new((), changes))
}

/// Tells, once, that a waiting job will probably miss its deadline.
///
/// # Errors
/// If it does not wait, or has no deadline.
pub fn mark_at_risk(cx: &Context<'_>, job: &JobRecord, reason: &str) -> Outcome<()> {
    waiting(job, "a warning of its deadline")?;
    if job.intent.deadline_at.is_none() {
        return Err(TransitionError::NotDue { what: "a deadline" });
    }
    if job.at_risk {
        return Ok(Done::repeated(()));
    }
    let mut next = touched(job);
    next.at_risk = true;
    let mut event = job_event(cx, &next, EventKind::DeadlineAtRisk);
    event.reason = Some(reason.into());
    let mut changes = Changes {
        events: vec![event],
        ..Changes::default()
    };
    changes.put(next);
    Ok(Done::new((), changes))
}

fn waiting(job: &JobRecord, command: &'static str) -> Result<(), TransitionError> {
    if job.state == JobState::Queued {
        return Ok(());
    }
    let advice = "only a job that is QUEUED has this";
    Err(TransitionError::WrongState {
        job_id: job.id,
        state: job.state,
        command,
        advice,
    })
}

/// Whether a job may get a place on this node now, as far as it itself is concerned.
fn may_run(
    cx: &Context<'_>,
    job: &JobRecord,
    node: &NodeId,
    key_holders: u32,
    step: Step,
    command: &'static str,
) -> Result<(), TransitionError> {
    let job_id = job.id;
    if !allows(job.state, step) {
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
        .as_ref()
        .filter(|_| allows(job.state, Step::TakeUp))
        .ok_or(wrong)
}

/// The job, running under a lease.
fn running(
    cx: &Context<'_>,
    job: &JobRecord,
    step: Step,
    lease: &LeaseRecord,
    position: u32,
) -> JobRecord {
    let mut next = after(cx, job, step);
    next.lease_id = Some(lease.id);
    next.lease_position = position;
    next.node_id = Some(lease.node_id.clone());
    next.started_at = Some(cx.wall());
    next.not_before = None;
    next.metrics.clear();
    next
}

fn running_event(cx: &Context<'_>, job: &JobRecord) -> Event {
    let mut event = job_event(cx, job, EventKind::Running);
    event.node_id = job.node_id.clone();
    event.attempt = Some(job.attempts + 1);
    event
}

fn either(a: Constraints, b: Constraints) -> Constraints {
    Constraints {
        cpu_heavy: a.cpu_heavy | b.cpu_heavy,
        disk_write_heavy: a.disk_write_heavy | b.disk_write_heavy,
        network_heavy: a.network_heavy | b.network_heavy,
        memory_heavy: a.memory_heavy | b.memory_heavy,
    }
}

/// What is new about a new lease.
struct Granted {
    lease_id: LeaseId,
    node_id: NodeId,
    instance_id: Option<jobtree_protocol::InstanceId>,
    pids: Vec<u32>,
}

impl Granted {
    /// A lease for jobs, of which there is one at least.
    fn of(self, cx: &Context<'_>, jobs: &[&JobRecord]) -> LeaseRecord {
        let intents = || jobs.iter().map(|job| &job.intent);
        let first = &jobs[0].intent;
        let together = |sum: u32, one: Option<u32>| one.map(|one| sum.saturating_add(one));
        let expected_duration_sec = intents()
            .map(|intent| intent.expected_duration_sec)
            .try_fold(0, together);
        let leased = jobs.iter().zip(0..).map(|(job, position)| LeasedJob {
            position,
            ..LeasedJob::of(job)
        });
        LeaseRecord {
            priority: intents()
                .map(|intent| intent.priority)
                .fold(first.priority, Ord::max),
            constraints: intents()
                .map(|intent| intent.constraints)
                .fold(Constraints::default(), either),
            expected_duration_sec,
            jobs: leased.collect(),
            ..self.bare(cx, first.addon_id.clone(), first.job_type.clone())
        }
    }

    /// A lease for nothing yet.
    fn bare(
        self,
        cx: &Context<'_>,
        addon_id: jobtree_protocol::AddonId,
        job_type: jobtree_protocol::JobType,
    ) -> LeaseRecord {
        let ttl_sec = cx.rules.lease_ttl_sec;
        LeaseRecord {
            id: self.lease_id,
            revision: 1,
            addon_id,
            job_type,
            node_id: self.node_id,
            instance_id: self.instance_id,
            priority: jobtree_protocol::Priority::Normal,
            constraints: Constraints::default(),
            expected_duration_sec: None,
            own_cost: 0,
            ttl_sec,
            granted_at: cx.wall(),
            renewed_at: cx.wall(),
            renewals: 0,
            expires_at: crate::lease::expiry(cx.wall(), ttl_sec),
            jobs: Vec::new(),
            named_current: None,
            current_since: cx.wall(),
            pids: self.pids,
            end: None,
            ended_at: None,
            end_reason: None,
        }
    }
}
