//! Actions on many jobs: which jobs each is about, and how far it is. They live in memory, and end with the daemon; what was done
//! to a job is in its event log.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use jobtree_protocol::{
    AddonId, ApiError, BulkAction, BulkFailure, BulkRequest, BulkState, BulkView, CancelRequest,
    ErrorCode, JobId, JobQuery, JobState, RedriveRequest,
};
use jobtree_scheduler::Scheduler;
use uuid::Uuid;

/// Jobs that are read or acted on at a time.
const AT_A_TIME: usize = 200;
/// The most jobs of one action.
const MOST_JOBS: usize = 1_000_000;
/// The most actions that are kept.
const MOST_ACTIONS: usize = 200;
/// The most jobs of actions that were not started, in all: so many ids are 16 MB.
const MOST_PREPARED: usize = MOST_JOBS;
/// Jobs that could not be changed, and are named.
const NAMED: usize = 100;
/// The time within which an action must be started.
const PREPARED_FOR: SignedDuration = SignedDuration::from_mins(10);
/// The time for which an action is kept after its start.
const KEPT_FOR: SignedDuration = SignedDuration::from_hours(24);

/// All actions.
#[derive(Default)]
pub(crate) struct Bulk(Mutex<HashMap<Uuid, Action>>);

struct Action {
    view: BulkView,
    /// The jobs that it was not started for yet.
    jobs: Vec<JobId>,
}

impl Bulk {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Action>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes which jobs an action is about, for a caller who sees what the query says.
    pub(crate) async fn prepare(
        &self,
        scheduler: &Scheduler,
        request: BulkRequest,
        by: String,
    ) -> Result<BulkView, ApiError> {
        let BulkRequest {
            action,
            query,
            reason,
        } = request;
        let jobs = matching(scheduler, action, query.clone()).await?;
        let now = Timestamp::now();
        let view = BulkView {
            bulk_id: Uuid::new_v4(),
            action,
            query,
            reason,
            by,
            state: BulkState::Ready,
            count: jobs.len() as u64,
            done: 0,
            skipped: 0,
            failed: 0,
            failures: Vec::new(),
            created_at: jobtree_protocol::whole_micros(now),
            started_at: None,
            ended_at: None,
        };
        let mut all = self.lock();
        all.retain(|_, action| !action.is_forgotten(now));
        let prepared: usize = all.values().map(|action| action.jobs.len()).sum();
        if all.len() >= MOST_ACTIONS || prepared + jobs.len() > MOST_PREPARED {
            let message = "too many actions are prepared or were run today: start or wait, and try again in ten minutes";
            return Err(ApiError::new(ErrorCode::TooMany, message));
        }
        let id = view.bulk_id;
        let prepared = Action { view, jobs };
        Ok(all.entry(id).or_insert(prepared).view.clone())
    }

    /// Returns an action, if the caller sees its jobs: those of one addon, or of all.
    pub(crate) fn get(&self, id: Uuid, addon: Option<&AddonId>) -> Result<BulkView, ApiError> {
        let all = self.lock();
        let found = all.get(&id).filter(|action| action.is_seen_by(addon));
        found
            .map(|action| action.view.clone())
            .ok_or_else(|| no_action(id))
    }

    /// Returns the actions that were started and whose jobs the caller sees, the newest first.
    pub(crate) fn list(&self, addon: Option<&AddonId>) -> Vec<BulkView> {
        let all = self.lock();
        let started = all
            .values()
            .filter(|action| action.view.started_at.is_some() && action.is_seen_by(addon));
        let mut views: Vec<_> = started.map(|action| action.view.clone()).collect();
        views.sort_by_key(|view| std::cmp::Reverse(view.started_at));
        views
    }

    /// Starts an action, which goes on beside this call.
    pub(crate) fn start(
        self: &Arc<Self>,
        scheduler: &Scheduler,
        id: Uuid,
        addon: Option<&AddonId>,
    ) -> Result<BulkView, ApiError> {
        let (view, jobs) = {
            let mut all = self.lock();
            let found = all.get_mut(&id).filter(|action| action.is_seen_by(addon));
            let action = found.ok_or_else(|| no_action(id))?;
            if action.view.state != BulkState::Ready {
                let message = format!("the action {id} was started before: prepare another");
                return Err(ApiError::new(ErrorCode::Conflict, message));
            }
            action.view.state = BulkState::Running;
            action.view.started_at = Some(jobtree_protocol::whole_micros(Timestamp::now()));
            (action.view.clone(), std::mem::take(&mut action.jobs))
        };
        tokio::spawn(Arc::clone(self).run(scheduler.clone(), view.clone(), jobs));
        Ok(view)
    }

    /// Stops an action that was started or prepared.
    pub(crate) fn stop(&self, id: Uuid, addon: Option<&AddonId>) -> Result<BulkView, ApiError> {
        let mut all = self.lock();
        let found = all.get_mut(&id).filter(|action| action.is_seen_by(addon));
        let action = found.ok_or_else(|| no_action(id))?;
        action.jobs = Vec::new();
        if action.view.ended_at.is_none() {
            action.view.state = BulkState::Stopped;
            action.view.ended_at = Some(jobtree_protocol::whole_micros(Timestamp::now()));
        }
        Ok(action.view.clone())
    }

