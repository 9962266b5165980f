//! Bodies and ids of requests, read strictly: one that is not as the table of operations describes it is refused with a
//! sentence, and never guessed at. And the answers, as responses.

mod objects;
mod wrong_field;

use std::future::Future;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Path};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use jobtree_protocol::ErrorCode;
use jobtree_protocol::operations::{
    Answer, AnswerBody, Created, EventStream, JsonObject, NoContent, Operation, Optional, PathId,
    PrometheusText, RequestBody, Required, TomlText, WithCookie,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use self::objects::Objects;
use crate::daemon::Daemon;
use crate::problem::{Answered, Refusal};

/// A kind of body that the server can read.
pub(crate) trait ReadBody: RequestBody {
    /// Reads the body, strictly.
    fn read(
        headers: &HeaderMap,
        body: Body,
        daemon: &Daemon,
    ) -> impl Future<Output = Answered<Self::Value>> + Send;
}

impl ReadBody for () {
    async fn read(_: &HeaderMap, _: Body, _: &Daemon) -> Answered<()> {
        Ok(())
    }
}

impl<T: Serialize + DeserializeOwned + Send + 'static> ReadBody for Required<T> {
    async fn read(headers: &HeaderMap, body: Body, daemon: &Daemon) -> Answered<T> {
        let body = read(headers, body, daemon).await?;
        if !is_json(headers) {
            return Err(not_json());
        }
        parse(&body)
    }
}

impl<T: Serialize + DeserializeOwned + Default + Send + 'static> ReadBody for Optional<T> {
    async fn read(headers: &HeaderMap, body: Body, daemon: &Daemon) -> Answered<T> {
        let body = read(headers, body, daemon).await?;
        if body.is_empty() {
            return Ok(T::default());
        }
        if !is_json(headers) {
            return Err(not_json());
        }
        parse(&body)
    }
}

impl ReadBody for TomlText {
    async fn read(headers: &HeaderMap, body: Body, daemon: &Daemon) -> Answered<String> {
        if !has_type(headers, &["application/toml", "text/plain"]) {
            let message = "the body must be TOML: send Content-Type: application/toml";
            return Err(Refusal::with_status(415, ErrorCode::Malformed, message));
        }
        let body = read(headers, body, daemon).await?;
        String::from_utf8(body.into())
            .map_err(|_| Refusal::malformed("the body is not UTF-8: save the file as UTF-8"))
    }
}

/// Reads the one id in the path, if the operation has one.
pub(crate) async fn read_id<T: PathId>(parts: &mut Parts, daemon: &Arc<Daemon>) -> Answered<T> {
    if !T::PRESENT {
        return Ok(T::from_uuid(Uuid::nil()));
    }
    let Path(text) = Path::<String>::from_request_parts(parts, daemon)
        .await
        .map_err(|_| Refusal::malformed("the path is not UTF-8: check the id in it"))?;
    // The hyphenated form alone: one thing has one name.
    let id = (text.len() == 36)
        .then(|| Uuid::parse_str(&text).ok())
        .flatten();
    id.map(T::from_uuid).ok_or_else(|| {
        Refusal::malformed("the id in the path is not a UUID: write 36 characters, with hyphens")
    })
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Answered<T> {
    from_slice(body).map_err(|error| wrong_field::explain::<T>(body, &error).into())
}

fn from_slice<T: DeserializeOwned>(body: &[u8]) -> Result<T, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = T::deserialize(Objects(&mut reader))?;
    reader.end()?;
    Ok(value)
}

fn is_json(headers: &HeaderMap) -> bool {
    has_type(headers, &["application/json"])
}

/// Whether the body says that it is one of these. Parameters such as a charset are not looked at: JSON is UTF-8.
fn has_type(headers: &HeaderMap, types: &[&str]) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes) else {
        return false;
    };
    let essence = value.split(|byte| *byte == b';').next().unwrap_or_default();
    let essence = essence.trim_ascii();
    types
        .iter()
        .any(|known| essence.eq_ignore_ascii_case(known.as_bytes()))
}

