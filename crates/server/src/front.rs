//! The way of every request: the name it is for, the page it comes from, who asks, how often they did, and only then
//! what they ask. One function and no layers, since each of fifteen thousand requests a second goes through it.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::Poll;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, COOKIE, X_CONTENT_TYPE_OPTIONS};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Request, Response};
use axum::response::IntoResponse;
use hyper::body::Body as HttpBody;
use jobtree_protocol::ErrorCode;
use jobtree_protocol::operations::{self, Access};
use tower::Service;

use crate::api;
use crate::auth::Caller;
use crate::daemon::Daemon;
use crate::dashboard;
use crate::guard::fetch_metadata;
use crate::options::Auth;
use crate::problem::{Answered, Refusal};

/// What answers requests.
pub(crate) struct Front {
    daemon: Arc<Daemon>,
    router: Router,
    /// Who everybody is where no tokens are asked for.
    everybody: Caller,
}

impl Front {
    pub(crate) fn new(daemon: Arc<Daemon>) -> Self {
        Self {
            router: api::router(Arc::clone(&daemon)),
            everybody: Caller::anyone(),
            daemon,
        }
    }

    /// Answers a request, whatever happens.
    pub(crate) async fn answer<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let (mut parts, body) = request.into_parts();
        let mut response = match self.admit(&mut parts) {
            Err(refusal) => refusal.into_response(),
            Ok(Admitted::Answered(response)) => response,
            Ok(Admitted::Passed) => {
                let waits = may_wait(&parts);
                let routed = self.router.clone().call(Request::from_parts(parts, body));
                let answered = unpanicked(async move {
                    let Ok(response) = routed.await;
                    response
                });
                if waits {
                    self.unless_stopping(answered).await
                } else {
                    self.in_time(answered).await
                }
            }
        };
        let headers = response.headers_mut();
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.entry(CACHE_CONTROL).or_insert(NO_STORE);
        response
    }

    /// Checks what comes before the operation: the name, the page that it comes from, the caller, and how often they ask.
    fn admit(&self, parts: &mut Parts) -> Answered<Admitted> {
        self.daemon.hosts.check(parts)?;
        fetch_metadata::check(parts)?;
        // The dashboard asks for a session by itself.
        if let Some(response) = dashboard::answer(parts) {
            return Ok(Admitted::Answered(response));
        }
        if is_open(parts.uri.path()) {
            return Ok(Admitted::Passed);
        }
        let caller = match self.daemon.auth {
            Auth::Open => self.everybody.clone(),
            Auth::Tokens => self.identify(parts)?,
        };
        if let Some(rate) = self.daemon.limits().rate {
            let taken = caller.bucket().take(rate, self.daemon.uptime());
            taken.map_err(|wait| {
                let message = "too many requests with this token: wait as Retry-After says";
                let refusal = Refusal::new(ErrorCode::TooMany, message);
                refusal.retry_after(wait.as_secs() + 1)
            })?;
        }
        parts.extensions.insert(caller);
        Ok(Admitted::Passed)
    }

    fn identify(&self, parts: &mut Parts) -> Answered<Caller> {
        // Taken out: nothing behind this can write it into a log.
        let given = parts.headers.remove(AUTHORIZATION);
        let Some(given) = given else {
            if self.daemon.sessions.has_cookie(&parts.headers) {
                let caller = self.session(parts);
                parts.headers.remove(COOKIE);
                return caller;
            }
            let message = "a token is needed: send Authorization: Bearer, with the one in admin.token or your own";
            return Err(Refusal::new(ErrorCode::Unauthorized, message));
        };
        parts.headers.remove(COOKIE);
        let token = given.to_str().ok().and_then(bearer);
        let caller = token.and_then(|token| self.daemon.tokens.caller(token));
        caller.ok_or_else(|| {
            let message = "the token is not known or has expired: ask an admin for a new one";
            Refusal::new(ErrorCode::Unauthorized, message)
        })
    }

    /// Returns the caller that a session's cookie stands for. What changes something needs the header, too, which no page of
    /// others can send: neither form nor link has headers.
    fn session(&self, parts: &Parts) -> Answered<Caller> {
        let session = self.daemon.sessions.of(&parts.headers);
        let holder = session.as_ref();
        let holder = holder.and_then(|session| self.daemon.tokens.holder(session.token));
        let (Some(session), Some(caller)) = (session, holder) else {
            let message = "the session has ended: sign in again with the link that `jobtree dashboard` prints";
            return Err(Refusal::new(ErrorCode::Unauthorized, message));
        };
        let reads = parts.method == Method::GET || parts.method == Method::HEAD;
        if !reads && !session.has_header(&parts.headers) {
            return Err(Refusal::forbidden(
                "a call by a session that changes something needs the header X-Jobtree-Csrf:                  read its value from GET /api/system/scheduler/session",
            ));
        }
        Ok(caller.by(session))
    }

    async fn in_time(&self, answer: impl Future<Output = Response<Body>>) -> Response<Body> {
        match tokio::time::timeout(self.daemon.limits().answer_timeout, answer).await {
            Ok(response) => response,
            Err(_) => {
                let message = "there was no answer in time, and what was asked may still happen: ask again, repeating is safe";
                Refusal::new(ErrorCode::Unavailable, message).into_response()
            }
        }
    }

    async fn unless_stopping(
        &self,
        answer: impl Future<Output = Response<Body>>,
    ) -> Response<Body> {
        tokio::select! {
            biased;
            response = answer => response,
            () = self.daemon.stopped() => {
                let message = "the server is stopping: ask again when it is back";
                Refusal::new(ErrorCode::Unavailable, message).into_response()
            }
        }
    }
}

/// The outcome of the checks that come before the operation.
enum Admitted {
    /// The request goes on to its operation.
    Passed,
    /// The answer is here already: the request asked for a file of the dashboard.
    Answered(Response<Body>),
}

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Returns `true` for paths whose operations need no token.
fn is_open(path: &str) -> bool {
    static PATHS: LazyLock<Vec<&str>> = LazyLock::new(|| {
        let open = operations::all().filter(|operation| operation.access == Access::Open);
        open.map(|operation| operation.path).collect()
    });
    PATHS.contains(&path)
}

/// Returns `true` if a request may take longer than others: it asks to wait for something, which the scheduler bounds, or
/// the table says so of its operation.
fn may_wait(parts: &Parts) -> bool {
    static PATHS: LazyLock<Vec<&str>> = LazyLock::new(|| {
        let long = operations::all().filter(|operation| operation.long);
        long.map(|operation| operation.path).collect()
    });
    let path = parts.uri.path();
    let asks = || {
        let query = parts.uri.query().unwrap_or_default();
        parts.method == Method::GET && query.contains("wait_sec=")
    };
    PATHS.contains(&path) || asks()
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim_ascii())
}

/// A defect in one handler is an answer, too, and ends nothing else.
async fn unpanicked(answer: impl Future<Output = Response<Body>>) -> Response<Body> {
    let mut answer = pin!(answer);
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(context)));
        polled.unwrap_or_else(|_| {
            tracing::error!("a handler panicked");
            let message = "something broke while answering; this is a defect";
            let refusal = Refusal::with_status(500, ErrorCode::Unavailable, message);
            Poll::Ready(refusal.into_response())
        })
    })
    .await
}
