//! Jobs that belong to each other, on a pool whose stacks park.
//!
//! [`nursery`](nursery()) opens a scope: what is spawned in it has ended when it returns, on every way out.
//! A child that fails cancels its siblings; cancelling a job cancels everything below it, down to the last
//! fork of a parallel loop. [`supervisor`](supervisor()) is a scope whose children fail alone.
//!
//! ```
//! use jobtree_runtime::nursery;
//!
//! let words = ["one", "two", "three"];
//! let total = nursery(|n| {
//!     let handles: Vec<_> = words.iter().map(|word| n.spawn(|| Ok(word.len()))).collect();
//!     let mut total = 0;
//!     for handle in handles {
//!         total += handle.join()?;
//!     }
//!     Ok(total)
//! })?;
//! assert_eq!(total, 11);
//! # Ok::<(), jobtree_runtime::JobError>(())
//! ```
//!
//! A body returns `Result<T, BoxError>`: `Ok(value)`, or any error by `?`.
#![doc = include_str!("../README.md")]

pub mod actor;
mod atomics;
#[doc(hidden)]
pub mod binding;
mod block;
pub mod budget;
mod builder;
pub mod channel;
mod claim;
mod clock;
#[cfg(all(test, not(loom)))]
mod core_tests;
mod cost;
mod current;
mod deadline;
mod degraded;
pub mod dispatcher;
mod expiry_calls;
pub mod future;
mod handle;
mod inline;
mod interval;
mod join_set;
#[cfg(all(test, loom))]
mod modelling;
mod nursery;
mod owned;
mod panics;
mod produce;
mod runtime;
pub mod scheduled;
#[doc(hidden)]
pub mod select;
pub mod sim;
mod spawner;
mod step;
pub mod supervision;
pub mod sync;
mod task;
mod timers;
#[cfg(feature = "tokio")]
pub mod tokio;
pub mod user_code;
mod waiters;
mod withdraw;

pub use block::block_on;
pub use budget::{Profile, tick, tick_async};
pub use builder::RuntimeBuilder;
pub use clock::Clock;
pub use current::checkpoint;
pub use deadline::{shield, sleep, with_timeout};
pub use dispatcher::{DispatchedSpawner, Dispatcher, DispatcherError, DrainError};
pub use handle::{CancelOnDrop, JobHandle};
pub use inline::with_local;
pub use interval::{Interval, interval};
pub use jobtree_pool::{PoolStats, WorkerStats};
pub use jobtree_tree::{
    BoxError, CancelCallback, CancelReason, CancelToken, Cancelled, Cause, Counters, DropGuard,
    Ended, Event, EventKind, Failure, Job, JobError, JobId, JobInfo, JobLocal, JobState, Lacking,
    Outcome, Panic, Recorded, TimedOut, TreeDump, WaitingFor,
};
pub use join_set::JoinSet;
pub use nursery::{Nursery, NurseryState, labelled_nursery, nursery, race, supervisor};
pub use produce::Producer;
pub use runtime::{Runtime, ShutdownError, pool_stats};
pub use spawner::Spawner;
