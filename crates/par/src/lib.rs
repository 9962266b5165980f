//! Parallel loops, searches, reductions and sorts on jobtree's pool.
//!
//! [`over`] begins a loop over a range, a slice or a [`Source`] of your own. Then come the methods of [`Loop`], which
//! are named like those of [`Iterator`]:
//!
//! ```
//! use jobtree_par as par;
//!
//! let words = ["one", "two", "three", "four"];
//! let letters: usize = par::over(&words).map(|word| word.len()).sum();
//! assert_eq!(letters, 15);
//!
//! let mut sorted = words;
//! par::sort(&mut sorted);
//! assert_eq!(par::over(&sorted).position(|word| *word == "three"), Some(2));
//! ```
//!
//! On a worker of a pool, a loop runs on that pool; elsewhere on the global one. Results are those of the sequential
//! loop: order is kept wherever there is one. When a loop returns or panics, everything it has begun has ended.
//!
//! # What it costs
//!
//! A loop is cut on request: as long as no worker is idle, a worker goes through its piece as through any slice, and the
//! compiler may vectorise it. So there is no need to guess how large pieces should be; if you know better, see
//! [`Grain`]. With one worker, a loop goes through its items in such pieces and shares none.
//!
//! # Cancellation
//!
//! A loop in a job that is cancelled **unwinds**, as a panic does, with the payload [`Stopped`](jobtree_pool::Stopped) and without a
//! message; each worker handles at most one more block. To the code in between it is a panic like any other:
//!
//! - A `std::sync::Mutex` that is held around the loop is poisoned. A `LazyLock` or `Once` whose initialiser the loop leaves stays so
//!   for good.
//! - A `catch_unwind` around the loop catches it. It is to be passed on, by `resume_unwind`; if it is not, the next fork unwinds again.
//! - With `panic = "abort"` nothing can unwind: **loops run to their end**, and the job learns of its cancellation afterwards. There,
//!   a loop that may take long asks itself:
//!
//! ```
//! use jobtree_par as par;
//!
//! struct Cancelled;
//!
//! fn checkpoint() -> Result<(), Cancelled> {
//!     // In a job of the runtime this is `jobtree::checkpoint()`.
//!     if jobtree_pool::stop_requested() { Err(Cancelled) } else { Ok(()) }
//! }
//! let outcome = par::over(0..1000).try_for_each(|_| checkpoint());
//! assert!(outcome.is_ok());
//! ```
//!
//! Code that must not be unwound has the loop in a scope of the runtime, `jobtree::nursery(|_| Ok(par::for_each(…)))`, which returns the
//! cancellation as an error.
//!
//! # Features
//!
//! `iter`: the iterators of [`orx-parallel`](https://docs.rs/orx-parallel) on jobtree's pool, for what is not here.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod bridge;
mod drive;
mod grain;
#[cfg(feature = "iter")]
pub mod iter;
mod looping;
mod ops;
#[cfg(test)]
mod owned_tests;
mod pace;
mod sort;
mod source;
mod together;
mod transform;

pub use bridge::{Bridge, bridge};
pub use grain::Grain;
pub use looping::{Loop, drain, over};
pub use ops::{ScatterError, map_in_place};
pub use sort::{
    sort, sort_by, sort_by_cached_key, sort_by_key, sort_unstable, sort_unstable_by,
    sort_unstable_by_key,
};
pub use source::{
    Chain, Chunks, ChunksMut, Drain, Enumerate, IntoSource, Items, Last, Reversed, Source, Windows,
    Zip,
};
pub use together::{try_join, try_join_each};
pub use transform::{
    AsIs, AtMostOne, Cloned, Filter, FilterMap, FlatMap, Flatten, Indexed, Map, MapInit, OneToOne,
    Transform,
};

/// Calls `action` with each item of `items`: short for [`over`]`(items).`[`for_each`](Loop::for_each)`(action)`.
///
/// ```
/// let mut numbers = [1, 2, 3];
/// jobtree_par::for_each(&mut numbers, |n| *n += 1);
/// assert_eq!(numbers, [2, 3, 4]);
/// ```
pub fn for_each<I, F>(items: I, action: F)
where
    I: IntoSource,
    F: Fn(I::Item) + Sync,
{
    over(items).for_each(action);
}

/// A vector of what `function` makes of each item: short for
/// [`over`]`(items).`[`map`](Loop::map)`(function).`[`collect`](Loop::collect)`()`.
///
/// ```
/// assert_eq!(jobtree_par::map(0..4, |n| n * n), [0, 1, 4, 9]);
/// ```
pub fn map<I, F, R>(items: I, function: F) -> Vec<R>
where
    I: IntoSource,
    F: Fn(I::Item) -> R + Sync,
    R: Send,
{
    over(items).map(function).collect()
}
