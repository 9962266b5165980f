//! Sorting by a key that is slow to take.

use jobtree_pool::raw::{self, UserVec};
use jobtree_pool::with_worker;

use crate::looping::over;

/// Sorts a slice by a key that is taken once for each item, and keeps the order of items with equal keys.
///
/// Takes memory for all keys and positions, and for moving the items.
///
/// ```
/// let mut words = ["30", "4", "200"];
/// jobtree_par::sort_by_cached_key(&mut words, |word| word.parse::<u32>().unwrap());
/// assert_eq!(words, ["4", "30", "200"]);
/// ```
///
/// # Panics
/// If `key` or a comparison of keys panics. Then the slice is as it was.
pub fn sort_by_cached_key<T, K, F>(items: &mut [T], key: F)
where
    T: Send,
    K: Ord + Send,
    F: Fn(&T) -> K + Sync,
{
    if items.len() < 2 {
        return;
    }
    let keys = over(&mut *items)
        .enumerate()
        .map(|(position, item)| (key(item), position))
        .collect();
    // A comparison may panic.
    let mut keys = UserVec::new(keys);
    // No two are equal because of the position, so this keeps the order of equal keys.
    super::sort_unstable(&mut keys);
    let order = crate::drain(&mut keys)
        .map(|(_, position)| position)
        .collect();
    with_worker(|worker| raw::permute(worker, items, &order));
}
