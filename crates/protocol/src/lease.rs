//! What workers say, and what they are told: leases, heartbeats, completions.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    AddonId, Constraints, InstanceId, JobId, JobState, JobType, JobView, Json, LeaseId, NodeId,
    Priority, ProcessOrigin, Progress, Usage,
};

/// How long after its limit a run may still be completed by a worker that tells the times of its runs: a run that ended
/// within its limit is not timed out while its completion is on its way.
pub const COMPLETION_GRACE: Duration = Duration::from_secs(1);

/// Where a lease is. A revoked one is RELEASED too, and its `reason` says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum LeaseState {
    /// It holds.
    Active,
    /// It was not renewed in time.
    Expired,
    /// It was given back, taken away, or all of its jobs ended.
    Released,
}

/// `POST …/lease/request`: may this run now? With `job_id` it takes up that job's dispatch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct LeaseRequest {
    /// Who asks.
    pub addon_id: String,
    /// For what.
    pub job_type: String,
    /// How much of the capacity, 1 to 100.
    pub cost_units: i64,
    /// How urgent.
    pub priority: Priority,
    /// What it leans on.
    pub constraints: Constraints,
    /// How long it probably runs.
    pub expected_duration_sec: Option<i64>,
    /// The dispatch to take up; then the job says the rest.
    pub job_id: Option<JobId>,
    /// Which process asks. With it, asking again for the same `job_id` after a lost answer gives the same lease.
    pub instance_id: Option<InstanceId>,
    /// The process's name for this request, new for each lease of capacity that it wants: asking again with the same
    /// `instance_id` and key after a lost answer gives the same lease while it holds. It needs `instance_id`; with `job_id`
    /// it is not needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_key: Option<String>,
    /// Where it will run: the node of the scheduler that is asked, or absent. Another node is refused.
    pub node_id: Option<NodeId>,
    /// Processes whose load is not to be counted as foreign.
    pub pids: Vec<u32>,
    /// How to recognise these processes on this machine. Without it none of them counts as the worker's own load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_origin: Option<Box<ProcessOrigin>>,
}

/// What a lease answer was decided by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct LeaseNumbers {
    /// Units in use, those of an approved request included.
    pub used: u32,
    /// Units asked for.
    pub requested: u32,
    /// Units there are at this load.
    pub capacity: u32,
    /// How busy the machine is, 0 to 10.
    pub busy: f64,
}

/// The caps that hold for the caller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct LeaseLimits {
    /// Renew it within this.
    pub ttl_sec: u32,
    /// Active leases, all addons together.
    pub max_active_leases: Option<u32>,
    /// Active leases of one addon.
    pub max_active_leases_per_addon: Option<u32>,
    /// Stop after this.
    pub max_runtime_sec: Option<u32>,
}

/// The answer to a lease request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeaseAnswer {
    /// Whether it may run.
    pub approved: bool,
    /// The lease, if so.
    #[serde(default)]
    pub lease_id: Option<LeaseId>,
    /// The units that the lease holds, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted_units: Option<u32>,
    /// When the lease ends if it is not renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When to ask again, if not.
    #[serde(default)]
    pub retry_after_sec: Option<u32>,
    /// What holds for it.
    #[serde(default)]
    pub limits: LeaseLimits,
    /// Why.
    pub reason: String,
    /// By which numbers.
    #[serde(default)]
    pub numbers: LeaseNumbers,
}

/// Asks for jobs to run, up to `max_jobs` in one lease that runs them one after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// A random id that the worker draws for the lease, new for each claim: asking again with it after a lost answer
    /// gives the same lease. Not with `max_leases` above 1.
    #[serde(default)]
    pub lease_id: Option<LeaseId>,
    /// Whose jobs.
    pub addon_id: AddonId,
    /// Of which types; none means all.
    #[serde(default)]
    pub job_types: Vec<JobType>,
    /// How many in one lease.
    #[serde(default = "one")]
    pub max_jobs: u32,
    /// How many leases, for a worker that runs several jobs side by side.
    #[serde(default = "one")]
    pub max_leases: u32,
    /// How long to wait for one, if there is none.
    #[serde(default)]
    pub wait_sec: u32,
    /// Which process asks.
    pub instance_id: InstanceId,
    /// Where it runs; the scheduler's own machine if absent.
    #[serde(default)]
    pub node_id: Option<NodeId>,
    /// Processes whose load is not to be counted as foreign.
    #[serde(default)]
    pub pids: Vec<u32>,
    /// How to recognise these processes on this machine. Without it none of them counts as the worker's own load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_origin: Option<Box<ProcessOrigin>>,
    /// The number of granted leases whose first job the worker begins at once. A worker that sends this, 0 included,
    /// reports every other begin itself: in a heartbeat (`job_id`, `began_ms_ago`), or with the completion. Without it
    /// the first job of each lease begins with the grant, and each later one when the one before it is completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins_now: Option<u32>,
    /// The worker returns jobs that it has not begun when a heartbeat's answer asks for them (`give_back`). It counts only
    /// with `begins_now`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returns_unbegun: bool,
}

