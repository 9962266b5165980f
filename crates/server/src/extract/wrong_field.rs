//! Which field of a body could not be read, and what is wrong with it.
//!
//! The reader of JSON tells a line and a column, which helps with a text that was typed, and not with one that a program wrote. A
//! body that cannot be read is therefore read once more, by a reader that knows where it is; bodies that can be read pay nothing.

use jobtree_protocol::{ApiError, ErrorCode, FieldError};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;

use super::objects::Objects;

/// The most characters of a value that an error shows.
const SHOWN: usize = 60;

/// Returns the error of a body that is not of type `T`.
pub(super) fn explain<T: DeserializeOwned>(body: &[u8], error: &serde_json::Error) -> ApiError {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let found = match serde_path_to_error::deserialize::<_, T>(Objects(&mut reader)) {
        Err(found) if error.is_data() => found,
        // The text is no JSON at all, or goes on behind its end.
        _ => return ApiError::malformed(error),
    };
    let path: Vec<&Segment> = found.path().iter().collect();
    let field = found.path().to_string();
    if path.is_empty() || field == "." {
        return ApiError::malformed(error);
    }
    let told = without_place(&found.inner().to_string());
    let wrong = FieldError::new(field, message(&path, body, &told));
    ApiError {
        message: wrong.to_string(),
        fields: vec![wrong],
        ..ApiError::new(ErrorCode::Malformed, "")
    }
}

/// What is wrong with the field, with its value where the reader's words do not name it.
fn message(path: &[&Segment], body: &[u8], told: &str) -> String {
    let value = value_at(path, body).map(|value| shown(&value));
    let (Some(value), Some(name)) = (value, last_name(path)) else {
        return told.to_owned();
    };
    if name.ends_with("_at") {
        return format!("{value} is not a time: write RFC 3339, such as \"2026-01-31T18:00:00Z\"");
    }
    if told.starts_with("UUID parsing failed") {
        return format!("{value} is not an id: write 36 characters, with hyphens");
    }
    told.to_owned()
}

fn last_name<'a>(path: &[&'a Segment]) -> Option<&'a str> {
    path.iter().rev().find_map(|segment| match segment {
        Segment::Map { key } => Some(key.as_str()),
        _ => None,
    })
}

fn value_at(path: &[&Segment], body: &[u8]) -> Option<Value> {
    let mut value: Value = serde_json::from_slice(body).ok()?;
    for segment in path {
        value = match segment {
            Segment::Map { key } => value.get_mut(key.as_str())?.take(),
            Segment::Seq { index } => value.get_mut(*index)?.take(),
            _ => return None,
        };
    }
    Some(value)
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Without the line and column.
fn without_place(told: &str) -> String {
    let end = told.rfind(" at line ").unwrap_or(told.len());
    told[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use jobtree_protocol::{SubmitManyRequest, SubmitRequest};

    use super::*;

    fn told<T: DeserializeOwned>(body: &str) -> String {
        let error = super::super::from_slice::<T>(body.as_bytes())
            .err()
            .expect("it cannot be read");
        explain::<T>(body.as_bytes(), &error).message
    }

    #[test]
    fn the_field_and_its_value_are_named() {
        let job = |more: &str| {
            format!(
                r#"{{"addon_id":"a","job_type":"t","cost_units":1,"payload":{{"x":1}},{more}}}"#
            )
        };
        assert_eq!(
            told::<SubmitRequest>(&job(r#""earliest_start_at":"tomorrow""#)),
            "earliest_start_at: \"tomorrow\" is not a time: write RFC 3339, such as \"2026-01-31T18:00:00Z\""
        );
        let id = told::<SubmitRequest>(&job(r#""depends_on":["x"]"#));
        assert_eq!(
            id,
            "depends_on[0]: \"x\" is not an id: write 36 characters, with hyphens"
        );
        let number = told::<SubmitRequest>(&job(r#""max_runtime_sec":"soon""#));
        assert!(
            number.starts_with("max_runtime_sec: invalid type: string \"soon\""),
            "{number}"
        );
        assert!(!number.contains("line"), "{number}");
        let unknown = told::<SubmitRequest>(&job(r#""colour":"red""#));
        assert!(unknown.contains("colour"), "{unknown}");
        let nested = told::<SubmitManyRequest>(&format!(r#"{{"jobs":[{}]}}"#, job(r#""tags":7"#)));
        assert!(nested.starts_with("jobs[0].tags: "), "{nested}");
    }

    #[test]
    fn what_is_no_json_keeps_its_line_and_column() {
        let told = told::<SubmitRequest>("{\"addon_id\": ");
        assert!(told.contains("line 1"), "{told}");
    }
}
