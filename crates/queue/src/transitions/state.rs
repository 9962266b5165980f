//! The steps between states: all there are, in one table, and the one function that takes one.
//!
//! Besides the state itself a step settles what belongs to a state: no reservation outside of DISPATCHING, no lease
//! outside of RUNNING, an end in ended states only.

use std::sync::Arc;

use jobtree_protocol::{Event, EventKind, JobState};

use super::{Changes, Context};
use crate::record::{JobRecord, LeaseRecord};

/// A way from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A place is reserved.
    Reserve,
    /// The place becomes a lease.
    TakeUp,
    /// A lease is granted without a place before.
    Claim,
    /// It waits again, and nothing was counted.
    Return,
    /// It waits again, after a crash of its worker.
    Rescue,
    /// It waits again, after a run that failed.
    Retry,
    /// It ends well.
    Finish,
    /// It ends badly.
    Fail,
    /// Nobody wants it any more.
    Cancel,
    /// It comes back from the end.
    Redrive,
}

/// The table: where a step leads, or `None` if there is no such step from here.
const fn leads_to(from: JobState, step: Step) -> Option<JobState> {
    use JobState::{Canceled, Dispatching, Done, Failed, Queued, Running};
    match (from, step) {
        (Queued, Step::Reserve) => Some(Dispatching),
        (Queued, Step::Claim) | (Dispatching, Step::TakeUp) => Some(Running),
        (Dispatching | Running, Step::Return) | (Running, Step::Rescue | Step::Retry) => {
            Some(Queued)
        }
        (Running, Step::Finish) => Some(Done),
        (Queued | Running, Step::Fail) => Some(Failed),
        (Queued | Dispatching | Running, Step::Cancel) => Some(Canceled),
        (Failed | Canceled, Step::Redrive) => Some(Queued),
        (Queued | Dispatching | Running | Done | Failed | Canceled, _) => None,
    }
}

/// Whether there is such a step.
pub(super) const fn allows(from: JobState, step: Step) -> bool {
    leads_to(from, step).is_some()
}

/// The job after a step. The caller has checked that there is one, and told its own error if not.
pub(super) fn after(cx: &Context<'_>, job: &JobRecord, step: Step) -> JobRecord {
    let to = leads_to(job.state, step).unwrap_or_else(|| panic!("{step:?} from {}", job.state));
    let mut next = touched(job);
    next.state = to;
    if to != JobState::Dispatching {
        next.reservation = None;
    }
    if to != JobState::Running {
        next.lease_id = None;
        next.lease_position = 0;
    }
    match to {
        JobState::Queued => {
            if matches!(step, Step::Retry | Step::Redrive) {
                next.enqueued_at = cx.wall();
            }
            next.ended_at = None;
            next.progress = None;
        }
        JobState::Done | JobState::Failed | JobState::Canceled => {
            next.ended_at = Some(cx.wall());
            next.not_before = None;
            next.waiting_for.clear();
        }
        JobState::Dispatching | JobState::Running => {}
    }
    next.denial = None;
    next
}

/// The job in the same state, as the next revision of its record.
pub(super) fn touched(job: &JobRecord) -> JobRecord {
    let mut next = job.clone();
    next.revision += 1;
    next
}

/// The lease, as the next revision of its record.
pub(super) fn touched_lease(lease: &LeaseRecord) -> LeaseRecord {
    LeaseRecord {
        revision: lease.revision + 1,
        ..lease.clone()
    }
}

/// An event of a job, as the job is afterwards.
pub(super) fn job_event(cx: &Context<'_>, job: &JobRecord, kind: EventKind) -> Event {
    Event {
        job_id: Some(job.id),
        at: cx.wall(),
        kind,
        state: Some(job.state),
        lease_id: job.lease_id,
        node_id: None,
        attempt: None,
        revision: Some(job.revision),
        reason: None,
    }
}

/// An event of a lease as a whole.
pub(super) fn lease_event(
    cx: &Context<'_>,
    lease: &LeaseRecord,
    kind: EventKind,
    reason: Option<String>,
) -> Event {
    Event {
        job_id: None,
        at: cx.wall(),
        kind,
        state: None,
        lease_id: Some(lease.id),
        node_id: Some(lease.node_id.clone()),
        attempt: None,
        revision: None,
        reason,
    }
}

impl Changes {
    /// None yet, with room for those of so many jobs: an event each, and one of their lease.
    pub(super) fn for_jobs(count: usize) -> Self {
        Self {
            jobs: Vec::with_capacity(count),
            events: Vec::with_capacity(count + 1),
            ..Self::default()
        }
    }

    /// Writes a job, and notes if it has ended.
    pub(super) fn put(&mut self, job: JobRecord) -> &Arc<JobRecord> {
        if job.state.is_ended() {
            self.ended.push((job.id, job.state));
        }
        self.jobs.push_mut(Arc::new(job))
    }
}
