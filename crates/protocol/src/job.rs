//! A job as it is shown, and what a list or a query gives.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    AddonId, Backoff, Constraints, JobId, JobState, JobType, Json, Late, LeaseId, NodeId,
    OnDependencyFailure, Priority, ScheduleId, Start, TraceParent,
};

/// How far a running job says it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Progress {
    /// The share that is done, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
    /// In words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The answer to a submission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SubmitAnswer {
    /// The job.
    pub job_id: JobId,
    /// Its state. A repeated idempotency key gets the first answer's.
    pub state: JobState,
    /// The job was there before: its key or id was used with the same body, or a unique job has not ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

/// A job, as `GET …/queue/jobs/{job_id}` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobView {
    /// Its id.
    pub job_id: JobId,
    /// Who submitted it.
    pub addon_id: AddonId,
    /// Which handler runs it.
    pub job_type: JobType,
    /// Its share of the capacity.
    pub cost_units: u32,
    /// Its class.
    pub priority: Priority,
    /// What it leans on.
    pub constraints: Constraints,
    /// How long it probably runs.
    pub expected_duration_sec: Option<u32>,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// Where it is on its way.
    pub state: JobState,
    /// Runs that ended by an answer or by `max_runtime_sec`. A crash of the worker is a rescue, no attempt.
    pub attempts: u32,
    /// How many it may have.
    pub max_attempts: u32,
    /// How often its worker's lease ran out.
    pub rescues: u32,
    /// Not before this: backoff or schedule.
    pub next_earliest_start_at: Option<Timestamp>,
    /// The lease that it is claimed or runs under. A job that is DISPATCHING with a lease is claimed by a worker that has
    /// not begun it.
    pub lease_id: Option<LeaseId>,
    /// Its place among the jobs of that lease, which are begun one after the other in this order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u32>,
    /// The machine it is dispatched to, or ran on last.
    pub node_id: Option<NodeId>,
    /// Until when a dispatch waits to be taken up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch_until: Option<Timestamp>,
    /// Its input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Json, required = false))]
    pub payload: Option<Json>,
    /// It does not wait for QUIET in NORMAL.
    pub time_sensitive: bool,
    /// The load that it waits for.
    #[serde(default, skip_serializing_if = "Start::is_default")]
    pub start: Start,
    /// When it should be done.
    pub deadline_at: Option<Timestamp>,
    /// The deadline will probably be missed.
    #[serde(default)]
    pub deadline_at_risk: bool,
    /// The hard limit of one run.
    pub max_runtime_sec: Option<u32>,
    /// To find it by.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Its processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pids: Vec<u32>,
    /// Jobs that must end before it starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<JobId>,
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// What its worker measured, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
    /// What it gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Json, required = false))]
    pub result: Option<Json>,
    /// Why it failed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// A user asked for it to stop.
    #[serde(default)]
    pub cancel_requested: bool,
    /// It took too many workers with it.
    #[serde(default)]
    pub quarantined: bool,
    /// When its last run began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The schedule it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_id: Option<ScheduleId>,
    /// The trace that it was submitted with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceParent>,
    /// The start that it was submitted or edited with; `next_earliest_start_at` is the one that counts now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earliest_start_at: Option<Timestamp>,
    /// What happens after its deadline; `run` if absent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub late: Late,
    /// How long it waits between attempts; the default if absent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub backoff: Backoff,
    /// The key that it was submitted with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The key of which one job at a time has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_key: Option<String>,
    /// The key of which `concurrency_limit` jobs at a time run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_key: Option<String>,
    /// How many jobs of its concurrency key run at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_limit: Option<u32>,
    /// All jobs that it was submitted to start after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<JobId>,
    /// What happens if one of them is not DONE; `cancel` if absent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_dependency_failure: OnDependencyFailure,
    /// The one machine that may run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_node: Option<NodeId>,
    /// Labels that its machine must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_labels: Vec<String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl JobView {
    /// The trace that everything about this job belongs to: the one it was submitted with, or its own.
    pub fn trace(&self) -> TraceParent {
        self.traceparent
            .unwrap_or_else(|| TraceParent::of_job(self.job_id))
    }
}

/// Which jobs a list shows: `GET …/queue/jobs?state=QUEUED&limit=50`. All that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct JobQuery {
    /// Only these states; none means all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub state: Vec<JobState>,
    /// Only this addon's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addon_id: Option<AddonId>,
    /// Only this type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_type: Option<JobType>,
    /// Only with this tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Only with this in its type, addon, tags, last error or payload, in upper or lower case. A page searches some
    /// thousand jobs at most, so it may have few or none and still name a next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Only quarantined ones.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub quarantined: bool,
    /// Only those that ended at this time or later, and have not been queued again. No index leads to the time of an end: a
    /// page looks at a bounded number of jobs, so it may have few or none and still name a next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_since: Option<Timestamp>,
    /// After this job, in the order of ids: the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<JobId>,
    /// At most so many; the server has a limit of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// A page of jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobList {
    /// In the order of their ids, which is that of their submission; the recent ones in the reverse order.
    pub jobs: Vec<JobView>,
    /// What to give as `after` for the next page, or as `before` if the newest come first; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<JobId>,
}

/// What a command on many jobs did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkAnswer {
    /// Those it was done to.
    pub done: Vec<JobId>,
    /// Those it was not done to, and why.
    pub failed: Vec<BulkFailure>,
}

/// One job that a command on many could not change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkFailure {
    /// The job.
    pub job_id: JobId,
    /// Why.
    pub error: crate::ApiError,
}
