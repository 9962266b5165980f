//! What a worker process tells of itself beside its leases: how its pool does, and the job tree under each durable job.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{AddonId, Heartbeat, HeartbeatAnswer, InstanceId, JobId, JobType, NodeId};

/// `POST …/lease/heartbeat-many`: still here, for all leases of one worker. One answer each, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct HeartbeatManyRequest {
    /// One for each lease.
    pub leases: Vec<Heartbeat>,
    /// How the worker does. It is shown to people, and forgotten soon after the worker falls silent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerReport>,
}

/// The answers to heartbeats for many leases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeartbeatManyAnswer {
    /// In the order of the request.
    pub leases: Vec<crate::Each<HeartbeatAnswer>>,
}

/// How a worker process does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WorkerReport {
    /// Drawn anew at each start of the process.
    pub instance_id: InstanceId,
    /// Whose jobs it runs.
    pub addon_id: AddonId,
    /// Of which types; none means all.
    #[serde(default)]
    pub job_types: Vec<JobType>,
    /// Where it runs, if it knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    /// Its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// What it is, in words: a program and its version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub program: String,
    /// How many jobs it runs side by side.
    #[serde(default)]
    pub slots: u32,
    /// It takes no new jobs.
    #[serde(default)]
    pub draining: bool,
    /// Its pool, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolReport>,
    /// The job trees under the durable jobs that it runs, bounded in size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trees: Vec<LiveTree>,
}

/// How a work-stealing pool does: counts since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct PoolReport {
    /// Its threads.
    pub threads: u32,
    /// Of them, those that sleep now.
    pub sleeping: u32,
    /// Tasks that were run.
    pub tasks: u64,
    /// Forks that another thread took.
    pub steals: u64,
    /// Times that a thread was woken.
    pub wakes: u64,
}

/// The jobs under one durable job, in its worker's process, each after the one it belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LiveTree {
    /// The durable job.
    pub job_id: JobId,
    /// The jobs, at most [`LiveTree::MOST_NODES`].
    pub nodes: Vec<LiveNode>,
    /// There are more, which were left out.
    #[serde(default)]
    pub left_out: u64,
}

impl LiveTree {
    /// How many jobs of one tree are reported.
    pub const MOST_NODES: usize = 200;
    /// How many bytes of a label are reported.
    pub const LABEL_BYTES: usize = 120;
}

/// One job of a live tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LiveNode {
    /// How deep it lies; 0 for the run of the durable job itself.
    pub depth: u32,
    /// What it is called.
    pub label: String,
    /// Its state in the tree, in words: `Active`, `Cancelling`, …
    pub state: String,
    /// How old it is.
    pub age_ms: u64,
    /// What it waits for, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
}

/// A worker, as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerView {
    /// What it said last; its trees are asked for one by one.
    #[serde(flatten)]
    pub report: WorkerReport,
    /// When that was.
    pub seen_at: Timestamp,
    /// The jobs under its leases.
    #[serde(default)]
    pub jobs: Vec<JobId>,
}

/// `GET …/queue/jobs/{job_id}/tree`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TreeView {
    /// Who reported it.
    pub instance_id: InstanceId,
    /// When.
    pub at: Timestamp,
    /// It.
    pub tree: LiveTree,
}
