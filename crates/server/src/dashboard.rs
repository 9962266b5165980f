//! The dashboard's files: built from `web/`, embedded, and sent without asking for a token, since nothing in them is secret. All
//! that they show they read from the API, as any other client would.
//!
//! The page names its files relative to `<base href>`. That is written into each answer as the way from the path asked for up
//! to the root ("../"), so the page works below any prefix that a proxy takes away, and nobody has to configure it.

use std::sync::LazyLock;

use axum::body::{Body, Bytes};
use axum::http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, REFERRER_POLICY, VARY, X_FRAME_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response};

/// A file of the dashboard.
struct File {
    /// The path below the dashboard's address.
    name: &'static str,
    plain: &'static [u8],
    /// The same, compressed when it was built.
    brotli: Option<&'static [u8]>,
}

/// All files, as the build script found them.
static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));
/// The page that shows every screen.
const PAGE: &str = "index.html";
/// The element of the page that is filled in with each answer.
const BASE: &str = "<base href=\"/\" />";
/// The folder whose files are named after their content.
const HASHED: &str = "assets/";

/// The rules for what the browser may load and do: scripts and styles from files of ours, calls to us, and nothing else. Not in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'self'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// Returns the page or the file that a request asks for; none if it asks for something else.
///
/// Every path outside the API is a screen of the page, for a browser that goes there; the page itself tells of those that do
/// not exist. Programs, which do not ask for HTML, get an error that they can read.
pub(crate) fn answer(parts: &Parts) -> Option<Response<Body>> {
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return None;
    }
    let path = parts.uri.path().strip_prefix('/')?;
    let mut response = match FILES.iter().find(|file| file.name == path) {
        Some(file) if file.name != PAGE => send(file, &parts.headers),
        _ if is_screen(path) && wants_html(&parts.headers) => page(path),
        _ => return None,
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (X_FRAME_OPTIONS, "DENY"),
        (CROSS_ORIGIN_OPENER_POLICY, "same-origin"),
        (CROSS_ORIGIN_RESOURCE_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Some(response)
}

const CROSS_ORIGIN_OPENER_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-opener-policy");
const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");

/// Returns `true` if the path may be a screen's: it is not the API's, and a file would have been found. A name with a dot is
/// one of a file that an older page asks for.
fn is_screen(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    let first = path.split('/').next().unwrap_or_default();
    !matches!(first, "api" | "healthz" | "readyz" | "metrics") && !last.contains('.')
}

fn wants_html(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter();
    accepted.into_iter().any(|value| has(value, b"text/html"))
}

/// Returns `true` if a list such as `gzip, br;q=0.5` names this, and does not exclude it.
fn has(list: &HeaderValue, wanted: &[u8]) -> bool {
    list.as_bytes().split(|byte| *byte == b',').any(|item| {
        let mut parts = item.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let named = parts
            .next()
            .is_some_and(|it| it.eq_ignore_ascii_case(wanted));
        named && !parts.any(|it| matches!(it, b"q=0" | b"q=0.0" | b"q=0.00" | b"q=0.000"))
    })
}

/// Sends a file, compressed for whoever reads that.
fn send(file: &File, headers: &HeaderMap) -> Response<Body> {
    let reads = headers.get_all(ACCEPT_ENCODING).iter();
    let brotli = file
        .brotli
        .filter(|_| reads.into_iter().any(|value| has(value, b"br")));
    let mut response = Response::new(Bytes::from_static(brotli.unwrap_or(file.plain)).into());
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static(media_type(file.name)),
    );
    let cached = match file.name.starts_with(HASHED) {
        true => "public, max-age=31536000, immutable",
        false => "no-cache",
    };
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cached));
    if file.brotli.is_some() {
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    }
    if brotli.is_some() {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("br"));
    }
    response
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("html") => "text/html; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// The page before and after the address that its files are relative to.
static AROUND_BASE: LazyLock<(&str, &str)> = LazyLock::new(|| {
    let page = FILES.iter().find(|file| file.name == PAGE);
    let page = page.map(|page| std::str::from_utf8(page.plain).expect("the page is UTF-8"));
    let parts = page.and_then(|page| page.split_once(BASE));
    parts.expect("the built page has a base")
});

/// Sends the page, for a path without the slash that it begins with.
fn page(path: &str) -> Response<Body> {
    let (before, after) = *AROUND_BASE;
    let up = match path.matches('/').count() {
        0 => "./".to_owned(),
        folders => "../".repeat(folders),
    };
    let text = format!("{before}<base href=\"{up}\" />{after}");
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type(PAGE)));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_what_is_accepted() {
        let value = |text| HeaderValue::from_static(text);
        for yes in ["br", "gzip, br", "gzip;q=0.5 , BR ; q=1.0"] {
            assert!(has(&value(yes), b"br"), "{yes}");
        }
        for no in ["", "gzip", "brotli", "br;q=0", "gzip, br; q=0.0"] {
            assert!(!has(&value(no), b"br"), "{no}");
        }
    }

    #[test]
    fn every_large_file_is_compressed_and_every_type_known() {
        let mut scripts = 0;
        for file in FILES {
            assert_ne!(
                media_type(file.name),
                "application/octet-stream",
                "{}",
                file.name
            );
            let large = file.plain.len() > 4096;
            assert_eq!(file.brotli.is_some(), large, "{}", file.name);
            assert!(file.brotli.is_none_or(|it| it.len() < file.plain.len() / 2));
            scripts += usize::from(file.name.ends_with(".js"));
        }
        assert!(scripts > 0, "run scripts/web");
    }
}
