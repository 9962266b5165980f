//! How a job ends: by its worker's answer, by taking too long, by waiting too long, by somebody's wish.

use std::sync::Arc;

use jobtree_protocol::{
    CancelRequest, CompleteAnswer, CompleteRequest, CompleteStatus, EventKind, JobId, JobState,
    Late, LeaseId,
};

use super::begin::{take_in_hand, told_time};
use super::held::{end, give_back, held_jobs};
use super::state::{Step, after, job_event, touched, touched_lease};
use super::{Changes, Context, Done, Outcome, RuntimeProof, TimeOut, TransitionError};
use crate::backoff;
use crate::lease::time_limit;
use crate::now::wall_until;
use crate::record::{Completion, JobRecord, LeaseEnd, LeaseRecord, Stage};

/// Takes a worker's answer.
///
/// DONE ends the job, also if somebody wanted it to stop: it came too late. FAILED ends it, or lets it wait for another
/// attempt if there is one left and the worker does not say that this is final; a job that somebody wanted to stop is
/// CANCELED by it.
///
/// A run that its worker began without a word of it begins and ends by this. The next job of the lease begins with it, if its
/// worker reports no begins, or names it; `record` gives the record of that job.
///
/// `job` may come from the history, and `lease` is the one that the job is held under, if it is.
///
/// # Errors
/// If the job is not held under this lease, and no completion under this lease took effect before. The error names the
/// state.
pub fn complete(
    cx: &Context<'_>,
    job: &JobRecord,
    lease: Option<&LeaseRecord>,
    request: &CompleteRequest,
    record: impl FnOnce(JobId) -> Option<Arc<JobRecord>>,
) -> Outcome<CompleteAnswer> {
    let mut many = complete_many(cx, lease, &[(job, request)], record);
    let (answer, repeated) = many.answers.remove(0)?;
    Ok(Done {
        answer,
        changes: many.changes,
        repeated,
    })
}

/// What [`complete_many`] gave.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletedMany {
    /// For each request its own: the answer and whether it is a repetition, or why it was refused.
    pub answers: Vec<Result<(CompleteAnswer, bool), TransitionError>>,
    /// For all of them together.
    pub changes: Changes,
}

/// Takes a worker's answers for several jobs of one lease, each for itself: one that is refused does not hold up the
/// others. The lease's record is written once.
///
/// Each job may be named once. `lease` is the one that those of the jobs are held under that are. The next job begins as by
/// [`complete`]; `record` gives its record, and if it has none the begin is left to a later call.
pub fn complete_many(
    cx: &Context<'_>,
    lease: Option<&LeaseRecord>,
    requests: &[(&JobRecord, &CompleteRequest)],
    record: impl FnOnce(JobId) -> Option<Arc<JobRecord>>,
) -> CompletedMany {
    let mut changes = Changes::for_jobs(requests.len());
    // By place in the lease.
    let mut left = vec![false; lease.map_or(0, |lease| lease.jobs.len())];
    let answers = requests.iter().map(|(job, request)| {
        if let Some(before) = job.completion(request.lease_id) {
            return repetition(job, before, request);
        }
        let (lease, place) = may_complete(job, lease, request)?;
        if std::mem::replace(&mut left[place], true) {
            return Err(TransitionError::Inconsistent {
                lease_id: request.lease_id,
                job_id: job.id,
            });
        }
        let answer = answer_of_worker(cx, job, lease, request, &mut changes);
        Ok((answer, false))
    });
    let answers = answers.collect();
    if let Some(lease) = lease.filter(|_| left.contains(&true)) {
        let in_hand = requests.iter().rev().find_map(|(_, it)| it.in_hand);
        if let Some(mut next) = leave(cx, lease, &left, &mut changes) {
            let begins = if lease.reports_begin {
                in_hand.map(|it| (it.job_id, told_time(cx, lease, it.began_ms_ago)))
            } else {
                next.in_hand().map(|job| (job.id, cx.wall()))
            };
            begin_next(cx, &mut next, begins, record, &mut changes);
            changes.leases.push(next);
        }
    }
    CompletedMany { answers, changes }
}

