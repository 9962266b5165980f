//! What a request holds, read strictly: a body, a path's id or a query that is not as written down is refused with a
//! sentence, and never guessed at.

mod objects;

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use jobtree_protocol::ErrorCode;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use self::objects::Objects;
use crate::daemon::Daemon;
use crate::problem::{Answered, Refusal};

/// A JSON body that must be there.
pub(crate) struct Json<T>(pub(crate) T);

/// A JSON body that may be left out: then everything has its default.
pub(crate) struct MaybeJson<T>(pub(crate) T);

/// A TOML body.
pub(crate) struct Toml(pub(crate) String);

/// The one id in the path.
pub(crate) struct Id<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<Daemon>> for Json<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, daemon: &Arc<Daemon>) -> Answered<Self> {
        let is_json = is_json(request.headers());
        let body = read(request, daemon).await?;
        if !is_json {
            return Err(not_json());
        }
        parse(&body).map(Self)
    }
}

impl<T: DeserializeOwned + Default> FromRequest<Arc<Daemon>> for MaybeJson<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, daemon: &Arc<Daemon>) -> Answered<Self> {
        let is_json = is_json(request.headers());
        let body = read(request, daemon).await?;
        if body.is_empty() {
            return Ok(Self(T::default()));
        }
        if !is_json {
            return Err(not_json());
        }
        parse(&body).map(Self)
    }
}

impl FromRequest<Arc<Daemon>> for Toml {
    type Rejection = Refusal;

    async fn from_request(request: Request, daemon: &Arc<Daemon>) -> Answered<Self> {
        if !has_type(request.headers(), &["application/toml", "text/plain"]) {
            let message = "the body must be TOML: send Content-Type: application/toml";
            return Err(Refusal::with_status(415, ErrorCode::Malformed, message));
        }
        let body = read(request, daemon).await?;
        String::from_utf8(body.into())
            .map(Self)
            .map_err(|_| Refusal::malformed("the body is not UTF-8: save the file as UTF-8"))
    }
}

impl<T: From<Uuid> + Send> FromRequestParts<Arc<Daemon>> for Id<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, daemon: &Arc<Daemon>) -> Answered<Self> {
        let Path(text) = Path::<String>::from_request_parts(parts, daemon)
            .await
            .map_err(|_| Refusal::malformed("the path is not UTF-8: check the id in it"))?;
        // The hyphenated form alone: one thing has one name.
        let id = (text.len() == 36)
            .then(|| Uuid::parse_str(&text).ok())
            .flatten();
        id.map(|id| Self(id.into())).ok_or_else(|| {
            Refusal::malformed("the id in the path is no UUID: write 36 characters, with hyphens")
        })
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Answered<T> {
    from_slice(body).map_err(|error| jobtree_protocol::ApiError::malformed(&error).into())
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
async fn read(request: Request, daemon: &Daemon) -> Answered<Bytes> {
    let limits = daemon.limits();
    let length = request.headers().get(CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > limits.body_bytes as u64) {
        return Err(too_large(limits.body_bytes));
    }
    if length == Some(0) {
        return Ok(Bytes::new());
    }
    let whole = Limited::new(request.into_body(), limits.body_bytes).collect();
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

/// The parameters of a query. That no others are given than the operation has was seen to before.
pub(crate) struct Params<'a> {
    pairs: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Params<'a> {
    pub(crate) fn of(query: Option<&'a str>) -> Answered<Self> {
        let mut pairs = Vec::new();
        for pair in query.unwrap_or_default().split('&') {
            if !pair.is_empty() {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                pairs.push((decoded(name)?, decoded(value)?));
            }
        }
        Ok(Self { pairs })
    }

    /// All values of a parameter.
    pub(crate) fn all(&mut self, name: &str) -> Vec<Cow<'a, str>> {
        let mut found = Vec::new();
        self.pairs.retain_mut(|(given, value)| {
            let is = *given == name;
            if is {
                found.push(std::mem::take(value));
            }
            !is
        });
        found
    }

    /// A parameter that may be given once.
    pub(crate) fn text(&mut self, name: &str) -> Answered<Option<Cow<'a, str>>> {
        let mut found = self.all(name);
        if found.len() > 1 {
            let message = format!("{name} is given {} times: give it once", found.len());
            return Err(Refusal::malformed(message));
        }
        Ok(found.pop())
    }

