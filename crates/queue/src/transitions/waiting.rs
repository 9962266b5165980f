//! What is noted about a job that waits, or changed of it, while it stays where it is.

use std::sync::Arc;

use jobtree_protocol::{EditRequest, EventKind, Intent, JobState};

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

/// Changes priority, start, deadline or tags of a job that waits. Its place among others of its class stays: it waits since it
/// was submitted.
///
/// # Errors
/// If the job does not wait, or would start behind its deadline.
pub fn edit(cx: &Context<'_>, job: &JobRecord, request: &EditRequest) -> Outcome<()> {
    if job.state != JobState::Queued {
        let advice = match job.state.is_ended() {
            true => "it has ended; submit another one",
            false => {
                "it was started; cancel it and submit another one, or edit it when it waits again"
            }
        };
        return Err(TransitionError::WrongState {
            job_id: job.id,
            state: job.state,
            command: "an edit",
            advice,
        });
    }
    let intent = request
        .applied_to(&job.intent)
        .map_err(|wrong| TransitionError::Invalid { wrong })?;
    let not_before = match request.earliest_start_at {
        Some(start) => start,
        None => job.not_before,
    };
    if intent == *job.intent && not_before == job.not_before {
        return Ok(Done::repeated(()));
    }
    let mut next = touched(job);
    if intent.deadline_at != job.intent.deadline_at {
        next.at_risk = false;
    }
    let mut event = job_event(cx, &next, EventKind::Edited);
    event.reason = Some(differences(&job.intent, &intent));
    next.not_before = not_before;
    next.intent = Arc::new(intent);
    // The reason why it was not admitted may be gone.
    next.denial = None;
    let mut changes = Changes {
        events: vec![event],
        ..Changes::default()
    };
    changes.put(next);
    Ok(Done::new((), changes))
}

/// Tells what an edit changed.
fn differences(before: &Intent, after: &Intent) -> String {
    let time = |time: Option<jiff::Timestamp>| time.map_or("none".into(), |time| time.to_string());
    let mut told = Vec::new();
    if before.priority != after.priority {
        told.push(format!("priority {}", after.priority.as_str()));
    }
    if before.earliest_start_at != after.earliest_start_at {
        told.push(format!("earliest start {}", time(after.earliest_start_at)));
    }
    if before.deadline_at != after.deadline_at {
        told.push(format!("deadline {}", time(after.deadline_at)));
    }
    if before.tags != after.tags {
        told.push(format!("tags {}", after.tags.join(", ")));
    }
    match told.is_empty() {
        // A wait before another attempt is over by the edit.
        true => "the wait for a time is over".into(),
        false => told.join("; "),
    }
}
