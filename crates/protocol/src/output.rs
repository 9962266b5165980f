//! The output of a command on its way to the one who waits for it, and the input on its way back.
//!
//! This is beside a job's log: it is not kept, and nothing of it is left out. Who writes waits until there is room, so that a
//! command is as fast as its reader.

use serde::{Deserialize, Serialize};

use crate::{LeaseId, base64};

/// Where a command wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
}

/// A piece of output, in the order in which it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OutputPiece {
    /// Where it was written.
    pub stream: OutputStream,
    /// What was written, if that is UTF-8.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// What was written, in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub base64: String,
}

/// `POST …/queue/jobs/{job_id}/output`: more of what a running command wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OutputAppend {
    /// The lease that the command runs under.
    pub lease_id: LeaseId,
    /// Which run of the job it is, the first being 1.
    pub run: u32,
    /// How many pieces of this run were sent before: what was accepted already is not passed on twice.
    pub offset: u64,
    /// The pieces; none to ask whether anyone reads.
    pub pieces: Vec<OutputPiece>,
}

/// The answer to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OutputAppendAnswer {
    /// Whether anyone reads. If not, nothing more need be sent.
    pub is_read: bool,
    /// How many pieces of this run are accepted: less than were sent if there was no room in time. Send the rest again.
    pub next_offset: u64,
}

/// `GET …/queue/jobs/{job_id}/output?after=…`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OutputPage {
    /// Which run wrote this, the first being 1; 0 if no runner has passed anything on.
    pub run: u32,
    /// The pieces of that run.
    pub pieces: Vec<OutputPiece>,
    /// What to give as `after`: these pieces are then forgotten.
    pub next: u64,
    /// The job has ended, and nothing follows.
    pub ended: bool,
}

impl OutputPiece {
    /// A piece with these bytes.
    ///
    /// ```
    /// use jobtree_protocol::{OutputPiece, OutputStream};
    ///
    /// for bytes in [&b"text"[..], b"\xff\x00"] {
    ///     let piece = OutputPiece::of(OutputStream::Stdout, bytes);
    ///     assert_eq!(piece.bytes().as_deref(), Some(bytes));
    /// }
    /// ```
    pub fn of(stream: OutputStream, bytes: &[u8]) -> Self {
        let text = std::str::from_utf8(bytes).ok();
        Self {
            stream,
            text: text.unwrap_or_default().to_owned(),
            base64: match text {
                Some(_) => String::new(),
                None => base64::encode(bytes),
            },
        }
    }

    /// What was written; none if that is no base64.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        match self.base64.is_empty() {
            true => Some(self.text.clone().into_bytes()),
            false => base64::decode(&self.base64),
        }
    }
}
