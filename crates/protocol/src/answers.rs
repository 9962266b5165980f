//! Bodies and answers of the HTTP interface that are not a thing of their own: lists, and requests whose id stands in
//! the path.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    AddonId, ClaimAnswer, Decision, Event, Heartbeat, HistoryStats, JobId, JobQuery, JobState,
    JobType, JobView, LeaseId, LeaseView, LoadSample, ProcessOrigin, Progress, ReportRequest,
    ScheduleView, TokenView, WebhookView, WorkerView,
};

/// What became of a job by a command: the answer to `cancel` and `retry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StateAnswer {
    /// The job.
    pub job_id: JobId,
    /// Its state now. A running job that was asked to stop still runs.
    pub state: JobState,
}

/// `POST …/queue/jobs/{job_id}/retry`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct RetryRequest {
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `POST …/queue/jobs/{job_id}/pause` and `/resume`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct PauseRunRequest {
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `POST …/queue/jobs/cancel-many`: stops all that a query finds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CancelManyRequest {
    /// Which; `{}` for all. Its `limit` means nothing here.
    pub query: JobQuery,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `POST …/lease/{lease_id}/heartbeat`: [`Heartbeat`] without the lease, which stands in the path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct HeartbeatBody {
    /// Which job of a batch runs now; the first that has not ended, if absent. A job that is named has begun. A worker that
    /// declared `begins_now` names the job in its hand each time: without a name it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// How far it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Its processes, if they changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<Vec<u32>>,
    /// How to recognise these processes on this machine. Without it none of them counts as the worker's own load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_origin: Option<Box<ProcessOrigin>>,
    /// The milliseconds between the begin of the named job and the sending of this call; 0 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began_ms_ago: Option<u64>,
    /// Jobs of the lease that the worker has not begun and will not begin: they wait again, and nothing is counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub given_back: Vec<JobId>,
    /// The run stands still, as the last answer asked. Only told to a daemon that asked.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

impl HeartbeatBody {
    /// With the lease.
    pub fn of(self, lease_id: LeaseId) -> Heartbeat {
        Heartbeat {
            lease_id,
            job_id: self.job_id,
            progress: self.progress,
            pids: self.pids,
            process_origin: self.process_origin,
            began_ms_ago: self.began_ms_ago,
            given_back: self.given_back,
            paused: self.paused,
        }
    }
}

/// `POST …/lease/{lease_id}/report`: [`ReportRequest`] without the lease, which stands in the path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ReportBody {
    /// Which job of a batch; the current one, if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// How far it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Anything measured, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
    /// Its processes, if they changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<Vec<u32>>,
    /// How to recognise these processes on this machine. Without it none of them counts as the worker's own load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_origin: Option<Box<ProcessOrigin>>,
}

impl ReportBody {
    /// With the lease.
    pub fn of(self, lease_id: LeaseId) -> ReportRequest {
        ReportRequest {
            lease_id,
            job_id: self.job_id,
            progress: self.progress,
            metrics: self.metrics,
            pids: self.pids,
            process_origin: self.process_origin,
        }
    }
}

/// `POST …/lease/{lease_id}/pid`: the processes that work under it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PidsRequest {
    /// They, in place of those named before.
    pub pids: Vec<u32>,
    /// How to recognise these processes on this machine. Without it none of them counts as the worker's own load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_origin: Option<Box<ProcessOrigin>>,
}

/// `POST …/drain`, and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {
    /// Whether to start nothing new.
    pub draining: bool,
}

/// The answer to `POST …/queue/resume`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResumeAnswer {
    /// Whether it was skipped before.
    pub resumed: bool,
}

/// The answer to `POST …/policy/validate`, if it is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicyVerdict {
    /// It is. What is none is answered with a problem that names each field.
    pub valid: bool,
}

