//! Checks of bodies that their types do not make. Each returns the fields that are wrong.

use super::{MAX_AT_ONCE, MAX_REASON_BYTES, MAX_WAIT_SEC};
use crate::{CleanRequest, FieldError, INPUT_AT_ONCE, InputAppend, SignalsRequest};

/// Joins checks.
pub(super) fn all<const N: usize>(checks: [Vec<FieldError>; N]) -> Vec<FieldError> {
    checks.into_iter().flatten().collect()
}

/// A reason is kept with the job's events and shown.
pub(super) fn wrong_reason(reason: &Option<String>) -> Vec<FieldError> {
    let Some(reason) = reason else {
        return Vec::new();
    };
    let message = if reason.len() > MAX_REASON_BYTES {
        let length = reason.len();
        format!("has {length} bytes: shorten it to {MAX_REASON_BYTES} at most")
    } else if let Some(c) = reason.chars().find(|c| c.is_control()) {
        format!("holds the control character {c:?}: leave it out")
    } else {
        return Vec::new();
    };
    vec![FieldError::new("reason", message)]
}

/// A request names a bounded number of things.
pub(super) fn too_many(field: &str, count: usize) -> Vec<FieldError> {
    more_than(field, count, MAX_AT_ONCE)
}

/// A request names at most so many things.
pub(super) fn more_than(field: &str, count: usize, most: usize) -> Vec<FieldError> {
    if count <= most {
        return Vec::new();
    }
    let message = format!("has {count} entries: send {most} at most at once");
    vec![FieldError::new(field, message)]
}

/// A wait is bounded.
pub(super) fn wrong_wait(field: &str, seconds: u32) -> Vec<FieldError> {
    if seconds <= MAX_WAIT_SEC {
        return Vec::new();
    }
    let message = format!("is {seconds}: write 0 to {MAX_WAIT_SEC}");
    vec![FieldError::new(field, message)]
}

/// Input is base64, and not too much at once.
pub(super) fn wrong_input(request: &InputAppend) -> Vec<FieldError> {
    let message = match request.bytes() {
        None => "is not base64: write it with padding, as RFC 4648 has it".to_owned(),
        Some(bytes) if bytes.len() > INPUT_AT_ONCE => {
            let length = bytes.len();
            format!("has {length} bytes: send {INPUT_AT_ONCE} at most at once")
        }
        Some(_) => return Vec::new(),
    };
    vec![FieldError::new("base64", message)]
}

/// Only what has ended can be forgotten.
pub(super) fn wrong_states(request: &CleanRequest) -> Vec<FieldError> {
    let wrong = request.state.iter().position(|state| !state.is_ended());
    let told = wrong.map(|place| {
        let message = format!(
            "is {}: write DONE, FAILED or CANCELED, or cancel the jobs first",
            request.state[place]
        );
        FieldError::new(format!("state[{place}]"), message)
    });
    told.into_iter().collect()
}

/// Signals are not negative, and a rate is a share.
pub(super) fn wrong_signals(request: &SignalsRequest) -> Vec<FieldError> {
    let each = [
        ("p95_latency_ms", request.p95_latency_ms, f64::MAX),
        ("in_flight", request.in_flight, f64::MAX),
        ("requests_per_sec", request.requests_per_sec, f64::MAX),
        ("error_rate", request.error_rate, 1.0),
    ];
    let wrong = each.into_iter().filter_map(|(field, value, most)| {
        let value = value.filter(|value| !(0.0..=most).contains(value))?;
        let wanted = if most == 1.0 { "0 to 1" } else { "0 or more" };
        Some(FieldError::new(
            field,
            format!("is {value}: write {wanted}"),
        ))
    });
    wrong.collect()
}