    async fn run(self: Arc<Self>, scheduler: Scheduler, view: BulkView, jobs: Vec<JobId>) {
        let id = view.bulk_id;
        for some in jobs.chunks(AT_A_TIME) {
            if self.state(id) != Some(BulkState::Running) {
                return;
            }
            let outcome = act(&scheduler, &view, some).await;
            let mut all = self.lock();
            let Some(Action { view, .. }) = all.get_mut(&id) else {
                return;
            };
            view.done += outcome.done;
            view.skipped += outcome.skipped;
            view.failed += outcome.failures.len() as u64;
            let room = NAMED.saturating_sub(view.failures.len());
            view.failures
                .extend(outcome.failures.into_iter().take(room));
        }
        let mut all = self.lock();
        if let Some(Action { view, .. }) = all.get_mut(&id)
            && view.state == BulkState::Running
        {
            view.state = BulkState::Ended;
            view.ended_at = Some(jobtree_protocol::whole_micros(Timestamp::now()));
        }
    }

    fn state(&self, id: Uuid) -> Option<BulkState> {
        self.lock().get(&id).map(|action| action.view.state)
    }
}

impl Action {
    fn is_seen_by(&self, addon: Option<&AddonId>) -> bool {
        addon.is_none_or(|own| self.view.query.addon_id.as_ref() == Some(own))
    }

    fn is_forgotten(&self, now: Timestamp) -> bool {
        let age = |since: Timestamp| now.duration_since(since);
        match self.view.started_at {
            None => age(self.view.created_at) > PREPARED_FOR,
            Some(started) => self.view.state != BulkState::Running && age(started) > KEPT_FOR,
        }
    }
}

fn no_action(id: Uuid) -> ApiError {
    let message = format!("there is no action {id}: it may have been forgotten; prepare it again");
    ApiError::new(ErrorCode::NotFound, message)
}

fn unreadable(error: &dyn std::fmt::Display) -> ApiError {
    ApiError::new(ErrorCode::Unavailable, error.to_string())
}

/// Returns the jobs that a query finds and that an action does something to, in the order of their ids.
async fn matching(
    scheduler: &Scheduler,
    action: BulkAction,
    mut query: JobQuery,
) -> Result<Vec<JobId>, ApiError> {
    const ALL: [JobState; 6] = [
        JobState::Queued,
        JobState::Dispatching,
        JobState::Running,
        JobState::Done,
        JobState::Failed,
        JobState::Canceled,
    ];
    let asked = std::mem::take(&mut query.state);
    let asked = if asked.is_empty() {
        ALL.to_vec()
    } else {
        asked
    };
    query.state = asked.into_iter().filter(|it| action.acts_on(*it)).collect();
    query.limit = None;
    query.after = None;
    let mut jobs = Vec::new();
    // No state at all would mean all of them.
    if query.state.is_empty() {
        return Ok(jobs);
    }
    loop {
        let page = scheduler.store().list(query.clone(), 500).await;
        let page = page.map_err(|error| unreadable(&error))?;
        let fit = page.jobs.iter().filter(|job| {
            action.acts_on(job.state)
                && (action == BulkAction::Retry || job.cancel_requested_at.is_none())
        });
        jobs.extend(fit.map(|job| job.id));
        if jobs.len() > MOST_JOBS {
            let message = format!(
                "the query finds more than {MOST_JOBS} jobs: narrow it, and act on a part at a time"
            );
            return Err(ApiError::new(ErrorCode::TooMany, message));
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(jobs),
        }
    }
}

/// The outcome of some jobs of an action.
#[derive(Default)]
struct Outcome {
    done: u64,
    skipped: u64,
    failures: Vec<BulkFailure>,
}

impl Outcome {
    fn failed(&mut self, job_id: JobId, error: ApiError) {
        match error.code {
            // It changed, or was forgotten, after the action was prepared.
            ErrorCode::WrongState | ErrorCode::NotFound => self.skipped += 1,
            _ => self.failures.push(BulkFailure { job_id, error }),
        }
    }
}

async fn act(scheduler: &Scheduler, view: &BulkView, jobs: &[JobId]) -> Outcome {
    let mut outcome = Outcome::default();
    let ids = jobs.to_vec();
    let before = scheduler
        .store()
        .read(move |tables| tables.jobs(&ids))
        .await;
    // A job that was cancelled meanwhile may be cancelled again without an error, and is not counted as done.
    let fit = before.map(|found| {
        let fit = found.into_iter().filter(|job| {
            view.action.acts_on(job.state)
                && (view.action == BulkAction::Retry || job.cancel_requested_at.is_none())
        });
        fit.map(|job| job.id)
            .collect::<std::collections::HashSet<_>>()
    });
    let jobs: Vec<_> = match fit {
        Ok(fit) => {
            let kept: Vec<_> = jobs.iter().copied().filter(|id| fit.contains(id)).collect();
            outcome.skipped += (jobs.len() - kept.len()) as u64;
            kept
        }
        Err(_) => jobs.to_vec(),
    };
    match view.action {
        BulkAction::Cancel => {
            let reason = view.reason.clone();
            // All are begun before the first is waited for, so that they share commits.
            let replies: Vec<_> = jobs
                .iter()
                .map(|id| {
                    let reason = reason.clone();
                    (*id, scheduler.cancel(*id, CancelRequest { reason }))
                })
                .collect();
            for (id, reply) in replies {
                match reply.await {
                    Ok(_) => outcome.done += 1,
                    Err(error) => outcome.failed(id, error),
                }
            }
        }
        BulkAction::Retry => {
            let request = RedriveRequest {
                job_ids: jobs.clone(),
                query: None,
                reason: view.reason.clone(),
            };
            match scheduler.redrive(request).await {
                Ok(answer) => {
                    outcome.done += answer.done.len() as u64;
                    for failure in answer.failed {
                        outcome.failed(failure.job_id, failure.error);
                    }
                }
                Err(error) => jobs
                    .into_iter()
                    .for_each(|id| outcome.failed(id, error.clone())),
            }
        }
    }
    outcome
}
