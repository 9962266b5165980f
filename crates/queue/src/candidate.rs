//! A waiting job, as far as order and admission look at it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{AddonId, Constraints, JobId, JobType, NodeId, Priority, Start};

use crate::block::Block;
use crate::deadline::Urgency;
use crate::record::JobRecord;

/// At most so many jobs of one addon with the same key run at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConcurrencyKey {
    /// The key, within its addon.
    pub key: Arc<str>,
    /// How many.
    pub limit: u32,
}

/// What the planner has to know of a waiting job.
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
    /// The units that it declares.
    pub declared: u32,
    /// The units that it is charged: those declared, unless the policy says `cost.learn`.
    pub cost: u32,
    /// Since when it waits: its place, and its age. A job that comes back keeps it.
    pub enqueued_at: Timestamp,
    /// A schedule, or the wait before another attempt.
    pub not_before: Option<Timestamp>,
    /// Since when it waits for `not_before`.
    pub delayed_since: Timestamp,
    /// Runs that ended, and how many may.
    pub attempts: (u32, u32),
    /// When it should have ended.
    pub deadline: Option<Timestamp>,
    /// Starts in NORMAL.
    pub time_sensitive: bool,
    /// The load that it waits for.
    pub start: Start,
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
    /// It gets a lease of its own, never a place in a batch.
    pub alone: bool,
    /// That its deadline is at risk was told.
    pub warned: bool,
}

impl Candidate {
    /// Returns what keeps it from starting before its time.
    pub(crate) fn delayed(&self, now: Timestamp) -> Option<Block> {
        let at = self.not_before.filter(|at| *at > now)?;
        Some(match self.attempts {
            (0, _) => Block::NotYet { at },
            (ended, most) => Block::Retry {
                at,
                attempt: ended + 1,
                most,
            },
        })
    }

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
            declared: cost,
            cost,
            enqueued_at,
            not_before: None,
            delayed_since: enqueued_at,
            attempts: (0, 1),
            deadline: None,
            time_sensitive: false,
            start: Start::WhenQuiet,
            expected_duration: None,
            constraints: Constraints::default(),
            key: None,
            node: None,
            labels: Vec::new(),
            alone: false,
            warned: false,
        }
    }

    /// How urgent it is, if it takes as long as declared, or else as learnt.
    pub fn urgency(&self, learnt: Option<Duration>) -> Urgency {
        Urgency {
            priority: self.priority,
            time_sensitive: self.time_sensitive,
            start: self.start,
            deadline: self.deadline,
            takes: self.expected_duration.or(learnt).unwrap_or_default(),
        }
    }
}

impl JobRecord {
    /// The job as order and admission look at it. It waits since it could start.
    pub fn candidate(&self) -> Candidate {
        let intent = &*self.intent;
        let key = intent.concurrency_key.as_deref();
        Candidate {
            id: self.id,
            revision: self.revision,
            addon: intent.addon_id.clone(),
            job_type: intent.job_type.clone(),
            priority: intent.priority,
            declared: intent.cost_units,
            cost: intent.cost_units,
            enqueued_at: self.waiting_since(),
            not_before: self.not_before,
            delayed_since: self.ended_at.or(self.started_at).unwrap_or(self.created_at),
            attempts: (self.attempts, intent.max_attempts),
            deadline: intent.deadline_at,
            time_sensitive: intent.time_sensitive,
            start: intent.start,
            expected_duration: (intent.expected_duration_sec)
                .map(|seconds| Duration::from_secs(u64::from(seconds))),
            constraints: intent.constraints,
            key: key.map(|key| ConcurrencyKey {
                key: key.into(),
                limit: intent.concurrency_limit,
            }),
            node: intent.required_node.clone(),
            labels: intent.required_labels.clone(),
            alone: self.runs_alone(),
            warned: self.at_risk,
        }
    }
}
