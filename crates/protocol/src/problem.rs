//! Errors as HTTP carries them: `application/problem+json` (RFC 9457), with the fields of [`ApiError`] beside the
//! standard ones.

use serde::{Deserialize, Serialize};

use crate::{ApiError, ErrorCode, FieldError, JobState, LeaseId};

/// The body of every answer that is no success.
///
/// ```
/// use jobtree_protocol::{ApiError, ErrorCode, Problem};
///
/// let problem = Problem::of(ApiError::new(ErrorCode::NotFound, "there is no such job: check the id"));
/// assert_eq!((problem.status, problem.title.as_str()), (404, "Not Found"));
/// assert_eq!(ApiError::from(problem).code, ErrorCode::NotFound);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// Names the kind of problem: `urn:jobtree:problem:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// What the status means.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// For programs.
    pub code: ErrorCode,
    /// For people: what is wrong and what to do.
    pub detail: String,
    /// One entry a field, for `invalid`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldError>,
    /// The state that was in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<JobState>,
    /// The lease that is in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<LeaseId>,
}

impl Problem {
    /// The media type of its JSON.
    pub const MEDIA_TYPE: &str = "application/problem+json";

    /// An error with the status that its code has.
    pub fn of(error: ApiError) -> Self {
        let status = error.code.http_status();
        Self::with_status(status, error)
    }

    /// An error with another status than its code has.
    pub fn with_status(status: u16, error: ApiError) -> Self {
        let ApiError {
            code,
            message,
            fields,
            state,
            lease_id,
        } = error;
        Self {
            kind: format!("urn:jobtree:problem:{}", code.as_str()),
            title: title(status).to_owned(),
            status,
            code,
            detail: message,
            fields,
            state,
            lease_id,
        }
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        Self {
            code: problem.code,
            message: problem.detail,
            fields: problem.fields,
            state: problem.state,
            lease_id: problem.lease_id,
        }
    }
}

/// The phrase of a status, of those that are used.
fn title(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Error",
    }
}
