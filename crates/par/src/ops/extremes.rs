//! The smallest and the largest item.
//!
//! As with [`Iterator`]: of several smallest ones the first, of several largest ones the last.

use std::cmp::Ordering;
use std::mem::needs_drop;

use jobtree_pool::raw::UserOwned;

use super::choose;
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
        self.reduce(|a, b| match needs_drop::<T::Out>() {
            true => choose(a, b, |a, b| b < a),
            false => a.min(b),
        })
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
        self.reduce(|a, b| match needs_drop::<T::Out>() {
            true => choose(a, b, |a, b| b >= a),
            false => a.max(b),
        })
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
        self.reduce(|a, b| choose(a, b, |a, b| compare(a, b) == Ordering::Greater))
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
        self.reduce(|a, b| choose(a, b, |a, b| compare(a, b) != Ordering::Greater))
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
        if needs_drop::<(K, T::Out)>() {
            let owned = |item| {
                let item = UserOwned::value(item);
                (key(&item), item)
            };
            let best = self.map(owned).min_by(|a, b| a.0.cmp(&b.0));
            return best.map(without_key);
        }
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
        if needs_drop::<(K, T::Out)>() {
            let owned = |item| {
                let item = UserOwned::value(item);
                (key(&item), item)
            };
            let best = self.map(owned).max_by(|a, b| a.0.cmp(&b.0));
            return best.map(without_key);
        }
        self.map(|item| (key(&item), item))
            .max_by(|a, b| a.0.cmp(&b.0))
            .map(|(_, item)| item)
    }
}

/// Returns the item. A panic of the key's destructor must not cost the caller that.
fn without_key<K, T>((key, item): (K, UserOwned<T>)) -> T {
    drop(UserOwned::value(key));
    item.into_inner()
}
