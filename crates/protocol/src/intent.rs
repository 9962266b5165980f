//! What a job is, once it was checked: the part of a job that never changes.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

use crate::fingerprint::Fingerprint;
use crate::{AddonId, JobId, JobType, Json, NodeId, ScheduleId, TraceParent};

/// How urgent a job is against jobs of other classes. Written in upper case, read in either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum Priority {
    /// After the others.
    Low,
    /// The default.
    #[default]
    Normal,
    /// Before the others, and without waiting for quiet.
    High,
}

impl Priority {
    /// All, the least urgent first.
    pub const ALL: [Self; 3] = [Self::Low, Self::Normal, Self::High];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "LOW",
            Self::Normal => "NORMAL",
            Self::High => "HIGH",
        }
    }

    /// Reads either case; `None` if it is no priority.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|priority| priority.as_str().eq_ignore_ascii_case(text))
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Priority {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            serde::de::Error::custom(format!("priority {text:?}: write LOW, NORMAL or HIGH"))
        })
    }
}

/// Which resources a job leans on: admission looks harder at those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Constraints {
    /// Computes much.
    pub cpu_heavy: bool,
    /// Writes much to disk.
    pub disk_write_heavy: bool,
    /// Sends or receives much.
    pub network_heavy: bool,
    /// Holds much memory.
    pub memory_heavy: bool,
}

/// How long a failed job waits before its next attempt: `initial × factor^(attempt - 1)`, at most `max`, less a random
/// share of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Backoff {
    /// The wait after the first failure.
    pub initial_sec: f64,
    /// What each further failure multiplies it by.
    pub factor: f64,
    /// The longest wait.
    pub max_sec: f64,
    /// Which share of the wait is drawn: with 0.2 it is 80 % to 100 % of the above. 0 is none, 1 is all of it.
    pub jitter: f64,
}

impl Default for Backoff {
    /// 5 s, doubled each time, an hour at most, a fifth of it drawn.
    fn default() -> Self {
        Self {
            initial_sec: 5.0,
            factor: 2.0,
            max_sec: 3600.0,
            jitter: 0.2,
        }
    }
}

/// Which load a job waits for before it starts. Capacity, caps, pauses and start times hold for all.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// Waits for QUIET, as far as priority, deadline and `time_sensitive` do not say otherwise.
    #[default]
    WhenQuiet,
    /// Starts in every state but PANIC: waits for no QUIET, window, streak or cool-down.
    Now,
    /// Starts in PANIC too, and with no measurement at all. Needs an admin's token.
    IgnoreLoad,
}

impl Start {
    /// Returns `true` for the default, which is not written.
    pub fn is_default(&self) -> bool {
        *self == Self::WhenQuiet
    }
}

/// What becomes of a job whose deadline passes while it waits. One that runs goes on either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Late {
    /// It still runs: late is better than never.
    #[default]
    Run,
    /// It fails with TIMEOUT: nobody wants it any more.
    Fail,
}

/// What becomes of a job when one that it depends on ends other than DONE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum OnDependencyFailure {
    /// It is canceled: what it needs is not there.
    #[default]
    Cancel,
    /// It runs all the same, when the others have ended: for jobs that clean up or report.
    Run,
}

/// A job as it was submitted, checked and with all defaults filled in. It never changes.
///
/// A field that is added must be left out of the JSON while it has its default: fingerprints of submissions from before
/// it stand on disks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intent {
    /// Who submitted it.
    pub addon_id: AddonId,
    /// Which handler runs it.
    pub job_type: JobType,
    /// Its share of the capacity while it runs, 1 to 100.
    pub cost_units: u32,
    /// Its class.
    pub priority: Priority,
    /// What it leans on.
    pub constraints: Constraints,
    /// How long it probably runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_duration_sec: Option<u32>,
    /// Its input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Json>,
    /// Without a deadline: it does not wait for QUIET in NORMAL.
    #[serde(default)]
    pub time_sensitive: bool,
    /// The load that it waits for.
    #[serde(default, skip_serializing_if = "Start::is_default")]
    pub start: Start,
    /// Not before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earliest_start_at: Option<Timestamp>,
    /// When it should be done. The nearer this comes, the more quiet conditions are waived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Timestamp>,
    /// What happens after it.
    #[serde(default)]
    pub late: Late,
    /// The hard limit of one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runtime_sec: Option<u32>,
    /// To find it by; sorted, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// A second submission with this key, by this addon, is this job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Of jobs of this addon, type and key, one at a time is not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_key: Option<String>,
    /// Of jobs of this addon and key, `concurrency_limit` at a time are dispatched or running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_key: Option<String>,
    /// How many at a time.
    pub concurrency_limit: u32,
    /// How many runs may fail before the job does.
    pub max_attempts: u32,
    /// How long it waits in between.
    pub backoff: Backoff,
    /// Jobs that must be DONE before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<JobId>,
    /// What happens if one of them is not.
    #[serde(default)]
    pub on_dependency_failure: OnDependencyFailure,
    /// The one machine that may run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_node: Option<NodeId>,
    /// Labels that a machine must have to run it; sorted, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_labels: Vec<String>,
    /// The schedule whose firing this job is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_id: Option<ScheduleId>,
    /// The trace that it is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceParent>,
}

impl Intent {
    /// What two submissions with one idempotency key must have in common; see [`Fingerprint`].
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self)
    }
}
