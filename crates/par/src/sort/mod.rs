//! Sorting slices.
//!
//! What is sorted or reversed already is recognised by all workers together. Everything else is cut into a few pieces
//! for each worker; those are sorted by the standard library, and merged in parallel
//! ([`merge_sort`](jobtree_pool::raw::merge_sort)). The stable and the unstable sorts differ in how pieces are sorted.

mod cached_key;
mod patterns;

pub use cached_key::sort_by_cached_key;

use std::cmp::Ordering;

use jobtree_pool::{Worker, raw, with_worker};

/// A piece of fewer items is not cut any more: sorting it takes some tens of microseconds.
const SHORTEST_PIECE: usize = 2048;

/// Sorts a slice, and keeps the order of equal items.
///
/// Takes a buffer as long as the slice, if that is not short.
///
/// ```
/// let mut numbers = [4, -5, 1, -3, 2];
/// jobtree_par::sort(&mut numbers);
/// assert_eq!(numbers, [-5, -3, 1, 2, 4]);
/// ```
///
/// # Panics
/// If a comparison panics. May panic if `Ord` is not implemented as a total order. In both cases the slice holds the
/// same items as before, in any order.
pub fn sort<T>(items: &mut [T])
where
    T: Ord + Send,
{
    sort_stable(items, &T::lt, &<[T]>::sort);
}

/// Sorts a slice by an order of your own, and keeps the order of equal items.
///
/// ```
/// let mut numbers = [4, -5, 1, -3, 2];
/// jobtree_par::sort_by(&mut numbers, |a: &i32, b: &i32| b.cmp(a));
/// assert_eq!(numbers, [4, 2, 1, -3, -5]);
/// ```
///
/// # Panics
/// As [`sort`].
pub fn sort_by<T, F>(items: &mut [T], compare: F)
where
    T: Send,
    F: Fn(&T, &T) -> Ordering + Sync,
{
    let is_less = |a: &T, b: &T| compare(a, b) == Ordering::Less;
    let sort_piece = |piece: &mut [T]| match may_be_interrupted() {
        true => piece.sort_by(stopping(&compare)),
        false => piece.sort_by(&compare),
    };
    sort_stable(items, &is_less, &sort_piece);
}

/// Sorts a slice by a key, and keeps the order of items with equal keys.
///
/// The key is taken for each comparison; if that is slow, use [`sort_by_cached_key`].
///
/// ```
/// let mut words = ["tree", "job", "a"];
/// jobtree_par::sort_by_key(&mut words, |word| word.len());
/// assert_eq!(words, ["a", "job", "tree"]);
/// ```
///
/// # Panics
/// As [`sort`].
pub fn sort_by_key<T, K, F>(items: &mut [T], key: F)
where
    T: Send,
    K: Ord,
    F: Fn(&T) -> K + Sync,
{
    let is_less = |a: &T, b: &T| key(a).lt(&key(b));
    let sort_piece = |piece: &mut [T]| match may_be_interrupted() {
        true => piece.sort_by(stopping(&|a: &T, b: &T| key(a).cmp(&key(b)))),
        false => piece.sort_by_key(&key),
    };
    sort_stable(items, &is_less, &sort_piece);
}

/// Sorts a slice; equal items may change places. Faster than [`sort`].
///
/// Takes a buffer as long as the slice, if that is not short.
///
/// ```
/// let mut numbers = [4, -5, 1, -3, 2];
/// jobtree_par::sort_unstable(&mut numbers);
/// assert_eq!(numbers, [-5, -3, 1, 2, 4]);
/// ```
///
/// # Panics
/// As [`sort`].
pub fn sort_unstable<T>(items: &mut [T])
where
    T: Ord + Send,
{
    sort_any(items, &T::lt, &<[T]>::sort_unstable);
}

/// Sorts a slice by an order of your own; equal items may change places.
///
/// ```
/// let mut numbers = [0.5, -1.5, 1.0_f64];
/// jobtree_par::sort_unstable_by(&mut numbers, f64::total_cmp);
/// assert_eq!(numbers, [-1.5, 0.5, 1.0]);
/// ```
///
/// # Panics
/// As [`sort`].
pub fn sort_unstable_by<T, F>(items: &mut [T], compare: F)
where
    T: Send,
    F: Fn(&T, &T) -> Ordering + Sync,
{
    let is_less = |a: &T, b: &T| compare(a, b) == Ordering::Less;
    let sort_piece = |piece: &mut [T]| match may_be_interrupted() {
        true => piece.sort_unstable_by(stopping(&compare)),
        false => piece.sort_unstable_by(&compare),
    };
    sort_any(items, &is_less, &sort_piece);
}

