//! Runs durable jobs as jobs in a process's tree.
//!
//! A worker asks a [`Grantor`] for jobs: the scheduler in the same process, or a daemon far away. It claims jobs, runs
//! each under a label of its type and id, renews its leases from a thread of its own, and answers for what ended. A wish
//! that a job stop, and the loss of a lease, cancel the job and all below it. What can be relied on:
//!
//! - A job whose lease is lost is asked to stop before the lease could be somebody else's; what it still says is refused.
//! - A run that fails or panics is a failed attempt. A process that dies loses its leases, and its jobs are rescued.
//! - With the feature `tracing`, each run is a span named `job` (target `jobtree::worker`, level INFO), and each job below it
//!   one below that: see `Run::span`.
//! - At least once: what a handler does outside must bear being done twice, or be keyed by the job's id.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod alarm;
mod batch;
mod beat;
mod builder;
mod claiming;
mod clock;
mod draw;
mod grantor;
mod handler;
mod held;
mod lease;
mod live;
mod log;
mod outbox;
mod pace;
mod planted;
mod process_origin;
pub mod reply;
mod report;
mod stragglers;
#[cfg(test)]
mod tests;
mod trace;
mod worker;

pub use builder::{WorkerBuilder, WorkerError};
pub use clock::mono;
pub use grantor::{Grantor, Poke, SchedulerPlace};
pub use handler::{GiveBack, Permanent, Run};
pub use live::LiveJobs;
#[cfg(feature = "sim")]
pub use planted::Bug;
pub use process_origin::process_origin;
pub use reply::Reply;
pub use stragglers::Stragglers;
pub use worker::{Worker, WorkerHandle};
