//! Errors as they are told.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{JobState, LeaseId};

/// What is wrong with one field, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FieldError {
    /// The field, as a path: `tags[3]`.
    pub field: String,
    /// What is wrong and what to write instead; reads on from the field's name.
    pub message: String,
}

impl FieldError {
    /// A message about a field.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for FieldError {}

/// What kind of error it is: stable names that programs may compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The request is no JSON, or not of this shape.
    Malformed,
    /// Fields have values that are not allowed; `fields` tells which.
    Invalid,
    /// There is no such job, lease or schedule.
    NotFound,
    /// The job's state does not allow this; `state` tells it.
    WrongState,
    /// The lease is not, or no longer, the job's: whoever holds it must stop.
    LeaseLost,
    /// The idempotency key or the id was used for another body, or a unique job exists.
    Conflict,
    /// It is not time for this, or others are in the way: try again later.
    NotNow,
    /// The caller may not do this.
    Forbidden,
    /// The caller did not say who it is, or not believably.
    Unauthorized,
    /// The body, a header or a page is larger than allowed.
    TooLarge,
    /// Too many requests or streams: wait, and ask again.
    TooMany,
    /// The store failed. What was asked for may or may not have happened: ask again, repeating is safe.
    Unavailable,
}

impl ErrorCode {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Invalid => "invalid",
            Self::NotFound => "not_found",
            Self::WrongState => "wrong_state",
            Self::LeaseLost => "lease_lost",
            Self::Conflict => "conflict",
            Self::NotNow => "not_now",
            Self::Forbidden => "forbidden",
            Self::Unauthorized => "unauthorized",
            Self::TooLarge => "too_large",
            Self::TooMany => "too_many",
            Self::Unavailable => "unavailable",
        }
    }

    /// The HTTP status that goes with it.
    pub fn http_status(self) -> u16 {
        match self {
            Self::Malformed => 400,
            Self::Invalid => 422,
            Self::NotFound => 404,
            Self::WrongState | Self::LeaseLost | Self::Conflict | Self::NotNow => 409,
            Self::Forbidden => 403,
            Self::Unauthorized => 401,
            Self::TooLarge => 413,
            Self::TooMany => 429,
            Self::Unavailable => 503,
        }
    }
}

/// An error, as a body of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApiError {
    /// For programs.
    pub code: ErrorCode,
    /// For people: what is wrong and what to do.
    pub message: String,
    /// One entry a field, for [`ErrorCode::Invalid`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldError>,
    /// The state that was in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<JobState>,
    /// The lease that is in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<LeaseId>,
}

impl ApiError {
    /// An error of a kind.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            fields: Vec::new(),
            state: None,
            lease_id: None,
        }
    }

    /// The error of a request whose fields are wrong.
    pub fn invalid(fields: Vec<FieldError>) -> Self {
        let told: Vec<String> = fields.iter().map(ToString::to_string).collect();
        Self {
            fields,
            ..Self::new(ErrorCode::Invalid, told.join("; "))
        }
    }

    /// The error of a body that could not be read. The message names the field and where in the text it stands.
    pub fn malformed(error: &serde_json::Error) -> Self {
        Self::new(
            ErrorCode::Malformed,
            format!("the body cannot be read: {error}"),
        )
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}