/// Sorts a slice by a key; items with equal keys may change places.
///
/// ```
/// let mut numbers = [4, -5, 1, -3, 2_i32];
/// jobtree_par::sort_unstable_by_key(&mut numbers, |n| n.abs());
/// assert_eq!(numbers, [1, 2, -3, 4, -5]);
/// ```
///
/// # Panics
/// As [`sort`].
pub fn sort_unstable_by_key<T, K, F>(items: &mut [T], key: F)
where
    T: Send,
    K: Ord,
    F: Fn(&T) -> K + Sync,
{
    let is_less = |a: &T, b: &T| key(a).lt(&key(b));
    let sort_piece = |piece: &mut [T]| match may_be_interrupted() {
        true => piece.sort_unstable_by(stopping(&|a: &T, b: &T| key(a).cmp(&key(b)))),
        false => piece.sort_unstable_by_key(&key),
    };
    sort_any(items, &is_less, &sort_piece);
}

/// The number of comparisons between two looks whether the sort is to stop. A comparison of the program's own may be slow;
/// picked by feel, so that the looks cost nothing beside a fast one.
const COMPARISONS_BETWEEN_LOOKS: u32 = 1024;

/// Returns `true` if a piece has to be sorted with [`stopping`] comparisons: the calling job can be cancelled, or others wait on
/// its worker.
fn may_be_interrupted() -> bool {
    raw::can_be_stopped() || raw::fibers_wait()
}

/// Returns `compare`, except that now and then it unwinds if the job that sorts was cancelled, and lets jobs run first whose
/// wait is over. A sort survives a comparison that panics.
fn stopping<T, F>(compare: &F) -> impl FnMut(&T, &T) -> Ordering
where
    F: Fn(&T, &T) -> Ordering,
{
    let mut left = COMPARISONS_BETWEEN_LOOKS;
    move |a, b| {
        left -= 1;
        if left == 0 {
            left = COMPARISONS_BETWEEN_LOOKS;
            raw::unwind_if_stopped();
            raw::let_woken_run();
        }
        compare(a, b)
    }
}

/// The stable sorts. Only what descends strictly may be reversed.
fn sort_stable<T, L, S>(items: &mut [T], is_less: &L, sort_piece: &S)
where
    T: Send,
    L: Fn(&T, &T) -> bool + Sync,
    S: Fn(&mut [T]) + Sync,
{
    let descends = |earlier: &T, later: &T| is_less(later, earlier);
    sort_pieces(items, is_less, &descends, sort_piece);
}

/// The unstable sorts.
fn sort_any<T, L, S>(items: &mut [T], is_less: &L, sort_piece: &S)
where
    T: Send,
    L: Fn(&T, &T) -> bool + Sync,
    S: Fn(&mut [T]) + Sync,
{
    let descends = |earlier: &T, later: &T| !is_less(earlier, later);
    sort_pieces(items, is_less, &descends, sort_piece);
}

/// Sorts `items`. If `descends` holds for all neighbours, they may be reversed.
fn sort_pieces<T, L, D, S>(items: &mut [T], is_less: &L, descends: &D, sort_piece: &S)
where
    T: Send,
    L: Fn(&T, &T) -> bool + Sync,
    D: Fn(&T, &T) -> bool + Sync,
    S: Fn(&mut [T]) + Sync,
{
    if items.len() < 2 * SHORTEST_PIECE {
        return sort_piece(items);
    }
    with_worker(|worker| {
        if !patterns::settle(items, is_less, descends) {
            let halvings = halvings(worker, items.len());
            raw::merge_sort(worker, items, halvings, is_less, sort_piece);
        }
    });
}

/// Returns how often to halve: at least two pieces for each worker, and an even number of times, so that no sorted piece has to
/// be copied before it is merged.
fn halvings(worker: &Worker, len: usize) -> u32 {
    let workers = worker.workers();
    if workers == 1 {
        return 0;
    }
    let wanted = (workers.next_power_of_two().ilog2() + 1).next_multiple_of(2);
    wanted.min((len / SHORTEST_PIECE).ilog2())
}
