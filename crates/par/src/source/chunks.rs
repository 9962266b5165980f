//! Pieces of a slice of equal length, the last one perhaps shorter.

use super::Source;

/// A slice in pieces; see [`Loop::chunks`](crate::Loop::chunks).
#[derive(Clone, Copy, Debug)]
pub struct Chunks<'a, T> {
    slice: &'a [T],
    size: usize,
}

impl<'a, T> Chunks<'a, T> {
    pub(crate) fn new(slice: &'a [T], size: usize) -> Chunks<'a, T> {
        assert_ne!(size, 0, "a chunk must have at least one item");
        Chunks { slice, size }
    }
}

impl<'a, T: Sync> Source for Chunks<'a, T> {
    type Item = &'a [T];

    #[inline]
    fn len(&self) -> usize {
        self.slice.len().div_ceil(self.size)
    }

    #[inline]
    fn split_at(self, index: usize) -> (Self, Self) {
        let Chunks { slice, size } = self;
        let (left, right) = slice.split_at(slice.len().min(index * size));
        (Chunks { slice: left, size }, Chunks { slice: right, size })
    }

    #[inline]
    fn items(self) -> impl Iterator<Item = &'a [T]> {
        self.slice.chunks(self.size)
    }

    #[inline]
    fn items_from_back(self) -> impl Iterator<Item = &'a [T]> {
        self.slice.chunks(self.size).rev()
    }
}

/// An exclusive slice in pieces; see [`Loop::chunks`](crate::Loop::chunks).
#[derive(Debug)]
pub struct ChunksMut<'a, T> {
    slice: &'a mut [T],
    size: usize,
}

impl<'a, T> ChunksMut<'a, T> {
    pub(crate) fn new(slice: &'a mut [T], size: usize) -> ChunksMut<'a, T> {
        assert_ne!(size, 0, "a chunk must have at least one item");
        ChunksMut { slice, size }
    }
}

impl<'a, T: Send> Source for ChunksMut<'a, T> {
    type Item = &'a mut [T];

    #[inline]
    fn len(&self) -> usize {
        self.slice.len().div_ceil(self.size)
    }

    #[inline]
    fn split_at(self, index: usize) -> (Self, Self) {
        let ChunksMut { slice, size } = self;
        let middle = slice.len().min(index * size);
        let (left, right) = slice.split_at_mut(middle);
        (
            ChunksMut { slice: left, size },
            ChunksMut { slice: right, size },
        )
    }

    #[inline]
    fn items(self) -> impl Iterator<Item = &'a mut [T]> {
        self.slice.chunks_mut(self.size)
    }

    #[inline]
    fn items_from_back(self) -> impl Iterator<Item = &'a mut [T]> {
        self.slice.chunks_mut(self.size).rev()
    }
}
