//! The kinds of path ids, bodies and answers that an operation can have.

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use super::query::{Parameter, QueryString, Reader, Writer};
use crate::{ApiError, JobId, LeaseId, ScheduleId, paths};

/// The id in an operation's path.
pub trait PathId: Copy + Send + Sync + 'static {
    /// Whether there is one.
    const PRESENT: bool;

    /// Makes the id of what the path has.
    fn from_uuid(id: Uuid) -> Self;

    /// Fills a path's pattern.
    fn fill(self, pattern: &str) -> String;
}

impl PathId for () {
    const PRESENT: bool = false;

    fn from_uuid(_: Uuid) -> Self {}

    fn fill(self, pattern: &str) -> String {
        pattern.to_owned()
    }
}

macro_rules! path_ids {
    ($($id:ty),*) => {$(
        impl PathId for $id {
            const PRESENT: bool = true;

            fn from_uuid(id: Uuid) -> Self {
                id.into()
            }

            fn fill(self, pattern: &str) -> String {
                paths::at(pattern, self)
            }
        }
    )*};
}

path_ids!(JobId, LeaseId, ScheduleId, Uuid);

/// A kind of request body.
pub trait RequestBody: Send + Sync + 'static {
    /// The type of the body.
    type Value: Send + 'static;
    /// Its media type; none if there is no body.
    const MEDIA_TYPE: Option<&'static str>;

    /// Writes the body.
    ///
    /// # Errors
    /// If the value has no JSON form.
    fn encode(value: &Self::Value) -> Result<Vec<u8>, serde_json::Error>;
}

/// A JSON body that must be there.
#[derive(Debug)]
pub struct Required<T>(PhantomData<fn() -> T>);
/// A JSON body that may be left out; then all its fields have their defaults.
#[derive(Debug)]
pub struct Optional<T>(PhantomData<fn() -> T>);
/// A TOML body or answer.
#[derive(Debug)]
pub struct TomlText;

impl RequestBody for () {
    type Value = ();
    const MEDIA_TYPE: Option<&'static str> = None;

    fn encode((): &()) -> Result<Vec<u8>, serde_json::Error> {
        Ok(Vec::new())
    }
}

impl<T: Serialize + Send + 'static> RequestBody for Required<T> {
    type Value = T;
    const MEDIA_TYPE: Option<&'static str> = Some("application/json");

    fn encode(value: &T) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(value)
    }
}

impl<T: Serialize + Send + 'static> RequestBody for Optional<T> {
    type Value = T;
    const MEDIA_TYPE: Option<&'static str> = Some("application/json");

    fn encode(value: &T) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(value)
    }
}

impl RequestBody for TomlText {
    type Value = String;
    const MEDIA_TYPE: Option<&'static str> = Some("application/toml");

    fn encode(value: &String) -> Result<Vec<u8>, serde_json::Error> {
        Ok(value.as_bytes().to_vec())
    }
}

/// A kind of successful answer.
pub trait AnswerBody: Send + Sync + 'static {
    /// The type of the answer, as a client gets it.
    type Value;
    /// The HTTP status.
    const STATUS: u16;

    /// Reads the answer.
    ///
    /// # Errors
    /// With a text that says what is wrong with the answer.
    fn decode(body: Vec<u8>) -> Result<Self::Value, String>;
}

/// A JSON answer.
#[derive(Debug)]
pub struct Answer<T>(PhantomData<fn() -> T>);
/// A JSON answer that describes what was created.
#[derive(Debug)]
pub struct Created<T>(PhantomData<fn() -> T>);
/// An answer without a body.
#[derive(Debug)]
pub struct NoContent;
/// An answer that sets or takes away the cookie of a session.
#[derive(Debug)]
pub struct WithCookie<A>(PhantomData<fn() -> A>);
/// A JSON answer of any shape.
#[derive(Debug)]
pub struct JsonObject;
/// An answer in the text format of Prometheus.
#[derive(Debug)]
pub struct PrometheusText;
/// A stream of server-sent events.
#[derive(Debug)]
pub struct EventStream;

fn from_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| format!("its answer cannot be read: {error}"))
}

fn from_text(body: Vec<u8>) -> Result<String, String> {
    String::from_utf8(body).map_err(|_| "its answer is not UTF-8".to_owned())
}

impl<T: DeserializeOwned + 'static> AnswerBody for Answer<T> {
    type Value = T;
    const STATUS: u16 = 200;

    fn decode(body: Vec<u8>) -> Result<T, String> {
        from_json(&body)
    }
}

impl<T: DeserializeOwned + 'static> AnswerBody for Created<T> {
    type Value = T;
    const STATUS: u16 = 201;

    fn decode(body: Vec<u8>) -> Result<T, String> {
        from_json(&body)
    }
}

impl AnswerBody for NoContent {
    type Value = ();
    const STATUS: u16 = 204;

    /// Ignores what a later server may say.
    fn decode(_: Vec<u8>) -> Result<(), String> {
        Ok(())
    }
}

impl<A: AnswerBody> AnswerBody for WithCookie<A> {
    type Value = A::Value;
    const STATUS: u16 = A::STATUS;

    /// Ignores the cookie, which is for browsers.
    fn decode(body: Vec<u8>) -> Result<A::Value, String> {
        A::decode(body)
    }
}

impl AnswerBody for JsonObject {
    type Value = Value;
    const STATUS: u16 = 200;

    fn decode(body: Vec<u8>) -> Result<Value, String> {
        from_json(&body)
    }
}

macro_rules! texts {
    ($($kind:ty),*) => {$(
        impl AnswerBody for $kind {
            type Value = String;
            const STATUS: u16 = 200;

            fn decode(body: Vec<u8>) -> Result<String, String> {
                from_text(body)
            }
        }
    )*};
}

texts!(TomlText, PrometheusText, EventStream);

/// A query of which every parameter is ignored: probes may add what they like.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyQuery;

impl QueryString for AnyQuery {
    const PARAMETERS: &'static [Parameter] = &[];
    const STRICT: bool = false;

    fn read(_: &mut Reader<'_>) -> Result<Self, ApiError> {
        Ok(Self)
    }

    fn write(&self, _: &mut Writer) {}
}