/// The answer to `POST …/policy/preview`: what the load and the jobs of the last week would have come to. Workers are thought to be
/// there for everything; dependencies, concurrency keys, required machines, later attempts and time limits have no effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicyPreview {
    /// The first measurement of the load; absent if nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The last measurement: nothing starts behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// How many jobs there were: those that are kept, and that the caller sees.
    pub jobs: u64,
    /// There were more: only the newest were tried.
    #[serde(default)]
    pub left_out: bool,
    /// What the policy in force makes of them.
    pub present: PolicyOutcome,
    /// What the given policy makes of them.
    pub given: PolicyOutcome,
}

/// What a policy makes of recorded jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicyOutcome {
    /// Jobs that start.
    pub started: u64,
    /// Jobs that do not.
    pub never_started: u64,
    /// How long those that start wait on average; absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_wait_sec: Option<f64>,
}

/// The answer to `POST …/queue/claim`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimedLeases {
    /// One or more, or none if there was nothing to run in time.
    pub leases: Vec<ClaimAnswer>,
}

/// Jobs without pages: the answer to `GET …/queue/dispatchable`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DispatchableJobs {
    /// They.
    pub jobs: Vec<JobView>,
}

/// A page of leases that hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeaseList {
    /// In the order of their ids.
    pub leases: Vec<LeaseView>,
    /// What to give as `after` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<LeaseId>,
}

/// All schedules that the caller sees.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleList {
    /// By name.
    pub schedules: Vec<ScheduleView>,
}

/// All tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenList {
    /// Without their secrets.
    pub tokens: Vec<TokenView>,
}

/// Something that is skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PauseView {
    /// Whose jobs.
    pub addon_id: AddonId,
    /// Of which type; all if absent.
    #[serde(default)]
    pub job_type: Option<JobType>,
    /// Since when.
    pub since: Timestamp,
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
    /// Who paused, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// All that is skipped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PauseList {
    /// They.
    pub pauses: Vec<PauseView>,
}

/// How jobs did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HistoryList {
    /// By addon, then by type.
    pub history: Vec<HistoryStats>,
}

/// What was decided last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DecisionList {
    /// The newest first.
    pub decisions: Vec<Decision>,
}

/// An event with its place in the trail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventEntry {
    /// Its place. Places only grow.
    pub cursor: u64,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// A page of a job's trail.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventPage {
    /// The oldest first.
    pub events: Vec<EventEntry>,
    /// What to give as `after` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// `GET …/stats`: counts and histograms since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StatsView {
    /// Events by kind.
    pub events: BTreeMap<String, u64>,
    /// Denials by code, each as often as it was written.
    pub denials: BTreeMap<String, u64>,
    /// How long jobs waited from the moment they could start until they ran.
    pub waited: DurationStats,
    /// How long runs took that ended.
    pub ran: DurationStats,
    /// Proposals that lost against another scheduler or a caller.
    pub lost_proposals: u64,
    /// Operations of the store that failed, and were repeated or dropped.
    pub store_failures: u64,
    /// Times that the store was read again.
    pub reads: u64,
}

/// How long things took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DurationStats {
    /// How many there were.
    pub count: u64,
    /// All of them together.
    pub sum_sec: f64,
    /// How many did not take longer than this, for some bounds that grow.
    pub up_to: Vec<DurationBucket>,
}

/// How many things did not take longer than a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DurationBucket {
    /// The bound.
    pub sec: f64,
    /// How many.
    pub count: u64,
}

/// Who works here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerList {
    /// By addon.
    pub workers: Vec<WorkerView>,
}

/// How busy the machine was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoadList {
    /// The oldest first.
    pub samples: Vec<LoadSample>,
}

/// All webhooks of the daemon that was asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WebhookList {
    /// The oldest first.
    pub webhooks: Vec<WebhookView>,
}

/// `POST …/backup`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct BackupRequest {
    /// What the file in the daemon's folder `backups` is called; the time, if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The answer to that: the copy is whole, and on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BackupAnswer {
    /// Where it is, on the daemon's machine.
    pub path: String,
    /// How large it is.
    pub bytes: u64,
    /// The place of the last event in it: what was acknowledged before the call is in it.
    pub last_event: u64,
    /// When it was asked for.
    pub at: Timestamp,
}
