//! How a job begins: submissions, their repetitions, and what they wait for.

use std::sync::Arc;

use jobtree_protocol::{EventKind, JobId, JobState, OnDependencyFailure, SubmitAnswer};

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
    let Submit {
        id,
        intent,
        same_id,
        same_key,
        same_unique,
        dependencies,
    } = command;
    let duplicate = |job_id, state| {
        Ok(Done::repeated(SubmitAnswer {
            job_id,
            state,
            duplicate: true,
        }))
    };
    let fingerprint = (same_key.is_some() || same_id.is_some() || intent.idempotency_key.is_some())
        .then(|| intent.fingerprint());
    if let Some(used) = same_key {
        if Some(used.fingerprint) != fingerprint {
            return Err(TransitionError::KeyConflict {
                key: used.key.clone(),
                job_id: used.job_id,
            });
        }
        return duplicate(used.job_id, used.state);
    }
    if let Some(used) = same_id {
        let same = Some(used.intent.fingerprint()) == fingerprint
            && used.intent.idempotency_key == intent.idempotency_key;
        return if same {
            duplicate(id, used.state)
        } else {
            Err(TransitionError::IdConflict { job_id: id })
        };
    }
    if let Some((other, state)) = same_unique {
        return duplicate(other, state);
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
    let mut changes = Changes::default();
    changes
        .events
        .push(job_event(cx, &job, EventKind::Submitted));
    if let Some((dependency, state)) = failed {
        job = canceled_by(cx, &job, *dependency, *state, &mut changes);
        // Both happen in the write that creates it.
        job.revision = 1;
    }
    if let Some(key) = job.intent.idempotency_key.clone() {
        changes.keys.push(KeyRecord {
            addon_id: job.intent.addon_id.clone(),
            key,
            fingerprint: fingerprint.unwrap_or_else(|| job.intent.fingerprint()),
            job_id: id,
            state: job.state,
            created_at: cx.wall(),
        });
    }
    for event in &mut changes.events {
        event.revision = Some(1);
    }
    let answer = SubmitAnswer {
        job_id: id,
        state: job.state,
        duplicate: false,
    };
    changes.put(job);
    Ok(Done::new(answer, changes))
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

fn new_job(
    cx: &Context<'_>,
    id: JobId,
    intent: jobtree_protocol::Intent,
    waiting_for: Vec<JobId>,
) -> JobRecord {
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
