//! The first reason why jobs do not run, as lists and waiting commands show it. Its order is decided by the daemon, for all of them
//! and for `explain` alike.

use std::collections::HashMap;

use jobtree_client::Client;
use jobtree_protocol::{JobId, JobState, JobView, Reason, ReasonsRequest};

use crate::when::localized;

/// Returns the first reason of each of these jobs that does not run, in words. Without the right to ask there is none.
pub fn of_jobs(client: &Client, jobs: &[JobView]) -> HashMap<JobId, String> {
    let open = jobs.iter().filter(|job| !job.state.is_ended());
    let open: Vec<JobId> = open.map(|job| job.job_id).collect();
    let mut found = HashMap::new();
    for ids in open.chunks(ReasonsRequest::MOST) {
        let Ok(list) = client.reasons(&ReasonsRequest { jobs: ids.to_vec() }) else {
            continue;
        };
        let reasons = list.jobs.into_iter();
        found.extend(reasons.map(|each| (each.job_id, localized(&each.reason.message))));
    }
    // What an ended job failed of.
    for job in jobs.iter().filter(|job| job.state == JobState::Failed) {
        let error = job
            .last_error
            .as_deref()
            .and_then(|error| error.lines().next());
        found.extend(error.map(|error| (job.job_id, error.to_owned())));
    }
    found
}

/// Returns the first reason why a job does not run.
pub fn of(client: &Client, id: JobId) -> Option<Reason> {
    let list = client.reasons(&ReasonsRequest { jobs: vec![id] }).ok()?;
    let mut reason = list.jobs.into_iter().next()?.reason;
    reason.message = localized(&reason.message);
    Some(reason)
}

/// Returns what makes a reason another one than the reason before it. A new measurement does not; but that a run stands still is
/// told after it was asked to, although both are one reason.
pub fn news(reason: &Reason) -> String {
    match reason.code.as_str() {
        "run_paused" => reason.message.clone(),
        code => code.to_owned(),
    }
}
