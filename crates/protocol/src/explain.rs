//! Why a job waits, and what was decided.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{AddonId, JobCost, JobId, LeaseNumbers};

/// One thing that keeps a job from starting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reason {
    /// For programs: `capacity`, `not_quiet`, `dependency`, …
    pub code: String,
    /// For people.
    pub message: String,
    /// What was measured.
    #[serde(default)]
    pub measured: Option<f64>,
    /// What it is compared with.
    #[serde(default)]
    pub threshold: Option<f64>,
    /// Since when it is so.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// What would have to change: exactly this lets the job start, as far as this reason goes.
    pub change: String,
    /// The signals that are too high, if it is about the load of the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<LoadSignal>,
}

impl Reason {
    /// Returns a reason without numbers.
    pub fn new(
        code: &str,
        message: impl Into<String>,
        since: Option<Timestamp>,
        change: impl Into<String>,
    ) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
            measured: None,
            threshold: None,
            since,
            change: change.into(),
            signals: Vec::new(),
        }
    }
}

/// A signal of the load that is too high.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoadSignal {
    /// Its name in the policy: `psi_cpu`, `cpu`, …
    pub signal: String,
    /// The measured value, with its unit.
    pub value: String,
    /// What it must come down to (or, of what is left of something, up to), with its unit.
    pub bound: String,
}

/// `POST …/queue/jobs/reasons`: which jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReasonsRequest {
    /// The jobs, 500 at most.
    pub jobs: Vec<JobId>,
}

impl ReasonsRequest {
    /// The most jobs of one request.
    pub const MOST: usize = 500;
}

/// The first reason why a job does not run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobReason {
    /// The job.
    pub job_id: JobId,
    /// The first of the reasons that an explanation lists.
    pub reason: Reason,
}

/// The first reason of each job that does not run; none of those that run, have ended or are about to start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReasonList {
    /// In the order of the request.
    pub jobs: Vec<JobReason>,
}

/// What an estimate rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EstimateBasis {
    /// The job's own start time.
    Schedule,
    /// The expected ends of running leases.
    RunningLeases,
    /// This machine's hours of quiet, week by week.
    QuietProfile,
}

/// When a job will probably start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Estimate {
    /// Then.
    pub start_at: Timestamp,
    /// By what.
    pub basis: EstimateBasis,
    /// How sure that is, 0 to 1.
    pub confidence: f64,
}

/// The answer to "why does it not run?".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Explain {
    /// The job.
    pub job_id: JobId,
    /// Each thing in the way; none if it is about to start, runs or has ended.
    pub reasons: Vec<Reason>,
    /// When it will probably start.
    #[serde(default)]
    pub estimate: Option<Estimate>,
    /// By the policy the load does not matter, so it is never among the reasons.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub load_ignored: bool,
    /// What the job declares, what it is charged, and what was measured of its type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<JobCost>,
}

/// An entry of the decisions log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Decision {
    /// When.
    pub at: Timestamp,
    /// For which job; none for a lease without one.
    #[serde(default)]
    pub job_id: Option<JobId>,
    /// For whom.
    pub addon_id: AddonId,
    /// How it was decided.
    pub approved: bool,
    /// Why, for programs.
    pub code: String,
    /// Why, for people.
    pub reason: String,
    /// When it is worth asking again.
    #[serde(default)]
    pub retry_after_sec: Option<u32>,
    /// By which numbers.
    pub numbers: LeaseNumbers,
}
