//! Actions on all jobs that a query finds: prepared first, so that the number that a person agrees to is the number that is acted on.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{BulkFailure, JobQuery, JobState};

/// The change to each job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum BulkAction {
    /// Jobs that have not ended are cancelled.
    Cancel,
    /// Jobs that are FAILED or CANCELED are queued again.
    Retry,
}

impl BulkAction {
    /// Returns `true` if the action does something to a job in this state.
    pub fn acts_on(self, state: JobState) -> bool {
        match self {
            Self::Cancel => !state.is_ended(),
            Self::Retry => matches!(state, JobState::Failed | JobState::Canceled),
        }
    }
}

/// `POST …/queue/bulk`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BulkRequest {
    /// The change to each job.
    pub action: BulkAction,
    /// The jobs that it is done to, as far as their states allow it.
    pub query: JobQuery,
    /// The reason, for the event log of each job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The stage of an action on many jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum BulkState {
    /// The jobs are known, and nothing was done to them.
    Ready,
    /// Jobs are acted on, one after the other.
    Running,
    /// All jobs were acted on, skipped or refused.
    Ended,
    /// The action was stopped before its end.
    Stopped,
}

/// An action on many jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkView {
    /// The id of the action.
    pub bulk_id: Uuid,
    /// The change to each job.
    pub action: BulkAction,
    /// The query that found the jobs.
    pub query: JobQuery,
    /// The reason, for the event log of each job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The caller who prepared the action, in words.
    pub by: String,
    /// The stage that the action has reached.
    pub state: BulkState,
    /// The number of jobs that it is about.
    pub count: u64,
    /// The number of jobs that it was done to.
    pub done: u64,
    /// The number of jobs that had changed meanwhile, so that there was nothing to do.
    pub skipped: u64,
    /// The number of jobs that it could not be done to.
    pub failed: u64,
    /// The first of those, and why.
    pub failures: Vec<BulkFailure>,
    /// The time at which it was prepared.
    pub created_at: Timestamp,
    /// The time at which it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// The time at which it ended or was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// The answer to `GET …/queue/bulk`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkList {
    /// The actions of the last day that were started, the newest first.
    pub actions: Vec<BulkView>,
}
