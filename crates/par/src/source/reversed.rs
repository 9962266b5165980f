//! A source from its end to its beginning.

use super::Source;

/// The items in reverse order; see [`Loop::rev`](crate::Loop::rev).
#[derive(Clone, Copy, Debug)]
pub struct Reversed<S> {
    source: S,
}

impl<S> Reversed<S> {
    pub(crate) fn new(source: S) -> Reversed<S> {
        Reversed { source }
    }
}

impl<S: Source> Source for Reversed<S> {
    type Item = S::Item;

    #[inline]
    fn len(&self) -> usize {
        self.source.len()
    }

    #[inline]
    fn split_at(self, index: usize) -> (Self, Self) {
        let from_front = self.source.len() - index;
        let (left, right) = self.source.split_at(from_front);
        (Reversed { source: right }, Reversed { source: left })
    }

    #[inline]
    fn items(self) -> impl Iterator<Item = S::Item> {
        self.source.items_from_back()
    }

    #[inline]
    fn items_from_back(self) -> impl Iterator<Item = S::Item> {
        self.source.items()
    }
}
