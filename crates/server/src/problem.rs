//! Every error as problem JSON: a [`Refusal`] is what handlers and guards fail with.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use jobtree_protocol::{ApiError, ErrorCode, Problem};

/// What handlers answer.
pub(crate) type Answered<T> = Result<T, Refusal>;

/// An error on its way to the client. One word, since every handler carries it in its result.
#[derive(Debug)]
pub(crate) struct Refusal(Box<Inner>);

#[derive(Debug)]
struct Inner {
    status: u16,
    error: ApiError,
    retry_after_sec: Option<u64>,
}

impl Refusal {
    /// With the status of its code.
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::with_status(code.http_status(), code, message)
    }

    /// With another status.
    pub(crate) fn with_status(status: u16, code: ErrorCode, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            status,
            error: ApiError::new(code, message),
            retry_after_sec: None,
        }))
    }

    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Malformed, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::NotFound, message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Forbidden, message)
    }

    /// Names what the store suffers from, if that is why nothing can be done now.
    pub(crate) fn because_of(mut self, trouble: impl FnOnce() -> Option<String>) -> Self {
        if self.0.error.code == ErrorCode::Unavailable
            && let Some(trouble) = trouble()
        {
            self.0.error.message = trouble;
        }
        self
    }

    /// Says when to ask again.
    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.0.retry_after_sec = Some(seconds);
        self
    }
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self(Box::new(Inner {
            status: error.code.http_status(),
            error,
            retry_after_sec: None,
        }))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response<Body> {
        let Inner {
            status,
            error,
            retry_after_sec,
        } = *self.0;
        let retry_after_sec = match error.code {
            // The engine may be reading its store again: that takes a moment.
            ErrorCode::Unavailable if status == 503 => Some(retry_after_sec.unwrap_or(1)),
            _ => retry_after_sec,
        };
        let problem = Problem::with_status(status, error);
        let body = serde_json::to_vec(&problem).expect("a problem is JSON");
        let mut response = Response::new(Body::from(body));
        *response.status_mut() =
            StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(Problem::MEDIA_TYPE));
        if status == 401 {
            headers.insert(
                WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"jobtree\""),
            );
        }
        if let Some(seconds) = retry_after_sec {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
