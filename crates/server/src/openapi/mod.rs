//! The description of the interface, OpenAPI 3.1: the schemas are those of the protocol's types, the operations those of
//! the table that the routes are made of, and what every operation has in common is written once.
//!
//! It is checked in as `openapi.json` in this crate, so that a change of the interface is seen in a review; a test compares
//! the two, and another asks a running server whether it has exactly these operations.

mod book;
mod bounds;
mod refine;

use serde_json::Value;

pub(crate) use book::{Book, DescribeAnswer, DescribeBody};

/// Returns the description.
fn describe() -> Value {
    let mut whole = crate::api::routes().book.finish();
    refine::refine(&mut whole);
    whole
}

/// Returns the description as text, as it is checked in and served.
///
/// ```
/// let text = jobtree_server::openapi();
/// assert!(text.contains("\"openapi\": \"3.1.0\""));
/// ```
pub fn openapi() -> String {
    let mut text = serde_json::to_string_pretty(&describe()).expect("it is JSON");
    text.push('\n');
    text
}
