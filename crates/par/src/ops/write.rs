//! Putting the items into places that are already there.

use jobtree_pool::raw::UserOwned;

use crate::drive::{Body, Splittable, drive};
use crate::looping::{Loop, over};
use crate::source::Source;
use crate::transform::{OneToOne, Transform};

/// A source and the places that its items go to, equally long.
pub(super) struct Beside<S, D> {
    pub(super) source: S,
    pub(super) beside: D,
}

impl<S: Source, D: Splittable> Splittable for Beside<S, D> {
    #[inline(always)]
    fn item_count(&self) -> usize {
        self.source.len()
    }

    #[inline(always)]
    fn cut_at(self, index: usize) -> (Self, Self) {
        let (source_1, source_2) = self.source.split_at(index);
        let (beside_1, beside_2) = self.beside.cut_at(index);
        let left = Beside {
            source: source_1,
            beside: beside_1,
        };
        let right = Beside {
            source: source_2,
            beside: beside_2,
        };
        (left, right)
    }
}

struct Write<'a, T> {
    transform: &'a T,
}

impl<'p, S, T, R> Body<Beside<S, &'p mut [R]>> for Write<'_, T>
where
    S: Source,
    T: Transform<S::Item, Out = R>,
    R: Send,
{
    type State = ();

    #[inline(always)]
    fn start(&self) {}

    #[inline(always)]
    fn feed(&self, (): (), _: usize, block: Beside<S, &'p mut [R]>) {
        let items = self.transform.apply(block.source.items());
        block
            .beside
            .iter_mut()
            .zip(items)
            .for_each(|(place, item)| *place = item);
    }

    #[inline(always)]
    fn combine(&self, (): (), (): ()) {}
}

impl<S, T> Loop<S, T>
where
    S: Source,
    T: Transform<S::Item> + OneToOne,
    T::Out: Send,
{
    /// Writes the items over those of `target`, which must be just as many.
    ///
    /// ```
    /// let mut squares = [0; 4];
    /// jobtree_par::over(0..4).map(|n| n * n).write_to(&mut squares);
    /// assert_eq!(squares, [0, 1, 4, 9]);
    /// ```
    ///
    /// # Panics
    /// If `target` is longer or shorter than the loop. If a closure of the loop panics, part of `target` may have been
    /// written.
    pub fn write_to(self, target: &mut [T::Out]) {
        assert_eq!(
            self.source.len(),
            target.len(),
            "the target must be as long as the loop"
        );
        let items = Beside {
            source: self.source,
            beside: target,
        };
        let transform = UserOwned::captured(self.transform);
        let write = Write {
            transform: &*transform,
        };
        drive(items, self.grain, &write);
    }
}

/// Replaces each value by what `function` makes of it.
///
/// ```
/// let mut numbers = [1, 2, 3];
/// jobtree_par::map_in_place(&mut numbers, |n| n * 10);
/// assert_eq!(numbers, [10, 20, 30]);
/// ```
pub fn map_in_place<T, F>(values: &mut [T], function: F)
where
    T: Send,
    F: Fn(&T) -> T + Sync,
{
    over(values).for_each(|value| *value = function(value));
}
