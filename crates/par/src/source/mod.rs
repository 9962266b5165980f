//! The sources of loops: values that know their length and can be cut anywhere.

mod chain;
mod chunks;
mod collections;
mod drain;
mod enumerate;
mod items;
mod range;
mod reversed;
mod slice;
mod windows;
mod zip;

pub use chain::Chain;
pub use chunks::{Chunks, ChunksMut};
pub use drain::Drain;
pub use enumerate::Enumerate;
pub use items::Items;
pub use range::Last;
pub use reversed::Reversed;
pub use windows::Windows;
pub use zip::Zip;

use crate::drive::Splittable;

/// A row of items that can be cut in two anywhere.
///
/// Ranges of integers and slices are sources; [`over`](crate::over) makes a loop of one. Implement it for a
/// collection of your own to loop over that:
///
/// ```
/// use jobtree_par as par;
///
/// /// The multiples of a number.
/// #[derive(Clone)]
/// struct Multiples {
///     of: u64,
///     factors: std::ops::Range<u64>,
/// }
///
/// impl par::Source for Multiples {
///     type Item = u64;
///
///     fn len(&self) -> usize {
///         par::Source::len(&self.factors)
///     }
///
///     fn split_at(self, index: usize) -> (Self, Self) {
///         let middle = self.factors.start + index as u64;
///         let left = self.factors.start..middle;
///         let right = middle..self.factors.end;
///         (Multiples { of: self.of, factors: left }, Multiples { of: self.of, factors: right })
///     }
///
///     fn items(self) -> impl Iterator<Item = u64> {
///         self.factors.map(move |factor| factor * self.of)
///     }
///
///     fn items_from_back(self) -> impl Iterator<Item = u64> {
///         self.factors.rev().map(move |factor| factor * self.of)
///     }
/// }
///
/// let sevens = Multiples { of: 7, factors: 0..1000 };
/// assert_eq!(par::over(sevens).sum::<u64>(), 7 * 999 * 500);
/// ```
pub trait Source: Sized + Send {
    /// The type of the items.
    type Item;

    /// Returns the number of items. [`Source::items`] gives as many.
    fn len(&self) -> usize;

    /// Returns `true` if there are no items.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `index` items, and the others. `index` is at most the length.
    fn split_at(self, index: usize) -> (Self, Self);

    /// The items in order.
    fn items(self) -> impl Iterator<Item = Self::Item>;

    /// The items in reverse order.
    fn items_from_back(self) -> impl Iterator<Item = Self::Item>;
}

impl<S: Source> Splittable for S {
    #[inline(always)]
    fn item_count(&self) -> usize {
        Source::len(self)
    }

    #[inline(always)]
    fn cut_at(self, index: usize) -> (Self, Self) {
        Source::split_at(self, index)
    }
}

/// The argument of [`over`](crate::over), `zip` and `chain`: a [`Source`], or a value that can be seen as one.
///
/// Vectors, arrays, slices and ranges are, by value or by reference. So are the maps, sets and queues of the standard library;
/// these cannot be cut, so what the loop goes over is put into a vector first. For any other iterator there is
/// [`bridge`](crate::bridge()).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is nothing that a parallel loop goes over",
    label = "not a vector, slice, range, map or set of the standard library",
    note = "for an iterator use `par::bridge(iterator)`, or collect it into a vector first"
)]
pub trait IntoSource {
    /// The type of the source.
    type Source: Source<Item = Self::Item>;
    /// The type of the items.
    type Item;

    /// Makes a source of it.
    fn into_source(self) -> Self::Source;
}

impl<S: Source> IntoSource for S {
    type Source = S;
    type Item = S::Item;

    #[inline]
    fn into_source(self) -> S {
        self
    }
}