    /// A parameter of a kind.
    pub(crate) fn one<T: FromStr>(&mut self, name: &str) -> Answered<Option<T>>
    where
        T::Err: Display,
    {
        let text = self.text(name)?;
        text.map(|text| text.parse().map_err(|wrong| bad(name, &text, &wrong)))
            .transpose()
    }

    /// A number within bounds.
    pub(crate) fn number(&mut self, name: &str, least: u32, most: u32) -> Answered<Option<u32>> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse::<u32>() {
            Ok(value) if digits && (least..=most).contains(&value) => Ok(Some(value)),
            _ => {
                let wanted = format!("write a whole number from {least} to {most}");
                Err(bad(name, &text, &wanted))
            }
        }
    }

    /// Yes or no; no if absent.
    pub(crate) fn flag(&mut self, name: &str) -> Answered<bool> {
        match self.text(name)?.as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(bad(name, other, &"write true or false")),
        }
    }

    /// No others than these were given.
    pub(crate) fn only(self, known: &[String]) -> Answered<()> {
        let mut names = self.pairs.iter().map(|(name, _)| name);
        match names.find(|name| !known.iter().any(|known| known == *name)) {
            None => Ok(()),
            Some(name) => {
                let name: String = name.chars().take(64).collect();
                let message = format!("there is no parameter {name:?} here: leave it out");
                Err(Refusal::malformed(message))
            }
        }
    }
}

fn bad(name: &str, value: &str, wanted: &dyn Display) -> Refusal {
    let value: String = value.chars().take(64).collect();
    Refusal::malformed(format!("{name} is {value:?}: {wanted}"))
}

/// Percent signs and pluses, undone.
fn decoded(text: &str) -> Answered<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Ok(Cow::Borrowed(text));
    }
    let wrong = || Refusal::malformed("the query has a broken percent sign, or is not UTF-8");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| (byte? as char).to_digit(16);
                match (digit(rest.next()), digit(rest.next())) {
                    (Some(high), Some(low)) => (high * 16 + low) as u8,
                    _ => return Err(wrong()),
                }
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes)
        .map(Cow::Owned)
        .map_err(|_| wrong())
}

/// A value as a JSON answer.
pub(crate) struct Told<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Told<T> {
    fn into_response(self) -> Response<Body> {
        match serde_json::to_vec(&self.0) {
            Ok(body) => {
                let mut response = Response::new(Body::from(body));
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
}

/// Something was made.
pub(crate) struct Created<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response<Body> {
        let mut response = Told(self.0).into_response();
        if response.status() == StatusCode::OK {
            *response.status_mut() = StatusCode::CREATED;
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_strictly() {
        let read = || Params::of(Some("a=1&b=x%20y+z&a=2&c")).unwrap();
        let mut params = read();
        assert_eq!(params.all("a"), ["1", "2"]);
        assert_eq!(params.text("b").unwrap().unwrap(), "x y z");
        assert!(Params::of(Some("a=%zz")).is_err());
        assert!(Params::of(Some("a=%ff")).is_err());
        let known = |names: &[&str]| {
            names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<_>>()
        };
        assert!(read().only(&known(&["a", "b", "c", "d"])).is_ok());
        assert!(read().only(&known(&["a", "b"])).is_err());
    }

    #[test]
    fn numbers_have_bounds_and_no_signs() {
        let number = |text: &str| Params::of(Some(text)).unwrap().number("n", 1, 500);
        assert_eq!(number("n=500").unwrap(), Some(500));
        assert_eq!(number("").unwrap(), None);
        for wrong in ["n=0", "n=501", "n=+5", "n=", "n=1.0", "n=1&n=1"] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
    }
}