/// The answer that was given before, if the same was said before.
fn repetition(
    job: &JobRecord,
    before: &Completion,
    request: &CompleteRequest,
) -> Result<(CompleteAnswer, bool), TransitionError> {
    if before.status != request.status {
        let command = "a second completion that says otherwise";
        let advice = "the first one counts; there is nothing left to do";
        return Err(TransitionError::WrongState {
            job_id: job.id,
            state: job.state,
            command,
            advice,
        });
    }
    let answer = CompleteAnswer {
        job_id: job.id,
        state: before.state,
        next_earliest_start_at: before.not_before,
    };
    Ok((answer, true))
}

/// Begins the job that its worker has taken in hand, if that is one of the lease and has not begun.
fn begin_next(
    cx: &Context<'_>,
    lease: &mut LeaseRecord,
    begins: Option<(JobId, jiff::Timestamp)>,
    record: impl FnOnce(JobId) -> Option<Arc<JobRecord>>,
    changes: &mut Changes,
) {
    let unbegun = |id: JobId| lease.job(id).is_some_and(|job| !job.begun);
    let Some((id, at)) = begins.filter(|(id, _)| unbegun(*id)) else {
        return;
    };
    let Some(job) = record(id) else { return };
    // A record of another lease is left alone: what is there is decided by a later call.
    if let Ok(Some(next)) = take_in_hand(cx, lease, &job, at, changes) {
        changes.put(next);
    }
}

/// The lease, and the job's place in it, if it may.
fn may_complete<'a>(
    job: &JobRecord,
    lease: Option<&'a LeaseRecord>,
    request: &CompleteRequest,
) -> Result<(&'a LeaseRecord, usize), TransitionError> {
    let (job_id, state, lease_id) = (job.id, job.state, request.lease_id);
    let advice = match job.stage() {
        Stage::Held | Stage::Running => {
            if job.lease_id != Some(lease_id) {
                return Err(TransitionError::NotYourLease {
                    job_id,
                    state,
                    given: lease_id,
                });
            }
            let lease = lease.filter(|lease| lease.id == lease_id && lease.is_live());
            return lease
                .and_then(|lease| Some((lease, lease.place_of(job)?)))
                .ok_or(TransitionError::Inconsistent { lease_id, job_id });
        }
        Stage::Waiting => {
            "it runs under no lease: yours was lost, and the next worker that gets it decides; stop"
        }
        Stage::Reserved => {
            "no worker has accepted it yet: accept it with ack or a lease request first"
        }
        Stage::Done | Stage::Failed | Stage::Canceled => {
            "it ended without this call; there is nothing left to do"
        }
    };
    Err(TransitionError::WrongState {
        job_id,
        state,
        command: "complete",
        advice,
    })
}

fn answer_of_worker(
    cx: &Context<'_>,
    job: &JobRecord,
    lease: &LeaseRecord,
    request: &CompleteRequest,
    changes: &mut Changes,
) -> CompleteAnswer {
    let error = request
        .error
        .as_deref()
        .map(|error| clipped(error, cx.rules.error_bytes));
    let mut next = match request.status {
        CompleteStatus::Done => {
            let mut next = after(cx, job, Step::Finish);
            next.attempts += 1;
            next.result = request.result.clone();
            next.last_error = None;
            let mut event = job_event(cx, &next, EventKind::Done);
            event.attempt = Some(next.attempts);
            event.lease_id = Some(request.lease_id);
            changes.events.push(event);
            next
        }
        CompleteStatus::Failed => {
            let error = error.unwrap_or_else(|| "failed without a message".into());
            let mut next = failed_run(cx, job, request.retry, &error, true, changes);
            next.result = request.result.clone();
            next
        }
    };
    if !job.has_begun() {
        // Without a word of its begin it began after the one that was in hand.
        let began = request.began_ms_ago;
        let began = began.map_or(lease.current_since, |ms| told_time(cx, lease, ms));
        next.started_at = Some(began);
        next.metrics.clear();
    }
    if let Some(usage) = &request.usage {
        usage.put_into(&mut next.metrics);
    }
    if next.ended_at.is_some() {
        let ended = told_time(cx, lease, request.ended_ms_ago.unwrap_or(0));
        next.ended_at = Some(next.started_at.map_or(ended, |began| began.max(ended)));
    }
    let completion = Completion {
        lease_id: request.lease_id,
        status: request.status,
        state: next.state,
        not_before: next.not_before,
    };
    if next.completions.len() == JobRecord::COMPLETIONS {
        next.completions.remove(0);
    }
    next.completions.push(completion);
    let answer = CompleteAnswer {
        job_id: job.id,
        state: next.state,
        next_earliest_start_at: next.not_before,
    };
    changes.put(next);
    answer
}

