//! Jobs: submitting them and reading about them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use jiff::Timestamp;
use jobtree_protocol::operations::{
    DEFAULT_ROWS, GetJob, GetJobLog, GetJobTrace, GetJobTree, ListJobEvents, ListJobs, SubmitJob,
    SubmitJobs,
};
use jobtree_protocol::{
    AddonId, ApiError, Each, ErrorCode, EventEntry, EventPage, FieldError, JobList, JobQuery,
    JobView, LogPage, Scope, Start, SubmitAnswer, SubmitManyAnswer, SubmitRequest, TreeView,
};

use super::explain::{explain_job, list_reasons};
use super::output::{append_job_input, append_job_output, get_job_input, get_job_output};
use super::ownership;
use super::recent::list_recent_jobs;
use super::route::{Call, routes};
use crate::auth::Caller;
use crate::chrome_trace;
use crate::daemon::Daemon;
use crate::problem::{Answered, Refusal};
use crate::trace::TraceHeader;

jobtree_protocol::job_operations!(routes);

async fn submit_job(daemon: Arc<Daemon>, call: Call<SubmitJob>) -> Answered<SubmitAnswer> {
    let mut request = call.body;
    TraceHeader::of(&call.headers).fill(&mut request);
    call.caller.acts_for(&request.addon_id)?;
    check_start(&call.caller, &request)?;
    check_dependencies(&daemon, &call.caller, std::slice::from_ref(&request)).await?;
    let may_repeat = request.has_delays() && request.idempotency_key.is_some();
    let again = may_repeat.then(|| request.clone());
    resolve_delays(&daemon, &mut request).await?;
    let mut answer = daemon.scheduler.submit(request).await;
    if let (Err(error), Some(mut request)) = (&answer, again)
        && error.code == ErrorCode::Conflict
    {
        // The first submission with this key may have been written meanwhile: its times count.
        resolve_delays(&daemon, &mut request).await?;
        answer = daemon.scheduler.submit(request).await;
    }
    let mut answer = answer?;
    tell_state_now(&daemon, &mut answer).await;
    Ok(answer)
}

/// Refuses a job that ignores the load, unless an admin submits it: it may take a machine down that others need.
fn check_start(caller: &Caller, job: &SubmitRequest) -> Answered<()> {
    if job.start != Start::IgnoreLoad {
        return Ok(());
    }
    caller.needs(Scope::Admin)?;
    let (by, addon, job_type) = (caller.name(), &job.addon_id, &job.job_type);
    tracing::info!(
        by,
        addon,
        job_type,
        "a job that ignores the load is submitted"
    );
    Ok(())
}

/// Turns the delays of a submission into times: those of the job that was submitted with its key before, if there is one.
async fn resolve_delays(daemon: &Daemon, request: &mut SubmitRequest) -> Answered<()> {
    if !request.has_delays() {
        return Ok(());
    }
    let mut first = None;
    if let (Some(key), Ok(addon)) = (&request.idempotency_key, AddonId::new(&request.addon_id)) {
        let key = key.clone();
        let found = daemon.store().read(move |tables| {
            let Some(used) = tables.key(&addon, &key)? else {
                return Ok(None);
            };
            Ok(tables.jobs(&[used.job_id])?.pop())
        });
        let found = found.await.map_err(ownership::unreadable)?;
        first = found.map(|job| [job.intent.earliest_start_at, job.intent.deadline_at]);
    }
    let resolved = request.resolve_delays(Timestamp::now(), first);
    Ok(resolved.map_err(ApiError::invalid)?)
}

/// A repeated submission is answered with the state that the job has now. What is kept with its key is the state that was
/// answered first.
async fn tell_state_now(daemon: &Daemon, answer: &mut SubmitAnswer) {
    if answer.duplicate
        && let Ok(job) = daemon.scheduler.job(answer.job_id).await
    {
        answer.state = job.state;
    }
}

async fn submit_jobs(daemon: Arc<Daemon>, call: Call<SubmitJobs>) -> Answered<SubmitManyAnswer> {
    let (mut request, trace) = (call.body, TraceHeader::of(&call.headers));
    request.jobs.iter_mut().for_each(|job| trace.fill(job));
    for job in &request.jobs {
        call.caller.acts_for(&job.addon_id)?;
        check_start(&call.caller, job)?;
    }
    check_dependencies(&daemon, &call.caller, &request.jobs).await?;
    // A delay that is wrong stays, and is refused with its job alone.
    for job in request.jobs.iter_mut().filter(|job| job.has_delays()) {
        let mut resolved = job.clone();
        if resolve_delays(&daemon, &mut resolved).await.is_ok() {
            *job = resolved;
        }
    }
    let mut answer = daemon.scheduler.submit_many(request).await?;
    for each in &mut answer.jobs {
        if let Each::Done(answer) = each {
            tell_state_now(&daemon, answer).await;
        }
    }
    debug_assert!(answer.jobs.iter().all(|each| match each {
        Each::Done(_) => true,
        Each::Refused { error } => !error.message.is_empty(),
    }));
    Ok(answer)
}

