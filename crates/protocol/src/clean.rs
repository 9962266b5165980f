//! Forgetting of ended jobs, by hand.

use serde::{Deserialize, Serialize};

use crate::JobState;

/// `POST …/clean`: forgets what is older than the policy's `[retention]` says, at once and not some time in the next minutes.
/// With `older_than_sec`, ended jobs go that ended longer ago than that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct CleanRequest {
    /// Jobs that ended longer ago than this many seconds go, instead of those that the policy names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_than_sec: Option<u32>,
    /// The states that `older_than_sec` is about: DONE, FAILED, CANCELED. All three if none is given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub state: Vec<JobState>,
}

/// What was forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CleanAnswer {
    /// Jobs, with their logs and payloads.
    pub jobs: u64,
    /// Events.
    pub events: u64,
    /// Idempotency keys.
    pub keys: u64,
    /// Ended leases, and firings of schedules.
    pub leases: u64,
}
