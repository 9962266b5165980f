//! Doing something with each item.

use super::Consume;
use crate::looping::Loop;
use crate::source::Source;
use crate::transform::Transform;

struct ForEach<F> {
    action: F,
}

impl<Item, F> Consume<Item> for ForEach<F>
where
    F: Fn(Item) + Sync,
{
    type State = ();

    #[inline(always)]
    fn start(&self) {}

    #[inline(always)]
    fn feed(&self, (): (), _: usize, items: impl Iterator<Item = Item>) {
        items.for_each(&self.action);
    }

    #[inline(always)]
    fn combine(&self, (): (), (): ()) {}
}

impl<S, T> Loop<S, T>
where
    S: Source,
    T: Transform<S::Item>,
{
    /// Calls `action` with each item.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// let sum = AtomicU64::new(0);
    /// jobtree_par::over(0..100_u64).for_each(|n| {
    ///     sum.fetch_add(n, Ordering::Relaxed);
    /// });
    /// assert_eq!(sum.into_inner(), 4950);
    /// ```
    ///
    /// What several workers cannot share, the compiler refuses:
    ///
    /// ```compile_fail
    /// let sum = std::cell::Cell::new(0);
    /// jobtree_par::over(0..100_u64).for_each(|n| sum.set(sum.get() + n));
    /// ```
    ///
    /// # Panics
    /// If `action` panics, after all workers have ended. Some items may then not have been looked at.
    pub fn for_each<F>(self, action: F)
    where
        F: Fn(T::Out) + Sync,
    {
        self.consume(ForEach { action });
    }
}
