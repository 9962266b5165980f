//! How a job begins: submissions, their repetitions, and what they wait for.

use std::sync::Arc;

use jobtree_protocol::{
    EventKind, Intent, JobId, JobState, OnDependencyFailure, Start, SubmitAnswer,
};

use super::state::{Step, after, job_event, touched};
use super::{Changes, Context, Done, Outcome, Submit, TransitionError};
use crate::record::{JobRecord, KeyRecord};

/// Takes a new job, unless it is there already.
///
/// In this order: an idempotency key that was used decides alone (same body: the first answer; other body: refused),
/// then an id that was used, then a unique job that has not ended, which is the answer then.
///
/// A job waits for those of `depends_on` that have not ended. If one has ended other than DONE, the submitter's choice
/// ([`OnDependencyFailure`]) cancels the new job at once, or counts it as ended.
pub fn submit(cx: &Context<'_>, command: Submit<'_>) -> Outcome<SubmitAnswer> {
    let mut changes = Changes::for_jobs(1);
    let answer = submit_among(cx, command, &mut changes)?;
    Ok(Done {
        answer,
        repeated: changes.is_empty(),
        changes,
    })
}

/// As [`submit`], for one of many: what it changes is added to what those before it did. One that is refused adds
/// nothing.
///
/// # Errors
/// As those of [`submit`].
pub fn submit_among(
    cx: &Context<'_>,
    command: Submit<'_>,
    changes: &mut Changes,
) -> Result<SubmitAnswer, TransitionError> {
    let Submit {
        id,
        intent,
        same_id,
        same_key,
        same_unique,
        dependencies,
    } = command;
    let duplicate = |job_id, state| {
        Ok(SubmitAnswer {
            job_id,
            state,
            duplicate: true,
        })
    };
    if let Some(used) = same_key {
        if used.fingerprint != intent.fingerprint() {
            return Err(TransitionError::KeyConflict {
                key: used.key.clone(),
                job_id: used.job_id,
            });
        }
        return duplicate(used.job_id, used.state);
    }
    if let Some(used) = same_id {
        let same = used.intent.fingerprint() == intent.fingerprint()
            && used.intent.idempotency_key == intent.idempotency_key;
        return if same {
            duplicate(id, used.state)
        } else {
            Err(TransitionError::IdConflict { job_id: id })
        };
    }
    if let Some((job_id, state)) = same_unique {
        // The key stands for this answer from now on, also when that job has ended.
        changes.keys.extend(key_of(cx, &intent, job_id, state));
        return duplicate(job_id, state);
    }

    let found = look_up(&intent.depends_on, dependencies)?;
    let waiting_for = found
        .iter()
        .filter(|(_, state)| !state.is_ended())
        .map(|(id, _)| *id)
        .collect();
    let failed = found
        .iter()
        .find(|(_, state)| state.is_ended() && *state != JobState::Done);
    let failed = failed.filter(|_| intent.on_dependency_failure == OnDependencyFailure::Cancel);

    let mut job = new_job(cx, id, intent, waiting_for);
    let first_event = changes.events.len();
    let mut submitted = job_event(cx, &job, EventKind::Submitted);
    if job.intent.start == Start::IgnoreLoad {
        submitted.reason = Some("starts whatever the load is, also in PANIC".to_owned());
    }
    changes.events.push(submitted);
    if let Some((dependency, state)) = failed {
        job = canceled_by(cx, &job, *dependency, *state, changes);
        // Both happen in the write that creates it.
        job.revision = 1;
    }
    changes.keys.extend(key_of(cx, &job.intent, id, job.state));
    for event in &mut changes.events[first_event..] {
        event.revision = Some(1);
    }
    let answer = SubmitAnswer {
        job_id: id,
        state: job.state,
        duplicate: false,
    };
    changes.put(job);
    Ok(answer)
}

/// Tells a waiting job that one that it waits for has ended, and how.
///
/// # Errors
/// If the job does not wait at all.
pub fn dependency_ended(
    cx: &Context<'_>,
    job: &JobRecord,
    ended: JobId,
    how: JobState,
) -> Outcome<JobState> {
    if job.state != JobState::Queued || !how.is_ended() {
        return Err(TransitionError::NotDue {
            what: "the end of a dependency",
        });
    }
    if !job.waiting_for.contains(&ended) {
        return Ok(Done::repeated(job.state));
    }
    let mut changes = Changes::default();
    let next = if how != JobState::Done
        && job.intent.on_dependency_failure == OnDependencyFailure::Cancel
    {
        canceled_by(cx, job, ended, how, &mut changes)
    } else {
        let mut next = touched(job);
        next.waiting_for.retain(|id| *id != ended);
        if next.waiting_for.is_empty() {
            next.enqueued_at = cx.wall();
        }
        let mut event = job_event(cx, &next, EventKind::DependencyEnded);
        event.reason = Some(format!(
            "job {ended} is {how}; {} more to wait for",
            next.waiting_for.len()
        ));
        changes.events.push(event);
        next
    };
    let state = next.state;
    changes.put(next);
    Ok(Done::new(state, changes))
}

/// What is remembered of the intent's key, if it has one.
fn key_of(cx: &Context<'_>, intent: &Intent, job_id: JobId, state: JobState) -> Option<KeyRecord> {
    let key = intent.idempotency_key.clone()?;
    Some(KeyRecord {
        addon_id: intent.addon_id.clone(),
        key,
        fingerprint: intent.fingerprint(),
        job_id,
        state,
        created_at: cx.wall(),
    })
}

fn canceled_by(
    cx: &Context<'_>,
    job: &JobRecord,
    other: JobId,
    how: JobState,
    changes: &mut Changes,
) -> JobRecord {
    let mut next = after(cx, job, Step::Cancel);
    let reason = format!("job {other}, which it depends on, is {how}");
    next.last_error = Some(reason.clone());
    let mut event = job_event(cx, &next, EventKind::Canceled);
    event.reason = Some(reason);
    changes.events.push(event);
    next
}

/// The state of each dependency; an error names all that do not exist.
pub(super) fn look_up(
    depends_on: &[JobId],
    known: &[(JobId, Option<JobState>)],
) -> Result<Vec<(JobId, JobState)>, TransitionError> {
    let mut found = Vec::with_capacity(depends_on.len());
    let mut unknown = Vec::new();
    for (place, id) in depends_on.iter().enumerate() {
        match known.iter().find(|(known, _)| known == id) {
            Some((_, Some(state))) => found.push((*id, *state)),
            Some((_, None)) | None => unknown.push((place, *id)),
        }
    }
    if unknown.is_empty() {
        Ok(found)
    } else {
        Err(TransitionError::UnknownDependencies { unknown })
    }
}

fn new_job(cx: &Context<'_>, id: JobId, intent: Intent, waiting_for: Vec<JobId>) -> JobRecord {
    JobRecord {
        id,
        revision: 1,
        created_at: cx.wall(),
        enqueued_at: cx.wall(),
        state: JobState::Queued,
        attempts: 0,
        rescues: 0,
        redrives: 0,
        not_before: intent.earliest_start_at,
        waiting_for,
        reservation: None,
        lease_id: None,
        lease_position: 0,
        node_id: None,
        started_at: None,
        ended_at: None,
        cancel_requested_at: None,
        quarantined: false,
        at_risk: false,
        denial: None,
        progress: None,
        metrics: std::collections::BTreeMap::new(),
        result: None,
        last_error: None,
        completions: Vec::new(),
        intent: Arc::new(intent),
    }
}
