//! A waiting job, as far as order and admission look at it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{AddonId, Constraints, JobId, JobType, NodeId, Priority};

use crate::deadline::Urgency;

/// At most so many jobs of one addon with the same key run at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConcurrencyKey {
    /// The key, within its addon.
    pub key: Arc<str>,
    /// How many.
    pub limit: u32,
}

/// What a dispatcher has to know of a job that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The job.
    pub id: JobId,
    /// Its record's revision: what a proposal is compared and swapped on.
    pub revision: u64,
    /// Its addon.
    pub addon: AddonId,
    /// Its type.
    pub job_type: JobType,
    /// Its class before aging.
    pub priority: Priority,
    /// Units.
    pub cost: u32,
    /// Since when it waits: its place, and its age. A job that comes back keeps it.
    pub enqueued_at: Timestamp,
    /// A schedule, or the wait before another attempt.
    pub not_before: Option<Timestamp>,
    /// When it should have ended.
    pub deadline: Option<Timestamp>,
    /// Starts in NORMAL.
    pub time_sensitive: bool,
    /// How long it takes, as declared.
    pub expected_duration: Option<Duration>,
    /// What it is heavy on.
    pub constraints: Constraints,
    /// With how many others it may run.
    pub key: Option<ConcurrencyKey>,
    /// The node it must run on.
    pub node: Option<NodeId>,
    /// Labels that its node must have, sorted.
    pub labels: Vec<String>,
}

impl Candidate {
    /// A job that asks for nothing special; the base of tests and examples.
    pub fn new(
        id: JobId,
        addon: AddonId,
        job_type: JobType,
        cost: u32,
        enqueued_at: Timestamp,
    ) -> Candidate {
        Candidate {
            id,
            revision: 0,
            addon,
            job_type,
            priority: Priority::Normal,
            cost,
            enqueued_at,
            not_before: None,
            deadline: None,
            time_sensitive: false,
            expected_duration: None,
            constraints: Constraints::default(),
            key: None,
            node: None,
            labels: Vec::new(),
        }
    }

    /// How urgent it is, if it takes as long as declared, or else as learnt.
    pub fn urgency(&self, learnt: Option<Duration>) -> Urgency {
        Urgency {
            priority: self.priority,
            time_sensitive: self.time_sensitive,
            deadline: self.deadline,
            takes: self.expected_duration.or(learnt).unwrap_or_default(),
        }
    }
}
