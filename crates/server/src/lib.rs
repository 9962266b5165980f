//! The durable queue over HTTP.
//!
//! [`Server::start`] opens the store, starts the scheduler over it and serves it on one address. It runs on threads of its
//! own; nothing in here asks its user to be asynchronous.
//!
//! A request goes through `front`, which knows who asks and whether it may be answered at all, to a handler in `api`,
//! which knows what is asked. Handlers await the scheduler's replies; every error is problem JSON.
//!
//! ```
//! use jobtree_server::{Server, ServerOptions, StoreChoice};
//!
//! # let folder = std::env::temp_dir().join(format!("jobtree-server-doc-{}", std::process::id()));
//! let options = ServerOptions {
//!     listen: "127.0.0.1:0".parse().unwrap(),
//!     store: StoreChoice::Memory,
//!     ..ServerOptions::new(&folder)
//! };
//! let server = Server::start(options).unwrap();
//! assert!(server.url().starts_with("http://127.0.0.1:"));
//! server.stop();
//! # std::fs::remove_dir_all(folder).unwrap();
//! ```
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod api;
mod auth;
mod bulk;
mod chrome_trace;
mod daemon;
mod dashboard;
mod error;
mod events;
mod extract;
mod front;
mod guard;
mod input;
mod listen;
mod live;
mod load;
mod metrics;
mod observing;
mod openapi;
mod options;
#[cfg(feature = "otel")]
pub mod otel;
mod policy;
mod problem;
mod relay;
mod server;
mod stall;
mod trace;
pub mod webhooks;

pub use error::ServeError;
pub use openapi::openapi;
pub use options::{Auth, HttpLimits, Rate, ServerOptions, StoreChoice, TlsFiles};
pub use server::Server;
