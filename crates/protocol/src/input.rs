//! The standard input of a command on its way from `jobtree run` to the runner.
//!
//! Like [output](crate::OutputAppend) it is not kept: what a command has read cannot be passed to it a second time.

use serde::{Deserialize, Serialize};

use crate::base64;

/// The most bytes of one request or answer, before they are encoded.
pub const INPUT_AT_ONCE: usize = 256 << 10;

/// `POST …/queue/jobs/{job_id}/input`: more of what a command shall read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct InputAppend {
    /// How many bytes were sent before.
    pub offset: u64,
    /// The bytes, in base64; none to say that the sender is still there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub base64: String,
    /// Nothing more follows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
}

/// The answer to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InputAppendAnswer {
    /// How many bytes are accepted: less than were sent if there was no room in time. Send the rest again.
    pub next_offset: u64,
    /// The job has ended, or what was sent before is lost: nothing more need be sent.
    pub closed: bool,
}

/// `GET …/queue/jobs/{job_id}/input`: the next bytes for the command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InputPage {
    /// The bytes, in base64; none if none came in time.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub base64: String,
    /// The `after` of the next request.
    pub next: u64,
    /// Nothing follows behind these bytes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// The rest never comes: its sender is gone, or an earlier run has read a part of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
}

impl InputPage {
    /// The bytes; none if the text is not base64.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        base64::decode(&self.base64)
    }
}

impl InputAppend {
    /// Bytes from this place on.
    pub fn of(offset: u64, bytes: &[u8]) -> Self {
        Self {
            offset,
            base64: base64::encode(bytes),
            ended: false,
        }
    }

    /// The bytes; none if the text is not base64.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        base64::decode(&self.base64)
    }
}
