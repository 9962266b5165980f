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

mod atomics;
#[doc(hidden)]
pub mod binding;
mod block;
pub mod channel;
mod claim;
mod cost;
mod current;
mod deadline;
pub mod future;
mod handle;
mod inline;
mod nursery;
mod owned;
mod panics;
mod runtime;
#[doc(hidden)]
pub mod select;
mod step;
pub mod sync;
mod task;
mod timers;
mod waiters;
mod withdraw;

pub use block::block_on;
pub use current::checkpoint;
pub use deadline::{shield, sleep, with_timeout};
pub use handle::{CancelOnDrop, JobHandle};
pub use inline::with_local;
pub use jobtree_tree::{
    BoxError, CancelCallback, CancelReason, CancelToken, Cancelled, Cause, Counters, DropGuard,
    Event, EventKind, Failure, Job, JobError, JobId, JobInfo, JobLocal, JobState, Outcome, Panic,
    Recorded, TimedOut, TreeDump, WaitingFor,
};
pub use nursery::{Nursery, NurseryState, Spawner, nursery, supervisor};
pub use runtime::{Runtime, RuntimeBuilder, ShutdownError};
