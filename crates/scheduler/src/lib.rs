//! The running engine of the durable queue.
//!
//! [`Scheduler`] is the handle: it is started over a [`jobtree_store::Store`], and every operation is a method of it. What
//! is decided is decided in [`core`], a state machine that a simulator can drive as well as the real engine.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

// The engine.
mod clock;
pub mod core;
mod engine;
mod error;
mod options;
mod scheduler;
#[cfg(feature = "sim")]
pub mod sim;

pub use clock::Clock;
pub use core::{LeaseProcesses, dependencies};
pub use jobtree_worker::reply::{Reply, Result};
pub use options::Options;
pub use scheduler::Scheduler;

// In process: measuring this machine, running handlers, and a queue in one object.
pub mod durable;
mod outbox;
pub mod sampler;
mod submissions;
/// Workers, in this process or another.
pub mod workers {
    pub use jobtree_worker::{
        GiveBack, Permanent, Run, Stragglers, Worker, WorkerBuilder, WorkerError, WorkerHandle,
        process_origin,
    };
}
