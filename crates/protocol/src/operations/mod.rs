//! The table of HTTP operations: one entry per operation, from which everything else about it is generated.
//!
//! An entry names the method and path, the token scope, the query, the body, the answer and the errors. From it come
//!
//! - the constant in [`paths`](crate::paths) and a unit struct that implements [`Operation`] (this crate),
//! - the route with its scope check, ownership check and strict reading of id, query and body (`jobtree-server`),
//! - the operation in `/openapi.json` (`jobtree-server`),
//! - the client's method, if the entry has `client:` (`jobtree-client`).
//!
//! The entries stand in one file per topic, next to the types that only they use. Each file is the body of a macro that
//! hands its entries to another macro, so that each crate generates its part from the same text:
//!
//! ```text
//! PATH_CONSTANT = "/path/{job_id}" {
//!     /// Summary, for OpenAPI and for the client's method.
//!     post operation_id: OperationStruct {
//!         scope: Cancel,                        // a Scope, or AnyToken, or Open (no token)
//!         path: JobId,                          // if the path has an id
//!         query: SomeQuery,                     // if there are parameters; see `query_parameters!`
//!         body: Required<T> = json!({…}),       // or Optional<T>, TomlText; with an example
//!         answer: Answer<T> = "Description.",   // or Created<T>, NoContent, TomlText, …
//!         errors: [409 => WRONG_STATE],         // those that not every operation has
//!         links: [get_job.job_id = "/job_id"],  // operation.parameter = place of the id in the answer
//!         check: |body| wrong_reason(&body.reason), // returns the fields of the body that are wrong
//!         idempotent: true,                     // a POST or DELETE that may be repeated; GET and PUT always may
//!         long: true,                           // may take longer than the server's limit for an answer
//!         client: name,                         // generates Client::name(id, &query, &body)
//!         scheduler: name,                      // the server calls Scheduler::name(id, query, body); without it,
//!     }                                         // the server's function with the operation's id is called
//! }
//! ```
//!
//! `scope` and `answer` are required; the rest is optional, in this order. An entry without a handler does not compile.

mod bulk;
mod checks;
mod commands;
mod define;
mod events;
mod jobs;
mod kinds;
mod leases;
mod observing;
mod operating;
mod operation;
mod probes;
pub mod query;
mod schedules;
mod sessions;
mod tokens;
mod work;

pub use bulk::*;
pub use commands::*;
pub use events::*;
pub use jobs::*;
pub use kinds::{
    Answer, AnswerBody, AnyQuery, Created, EventStream, JsonObject, NoContent, Optional, PathId,
    PrometheusText, RequestBody, Required, TomlText, WithCookie,
};
pub use leases::*;
pub use observing::*;
pub use operating::*;
pub use operation::{Access, AnswerOf, BodyOf, Info, Link, Method, Operation};
pub use probes::*;
pub use schedules::*;
pub use sessions::*;
pub use tokens::*;
pub use work::*;

/// The most rows that one page can have.
pub const MAX_ROWS: u32 = 500;
/// The rows of a page for which the caller names no limit.
pub const DEFAULT_ROWS: u32 = 50;
/// The longest wait that a caller can ask for, in seconds.
pub const MAX_WAIT_SEC: u32 = 600;
/// The most jobs or leases that one request can name.
pub const MAX_AT_ONCE: usize = 1000;
/// The most bytes of a reason.
pub const MAX_REASON_BYTES: usize = 1024;

/// The description of a 409 that the state of a job or lease causes.
const WRONG_STATE: &str = "The state of the job or lease does not allow this.";
/// An id for examples.
const ID: &str = "00000000-0000-4000-8000-000000000000";

/// The path constants of all topics.
pub(crate) mod paths {
    pub use super::bulk::paths::*;
    pub use super::commands::paths::*;
    pub use super::events::paths::*;
    pub use super::jobs::paths::*;
    pub use super::leases::paths::*;
    pub use super::observing::paths::*;
    pub use super::operating::paths::*;
    pub use super::probes::paths::*;
    pub use super::schedules::paths::*;
    pub use super::sessions::paths::*;
    pub use super::tokens::paths::*;
    pub use super::work::paths::*;
}

/// Returns the descriptions of all operations.
///
/// ```
/// use jobtree_protocol::operations::{self, Access};
/// use jobtree_protocol::Scope;
///
/// let cancel = operations::all().find(|operation| operation.id == "cancel_job").unwrap();
/// assert_eq!(cancel.access, Access::Scope(Scope::Cancel));
/// ```
pub fn all() -> impl Iterator<Item = &'static Info> {
    const TOPICS: [&[Info]; 12] = [
        probes::ALL,
        jobs::ALL,
        commands::ALL,
        bulk::ALL,
        work::ALL,
        leases::ALL,
        schedules::ALL,
        operating::ALL,
        observing::ALL,
        events::ALL,
        tokens::ALL,
        sessions::ALL,
    ];
    TOPICS.into_iter().flatten()
}
