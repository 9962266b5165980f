//! What a peer answers.

use std::collections::BTreeMap;

use super::{RemoteError, RemoteRequest};

/// The answer to a [`RemoteRequest`]: the peer has spoken, though perhaps of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteResponse {
    /// The request's id.
    pub id: u64,
    /// What came of it; empty after a failure, and after data were pushed.
    pub payload: Vec<u8>,
    /// Why it failed, if it did.
    pub error: Option<RemoteError>,
    /// Who answers.
    pub sender: String,
    /// Who asked.
    pub target: String,
    /// What else is to be known.
    pub metadata: BTreeMap<String, String>,
}

impl RemoteResponse {
    /// The answer of a success. Its target is the request's sender.
    pub fn new(request: &RemoteRequest, sender: impl Into<String>, payload: Vec<u8>) -> Self {
        RemoteResponse {
            id: request.id,
            payload,
            error: None,
            sender: sender.into(),
            target: request.sender.clone().unwrap_or_default(),
            metadata: BTreeMap::new(),
        }
    }

    /// The answer of a failure.
    ///
    /// ```
    /// use jobtree_lanes::remote::{RemoteError, RemoteRequest, RemoteResponse};
    ///
    /// let request = RemoteRequest::new("asset.load").sender("editor");
    /// let error = RemoteError::Remote("no such file".to_owned());
    /// let response = RemoteResponse::from_error(&request, "assets", error);
    /// assert!(!response.is_success());
    /// assert_eq!(response.target, "editor");
    /// ```
    pub fn from_error(
        request: &RemoteRequest,
        sender: impl Into<String>,
        error: RemoteError,
    ) -> RemoteResponse {
        RemoteResponse {
            error: Some(error),
            ..RemoteResponse::new(request, sender, Vec::new())
        }
    }

    /// Whether the operation succeeded.
    pub fn is_success(&self) -> bool {
        self.error.is_none()
    }

    /// What the operation returned.
    ///
    /// # Errors
    /// If it failed.
    pub fn into_payload(self) -> Result<Vec<u8>, RemoteError> {
        match self.error {
            None => Ok(self.payload),
            Some(error) => Err(error),
        }
    }
}
