//! Jobs: submitted and looked at.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::Uri;
use axum::routing::{get, post};
use jobtree_protocol::{
    Each, EventEntry, EventPage, Explain, FieldError, JobId, JobList, JobQuery, JobState, JobView,
    Scope, SubmitAnswer, SubmitManyAnswer, SubmitManyRequest, SubmitRequest, paths,
};

use super::{MOST_ROWS, MOST_WAIT, ROWS, check_count, own};
use crate::auth::Caller;
use crate::daemon::Daemon;
use crate::extract::{Id, Json, Params, Told};
use crate::problem::{Answered, Refusal};
use crate::trace::TraceHeader;

pub(super) fn routes() -> Router<Arc<Daemon>> {
    Router::new()
        .route(paths::SUBMIT, post(submit))
        .route(paths::SUBMIT_MANY, post(submit_many))
        .route(paths::JOBS, get(list))
        .route(paths::JOB, get(job))
        .route(paths::EXPLAIN, get(explain))
        .route(paths::JOB_EVENTS, get(events))
}

async fn submit(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    trace: TraceHeader,
    Json(mut request): Json<SubmitRequest>,
) -> Answered<Told<SubmitAnswer>> {
    trace.fill(&mut request);
    caller.may(Scope::Submit, &request.addon_id)?;
    check_dependencies(&daemon, &caller, std::slice::from_ref(&request)).await?;
    Ok(Told(daemon.scheduler.submit(request).await?))
}

async fn submit_many(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    trace: TraceHeader,
    Json(mut request): Json<SubmitManyRequest>,
) -> Answered<Told<SubmitManyAnswer>> {
    request.jobs.iter_mut().for_each(|job| trace.fill(job));
    caller.needs(Scope::Submit)?;
    check_count("jobs", request.jobs.len())?;
    for job in &request.jobs {
        caller.may(Scope::Submit, &job.addon_id)?;
    }
    check_dependencies(&daemon, &caller, &request.jobs).await?;
    let answer = daemon.scheduler.submit_many(request).await?;
    debug_assert!(answer.jobs.iter().all(|each| match each {
        Each::Done(_) => true,
        Each::Refused { error } => !error.message.is_empty(),
    }));
    Ok(Told(answer))
}

/// What a job waits for must exist for whoever submits it: else one could learn how others' jobs end. Jobs of the same
/// request do not exist yet, and are let through.
async fn check_dependencies(
    daemon: &Daemon,
    caller: &Caller,
    jobs: &[SubmitRequest],
) -> Answered<()> {
    if caller.addon().is_none() || jobs.iter().all(|job| job.depends_on.is_empty()) {
        return Ok(());
    }
    let all = jobs.iter().flat_map(|job| job.depends_on.iter().copied());
    let mut hidden = own::hidden_jobs(daemon, caller, all.collect()).await?;
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
    Err(jobtree_protocol::ApiError::invalid(wrong).into())
}

async fn job(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(id): Id<JobId>,
    uri: Uri,
) -> Answered<Told<JobView>> {
    let mut params = Params::of(uri.query())?;
    let wait = params.number("wait_sec", 0, MOST_WAIT)?.unwrap_or(0);
    let job = own::job(&daemon, &caller, Scope::Read, id).await?;
    if wait == 0 || job.state.is_ended() {
        return Ok(Told(job));
    }
    let wait = Duration::from_secs(wait.into());
    Ok(Told(daemon.scheduler.wait_for(id, wait).await?))
}

async fn list(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    uri: Uri,
) -> Answered<Told<JobList>> {
    caller.needs(Scope::Read)?;
    let query = read_query(&uri)?;
    let Some(addon_id) = caller.narrowed(query.addon_id.clone()) else {
        return Ok(Told(JobList::default()));
    };
    let query = JobQuery { addon_id, ..query };
    Ok(Told(daemon.scheduler.jobs(query).await?))
}

fn read_query(uri: &Uri) -> Answered<JobQuery> {
    let mut params = Params::of(uri.query())?;
    let mut state: Vec<JobState> = Vec::new();
    for given in params.all("state") {
        for one in given.split(',') {
            let read = one.parse();
            state.push(read.map_err(|wrong: FieldError| Refusal::malformed(wrong.to_string()))?);
        }
    }
    let query = JobQuery {
        state,
        addon_id: params.one("addon_id")?,
        job_type: params.one("job_type")?,
        tag: params.text("tag")?.map(Into::into),
        text: params.text("text")?.map(Into::into),
        quarantined: params.flag("quarantined")?,
        after: params.one("after")?,
        limit: Some(params.number("limit", 1, MOST_ROWS)?.unwrap_or(ROWS)),
    };
    Ok(query)
}

async fn explain(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(id): Id<JobId>,
) -> Answered<Told<Explain>> {
    own::may_touch_job(&daemon, &caller, Scope::Read, id).await?;
    Ok(Told(daemon.scheduler.explain(id).await?))
}

async fn events(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    Id(id): Id<JobId>,
    uri: Uri,
) -> Answered<Told<EventPage>> {
    let mut params = Params::of(uri.query())?;
    let after: u64 = params.one("after")?.unwrap_or(0);
    let limit = params.number("limit", 1, MOST_ROWS)?.unwrap_or(ROWS) as usize;
    // Also for an admin: a job that does not exist has no empty trail.
    own::job(&daemon, &caller, Scope::Read, id).await?;
    let trail = daemon.scheduler.job_events(id).await?;
    let rest = trail.into_iter().filter(|entry| entry.cursor > after);
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
    Ok(Told(EventPage { events, next }))
}