fn not_json() -> Refusal {
    let message = "the body must be JSON: send Content-Type: application/json";
    Refusal::with_status(415, ErrorCode::Malformed, message)
}

/// Reads a body, not too long and not too slowly.
async fn read(headers: &HeaderMap, body: Body, daemon: &Daemon) -> Answered<Bytes> {
    let limits = daemon.limits();
    let length = headers.get(CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > limits.body_bytes as u64) {
        return Err(too_large(limits.body_bytes));
    }
    if length == Some(0) {
        return Ok(Bytes::new());
    }
    let whole = Limited::new(body, limits.body_bytes).collect();
    match tokio::time::timeout(limits.body_timeout, whole).await {
        Err(_) => Err(Refusal::with_status(
            408,
            ErrorCode::Unavailable,
            "the body did not come in time: nothing was done; send it again, faster",
        )),
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(limits.body_bytes)),
        Ok(Err(_)) => Err(Refusal::malformed("the body ended early: send all of it")),
    }
}

fn too_large(most: usize) -> Refusal {
    let message = format!("the body is larger than {most} bytes: send less at once");
    Refusal::new(ErrorCode::TooLarge, message)
}

/// A kind of answer that the server can write.
pub(crate) trait Respond: AnswerBody {
    /// The result type of a handler.
    type Returned: Send;

    fn respond(value: Self::Returned) -> Response<Body>;
}

/// The result of an operation's handler.
pub(crate) type ValueOf<O> = <<O as Operation>::Answer as Respond>::Returned;

impl<T: Serialize + DeserializeOwned + Send + 'static> Respond for Answer<T> {
    type Returned = T;

    fn respond(value: T) -> Response<Body> {
        json(Self::STATUS, &value)
    }
}

impl<T: Serialize + DeserializeOwned + Send + 'static> Respond for Created<T> {
    type Returned = T;

    fn respond(value: T) -> Response<Body> {
        json(Self::STATUS, &value)
    }
}

impl Respond for NoContent {
    type Returned = ();

    fn respond((): ()) -> Response<Body> {
        with_status(Self::STATUS, Body::empty())
    }
}

impl<A: Respond> Respond for WithCookie<A> {
    /// The answer, and the whole value of `Set-Cookie` if there is something to set.
    type Returned = (A::Returned, Option<HeaderValue>);

    fn respond((value, cookie): Self::Returned) -> Response<Body> {
        let mut response = A::respond(value);
        if let Some(cookie) = cookie {
            response.headers_mut().insert(SET_COOKIE, cookie);
        }
        response
    }
}

impl Respond for JsonObject {
    /// The text.
    type Returned = Bytes;

    fn respond(text: Bytes) -> Response<Body> {
        typed("application/json", text.into())
    }
}

impl Respond for TomlText {
    type Returned = String;

    fn respond(text: String) -> Response<Body> {
        typed("application/toml", text.into())
    }
}

impl Respond for PrometheusText {
    type Returned = String;

    fn respond(text: String) -> Response<Body> {
        typed(crate::metrics::CONTENT_TYPE, text.into())
    }
}

impl Respond for EventStream {
    type Returned = Body;

    fn respond(body: Body) -> Response<Body> {
        let mut response = typed("text/event-stream", body);
        // A proxy that collects would hold events back.
        let off = HeaderValue::from_static("no");
        response.headers_mut().insert("x-accel-buffering", off);
        response
    }
}

fn with_status(status: u16, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).expect("a status of the table");
    response
}

fn typed(media_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let media_type = HeaderValue::from_static(media_type);
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}

fn json(status: u16, value: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(body) => {
            let mut response = with_status(status, body.into());
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            response
        }
        Err(error) => {
            tracing::error!(%error, "an answer has no JSON form");
            let message = "the answer cannot be written as JSON; this is a defect";
            Refusal::with_status(500, ErrorCode::Unavailable, message).into_response()
        }
    }
}
