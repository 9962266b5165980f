//! Previews of a policy: the recorded load and the kept jobs of a week are played against it before it is applied.
//!
//! It takes seconds of computing, so it is bounded in all ways: the newest jobs of a week, one preview at a time, on a thread that
//! may block, and with an end in time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use jobtree_protocol::operations::PreviewPolicy;
use jobtree_protocol::{
    ApiError, ErrorCode, JobId, JobQuery, LoadSample, PolicyOutcome, PolicyPreview,
};
use jobtree_queue::policy::Policy;
use jobtree_queue::simulate::{Measured, Outcome, Recorded, simulate_while};

use super::recent::{LAST, newest, recent_ranges};
use super::route::Call;
use crate::daemon::Daemon;
use crate::load::LoadLog;
use crate::policy;
use crate::problem::Answered;

const WEEK: SignedDuration = SignedDuration::from_hours(7 * 24);
/// The minutes of a week.
const MINUTES: usize = 7 * 24 * 60;
/// Jobs that are tried; the API documents the number.
const MOST_JOBS: u32 = 2000;
/// The longest that both simulations may take together. By feel: as long as a person waits for a page.
const LONGEST: Duration = Duration::from_secs(10);

pub(super) async fn preview_policy(
    daemon: Arc<Daemon>,
    call: Call<PreviewPolicy>,
) -> Answered<PolicyPreview> {
    let given = Arc::new(policy::read(&call.body)?);
    let Ok(permit) = Arc::clone(&daemon.previews).try_acquire_owned() else {
        return Err(ApiError::new(
            ErrorCode::TooMany,
            "another preview is being made: try again in some seconds",
        )
        .into());
    };
    let now = Timestamp::now();
    let since = now.checked_sub(WEEK).unwrap_or(Timestamp::UNIX_EPOCH);
    let fetch = |after: JobId, limit: u32| {
        let query = JobQuery {
            after: Some(after),
            limit: Some(limit),
            ..JobQuery::default()
        };
        let page = daemon.scheduler.jobs(query);
        async { Ok(page.await?) }
    };
    let mut views = newest(fetch, recent_ranges(now, LAST), MOST_JOBS + 1).await?;
    views.retain(|job| job.created_at >= since);
    let left_out = views.len() > MOST_JOBS as usize;
    views.truncate(MOST_JOBS as usize);
    let mut jobs: Vec<_> = views.iter().map(Recorded::of).collect();
    jobs.sort_by_key(|job| (job.candidate.enqueued_at, job.candidate.id));
    let samples = measured(&daemon.observing.load, since);
    let (first, last) = (
        samples.first().map(|it| it.at),
        samples.last().map(|it| it.at),
    );
    let present = daemon.scheduler.policy();
    let simulated = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let end = Instant::now() + LONGEST;
        let run =
            |policy: Arc<Policy>| simulate_while(policy, &samples, &jobs, || Instant::now() < end);
        run(present).zip(run(given))
    });
    // It panics where the planner does; the caller learns it, and the daemon goes on.
    let simulated = simulated.await.map_err(|error| {
        ApiError::new(
            ErrorCode::Unavailable,
            format!("the preview failed: {error}"),
        )
    })?;
    let Some((present, given)) = simulated else {
        let message = format!(
            "the preview takes longer than {} s: play the recorded load with `jobtree simulate`",
            LONGEST.as_secs()
        );
        return Err(ApiError::new(ErrorCode::NotNow, message).into());
    };
    let sum = |outcomes: &[Outcome]| {
        let seen = outcomes.iter().filter(|it| call.caller.sees(&it.addon_id));
        outcome(seen.map(|it| it.waited_sec))
    };
    let (present, given) = (sum(&present), sum(&given));
    Ok(PolicyPreview {
        since: first,
        until: last,
        jobs: present.started + present.never_started,
        left_out,
        present,
        given,
    })
}

/// Returns the minutes of the week, and the single measurements behind the last of them, in the order of time.
fn measured(load: &LoadLog, since: Timestamp) -> Vec<Measured> {
    let minutes = load.minutes(since, MINUTES);
    let behind = minutes.last().map_or(since, |last| last.at);
    let mut all: Vec<LoadSample> = minutes;
    all.extend(load.recent(behind, MINUTES));
    // The wall clock may have been set back.
    all.sort_by_key(|sample| sample.at);
    all.iter().map(Measured::of).collect()
}

fn outcome(waits: impl Iterator<Item = Option<f64>>) -> PolicyOutcome {
    let mut told = PolicyOutcome::default();
    let mut sum = 0.0;
    for wait in waits {
        match wait {
            Some(wait) => {
                told.started += 1;
                sum += wait;
            }
            None => told.never_started += 1,
        }
    }
    told.average_wait_sec = (told.started > 0).then(|| sum / told.started as f64);
    told
}