/// The job after a run that failed: canceled, waiting for another attempt, or failed. `counts` is false if an event
/// before this one counted the attempt.
fn failed_run(
    cx: &Context<'_>,
    job: &JobRecord,
    retry: bool,
    error: &str,
    counts: bool,
    changes: &mut Changes,
) -> JobRecord {
    let attempts = job.attempts + 1;
    let (step, kind) = if job.cancel_requested_at.is_some() {
        (Step::Cancel, EventKind::Canceled)
    } else if retry && attempts < job.intent.max_attempts {
        (Step::Retry, EventKind::RetryScheduled)
    } else {
        (Step::Fail, EventKind::Failed)
    };
    // Whoever cancelled it gave a reason, which says more than how its worker stopped it.
    let error = match &job.last_error {
        Some(reason) if step == Step::Cancel => reason.as_str(),
        _ => error,
    };
    let mut next = after(cx, job, step);
    next.attempts = attempts;
    next.last_error = Some(error.to_owned());
    if step == Step::Retry {
        next.not_before = Some(cx.wall_after(backoff::delay(
            &job.intent.backoff,
            attempts,
            job.id,
            cx.roll,
        )));
    }
    let mut event = job_event(cx, &next, kind);
    event.attempt = counts.then_some(attempts);
    event.lease_id = job.lease_id;
    event.reason = Some(error.to_owned());
    changes.events.push(event);
    next
}

/// Takes ended jobs out of their lease, by their places, and gives its next revision, for the caller to put. One that has none
/// left ends too, unless it was granted without jobs; then that is put.
fn leave(
    cx: &Context<'_>,
    lease: &LeaseRecord,
    left: &[bool],
    changes: &mut Changes,
) -> Option<LeaseRecord> {
    if lease.own_cost == 0 && left.iter().all(|left| *left) {
        let reason = "all of its jobs ended";
        end(cx, lease, LeaseEnd::Completed, reason, changes);
        return None;
    }
    let mut next = touched_lease(lease);
    let mut leaves = left.iter();
    next.jobs.retain(|_| leaves.next() == Some(&false));
    next.begun = true;
    let mut asked_back = std::mem::take(&mut next.asked_back);
    asked_back.retain(|id| next.job(*id).is_some());
    next.asked_back = asked_back;
    let in_hand = lease.in_hand();
    if in_hand.is_none_or(|in_hand| next.job(in_hand.id).is_none()) {
        next.named_current = None;
        next.current_since = cx.wall();
    }
    Some(next)
}

/// Ends a run that took longer than `max_runtime_sec`, counted from its begin. A job that has not begun, or whose worker did
/// not say so yet, takes no time. It counts as an attempt that failed. The lease goes with it, since
/// its worker is stuck; the other jobs of the batch wait again, and nothing is counted.
///
/// A completion and this may meet: whichever is written first counts. A worker that reports its times gets
/// [`COMPLETION_GRACE`](crate::lease::COMPLETION_GRACE) after the limit for the completion of a run that ended before it; whoever holds the clock
/// waits for that ([`Deadlines`](crate::lease::Deadlines)), and so does this, by the calendar.
///
/// `jobs` are the records of all jobs of the lease.
///
/// # Errors
/// [`TransitionError::NotDue`] if another job is current by now, or the time has not come.
pub fn time_out(
    cx: &Context<'_>,
    lease: &LeaseRecord,
    jobs: &[Arc<JobRecord>],
    command: TimeOut,
) -> Outcome<JobState> {
    let not_due = TransitionError::NotDue {
        what: "the end of a run",
    };
    let running = lease
        .running()
        .filter(|job| lease.is_live() && job.id == command.job_id);
    let limit = running.and_then(|job| job.max_runtime_sec);
    let Some(limit) = limit.filter(|_| lease.current_since == command.current_since) else {
        return Err(not_due);
    };
    let ran = wall_until(lease.current_since, cx.wall());
    if command.by == RuntimeProof::Wall && ran < time_limit(lease, limit) {
        return Err(not_due);
    }
    let mut changes = Changes::default();
    let reason = format!("job {} ran longer than {limit} s", command.job_id);
    end(cx, lease, LeaseEnd::Revoked, &reason, &mut changes);
    let mut state = JobState::Running;
    for job in held_jobs(lease, jobs)? {
        if job.id != command.job_id {
            give_back(
                cx,
                job,
                lease.id,
                "its batch ended before its turn",
                &mut changes,
            );
            continue;
        }
        let error = format!("ran longer than {limit} s");
        let place = changes.events.len();
        let next = failed_run(cx, job, true, &error, false, &mut changes);
        let mut event = job_event(cx, &next, EventKind::Timeout);
        event.attempt = Some(next.attempts);
        event.lease_id = Some(lease.id);
        event.reason = Some(error);
        changes.events.insert(place, event);
        state = next.state;
        changes.put(next);
    }
    Ok(Done::new(state, changes))
}

