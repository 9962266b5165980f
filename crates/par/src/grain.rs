//! How finely a loop is cut.

use std::num::NonZero;

/// How many items a loop handles before it looks whether another worker wants some of the rest, and how few it
/// hands over.
///
/// [`Grain::AUTO`] is right for almost all loops. Give a grain if the items are few and each is long, but very
/// differently long ([`Grain::of`]`(1)`), or if each is so short that handing over fewer than some thousands never
/// pays.
///
/// ```
/// use jobtree_par::{self as par, Grain};
///
/// let files = ["a.rs", "lib.rs", "main.rs"];
/// let lengths = par::over(&files).grain(Grain::of(1)).map(|name| name.len()).collect();
/// assert_eq!(lengths, [4, 6, 7]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Grain(Option<NonZero<usize>>);

impl Grain {
    /// Small pieces where there are few items, large ones where there are many.
    pub const AUTO: Grain = Grain(None);

    /// Looks after every `items` items, and hands over at least as many. Zero is taken as one.
    #[must_use]
    pub const fn of(items: usize) -> Grain {
        match NonZero::new(items) {
            Some(items) => Grain(Some(items)),
            None => Grain(Some(NonZero::<usize>::MIN)),
        }
    }

    /// The fewest items to hand over.
    #[inline]
    pub(crate) fn least(self) -> usize {
        self.0.map_or(1, NonZero::get)
    }

    /// How many items of a piece of `len` a worker goes through between two looks for somebody who wants work.
    ///
    /// The cost of an item is not known, so this is a fraction of the piece: whoever asks waits for an eighth of it at
    /// most. It is not smaller, because in a short loop of cheap items that would be nothing but looking; and not larger
    /// than `longest`, where looking costs nothing any more.
    #[inline]
    pub(crate) fn block(self, len: usize, longest: usize) -> usize {
        self.0
            .map_or_else(|| (len / 8).clamp(1, longest), NonZero::get)
    }

    /// How many items the only worker of a pool goes through between two looks whether it shall stop.
    #[inline]
    pub(crate) fn block_alone(self) -> usize {
        /// So many that looking costs nothing, and a short loop is done without a look.
        const ITEMS: usize = 4096;
        self.0.map_or(ITEMS, NonZero::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_an_eighth_of_the_piece_within_limits() {
        let blocks = [0, 1, 15, 16, 1000, 1_000_000].map(|len| Grain::AUTO.block(len, 4096));
        assert_eq!(blocks, [1, 1, 1, 2, 125, 4096]);
    }

    #[test]
    fn a_given_grain_is_kept() {
        assert_eq!(Grain::of(3).block(1000, 2), 3);
        assert_eq!(Grain::of(3).least(), 3);
        assert_eq!(Grain::of(0), Grain::of(1));
    }
}
