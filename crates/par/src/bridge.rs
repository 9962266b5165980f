//! Loops over iterators, which cannot be cut: while workers handle some items, one takes the next ones out.

use jobtree_pool::raw::UserOwned;

use crate::looping::over;

/// The items that are taken out together, for each worker: few at first, so that slow items are shared soon.
const FIRST_BATCH: usize = 4;
const LONGEST_BATCH: usize = 256;

/// A loop over the items of any iterator, made by [`bridge`](bridge()).
#[derive(Clone, Debug)]
#[must_use = "a loop does nothing until it is run, for example by `for_each`"]
pub struct Bridge<I> {
    iterator: I,
}

/// A loop over the items of any iterator: a file's lines, a channel's messages.
///
/// One worker at a time asks the iterator for items, while others handle those that it gave before. So this pays where handling an
/// item takes longer than getting it. What can be cut is better gone over by [`over`].
///
/// ```
/// let text = "one\ntwo\nthree";
/// let letters: usize = jobtree_par::bridge(text.lines()).map(|line| line.len()).iter().sum();
/// assert_eq!(letters, 11);
/// ```
pub fn bridge<I>(items: I) -> Bridge<I::IntoIter>
where
    I: IntoIterator,
{
    Bridge {
        iterator: items.into_iter(),
    }
}

impl<I> Bridge<I>
where
    I: Iterator + Send,
    I::Item: Send,
{
    /// Calls `action` with each item.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// let sum = AtomicU32::new(0);
    /// jobtree_par::bridge([1, 2, 3]).for_each(|n| {
    ///     sum.fetch_add(n, Ordering::Relaxed);
    /// });
    /// assert_eq!(sum.into_inner(), 6);
    /// ```
    ///
    /// # Panics
    /// If `action` or the iterator panics, after all workers have ended.
    pub fn for_each<F>(self, action: F)
    where
        F: Fn(I::Item) + Sync,
    {
        self.in_batches(|batch| over(batch).for_each(&action));
    }

    /// A vector of what `function` makes of each item, in order.
    ///
    /// ```
    /// let squares = jobtree_par::bridge((1..4).map(|n| n + 1)).map(|n| n * n);
    /// assert_eq!(squares, [4, 9, 16]);
    /// ```
    ///
    /// # Panics
    /// If `function` or the iterator panics, after all workers have ended.
    pub fn map<F, R>(self, function: F) -> Vec<R>
    where
        F: Fn(I::Item) -> R + Sync,
        R: Send,
    {
        let mut results = Vec::new();
        let batches = self.in_batches(|batch| over(batch).map(&function).collect());
        batches.into_iter().for_each(|batch| results.extend(batch));
        results
    }

    /// Handles the items batch by batch, and returns the results in order.
    fn in_batches<R, F>(self, handle: F) -> Vec<R>
    where
        R: Send,
        F: Fn(Vec<I::Item>) -> R + Sync,
    {
        let mut iterator = UserOwned::captured(self.iterator);
        let handle = UserOwned::captured(handle);
        jobtree_pool::with_worker(|worker| {
            let mut size = FIRST_BATCH * worker.workers();
            let mut results = Vec::new();
            let mut batch = Vec::from_iter(iterator.by_ref().take(size));
            while !batch.is_empty() {
                size = (size * 2).min(LONGEST_BATCH * worker.workers());
                let (next, result) = worker.join(
                    |_| Vec::from_iter(iterator.by_ref().take(size)),
                    |_| handle(batch),
                );
                results.push(result);
                batch = next;
            }
            results
        })
    }
}
