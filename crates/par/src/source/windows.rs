//! Neighbours in a slice.

use super::Source;

/// All runs of `size` neighbours; see [`Loop::windows`](crate::Loop::windows).
#[derive(Clone, Copy, Debug)]
pub struct Windows<'a, T> {
    slice: &'a [T],
    size: usize,
}

impl<'a, T> Windows<'a, T> {
    pub(crate) fn new(slice: &'a [T], size: usize) -> Windows<'a, T> {
        assert_ne!(size, 0, "a window must have at least one item");
        Windows { slice, size }
    }
}

impl<'a, T: Sync> Source for Windows<'a, T> {
    type Item = &'a [T];

    #[inline]
    fn len(&self) -> usize {
        (self.slice.len() + 1).saturating_sub(self.size)
    }

    #[inline]
    fn split_at(self, index: usize) -> (Self, Self) {
        let Windows { slice, size } = self;
        // The windows of the two parts overlap, so both have the items in between.
        let left = &slice[..slice.len().min(index + size - 1)];
        let right = &slice[index..];
        (
            Windows { slice: left, size },
            Windows { slice: right, size },
        )
    }

    #[inline]
    fn items(self) -> impl Iterator<Item = &'a [T]> {
        self.slice.windows(self.size)
    }

    #[inline]
    fn items_from_back(self) -> impl Iterator<Item = &'a [T]> {
        self.slice.windows(self.size).rev()
    }
}
