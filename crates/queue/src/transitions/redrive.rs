//! How a job comes back: dead letters queued again.

use jobtree_protocol::{EventKind, JobId, JobState, OnDependencyFailure};

use super::state::{Step, after, allows, job_event};
use super::submit::look_up;
use super::{Changes, Context, Done, Outcome, TransitionError};
use crate::record::JobRecord;

/// What the store knows that bears on bringing a job back.
#[derive(Clone, Copy, Debug)]
pub struct Redrive<'a> {
    /// For each of `depends_on`, its state now. One whose history was pruned counts as DONE: it must have ended, and
    /// nobody can tell how.
    pub dependencies: &'a [(JobId, Option<JobState>)],
    /// The job of the same addon, type and unique key that has not ended.
    pub same_unique: Option<JobId>,
    /// Why, in words.
    pub reason: Option<&'a str>,
}

/// Queues a job again that FAILED or was CANCELED, under its old id, with attempts and rescues counted anew. It waits
/// again for those of its dependencies that came back themselves; bringing many back in the order of their ids brings
/// each back after what it depends on. Jobs that were canceled with it are not brought back by this.
///
/// # Errors
/// If it has not ended, or ended well; if one that it depends on has failed; if another job has its unique key.
pub fn redrive(cx: &Context<'_>, job: &JobRecord, command: Redrive<'_>) -> Outcome<JobState> {
    if !allows(job.stage(), Step::Redrive) {
        if job.redrives > 0 && !job.state.is_ended() {
            return Ok(Done::repeated(job.state));
        }
        let advice = match job.state {
            JobState::Done => "it ended well; submit it again to run it again",
            _ => "it has not ended; cancel it first, or wait",
        };
        return Err(TransitionError::WrongState {
            job_id: job.id,
            state: job.state,
            command: "a redrive",
            advice,
        });
    }
    if let Some(other) = command.same_unique.filter(|other| *other != job.id) {
        return Err(TransitionError::UniqueConflict {
            job_id: job.id,
            other,
        });
    }
    let known: Vec<_> = command
        .dependencies
        .iter()
        .map(|(id, state)| (*id, state.or(Some(JobState::Done))))
        .collect();
    let found = look_up(&job.intent.depends_on, &known)?;
    let failed = found
        .iter()
        .find(|(_, state)| state.is_ended() && *state != JobState::Done);
    if let Some((dependency, state)) = failed
        && job.intent.on_dependency_failure == OnDependencyFailure::Cancel
    {
        return Err(TransitionError::DependencyFailed {
            job_id: job.id,
            dependency: *dependency,
            state: *state,
        });
    }
    let mut next = after(cx, job, Step::Redrive);
    next.waiting_for = found
        .iter()
        .filter(|(_, state)| !state.is_ended())
        .map(|(id, _)| *id)
        .collect();
    next.attempts = 0;
    next.rescues = 0;
    next.redrives += 1;
    next.quarantined = false;
    next.at_risk = false;
    next.cancel_requested_at = None;
    next.result = None;
    let mut event = job_event(cx, &next, EventKind::Redriven);
    event.reason = command.reason.map(str::to_owned);
    let mut changes = Changes {
        events: vec![event],
        ..Changes::default()
    };
    changes.put(next);
    Ok(Done::new(JobState::Queued, changes))
}
