//! How things stand.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{AddonId, JobState, NodeId};

/// How much a machine is needed by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

/// How a machine stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// Leases that hold.
    pub active_leases: u32,
    /// The measurements are too old to be trusted, and nothing is admitted by them.
    #[serde(default)]
    pub stale: bool,
}

/// How an addon stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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

/// `GET …/status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusView {
    /// When this was so.
    pub at: Timestamp,
    /// Each machine.
    pub nodes: Vec<NodeStatus>,
    /// How many jobs are in each state; ended ones as far as history is kept.
    pub jobs: BTreeMap<JobState, u64>,
    /// The age of the oldest job that waits and could start as far as it itself is concerned.
    #[serde(default)]
    pub oldest_queued_sec: Option<f64>,
    /// Each addon that has jobs not ended.
    pub addons: BTreeMap<AddonId, AddonStatus>,
}
