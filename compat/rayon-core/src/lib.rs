//! rayon-core's public API on jobtree's thread pool.
//!
//! This package is never named by a program. It takes the place of rayon-core through
//! `[patch.crates-io]`, and every program that uses rayon then runs on jobtree; `README.md` shows how
//! and says what differs.
//!
//! It holds no scheduler: each item translates to one of `jobtree_pool`. What it adds is what rayon's
//! users may rely on and jobtree decides otherwise: [`join`](join()) runs its second closure even if the first
//! one panics, threads are counted and named by rayon's rules, and errors read like rayon's.
//!
//! ```
//! fn sum(numbers: &[u64]) -> u64 {
//!     if numbers.len() < 100 {
//!         return numbers.iter().sum();
//!     }
//!     let (left, right) = numbers.split_at(numbers.len() / 2);
//!     let (left, right) = rayon_core::join(|| sum(left), || sum(right));
//!     left + right
//! }
//! assert_eq!(sum(&Vec::from_iter(0..1000)), 499_500);
//! ```

mod broadcast;
mod builder;
mod configuration;
mod error;
mod global;
mod join;
mod pending;
mod pool;
mod scope;
mod spawn;
mod start;
mod thread;

pub use broadcast::{BroadcastContext, broadcast, spawn_broadcast};
pub use builder::ThreadPoolBuilder;
#[allow(deprecated)]
pub use configuration::{Configuration, initialize};
pub use error::ThreadPoolBuildError;
pub use join::{FnContext, join, join_context};
pub use pending::current_thread_has_pending_tasks;
pub use pool::ThreadPool;
pub use scope::{Scope, ScopeFifo, in_place_scope, in_place_scope_fifo, scope, scope_fifo};
pub use spawn::{Yield, spawn, spawn_fifo, yield_local, yield_now};
pub use thread::ThreadBuilder;

/// The most threads that a pool can have. Whoever asks for more gets this many.
///
/// ```
/// assert!(rayon_core::max_num_threads() >= 256);
/// ```
pub fn max_num_threads() -> usize {
    start::MOST_THREADS
}

/// How many threads the current pool has: the one whose thread calls this, else the global one.
///
/// ```
/// let pool = rayon_core::ThreadPoolBuilder::new().num_threads(3).build()?;
/// assert_eq!(pool.install(rayon_core::current_num_threads), 3);
/// # Ok::<(), rayon_core::ThreadPoolBuildError>(())
/// ```
pub fn current_num_threads() -> usize {
    global::make_if_outside();
    jobtree_pool::current_workers()
}

/// The calling thread's number in its pool, or `None` outside of every pool.
///
/// It stays the same for a thread's whole life; in another pool the same number is another thread.
///
/// ```
/// assert_eq!(rayon_core::current_thread_index(), None);
/// assert!(rayon_core::scope(|_| rayon_core::current_thread_index()).is_some());
/// ```
#[inline]
pub fn current_thread_index() -> Option<usize> {
    jobtree_pool::current_worker_index()
}
