//! A work-stealing thread pool whose stacks park.
//!
//! [`join`](join()) forks for about the price of a call. [`scope`](scope()) and [`spawn`](spawn()) start tasks. Code that
//! waits on a worker, for a stolen fork, a scope's end or a latch, has its stack parked while the worker runs other work.
//! [`isolate`](isolate()) is for code that must not be interrupted in this way.
//!
//! Start with [`join`](join()), which needs no set-up, or with [`Pool::builder`] for a pool of your own.
#![doc = include_str!("../README.md")]

#[cfg(feature = "bench-support")]
#[doc(hidden)]
pub mod bench_support;
mod blocking;
mod broadcast;
mod context;
mod deque;
mod fair_share;
mod fork;
mod forked;
mod found;
#[cfg(all(test, loom))]
mod handoff_models;
mod inbox;
mod injector;
mod isolate;
mod isolation;
mod job;
mod join_many;
mod latch;
mod latches;
#[cfg(all(test, loom))]
mod modelling;
mod offer;
mod out_of_stacks;
mod padded;
#[cfg(jobtree_stacks)]
mod parking;
#[cfg(not(jobtree_stacks))]
mod parking_absent;
mod placement;
mod pool;
// Where stacks cannot be switched no fiber ever waits there.
#[cfg_attr(not(jobtree_stacks), allow(dead_code))]
mod preempted;
mod random;
#[doc(hidden)]
pub mod raw;
mod requeued;
mod scope;
mod search;
// Where stacks cannot be switched nothing is ever simulated.
#[cfg_attr(not(jobtree_stacks), allow(dead_code))]
mod sim;
mod sleep;
mod spawn;
mod stack;
mod stats;
mod stop;
mod strand;
#[cfg(all(test, loom))]
mod strand_models;
mod sync;
mod task_lengths;
mod theft;
mod wait;
mod woken;
mod worker;

pub use broadcast::{BroadcastContext, broadcast, spawn_broadcast};
pub use context::{UserContext, user_context, with_user_context};
pub use fork::join;
pub use isolate::{isolate, stuck_isolated_waits};
pub use join_many::join_each;
pub use latches::{CountLatch, OnceLatch};
pub use pool::{BuildError, Builder, Pool, ShutdownError, WorkerStart};
pub use scope::{Scope, ScopeFifo, in_place_scope, in_place_scope_fifo, scope, scope_fifo};
pub use spawn::{Yield, spawn, spawn_fifo, yield_local, yield_now};
pub use stack::StackError;
pub use stats::{PoolStats, StackStats, WorkerStats};
pub use stop::{StopSignal, Stopped, stop_requested};
pub use worker::{Worker, with_worker};

/// The number of the worker that runs the calling code, in its pool; `None` outside of a pool.
///
/// ```
/// assert_eq!(jobtree_pool::current_worker_index(), None);
/// assert!(jobtree_pool::with_worker(|_| jobtree_pool::current_worker_index()).is_some());
/// ```
pub fn current_worker_index() -> Option<usize> {
    Worker::with_current(|worker| worker.map(Worker::index))
}

/// Returns the number of workers of the current pool; outside of a pool, of the global one.
///
/// # Panics
/// If the global pool is needed and cannot be made (see [`Pool::try_global`]).
pub fn current_workers() -> usize {
    Worker::with_current(|worker| match worker {
        Some(worker) => worker.workers(),
        None => Pool::global().workers(),
    })
}