impl ClaimRequest {
    /// One job of this addon, for a worker that reports no begins.
    pub fn one_job(addon_id: AddonId, instance_id: InstanceId) -> Self {
        Self {
            lease_id: None,
            addon_id,
            job_types: Vec::new(),
            max_jobs: 1,
            max_leases: 1,
            wait_sec: 0,
            instance_id,
            node_id: None,
            pids: Vec::new(),
            process_origin: None,
            begins_now: None,
            returns_unbegun: false,
        }
    }
}

fn one() -> u32 {
    1
}

/// One lease of a claim: its jobs are to be run in this order, one after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimAnswer {
    /// What every later call must carry.
    pub lease_id: LeaseId,
    /// Renew it within this.
    pub ttl_sec: u32,
    /// What to run.
    pub jobs: Vec<JobView>,
}

/// `POST …/queue/jobs/{job_id}/ack`: the dispatch is taken up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct AckRequest {
    /// A lease that was requested before; without it the reservation becomes one.
    pub lease_id: Option<LeaseId>,
    /// Which process asks. With it, asking again after a lost answer gives the same lease.
    pub instance_id: Option<InstanceId>,
    /// Processes whose load is not to be counted as foreign.
    pub pids: Vec<u32>,
    /// How to recognise these processes on this machine. Without it none of them counts as the worker's own load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_origin: Option<Box<ProcessOrigin>>,
}

/// `POST …/lease/{id}/heartbeat`: still here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// The lease.
    pub lease_id: LeaseId,
    /// Which job of a batch runs now; the first that has not ended, if absent. A job that is named has begun. A worker that
    /// declared `begins_now` names the job in its hand each time: without a name it has none.
    #[serde(default)]
    pub job_id: Option<JobId>,
    /// How far it is.
    #[serde(default)]
    pub progress: Option<Progress>,
    /// Its processes, if they changed.
    #[serde(default)]
    pub pids: Option<Vec<u32>>,
    /// How to recognise these processes on this machine. Without it none of them counts as the worker's own load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_origin: Option<Box<ProcessOrigin>>,
    /// The milliseconds between the begin of the named job and the sending of this call; 0 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_ms_ago: Option<u64>,
    /// Jobs of the lease that the worker has not begun and will not begin: they wait again, and nothing is counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given_back: Vec<JobId>,
    /// The run stands still, as the last answer asked. Only told to a daemon that asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

impl Heartbeat {
    /// Only renews.
    pub fn of(lease_id: LeaseId) -> Self {
        Self {
            lease_id,
            job_id: None,
            progress: None,
            pids: None,
            process_origin: None,
            began_ms_ago: None,
            given_back: Vec::new(),
            paused: false,
        }
    }
}

/// What a worker should do now; the later ones are the stronger ones.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Advice {
    /// Go on.
    #[default]
    Continue,
    /// Go on with less: the machine is needed.
    Slow,
    /// Save what you have.
    Checkpoint,
    /// Save, and give the lease back.
    Yield,
    /// Finish what runs, take nothing new.
    Drain,
    /// Stop the jobs named.
    Cancel,
}

impl Advice {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Advice::Continue => "continue",
            Advice::Slow => "slow",
            Advice::Checkpoint => "checkpoint",
            Advice::Yield => "yield",
            Advice::Drain => "drain",
            Advice::Cancel => "cancel",
        }
    }
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeartbeatAnswer {
    /// What to do.
    pub advice: Advice,
    /// Renew it within this.
    pub ttl_sec: u32,
    /// Jobs that are to stop. Answer with `complete` FAILED, or give the lease back.
    #[serde(default)]
    pub cancel: Vec<JobId>,
    /// Jobs that another worker could begin sooner. Those that have not begun here are confirmed by `given_back` in a
    /// later heartbeat, and must not be begun here any more. Only a worker that declared `returns_unbegun` is asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub give_back: Vec<JobId>,
    /// The run is paused: it is to stand still until an answer no longer says so. Who runs it and cannot make it stand still is
    /// advised to checkpoint, and nothing more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum CompleteStatus {
    /// Well.
    #[serde(rename = "DONE", alias = "done")]
    Done,
    /// Badly; or it stopped because it was told to.
    #[serde(rename = "FAILED", alias = "failed")]
    Failed,
}

impl CompleteStatus {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "DONE",
            Self::Failed => "FAILED",
        }
    }
}

