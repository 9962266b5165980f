//! The smallest and the largest item.
//!
//! As with [`Iterator`]: of several smallest ones the first, of several largest ones the last.

use std::cmp::Ordering;

use crate::looping::Loop;
use crate::source::Source;
use crate::transform::Transform;

impl<S, T> Loop<S, T>
where
    S: Source,
    T: Transform<S::Item>,
    T::Out: Send,
{
    /// The smallest item; the first one of several.
    ///
    /// ```
    /// assert_eq!(jobtree_par::over(&[3, 1, 2]).min(), Some(&1));
    /// ```
    pub fn min(self) -> Option<T::Out>
    where
        T::Out: Ord,
    {
        self.reduce(Ord::min)
    }

    /// The largest item; the last one of several.
    ///
    /// ```
    /// assert_eq!(jobtree_par::over(&[3, 1, 2]).max(), Some(&3));
    /// ```
    pub fn max(self) -> Option<T::Out>
    where
        T::Out: Ord,
    {
        self.reduce(Ord::max)
    }

    /// The smallest item by an order of your own; the first one of several.
    ///
    /// ```
    /// let smallest = jobtree_par::over(&[0.5, -1.5, 1.0_f64]).min_by(|a, b| a.total_cmp(b));
    /// assert_eq!(smallest, Some(&-1.5));
    /// ```
    pub fn min_by<F>(self, compare: F) -> Option<T::Out>
    where
        F: Fn(&T::Out, &T::Out) -> Ordering + Sync,
    {
        self.reduce(|a, b| match compare(&a, &b) {
            Ordering::Greater => b,
            _ => a,
        })
    }

    /// The largest item by an order of your own; the last one of several.
    ///
    /// ```
    /// let largest = jobtree_par::over(&[0.5, -1.5, 1.0_f64]).max_by(|a, b| a.total_cmp(b));
    /// assert_eq!(largest, Some(&1.0));
    /// ```
    pub fn max_by<F>(self, compare: F) -> Option<T::Out>
    where
        F: Fn(&T::Out, &T::Out) -> Ordering + Sync,
    {
        self.reduce(|a, b| match compare(&a, &b) {
            Ordering::Greater => a,
            _ => b,
        })
    }

    /// The item with the smallest key; the first one of several. The key of each item is taken once.
    ///
    /// ```
    /// assert_eq!(jobtree_par::over(&[-3, 1, -2_i32]).min_by_key(|n| n.abs()), Some(&1));
    /// ```
    pub fn min_by_key<K, F>(self, key: F) -> Option<T::Out>
    where
        K: Ord + Send,
        F: Fn(&T::Out) -> K + Sync,
    {
        self.map(|item| (key(&item), item))
            .min_by(|a, b| a.0.cmp(&b.0))
            .map(|(_, item)| item)
    }

    /// The item with the largest key; the last one of several. The key of each item is taken once.
    ///
    /// ```
    /// assert_eq!(jobtree_par::over(&[-3, 1, -2_i32]).max_by_key(|n| n.abs()), Some(&-3));
    /// ```
    pub fn max_by_key<K, F>(self, key: F) -> Option<T::Out>
    where
        K: Ord + Send,
        F: Fn(&T::Out) -> K + Sync,
    {
        self.map(|item| (key(&item), item))
            .max_by(|a, b| a.0.cmp(&b.0))
            .map(|(_, item)| item)
    }
}
