//! Items with their positions.

use super::Source;

/// Items with their positions; see [`Loop::enumerate`](crate::Loop::enumerate).
#[derive(Clone, Copy, Debug)]
pub struct Enumerate<S> {
    source: S,
    start: usize,
}

impl<S> Enumerate<S> {
    pub(crate) fn new(source: S) -> Enumerate<S> {
        Enumerate { source, start: 0 }
    }
}

impl<S: Source> Source for Enumerate<S> {
    type Item = (usize, S::Item);

    #[inline]
    fn len(&self) -> usize {
        self.source.len()
    }

    #[inline]
    fn split_at(self, index: usize) -> (Self, Self) {
        let (left, right) = self.source.split_at(index);
        let left = Enumerate {
            source: left,
            start: self.start,
        };
        let right = Enumerate {
            source: right,
            start: self.start + index,
        };
        (left, right)
    }

    #[inline]
    fn items(self) -> impl Iterator<Item = Self::Item> {
        let end = self.start + self.source.len();
        (self.start..end).zip(self.source.items())
    }

    #[inline]
    fn items_from_back(self) -> impl Iterator<Item = Self::Item> {
        let end = self.start + self.source.len();
        (self.start..end).rev().zip(self.source.items_from_back())
    }
}