/// `POST …/queue/jobs/{job_id}/complete`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CompleteRequest {
    /// The lease it ran under.
    pub lease_id: LeaseId,
    /// How it ended.
    pub status: CompleteStatus,
    /// What it gave.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Json, required = false))]
    pub result: Option<Json>,
    /// Why it failed.
    #[serde(default)]
    pub error: Option<String>,
    /// `false`: no further attempt will do better.
    #[serde(default = "yes")]
    pub retry: bool,
    /// The milliseconds between the begin of the run and the sending of this call. Times are told as distances, so that
    /// the worker's clock and the daemon's need not agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_ms_ago: Option<u64>,
    /// The milliseconds between the end of the run and the sending of this call; 0 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms_ago: Option<u64>,
    /// The job of the same lease that the worker has begun since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_hand: Option<InHand>,
    /// What the run used, as far as the worker measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// The job of a lease that its worker runs now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct InHand {
    /// The job.
    pub job_id: JobId,
    /// The milliseconds between its begin and the sending of the call.
    #[serde(default)]
    pub began_ms_ago: u64,
}

fn yes() -> bool {
    true
}

impl CompleteRequest {
    /// It ended well.
    pub fn done(lease_id: LeaseId, result: Option<Json>) -> Self {
        Self {
            lease_id,
            status: CompleteStatus::Done,
            result,
            error: None,
            retry: true,
            began_ms_ago: None,
            ended_ms_ago: None,
            in_hand: None,
            usage: None,
        }
    }

    /// It ended badly, and may be tried again.
    pub fn failed(lease_id: LeaseId, error: impl Into<String>) -> Self {
        Self {
            lease_id,
            status: CompleteStatus::Failed,
            result: None,
            error: Some(error.into()),
            retry: true,
            began_ms_ago: None,
            ended_ms_ago: None,
            in_hand: None,
            usage: None,
        }
    }
}

/// The answer to a completion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CompleteAnswer {
    /// The job.
    pub job_id: JobId,
    /// What became of it by this: DONE, FAILED, CANCELED, or QUEUED if another attempt follows.
    pub state: JobState,
    /// When that attempt may begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_earliest_start_at: Option<Timestamp>,
}

/// `POST …/lease/{id}/report`: what a running job tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReportRequest {
    /// The lease.
    pub lease_id: LeaseId,
    /// Which job of a batch; the current one, if absent.
    #[serde(default)]
    pub job_id: Option<JobId>,
    /// How far it is.
    #[serde(default)]
    pub progress: Option<Progress>,
    /// Anything measured, by name.
    #[serde(default)]
    pub metrics: BTreeMap<String, f64>,
    /// Its processes, if they changed.
    #[serde(default)]
    pub pids: Option<Vec<u32>>,
    /// How to recognise these processes on this machine. Without it none of them counts as the worker's own load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_origin: Option<Box<ProcessOrigin>>,
}

/// `POST …/lease/{id}/release`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ReleaseRequest {
    /// Jobs that have not ended wait again, and nothing is counted. Without this a lease with such jobs is not released:
    /// complete them first.
    pub return_jobs: bool,
    /// Snoozes the job in the worker's hand: with `return_jobs` it waits at least this many seconds before it is started
    /// again. No attempt is counted. Other jobs of the lease wait for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snooze_sec: Option<u32>,
    /// Why.
    pub reason: Option<String>,
}

/// `POST …/lease/{id}/revoke`: takes a lease away. Its jobs wait again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct RevokeRequest {
    /// Why.
    pub reason: Option<String>,
}

/// `POST …/queue/jobs/{job_id}/cancel`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct CancelRequest {
    /// Why.
    pub reason: Option<String>,
}

/// Queues dead letters again: those listed, or all that a query finds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct RedriveRequest {
    /// These.
    pub job_ids: Vec<JobId>,
    /// Or these.
    pub query: Option<crate::JobQuery>,
    /// Why.
    pub reason: Option<String>,
}

/// A lease, as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeaseView {
    /// Its id.
    pub lease_id: LeaseId,
    /// Whose.
    pub addon_id: AddonId,
    /// For what.
    pub job_type: Option<JobType>,
    /// Where it is.
    pub state: LeaseState,
    /// What it holds of the capacity now.
    pub cost_units: u32,
    /// Where.
    pub node_id: NodeId,
    /// Its jobs that have not ended, in the order they are run.
    #[serde(default)]
    pub jobs: Vec<JobId>,
    /// The one in its worker's hand: the one its worker named, else the first that has not ended. None while no job of
    /// the lease has begun.
    #[serde(default)]
    pub current: Option<JobId>,
    /// When it was granted.
    pub granted_at: Timestamp,
    /// When it ends if it is not renewed.
    pub expires_at: Timestamp,
    /// Its processes.
    #[serde(default)]
    pub pids: Vec<u32>,
    /// How it ended, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
