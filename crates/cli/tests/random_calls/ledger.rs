//! What was called and answered, kept outside of the daemons, and what is found in the store afterwards.

use std::collections::HashMap;
use std::time::Duration;

use jobtree_protocol::{Event, JobId, JobState, LeaseId};
use serde_json::Value;

/// A part of a call that has an effect of its own.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A job is submitted. The number is in its payload, and is the same if the same submission is repeated.
    Submit { number: u64 },
    /// A lease is asked for jobs.
    Claim { lease: LeaseId },
    /// A dispatched job is accepted under a lease.
    Ack { job: JobId, lease: LeaseId },
    /// A lease without jobs is asked for, by this request key.
    Capacity { key: String },
    /// The end of a run is reported.
    Complete { job: JobId, lease: LeaseId },
    /// A job is cancelled.
    Cancel { job: JobId },
    /// Anything else.
    Other(&'static str),
}

/// What the caller learnt.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The caller dropped the connection on purpose.
    Dropped,
    /// The daemon could not be reached, or the connection broke.
    Unreachable(String),
    /// Status and body; of a call for many, the body of this part.
    Answer(u16, Value),
}

/// A call, or one part of a call for many.
#[derive(Clone, Debug)]
pub struct Call {
    /// The daemon's place among all of them.
    pub daemon: usize,
    /// When it was sent and when its caller knew its outcome, since the begin of the run.
    pub sent: Duration,
    pub ended: Duration,
    pub what: What,
    pub outcome: Outcome,
}

impl Call {
    /// Returns the body of an answer that acknowledges the call.
    pub fn acknowledged(&self) -> Option<&Value> {
        match &self.outcome {
            Outcome::Answer(200..=299, body) => Some(body),
            _ => None,
        }
    }
}

/// A time in which a daemon may be unreachable or answer 503: it was killed, or its database was away.
#[derive(Clone, Debug)]
pub struct Disturbance {
    pub daemon: usize,
    pub from: Duration,
    pub to: Duration,
}

/// A job as the store has it in the end.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The number of its submission.
    pub number: u64,
    pub state: JobState,
    pub unique_key: Option<String>,
    /// The concurrency key and its limit.
    pub gate: Option<(String, u32)>,
}

/// What the store and the daemons say in the end.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub jobs: HashMap<JobId, Kept>,
    /// The whole event log in its order.
    pub events: Vec<Event>,
    /// The request key of each lease that was granted by one.
    pub request_keys: HashMap<LeaseId, String>,
    /// What each daemon says is in use, when nothing runs.
    pub used: Vec<u64>,
    /// Jobs that have not ended although workers ask for them.
    pub stuck: Vec<String>,
    /// What `audit check` found.
    pub audit: Vec<String>,
}

/// Everything that the rules are about.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub calls: Vec<Call>,
    pub disturbances: Vec<Disturbance>,
    pub evidence: Evidence,
}
