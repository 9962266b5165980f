//! The job tree: parents and children, cancellation, and outcomes.
//!
//! There are no threads here. A [`Tree`] has a root [`Job`]; [`Job::attach`] makes a job under another one, and a
//! [`Body`], with which the runner of the job says that it begins and how it ends. A job ends when its body
//! has returned and all its children have ended. Cancelling a job cancels all jobs below it; a job that fails cancels
//! its parent, unless that is a supervisor. [`Wheel`] keeps deadlines.
//!
//! Programs use this through `jobtree`, whose runtime runs the jobs on a pool.
#![doc = include_str!("../README.md")]

mod attach;
mod body;
mod cancel;
mod cell;
mod clock;
mod deferred;
mod dump;
mod error;
mod job;
mod locals;
mod memory;
#[cfg(all(test, loom))]
mod models;
mod monitor;
mod node;
mod options;
mod origin;
mod outermost;
mod path;
#[doc(hidden)]
pub mod raw;
mod side;
mod stack;
mod step;
mod sync;
mod token;
mod tree;
mod wait;
mod waiters;
mod waiting;
mod wheel;
mod word;

pub use body::{Body, BodyResult};
pub use dump::{JobInfo, TreeDump};
pub use error::{
    BoxError, CancelReason, Cancelled, Failure, JobError, JobId, Outcome, Panic, TimedOut,
};
pub use job::Job;
pub use locals::JobLocal;
pub use monitor::{Counters, Event, EventKind, Lacking, Recorded};
pub use options::{JobOptions, ParentEnded};
pub use token::{CancelToken, DropGuard};
pub use tree::{Hooks, Reporter, Tree, Watcher};
pub use wait::{CancelCallback, CancelRequested, Ended};
pub use waiting::WaitingFor;
pub use wheel::{TimerKey, Wheel};
pub use word::{Cause, JobState};
