//! The steps between stages: all there are, in one table, and the one function that takes one.
//!
//! Besides the state itself a step settles what belongs to a [`Stage`]: no reservation outside of `Reserved`, no lease
//! outside of `Held` and `Running`, an end in ended stages only.

use std::sync::Arc;

use jiff::Timestamp;
use jobtree_protocol::{Event, EventKind};

use super::{Changes, Context};
use crate::record::{JobRecord, LeaseRecord, Stage};

/// A way from one stage to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A place is reserved.
    Reserve,
    /// A worker gets a lease for it, and begins another job of the lease first.
    Hold,
    /// A worker gets a lease for it and begins it at once.
    Start,
    /// Its worker begins it.
    Begin,
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
///
/// A run whose begin was not reported by itself begins and ends by one step: what ends a `Running` job ends a `Held` one.
const fn leads_to(from: Stage, step: Step) -> Option<Stage> {
    use Stage::{Canceled, Done, Failed, Held, Reserved, Running, Waiting};
    match (from, step) {
        (Waiting, Step::Reserve) => Some(Reserved),
        (Waiting | Reserved, Step::Hold) => Some(Held),
        (Waiting | Reserved, Step::Start) | (Held, Step::Begin) => Some(Running),
        (Reserved | Held | Running, Step::Return)
        | (Held | Running, Step::Rescue | Step::Retry) => Some(Waiting),
        (Held | Running, Step::Finish) => Some(Done),
        (Waiting | Held | Running, Step::Fail) => Some(Failed),
        (Waiting | Reserved | Held | Running, Step::Cancel) => Some(Canceled),
        (Failed | Canceled, Step::Redrive) => Some(Waiting),
        (Waiting | Reserved | Held | Running | Done | Failed | Canceled, _) => None,
    }
}

/// Whether there is such a step.
pub(super) const fn allows(from: Stage, step: Step) -> bool {
    leads_to(from, step).is_some()
}

/// The job after a step. The caller has checked that there is one, and told its own error if not. A step to `Held` or
/// `Running` from a stage without a lease is completed by the caller, who names the lease.
pub(super) fn after(cx: &Context<'_>, job: &JobRecord, step: Step) -> JobRecord {
    let from = job.stage();
    let to = leads_to(from, step).unwrap_or_else(|| panic!("{step:?} from {from:?}"));
    let mut next = touched(job);
    next.state = to.state();
    if to != Stage::Reserved {
        next.reservation = None;
    }
    if !to.is_held() {
        next.lease_id = None;
        next.lease_position = 0;
    }
    match to {
        Stage::Waiting => {
            if matches!(step, Step::Retry | Step::Redrive) {
                next.enqueued_at = cx.wall();
            }
            next.ended_at = None;
            next.progress = None;
        }
        Stage::Done | Stage::Failed | Stage::Canceled => {
            next.ended_at = Some(cx.wall());
            next.not_before = None;
            next.waiting_for.clear();
        }
        Stage::Running => next.metrics.clear(),
        Stage::Reserved | Stage::Held => {}
    }
    next.denial = None;
    next
}

/// The job after its worker began it at `at`.
pub(super) fn begun(cx: &Context<'_>, job: &JobRecord, at: Timestamp) -> JobRecord {
    let mut next = after(cx, job, Step::Begin);
    next.started_at = Some(at);
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
    /// None yet, with room for those of so many jobs that are claimed: two events each, and one of their lease.
    pub(super) fn for_jobs(count: usize) -> Self {
        Self {
            jobs: Vec::with_capacity(count),
            events: Vec::with_capacity(2 * count + 1),
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
