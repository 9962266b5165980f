//! What the durable queue decides, and never does: admission, order, planning, transitions.
//!
//! Nothing in here reads a clock, draws a number, or writes anything: times and random numbers come in as values, and
//! what is to be written goes out as values. So all of it runs under a simulator as it runs in earnest.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

// What a job is, and how it changes.
pub mod audit;
pub mod backoff;
pub mod lease;
pub mod record;
pub mod replay;
pub mod transitions;
pub mod usage;

pub use record::{
    Completion, Denial, JobRecord, KeyRecord, LeaseEnd, LeaseRecord, LeasedJob, RequestName,
    Reservation, Stage,
};

// Admission and order.
pub mod admission;
pub mod advice;
pub mod block;
pub mod busy;
pub mod candidate;
pub mod capacity;
pub mod change;
pub mod cron;
pub mod deadline;
pub mod estimate;
pub mod explain;
pub mod history;
pub mod hold;
pub mod ledger;
mod now;
mod order;
pub mod planner;
pub mod policy;
pub mod quiet;
pub mod ramp;
pub mod signal_names;
pub mod signals;
pub mod simulate;

pub use now::Now;
