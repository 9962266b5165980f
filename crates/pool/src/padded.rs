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
