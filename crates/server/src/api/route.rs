//! Routes, made of the table of operations.
//!
//! Each request passes the same steps: scope, id, query, owner, body, and only then the handler. A handler is a function
//! that is named after the operation's id and gets what was read as a [`Call`]; it cannot be reached without the scope
//! that the table names, nor for a job, lease or schedule of another addon.

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response};
use axum::response::IntoResponse;
use axum::routing::{MethodFilter, on};
use jobtree_protocol::ApiError;
use jobtree_protocol::operations::{Access, BodyOf, Method, Operation, query};

use super::ownership::{self, Owned};
use crate::auth::Caller;
use crate::daemon::Daemon;
use crate::extract::{ReadBody, Respond, ValueOf, read_id};
use crate::openapi::{Book, DescribeAnswer, DescribeBody};
use crate::problem::Answered;

/// The input of a handler.
pub(crate) struct Call<O: Operation>
where
    O::Path: Owned,
{
    pub(crate) caller: Caller,
    /// The id in the path.
    pub(crate) id: O::Path,
    pub(crate) query: O::Query,
    pub(crate) body: BodyOf<O>,
    pub(crate) headers: HeaderMap,
    /// The job, lease or schedule, if it was read to find its owner.
    found: Option<<O::Path as Owned>::View>,
}

impl<O: Operation> Call<O>
where
    O::Path: Owned,
    O::Body: ReadBody,
{
    async fn read(request: Request, daemon: &Arc<Daemon>) -> Answered<Self> {
        let (mut parts, body) = request.into_parts();
        let caller = match O::INFO.access {
            // Nobody was asked who they are.
            Access::Open => Caller::nobody(),
            Access::AnyToken => Caller::of(&parts)?,
            Access::Scope(scope) => {
                let caller = Caller::of(&parts)?;
                caller.needs(scope)?;
                caller
            }
        };
        let id: O::Path = read_id(&mut parts, daemon).await?;
        let query = query::read(parts.uri.query())?;
        let found = ownership::check(daemon, &caller, id).await?;
        let body = match O::Body::read(&parts.headers, body, daemon).await {
            Ok(body) if O::check(&body).is_empty() => body,
            judged => {
                // What does not exist is told before what is wrong with the body, which is not about anything.
                if found.is_none() {
                    id.read(daemon).await?;
                }
                return Err(match judged {
                    Ok(body) => ApiError::invalid(O::check(&body)).into(),
                    Err(refusal) => refusal,
                });
            }
        };
        Ok(Self {
            caller,
            id,
            query,
            body,
            headers: parts.headers,
            found,
        })
    }

    /// Returns the job, lease or schedule that the path names. It exists, and is the caller's to see.
    pub(crate) async fn view(&mut self, daemon: &Daemon) -> Answered<<O::Path as Owned>::View> {
        match self.found.take() {
            Some(view) => Ok(view),
            None => self.id.read(daemon).await,
        }
    }
}

/// Routes and their description, collected from the table.
#[derive(Default)]
pub(crate) struct Routes {
    pub(super) router: Router<Arc<Daemon>>,
    pub(crate) book: Book,
}

impl Routes {
    /// Adds an operation.
    pub(super) fn on<O, F, Answer>(mut self, handler: F) -> Self
    where
        O: Operation,
        O::Path: Owned,
        O::Body: ReadBody + DescribeBody,
        O::Answer: Respond + DescribeAnswer,
        F: Fn(Arc<Daemon>, Call<O>) -> Answer + Clone + Send + Sync + 'static,
        Answer: Future<Output = Answered<ValueOf<O>>> + Send,
    {
        let method = match O::INFO.method {
            Method::Get => MethodFilter::GET,
            Method::Post => MethodFilter::POST,
            Method::Put => MethodFilter::PUT,
            Method::Delete => MethodFilter::DELETE,
        };
        let answer = async move |State(daemon): State<Arc<Daemon>>, request: Request| {
            let answered = match Call::<O>::read(request, &daemon).await {
                Ok(call) => handler(Arc::clone(&daemon), call).await,
                Err(refusal) => Err(refusal),
            };
            let response: Response<Body> = match answered {
                Ok(value) => O::Answer::respond(value),
                Err(refusal) => match O::INFO.access {
                    // Probes tell of it by themselves.
                    Access::Open => refusal,
                    _ => refusal.because_of(|| daemon.refusing_trouble()),
                }
                .into_response(),
            };
            response
        };
        self.router = self.router.route(O::INFO.path, on(method, answer));
        self.book.add::<O>();
        self
    }
}

/// Generates the function `routes` of a topic: each operation goes to the scheduler's method that its entry names, or to
/// the function in scope that has the operation's id.
macro_rules! routes {
    ($($entries:tt)*) => {
        jobtree_protocol::summarize_operations! { [$crate::api::route::route_each] $($entries)* }
    };
}

macro_rules! route_each {
    ($({
        $Operation:ident $id:ident [$($summary:literal)+]
        path: [$($path:ty)?] query: [$($query:ty)?] body: [$($body:ty)?]
        client: [$($client:ident)?] scheduler: [$($scheduler:ident)?]
    })+) => {
        pub(super) fn routes(routes: $crate::api::route::Routes) -> $crate::api::route::Routes {
            routes$(.on::<jobtree_protocol::operations::$Operation, _, _>(
                $crate::api::route::handler!([$($scheduler)?] $id [$($path)?] [$($query)?] [$($body)?])
            ))+
        }
    };
}

macro_rules! handler {
    ([] $id:ident $path:tt $query:tt $body:tt) => { $id };
    ([$scheduler:ident] $id:ident [$($path:ty)?] [$($query:ty)?] [$($body:ty)?]) => {
        |daemon: std::sync::Arc<$crate::daemon::Daemon>, call| async move {
            let answer = daemon.scheduler.$scheduler(
                $($crate::api::route::part!($path, call.id),)?
                $($crate::api::route::part!($query, call.query),)?
                $($crate::api::route::part!($body, call.body),)?
            );
            Ok(answer.await?)
        }
    };
}

/// A part of a call that an operation has.
macro_rules! part {
    ($type:ty, $part:expr) => {
        $part
    };
}

pub(super) use {handler, part, route_each, routes};
