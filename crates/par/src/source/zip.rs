//! Two sources side by side.

use super::Source;

/// Pairs of items; see [`Loop::zip`](crate::Loop::zip).
#[derive(Clone, Copy, Debug)]
pub struct Zip<A, B> {
    // Equally long.
    left: A,
    right: B,
}

impl<A: Source, B: Source> Zip<A, B> {
    pub(crate) fn new(left: A, right: B) -> Zip<A, B> {
        let len = left.len().min(right.len());
        Zip {
            left: left.split_at(len).0,
            right: right.split_at(len).0,
        }
    }
}

impl<A: Source, B: Source> Source for Zip<A, B> {
    type Item = (A::Item, B::Item);

    #[inline]
    fn len(&self) -> usize {
        self.left.len()
    }

    #[inline]
    fn split_at(self, index: usize) -> (Self, Self) {
        let (left_1, left_2) = self.left.split_at(index);
        let (right_1, right_2) = self.right.split_at(index);
        let first = Zip {
            left: left_1,
            right: right_1,
        };
        let second = Zip {
            left: left_2,
            right: right_2,
        };
        (first, second)
    }

    #[inline]
    fn items(self) -> impl Iterator<Item = Self::Item> {
        self.left.items().zip(self.right.items())
    }

    #[inline]
    fn items_from_back(self) -> impl Iterator<Item = Self::Item> {
        self.left
            .items_from_back()
            .zip(self.right.items_from_back())
    }
}
