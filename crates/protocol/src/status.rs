//! How things stand.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{AddonId, JobState, JobType, NodeId, UsageStats};

/// How much a machine is needed by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum QuietState {
    /// Nobody needs it.
    Quiet,
    /// Somebody uses it.
    Normal,
    /// It is busy.
    Busy,
    /// It is overloaded: nothing is admitted.
    Panic,
}

/// A stretch of quiet: as many minutes in a row as there were.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Streak {
    /// Its first minute.
    pub start: Timestamp,
    /// The end of its last.
    pub end: Timestamp,
    /// How busy it was on average, 0 to 10.
    pub average: f64,
    /// How busy at least.
    pub minimum: f64,
}

/// How a machine stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodeStatus {
    /// Its name.
    pub node_id: NodeId,
    /// How busy, 0 to 10.
    pub busy: f64,
    /// What that means.
    pub state: QuietState,
    /// Since when.
    pub since: Timestamp,
    /// Units there are at this load.
    pub capacity: u32,
    /// Units held by leases and reservations.
    pub used: u32,
    /// Of them, units held by dispatches that wait to be taken up.
    #[serde(default)]
    pub reserved: u32,
    /// Leases that hold.
    pub active_leases: u32,
    /// The measurements are too old to be trusted, and nothing is admitted by them.
    #[serde(default)]
    pub stale: bool,
    /// By its policy the load does not matter: `busy` and `state` are those of an idle machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub load_ignored: bool,
    /// Its stretches of quiet in the last 24 hours; told only of the machine that answers.
    #[serde(default)]
    pub streaks: Vec<Streak>,
    /// The labels that jobs may require.
    #[serde(default)]
    pub labels: Vec<String>,
    /// The version of its scheduler.
    #[serde(default)]
    pub version: String,
    /// When it described itself last, by its own clock.
    #[serde(default)]
    pub last_seen: Option<Timestamp>,
    /// It has not described itself for half a minute or more: it is off, or does not reach the database, and its numbers are old.
    #[serde(default)]
    pub silent: bool,
}

/// How an addon stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct AddonStatus {
    /// Jobs that wait.
    pub queued: u64,
    /// Jobs that wait to be taken up.
    pub dispatching: u64,
    /// Jobs that run.
    pub running: u64,
    /// It is skipped.
    pub paused: bool,
}

impl AddonStatus {
    /// Returns the number of jobs in each state that is counted: in all but ended ones.
    pub fn jobs(&self) -> impl Iterator<Item = (JobState, u64)> {
        let counts = [
            (JobState::Queued, self.queued),
            (JobState::Dispatching, self.dispatching),
            (JobState::Running, self.running),
        ];
        counts.into_iter()
    }
}

/// `GET …/status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StatusView {
    /// When this was so.
    pub at: Timestamp,
    /// Each machine that shares the store: first the one that answers, then the others by their names, as they last described
    /// themselves.
    pub nodes: Vec<NodeStatus>,
    /// How many jobs are in each state; ended ones as far as history is kept.
    pub jobs: BTreeMap<JobState, u64>,
    /// The age of the oldest job that waits and could start as far as it itself is concerned.
    #[serde(default)]
    pub oldest_queued_sec: Option<f64>,
    /// Each addon that has jobs not ended.
    pub addons: BTreeMap<AddonId, AddonStatus>,
}

/// Skips an addon, or one of its types, until it is resumed. What runs goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PauseRequest {
    /// Which.
    pub addon_id: AddonId,
    /// Only this type of it.
    #[serde(default)]
    pub job_type: Option<JobType>,
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
}

/// What the host measured of itself. Each may be absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct SignalsRequest {
    /// Of which machine; the scheduler's own if absent.
    pub node_id: Option<NodeId>,
    /// The latency that 95 % of its requests stay below.
    pub p95_latency_ms: Option<f64>,
    /// Requests being answered now.
    pub in_flight: Option<f64>,
    /// Requests a second.
    pub requests_per_sec: Option<f64>,
    /// The share of requests that fail, 0 to 1.
    pub error_rate: Option<f64>,
}

/// How jobs of one addon and type did, as far as history is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HistoryStats {
    /// Whose.
    pub addon_id: AddonId,
    /// Of which type; none for all together.
    #[serde(default)]
    pub job_type: Option<JobType>,
    /// How many ended.
    pub ended: u64,
    /// The share of DONE among DONE and FAILED.
    #[serde(default)]
    pub success_rate: Option<f64>,
    /// How long they waited on average.
    #[serde(default)]
    pub average_wait_sec: Option<f64>,
    /// How long 95 % of them ran at most.
    #[serde(default)]
    pub p95_run_sec: Option<f64>,
    /// What they declared, and what was measured of them; absent if no run was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageStats>,
}
