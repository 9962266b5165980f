//! One job system, from a nanosecond fork to an overnight batch.
//!
//! # Two things at once
//!
//! [`join`](join()) runs two closures, in parallel if a worker is free. It costs about as much as a call, so fork
//! wherever there is something to fork:
//!
//! ```
//! fn sum(numbers: &[u64]) -> u64 {
//!     if let [number] = numbers {
//!         return *number;
//!     }
//!     let (left, right) = numbers.split_at(numbers.len() / 2);
//!     let (left, right) = jobtree::join(|| sum(left), || sum(right));
//!     left + right
//! }
//! assert_eq!(sum(&[1, 2, 3, 4, 5]), 15);
//! ```
//!
//! # Loops
//!
//! [`par`] has loops over slices and ranges, searches, reductions and sorts:
//!
//! ```
//! use jobtree::par;
//!
//! let mut words = vec!["stealing", "tree", "job", "work"];
//! par::sort_by_key(&mut words, |word| word.len());
//! let lengths = par::map(&words, |word| word.len());
//! assert_eq!(lengths, [3, 4, 4, 8]);
//! ```
//!
//! # Tasks
//!
//! [`scope`](scope()) starts any number of tasks that may borrow, and ends when all of them have:
//!
//! ```
//! let mut halves = [0, 0];
//! let (first, second) = halves.split_at_mut(1);
//! jobtree::scope(|s| {
//!     s.spawn(|_| first[0] = 1);
//!     s.spawn(|_| second[0] = 2);
//! });
//! assert_eq!(halves, [1, 2]);
//! ```
//!
//! # Jobs
//!
//! [`nursery`](nursery()) is a scope whose tasks are jobs: they return values and errors, have labels and deadlines, and
//! can be cancelled, down to the last fork of a loop. The first one that fails cancels the others:
//!
//! ```
//! use jobtree::{JobError, nursery};
//! use std::time::Duration;
//!
//! let outcome = nursery(|n| {
//!     let page = n.spawn(|| Ok("a page"));
//!     n.job_options()
//!         .label("check")
//!         .timeout(Duration::from_secs(5))
//!         .launch(|| Err("the certificate has expired".into()));
//!     Ok(page.join()?)
//! });
//! let error = outcome.unwrap_err();
//! assert!(error.to_string().ends_with("check failed: the certificate has expired"));
//! ```
//!
//! # Testing
//!
//! [`sim`] runs a program on one thread, in an order that a seed decides and by a clock that stands still. [`sim::check`]
//! tries many seeds, and names the one with which the program fails:
//!
//! ```
//! use jobtree::{sim, sleep};
//! use std::time::Duration;
//!
//! sim::check(0..20, |rt| {
//!     let early = rt.spawn(|| Ok(sleep(Duration::from_secs(3600))?));
//!     sleep(Duration::from_secs(7200))?;
//!     assert!(early.is_finished());
//!     Ok(())
//! });
//! ```
//!
//! # Pools
//!
//! All of this runs on the global pool, which is made on first use with a worker for each CPU that the process may use
//! (`JOBTREE_WORKERS` changes that). [`Pool::builder`] makes further ones; [`Pool::install`] runs something there.
//!
//! # Features
//!
//! `iter`: the iterators of `orx-parallel` on our pools, in `par::iter`. `tracing`: what happens to jobs, as events there.

#![forbid(unsafe_code)]

#[doc(inline)]
pub use jobtree_par as par;
pub use jobtree_pool::{
    BroadcastContext, BuildError, Builder, CountLatch, OnceLatch, Pool, PoolStats, Scope,
    ScopeFifo, ShutdownError, StackError, Worker, WorkerStart, WorkerStats, Yield, broadcast,
    current_worker_index, current_workers, in_place_scope, in_place_scope_fifo, isolate, join,
    join_each, scope, scope_fifo, spawn, spawn_broadcast, spawn_fifo, stuck_isolated_waits,
    with_worker, yield_local, yield_now,
};
#[doc(inline)]
pub use jobtree_runtime::sim;
pub use jobtree_runtime::{
    BoxError, CancelCallback, CancelOnDrop, CancelReason, CancelToken, Cancelled, Cause, Counters,
    DropGuard, Event, EventKind, Failure, Job, JobError, JobHandle, JobId, JobInfo, JobLocal,
    JobState, Nursery, Outcome, Panic, Recorded, Runtime, RuntimeBuilder,
    ShutdownError as RuntimeShutdownError, Spawner, TimedOut, TreeDump, WaitingFor, block_on,
    checkpoint, nursery, shield, sleep, supervisor, with_local, with_timeout,
};