/// Fails a job that still waits after its deadline, if its submitter wanted that, and nobody brought it back since: whoever
/// redrives a late job wants it to run.
///
/// # Errors
/// [`TransitionError::NotDue`] if it does not wait, is not late, or runs late by its submitter's choice.
pub fn miss_deadline(cx: &Context<'_>, job: &JobRecord) -> Outcome<JobState> {
    let late = job
        .intent
        .deadline_at
        .is_some_and(|deadline| deadline <= cx.wall());
    let wanted = job.intent.late == Late::Fail && job.redrives == 0;
    if job.state != JobState::Queued || !wanted || !late {
        return Err(TransitionError::NotDue {
            what: "the end of a late job",
        });
    }
    let mut next = after(cx, job, Step::Fail);
    let reason = "its deadline passed while it waited".to_owned();
    next.last_error = Some(reason.clone());
    let mut changes = Changes::default();
    for kind in [EventKind::Timeout, EventKind::Failed] {
        let mut event = job_event(cx, &next, kind);
        event.reason = Some(reason.clone());
        changes.events.push(event);
    }
    changes.put(next);
    Ok(Done::new(JobState::Failed, changes))
}

/// Stops a job, by somebody's wish.
///
/// One that nobody runs is CANCELED at once: also a dispatched one, since without a lease nobody may have begun, and
/// taking it up is refused from now on. One that a worker has, begun or not, is asked to stop by the answer to its worker's
/// next heartbeat (it stands in its lease, whose record is `lease`), and is CANCELED when its worker answers, or when its
/// lease ends in any way: its worker may have begun it without having said so.
///
/// # Errors
/// If it ended in another way before.
pub fn cancel(
    cx: &Context<'_>,
    job: &JobRecord,
    lease: Option<&LeaseRecord>,
    request: &CancelRequest,
) -> Outcome<JobState> {
    let reason = request.reason.as_deref().unwrap_or("canceled on request");
    let mut changes = Changes::default();
    let (next, kind) = match job.stage() {
        Stage::Canceled => return Ok(Done::repeated(job.state)),
        Stage::Held | Stage::Running if job.cancel_requested_at.is_some() => {
            return Ok(Done::repeated(job.state));
        }
        Stage::Waiting | Stage::Reserved => (after(cx, job, Step::Cancel), EventKind::Canceled),
        Stage::Held | Stage::Running => {
            let held = lease.filter(|lease| job.lease_id == Some(lease.id) && lease.is_live());
            let Some(mut lease) = held.map(touched_lease) else {
                let lease_id = job.lease_id.unwrap_or(LeaseId(job.id.0));
                return Err(TransitionError::Inconsistent {
                    lease_id,
                    job_id: job.id,
                });
            };
            for leased in lease.jobs.iter_mut().filter(|leased| leased.id == job.id) {
                leased.cancel = true;
            }
            changes.leases.push(lease);
            let mut next = touched(job);
            next.cancel_requested_at = Some(cx.wall());
            (next, EventKind::CancelRequested)
        }
        Stage::Done | Stage::Failed => {
            let advice = "it has ended; there is nothing left to cancel";
            return Err(TransitionError::WrongState {
                job_id: job.id,
                state: job.state,
                command: "cancel",
                advice,
            });
        }
    };
    let mut next = next;
    next.last_error = Some(reason.to_owned());
    let mut event = job_event(cx, &next, kind);
    event.reason = Some(reason.to_owned());
    changes.events.push(event);
    let state = next.state;
    changes.put(next);
    Ok(Done::new(state, changes))
}

/// The beginning of a text, at most so many bytes of it.
fn clipped(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}
