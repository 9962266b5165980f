//! Keeps two threads' data off one another's cache lines.

use std::ops::Deref;

/// A value alone on its cache lines. 128 bytes, since processors fetch lines in pairs.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> Deref for Padded<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// A value alone on its cache lines, whose first two words others look at and whose other fields only its owner touches:
/// those end a pair of lines, and the others begin the next one.
#[repr(C, align(128))]
pub(crate) struct SplitAfterTwoWords<T> {
    gap: [usize; 128 / size_of::<usize>() - 2],
    value: T,
}

impl<T> SplitAfterTwoWords<T> {
    pub(crate) fn new(value: T) -> SplitAfterTwoWords<T> {
        SplitAfterTwoWords {
            gap: Default::default(),
            value,
        }
    }
}

impl<T> Deref for SplitAfterTwoWords<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.value
    }
}
