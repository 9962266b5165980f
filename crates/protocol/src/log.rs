//! What a job printed.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{JobId, LeaseId};

/// `POST …/queue/jobs/{job_id}/log`: more of what a running job printed.
///
/// It is kept up to a limit for each run; what goes beyond is counted and left out. `offset` makes repeating safe; one
/// that is further than what was sent before leaves a gap, which is counted as left out, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LogAppend {
    /// The lease it runs under.
    pub lease_id: LeaseId,
    /// How many bytes of this run's output were sent before: what was kept already is not kept twice.
    pub offset: u64,
    /// What it printed since.
    pub text: String,
}

/// The answer to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LogAppendAnswer {
    /// How many bytes of this run's output are dealt with: the offset to go on from.
    pub next_offset: u64,
    /// The limit is reached: nothing more is kept.
    #[serde(default)]
    pub full: bool,
}

/// `GET …/queue/jobs/{job_id}/log?after=…`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LogPage {
    /// Whose.
    pub job_id: JobId,
    /// The text, of all runs one after the other.
    pub text: String,
    /// What to give as `after` to go on.
    pub next: u64,
    /// The job has ended and nothing follows.
    pub ended: bool,
    /// Bytes that were left out, because the log was full or its worker skipped them.
    #[serde(default)]
    pub left_out: u64,
    /// Times at which the parts of the text were received, in the order of their places. A worker sends what was printed a few times a
    /// second. Absent of what an older version kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<LogTime>,
}

/// The time at which a part of a log was received: from a place up to the place of the next part, or the end of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LogTime {
    /// The place where the part begins, as `after` and `next` count.
    pub place: u64,
    /// The time.
    pub at: Timestamp,
}
