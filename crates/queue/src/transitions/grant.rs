//! New leases: for jobs, and of capacity alone.

use jobtree_protocol::{
    AddonId, Constraints, Event, EventKind, InstanceId, JobType, LeaseId, NodeId, Priority,
    ProcessOrigin,
};

use super::state::{Step, after, job_event, lease_event};
use super::{Abilities, Admit, Changes, Context, Done, Outcome, TransitionError};
use crate::record::{JobRecord, LeaseRecord, LeasedJob};

/// Grants a lease of capacity alone.
///
/// `existing` is the lease with the id of the command, or the live one that answers the same request: that is the answer.
///
/// # Errors
/// If the request's key was used for other units or another type.
pub fn admit(
    cx: &Context<'_>,
    existing: Option<&LeaseRecord>,
    command: Admit,
) -> Outcome<LeaseRecord> {
    if let Some(lease) = existing {
        let is_for_this = lease.is_for(&command.job_type, command.cost_units);
        if lease.id != command.lease_id && !is_for_this {
            return Err(TransitionError::RequestConflict {
                key: command.request_key.unwrap_or_default(),
                lease_id: lease.id,
            });
        }
        return Ok(Done::repeated(lease.clone()));
    }
    let granted = Granted {
        lease_id: command.lease_id,
        node_id: command.node_id,
        instance_id: command.instance_id,
        pids: command.pids,
        process_origin: command.process_origin,
        worker: Abilities::default(),
    };
    let lease = LeaseRecord {
        priority: command.priority,
        constraints: command.constraints,
        expected_duration_sec: command.expected_duration_sec,
        own_cost: command.cost_units,
        request_key: command.request_key,
        ..granted.bare(cx, command.addon_id, command.job_type)
    };
    let event = lease_event(cx, &lease, EventKind::LeaseGranted, Some(command.reason));
    let changes = Changes {
        leases: vec![lease.clone()],
        events: vec![event],
        ..Changes::default()
    };
    Ok(Done::new(lease, changes))
}

/// The job under a lease: begun with the grant ([`Step::Start`]), or held for its turn ([`Step::Hold`]).
pub(super) fn leased(
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
    if next.has_begun() {
        next.started_at = Some(cx.wall());
    }
    // If it comes back through no fault of its own, it has waited since it could start, not since it was written.
    next.enqueued_at = job.waiting_since();
    next.not_before = None;
    next
}

/// The event of a job that passed admission; the reason tells the numbers.
pub(super) fn admitted_event(cx: &Context<'_>, job: &JobRecord, reason: String) -> Event {
    let mut event = job_event(cx, job, EventKind::Admitted);
    event.node_id = job.node_id.clone();
    event.reason = Some(reason);
    event
}

/// The event of a job that a worker got: that it was begun, or that it is held.
pub(super) fn leased_event(cx: &Context<'_>, job: &JobRecord) -> Event {
    if job.has_begun() {
        return running_event(cx, job);
    }
    let mut event = job_event(cx, job, EventKind::Dispatching);
    event.node_id = job.node_id.clone();
    event
}

pub(super) fn running_event(cx: &Context<'_>, job: &JobRecord) -> Event {
    let mut event = job_event(cx, job, EventKind::Running);
    event.node_id = job.node_id.clone();
    event.attempt = Some(job.attempts + 1);
    event
}

pub(super) fn either(a: Constraints, b: Constraints) -> Constraints {
    Constraints {
        cpu_heavy: a.cpu_heavy | b.cpu_heavy,
        disk_write_heavy: a.disk_write_heavy | b.disk_write_heavy,
        network_heavy: a.network_heavy | b.network_heavy,
        memory_heavy: a.memory_heavy | b.memory_heavy,
    }
}

/// What is new about a new lease.
pub(super) struct Granted {
    pub(super) lease_id: LeaseId,
    pub(super) node_id: NodeId,
    pub(super) instance_id: Option<InstanceId>,
    pub(super) pids: Vec<u32>,
    pub(super) process_origin: Option<Box<ProcessOrigin>>,
    pub(super) worker: Abilities,
}

impl Granted {
    /// A lease for jobs, of which there is one at least. The first has begun if the worker begins it with the grant.
    pub(super) fn of(self, cx: &Context<'_>, jobs: &[&JobRecord]) -> LeaseRecord {
        let intents = || jobs.iter().map(|job| &job.intent);
        let first = &jobs[0].intent;
        let together = |sum: u32, one: Option<u32>| one.map(|one| sum.saturating_add(one));
        let expected_duration_sec = intents()
            .map(|intent| intent.expected_duration_sec)
            .try_fold(0, together);
        let begins = self.worker.begins_first();
        let leased = jobs.iter().zip(0..).map(|(job, position)| LeasedJob {
            position,
            begun: begins && position == 0,
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
            begun: begins,
            ..self.bare(cx, first.addon_id.clone(), first.job_type.clone())
        }
    }

    /// A lease for nothing yet.
    fn bare(self, cx: &Context<'_>, addon_id: AddonId, job_type: JobType) -> LeaseRecord {
        let ttl_sec = cx.rules.lease_ttl_sec;
        LeaseRecord {
            id: self.lease_id,
            revision: 1,
            addon_id,
            job_type,
            node_id: self.node_id,
            instance_id: self.instance_id,
            request_key: None,
            priority: Priority::Normal,
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
            reports_begin: self.worker.reports_begin,
            returns_unbegun: self.worker.returns_unbegun && self.worker.reports_begin,
            begun: false,
            in_process: self.worker.in_process,
            asked_back: Vec::new(),
            pids: self.pids,
            process_origin: self.process_origin,
            end: None,
            ended_at: None,
            end_reason: None,
        }
    }
}
