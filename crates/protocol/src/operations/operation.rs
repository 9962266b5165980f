//! The trait that each entry of the table implements, and its description as data.

use serde_json::Value;

use super::kinds::{AnswerBody, PathId, RequestBody};
use super::query::{Parameter, QueryString};
use crate::{FieldError, Scope};

/// An HTTP operation. Implemented by the unit structs that the table generates.
pub trait Operation: Send + Sync + 'static {
    /// The id in the path; `()` if there is none.
    type Path: PathId;
    /// The query's parameters; `()` if there are none.
    type Query: QueryString + Default + Send + 'static;
    /// The kind of body; `()` if there is none.
    type Body: RequestBody;
    /// The kind of answer.
    type Answer: AnswerBody;

    /// The description as data.
    const INFO: Info;

    /// Returns an example of the body, if there is one.
    fn example() -> Option<Value> {
        None
    }

    /// Returns the fields of the body that are wrong beyond its shape.
    fn check(body: &BodyOf<Self>) -> Vec<FieldError> {
        let _ = body;
        Vec::new()
    }
}

/// The type of an operation's body.
pub type BodyOf<O> = <<O as Operation>::Body as RequestBody>::Value;
/// The type of an operation's answer.
pub type AnswerOf<O> = <<O as Operation>::Answer as AnswerBody>::Value;

/// The description of an operation as data.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The operation's name: `operationId` in OpenAPI.
    pub id: &'static str,
    /// The HTTP method.
    pub method: Method,
    /// The path, with `{…}` where an id stands.
    pub path: &'static str,
    /// One sentence on what the operation does.
    pub summary: &'static str,
    /// The token that it needs.
    pub access: Access,
    /// Whether repeating it is the same as doing it once.
    pub idempotent: bool,
    /// Whether it may take longer than the server's limit for an answer.
    pub long: bool,
    /// The query's parameters.
    pub parameters: &'static [Parameter],
    /// The description of a successful answer.
    pub answer: &'static str,
    /// The errors that not every operation has: status and description.
    pub errors: &'static [(u16, &'static str)],
    /// Operations that take an id from the answer.
    pub links: &'static [Link],
}

/// A link from an answer to another operation.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// The id of the other operation.
    pub operation: &'static str,
    /// The other operation's parameter.
    pub parameter: &'static str,
    /// A JSON pointer to its value in the answer.
    pub pointer: &'static str,
}

/// The token that an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// None.
    Open,
    /// Any, whatever its scopes.
    AnyToken,
    /// One with this scope, or with `admin`.
    Scope(Scope),
}

/// An HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Method {
    Get,
    Post,
    Put,
    Delete,
}

impl Method {
    /// Returns the method as it is written in a request.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }

    /// Returns `true` if every operation with this method may be repeated. (A second DELETE answers 404, so it is left
    /// to the entry.)
    pub const fn is_idempotent(self) -> bool {
        matches!(self, Self::Get | Self::Put)
    }
}
