//! The HTTP client of jobtree's daemon, and workers that run its jobs.
//!
//! [`Client`] has a method for each operation of the daemon, with the types of [`jobtree_protocol`]. Calls
//! block their thread; on a jobtree runtime they belong on [`Dispatcher::io`](jobtree_runtime::Dispatcher::io).
//!
//! ```no_run
//! use jobtree_client::Client;
//! use jobtree_client::protocol::SubmitRequest;
//! use std::time::Duration;
//!
//! let client = Client::builder("http://127.0.0.1:7717").token("…").build()?;
//! let job = client.submit(SubmitRequest::new("photos", "thumbnail", 5))?;
//! let job = client.wait_for(job.job_id, Duration::from_secs(60))?;
//! println!("{}", job.state);
//! # Ok::<(), jobtree_client::ClientError>(())
//! ```
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod api;
mod builder;
mod call;
mod client;
mod error;
pub mod events;
#[cfg(feature = "lanes")]
mod on_lane;
mod pages;
#[cfg(feature = "lanes")]
pub mod remote;
pub mod worker;

pub use api::{LoadQuery, Probe};
pub use builder::ClientBuilder;
pub use client::Client;
pub use error::ClientError;
pub use jobtree_protocol as protocol;
pub use jobtree_worker::{GiveBack, Permanent, Run, Stragglers, WorkerHandle, process_origin};
#[cfg(feature = "lanes")]
pub use on_lane::on_lane;
pub use pages::Jobs;
pub use worker::{WorkError, Worker};