/// Refuses dependencies on jobs that do not exist for the caller: else a caller could learn how other addons' jobs end.
/// Jobs of the same request do not exist yet, and are let through.
async fn check_dependencies(
    daemon: &Daemon,
    caller: &Caller,
    jobs: &[SubmitRequest],
) -> Answered<()> {
    if caller.addon().is_none() || jobs.iter().all(|job| job.depends_on.is_empty()) {
        return Ok(());
    }
    let all = jobs.iter().flat_map(|job| job.depends_on.iter().copied());
    let mut hidden = ownership::hidden_jobs(daemon, caller, all.collect()).await?;
    for submitted in jobs.iter().filter_map(|job| job.job_id) {
        hidden.remove(&submitted);
    }
    let each = jobs
        .iter()
        .flat_map(|job| job.depends_on.iter().enumerate());
    let wrong = each
        .filter(|(_, id)| hidden.contains(id))
        .map(|(place, id)| {
            let message = format!("{id} does not exist: submit it before, or leave it out");
            FieldError::new(format!("depends_on[{place}]"), message)
        });
    let wrong: Vec<_> = wrong.collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(wrong).into())
}

async fn get_job(daemon: Arc<Daemon>, mut call: Call<GetJob>) -> Answered<JobView> {
    let wait = call.query.wait_sec.unwrap_or(0);
    let job = call.view(&daemon).await?;
    if wait == 0 || job.state.is_ended() {
        return Ok(job);
    }
    let wait = Duration::from_secs(wait.into());
    Ok(daemon.scheduler.wait_for(call.id, wait).await?)
}

async fn list_jobs(daemon: Arc<Daemon>, call: Call<ListJobs>) -> Answered<JobList> {
    let query = call.query;
    let Some(addon_id) = call.caller.narrowed(query.addon_id.clone()) else {
        return Ok(JobList::default());
    };
    let limit = query.limit.or(Some(DEFAULT_ROWS));
    let query = JobQuery {
        addon_id,
        limit,
        ..query
    };
    Ok(daemon.scheduler.jobs(query).await?)
}

async fn list_job_events(
    daemon: Arc<Daemon>,
    mut call: Call<ListJobEvents>,
) -> Answered<EventPage> {
    let after = call.query.after.unwrap_or(0);
    let limit = call.query.limit.unwrap_or(DEFAULT_ROWS) as usize;
    // Also for an admin: a job that does not exist has no empty list of events.
    call.view(&daemon).await?;
    let all = daemon.scheduler.job_events(call.id).await?;
    let rest = all.into_iter().filter(|entry| entry.cursor > after);
    let mut events: Vec<EventEntry> = rest
        .take(limit + 1)
        .map(|entry| EventEntry {
            cursor: entry.cursor,
            event: entry.event,
        })
        .collect();
    let more = events.len() > limit;
    events.truncate(limit);
    let next = events.last().filter(|_| more).map(|last| last.cursor);
    Ok(EventPage { events, next })
}

async fn get_job_log(daemon: Arc<Daemon>, call: Call<GetJobLog>) -> Answered<LogPage> {
    let after = call.query.after.unwrap_or(0);
    let wait = Duration::from_secs(call.query.wait_sec.unwrap_or(0).into());
    Ok(daemon.scheduler.log(call.id, after, wait).await?)
}

async fn get_job_trace(daemon: Arc<Daemon>, mut call: Call<GetJobTrace>) -> Answered<Bytes> {
    let job = call.view(&daemon).await?;
    let entries = daemon.scheduler.job_events(call.id).await?;
    let events: Vec<_> = entries.into_iter().map(|entry| entry.event).collect();
    let tree = daemon.observing.live.last_tree(call.id);
    let trace = chrome_trace::trace(&job, &events, tree.as_ref(), Timestamp::now());
    Ok(trace.to_string().into())
}

async fn get_job_tree(daemon: Arc<Daemon>, mut call: Call<GetJobTree>) -> Answered<TreeView> {
    call.view(&daemon).await?;
    let tree = daemon.observing.live.tree(call.id);
    tree.ok_or_else(|| {
        Refusal::not_found(
            "no worker has told of this job's tree: it does not run, or not in a jobtree worker",
        )
    })
}
