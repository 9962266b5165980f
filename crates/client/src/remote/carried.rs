//! Requests and answers as jobs carry them.
//!
//! A request is a job's payload. An answer that brings something is the job's result; one that tells of a failure is the
//! job's error, so that the daemon shows the job as what it is.

use std::collections::BTreeMap;
use std::time::Duration;

use jobtree_lanes::remote::{RemoteError, RemoteRequest, RemoteResponse, TransferMode};
use jobtree_protocol::{JobView, Outcome, base64};
use serde::{Deserialize, Serialize};

/// The payload of a job that is a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct CarriedRequest {
    id: u64,
    operation: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    push: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    payload: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
    sender: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
}

/// The result of such a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct CarriedAnswer {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    payload: String,
    sender: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
}

impl CarriedRequest {
    pub(super) fn of(request: &RemoteRequest, sender: &str) -> Self {
        let millis = |limit: Duration| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        CarriedRequest {
            id: request.id,
            operation: request.operation.clone(),
            push: request.mode == TransferMode::PushDataToRemote,
            payload: base64::encode(&request.payload),
            metadata: request.metadata.clone(),
            sender: sender.to_owned(),
            target: request.target.clone(),
            timeout_ms: request.timeout.map(millis),
        }
    }

    /// The request, if its payload can be read.
    pub(super) fn into_request(self) -> Result<RemoteRequest, RemoteError> {
        let payload = base64::decode(&self.payload)
            .ok_or_else(|| RemoteError::Protocol("the payload is no base64".to_owned()))?;
        let mut request = RemoteRequest::new(self.operation)
            .id(self.id)
            .payload(payload)
            .sender(self.sender);
        if self.push {
            request.mode = TransferMode::PushDataToRemote;
        }
        request.metadata = self.metadata;
        request.target = self.target;
        request.timeout = self.timeout_ms.map(Duration::from_millis);
        Ok(request)
    }
}

/// An answer as a job's end: its result, or its error.
pub(super) fn ended(response: RemoteResponse) -> Result<CarriedAnswer, String> {
    match response.error {
        None => Ok(CarriedAnswer {
            payload: base64::encode(&response.payload),
            sender: response.sender,
            metadata: response.metadata,
        }),
        Some(error) => Err(told(&error)),
    }
}

/// With a word in front by which the other side knows it again.
pub(super) fn told(error: &RemoteError) -> String {
    match error {
        RemoteError::UnknownOperation(name) => format!("unknown operation: {name}"),
        RemoteError::WrongTarget(target) => format!("wrong target: {target}"),
        RemoteError::Busy => "busy: it does as much as it may at a time".to_owned(),
        RemoteError::Cancelled => "cancelled: its caller no longer waits".to_owned(),
        RemoteError::ConnectionLost(why) => format!("connection lost: {why}"),
        RemoteError::Remote(message) => format!("failed: {message}"),
        other => format!("failed: {other}"),
    }
}

fn understood(text: &str) -> RemoteError {
    let (word, rest) = text.split_once(": ").unwrap_or(("", text));
    let rest = rest.to_owned();
    match word {
        "unknown operation" => RemoteError::UnknownOperation(rest),
        "wrong target" => RemoteError::WrongTarget(rest),
        "busy" => RemoteError::Busy,
        "cancelled" => RemoteError::Cancelled,
        "connection lost" => RemoteError::ConnectionLost(rest),
        "failed" => RemoteError::Remote(rest),
        _ => RemoteError::Remote(text.to_owned()),
    }
}

/// The answer to `asker` that a job gives that has ended.
pub(super) fn answer(
    request: &RemoteRequest,
    asker: &str,
    job: JobView,
) -> Result<RemoteResponse, RemoteError> {
    let mut response = answer_of(request, job)?;
    asker.clone_into(&mut response.target);
    Ok(response)
}

fn answer_of(request: &RemoteRequest, job: JobView) -> Result<RemoteResponse, RemoteError> {
    let wrong = |what: String| RemoteError::Protocol(what);
    let error = match (job.state.outcome(), job.last_error) {
        (Some(Outcome::Done), _) => None,
        (Some(Outcome::Cancelled), _) => Some(RemoteError::Cancelled),
        (Some(Outcome::Failed), Some(text)) => Some(understood(&text)),
        (Some(Outcome::Failed) | None, _) => Some(RemoteError::Remote(
            "the job failed, and does not say why".to_owned(),
        )),
    };
    if let Some(error) = error {
        return Ok(RemoteResponse::from_error(request, "", error));
    }
    let result = job
        .result
        .ok_or_else(|| wrong("the job gave no answer".to_owned()))?;
    let carried: CarriedAnswer = result
        .read()
        .map_err(|error| wrong(format!("the job's result is no answer: {error}")))?;
    let payload = base64::decode(&carried.payload);
    let payload = payload.ok_or_else(|| wrong("the answer is no base64".to_owned()))?;
    let mut response = RemoteResponse::new(request, carried.sender, payload);
    response.metadata = carried.metadata;
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_comes_out_as_it_went_in() {
        let request = RemoteRequest::new("load")
            .payload(vec![0, 255, 7])
            .metadata("format", "rgba8")
            .sender("me")
            .target("you")
            .mode(TransferMode::PushDataToRemote)
            .timeout(Duration::from_millis(1500));
        let carried = CarriedRequest::of(&request, "me");
        let text = serde_json::to_string(&carried).unwrap();
        let back: CarriedRequest = serde_json::from_str(&text).unwrap();
        assert_eq!(back.into_request().unwrap(), request);
    }

    #[test]
    fn errors_are_known_again() {
        for error in [
            RemoteError::UnknownOperation("x".to_owned()),
            RemoteError::WrongTarget("y".to_owned()),
            RemoteError::Busy,
            RemoteError::Cancelled,
            RemoteError::ConnectionLost("z".to_owned()),
            RemoteError::Remote("no: luck".to_owned()),
        ] {
            assert_eq!(understood(&told(&error)), error);
        }
        let other = understood("panicked: oh dear");
        assert_eq!(other, RemoteError::Remote("panicked: oh dear".to_owned()));
    }
}
