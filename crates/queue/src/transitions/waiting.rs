//! What is noted about a job that waits, and stays where it is.

use jobtree_protocol::{EventKind, JobState};

use super::state::{job_event, touched};
use super::{Changes, Context, Done, Outcome, TransitionError};
use crate::record::{Denial, JobRecord};

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
    next.denial = Some(Box::new(Denial {
        code: code.into(),
        reason: reason.into(),
        since: cx.wall(),
    }));
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

/// Ends a wait for a start time or a retry, by hand.
///
/// # Errors
/// If the job does not wait.
pub fn hasten(cx: &Context<'_>, job: &JobRecord) -> Outcome<()> {
    waiting(job, "an earlier start")?;
    if job.not_before.is_none_or(|start| start <= cx.wall()) {
        return Ok(Done::repeated(()));
    }
    let mut next = touched(job);
    next.not_before = None;
    next.enqueued_at = cx.wall();
    let mut changes = Changes {
        events: vec![job_event(cx, &next, EventKind::Hastened)],
        ..Changes::default()
    };
    changes.put(next);
    Ok(Done::new((), changes))
}
