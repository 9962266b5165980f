//! The audit trail tells the whole story: from a job's events alone one gets where it is and what was counted.
//!
//! For tests, and for whoever wants to check a store: a job's record must be what its events say, and each event must be
//! possible after those before it.

use std::fmt;

use jobtree_protocol::{Event, EventKind, JobState, LeaseId};

use crate::record::JobRecord;

/// What a job's events say of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Story {
    /// Where it is; none before its submission.
    pub state: Option<JobState>,
    /// Runs that ended by an answer or by a limit, since the last redrive.
    pub attempts: u32,
    /// Rescues since the last redrive.
    pub rescues: u32,
    /// How often it was redriven.
    pub redrives: u32,
    /// The lease it is held under: claimed, or running.
    pub lease_id: Option<LeaseId>,
    /// Somebody wants it to stop, or wanted to.
    pub cancel_requested: bool,
    /// It took too many workers with it.
    pub quarantined: bool,
    /// The record's revision after the last event.
    pub revision: u64,
}

/// An event that cannot be, after those before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Impossible {
    /// The event.
    pub event: Event,
    /// What the job was before it.
    pub before: Story,
    /// Why.
    pub why: &'static str,
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let job = self
            .event
            .job_id
            .map_or_else(|| "no job".into(), |id| id.to_string());
        let state = self.before.state.map_or("unknown", JobState::as_str);
        write!(
            f,
            "{} of {job}, which was {state}: {}; the audit trail has a gap",
            self.event.kind, self.why
        )
    }
}

impl std::error::Error for Impossible {}

impl Story {
    /// Reads the events of one job, in order. Those of other jobs and of leases as a whole are not for it.
    ///
    /// # Errors
    /// The first event that cannot be.
    pub fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<Self, Box<Impossible>> {
        let mut story = Self::default();
        for event in events {
            story = story.after(event)?;
        }
        Ok(story)
    }

    /// The story with one more event.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn after(&self, event: &Event) -> Result<Self, Box<Impossible>> {
        let impossible = |why| {
            Err(Box::new(Impossible {
                event: event.clone(),
                before: self.clone(),
                why,
            }))
        };
        let mut next = self.clone();
        let Some(revision) = event.revision.filter(|revision| *revision >= self.revision) else {
            return impossible("its revision is older than that of the event before it");
        };
        next.revision = revision;
        if !self.allows(event.kind) {
            return impossible("there is no such step from this state");
        }
        let state = event.kind.leads_to().or(self.state);
        next.state = state.or(Some(JobState::Queued));
        match event.kind {
            EventKind::Running => {
                if event.attempt != Some(self.attempts + 1) {
                    return impossible("it is not the next attempt");
                }
                if self.is_held() && event.lease_id != self.lease_id {
                    return impossible("another lease holds it");
                }
                next.lease_id = event.lease_id;
            }
            EventKind::Dispatching => next.lease_id = event.lease_id,
            EventKind::Done
            | EventKind::Failed
            | EventKind::Canceled
            | EventKind::RetryScheduled
            | EventKind::Timeout => {
                if let Some(attempt) = event.attempt {
                    if attempt != self.attempts + 1 || event.lease_id != self.lease_id {
                        return impossible("it ends another run than the one that was on");
                    }
                    next.attempts = attempt;
                }
            }
            EventKind::LeaseExpired => {
                if event.lease_id != self.lease_id {
                    return impossible("it is not the lease that the job ran under");
                }
                next.rescues += 1;
            }
            EventKind::Quarantined => next.quarantined = true,
            EventKind::CancelRequested => next.cancel_requested = true,
            EventKind::Redriven => {
                (next.attempts, next.rescues, next.redrives) = (0, 0, self.redrives + 1);
                (next.cancel_requested, next.quarantined) = (false, false);
            }
            _ => {}
        }
        if !next.state.is_some_and(JobState::holds_capacity) {
            next.lease_id = None;
        }
        Ok(next)
    }

    /// Whether a worker has it, begun or not.
    fn is_held(&self) -> bool {
        self.lease_id.is_some()
    }

    fn allows(&self, kind: EventKind) -> bool {
        use JobState::{Dispatching, Queued, Running};
        let Some(state) = self.state else {
            return kind == EventKind::Submitted;
        };
        let is_held = self.is_held();
        match kind {
            EventKind::Submitted => false,
            // In the trail of a reservation it stands before DISPATCHING, in that of a claim before that or RUNNING.
            EventKind::Admitted | EventKind::Denied | EventKind::DeadlineAtRisk => state == Queued,
            // A reservation; or a worker gets a job that waits or is reserved.
            EventKind::Dispatching => state == Queued || (state == Dispatching && !is_held),
            EventKind::Hastened | EventKind::Edited | EventKind::DependencyEnded => state == Queued,
            EventKind::Running => state.is_waiting(),
            // A run whose begin was not told by itself ends from DISPATCHING.
            EventKind::Done | EventKind::RetryScheduled | EventKind::CancelRequested => is_held,
            EventKind::LeaseExpired | EventKind::Progress | EventKind::Log => is_held,
            // The run; an addon's or type's pause is of no job.
            EventKind::Paused | EventKind::Resumed => state == Running,
            EventKind::Timeout => matches!(state, Queued | Running),
            EventKind::Failed => state == Queued || is_held,
            EventKind::Quarantined => state == Queued,
            EventKind::Canceled => state.can_be_cancelled(),
            EventKind::Returned => state.holds_capacity(),
            EventKind::Redriven => state.can_be_redriven(),
            EventKind::LeaseGranted
            | EventKind::LeaseReleased
            | EventKind::LeaseRevoked
            | EventKind::LoadState => false,
        }
    }

    /// Whether this is what the record says, too. Only the revision may be behind: progress has no event that is kept.
    pub fn agrees(&self, job: &JobRecord) -> bool {
        self.state == Some(job.state)
            && self.attempts == job.attempts
            && self.rescues == job.rescues
            && self.redrives == job.redrives
            && self.lease_id == job.lease_id
            && self.cancel_requested == job.cancel_requested_at.is_some()
            && self.quarantined == job.quarantined
            && self.revision <= job.revision
    }
}
