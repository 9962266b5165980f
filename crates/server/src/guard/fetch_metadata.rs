//! Whether a browser sends this for a page of somebody else's.
//!
//! Browsers say where a request comes from. What comes from another site, or from another port of this machine, is
//! refused whatever it asks, except following a link to look at something. There are no CORS headers anywhere: another
//! origin's page cannot read our answers either. Programs that are no browsers send none of these headers.

use axum::http::header::{HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};

use crate::problem::{Answered, Refusal};

/// It is no other page's request.
pub(crate) fn check(parts: &Parts) -> Answered<()> {
    let headers = &parts.headers;
    let reads = parts.method == Method::GET || parts.method == Method::HEAD;
    let from = match headers.get("sec-fetch-site").map(|it| it.as_bytes()) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) if reads && follows_link(headers) => Ok(()),
        Some(_) => Err(()),
    };
    // Older browsers send this alone: with requests that change something, and with reads of pages that want to see the answer.
    let origin = match headers.get(ORIGIN) {
        Some(origin) => same_origin(origin.as_bytes(), headers),
        None => true,
    };
    if from.is_ok() && origin {
        return Ok(());
    }
    Err(Refusal::forbidden(
        "a page of another origin sent this: call from a program, or from a page of this server",
    ))
}

fn follows_link(headers: &HeaderMap) -> bool {
    let is = |name: &str, value: &[u8]| headers.get(name).is_some_and(|it| it.as_bytes() == value);
    is("sec-fetch-mode", b"navigate") && is("sec-fetch-dest", b"document")
}

fn same_origin(origin: &[u8], headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST).map(|host| host.as_bytes()) else {
        return false;
    };
    let schemes: [&[u8]; 2] = [b"http://", b"https://"];
    let named = schemes
        .iter()
        .find_map(|scheme| origin.strip_prefix(*scheme));
    named.is_some_and(|named| named.eq_ignore_ascii_case(host))
}
