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

    /// The blocks in which a worker goes through a piece of `len` items of its own.
    #[inline]
    pub(crate) fn blocks(self, len: usize, longest: usize) -> Blocks {
        match self.0 {
            Some(items) => Blocks {
                shortest: items.get(),
                longest: items.get(),
            },
            None => Blocks {
                shortest: (len / 32).clamp(1, longest),
                longest,
            },
        }
    }
}

/// The lengths of the blocks between two looks for somebody who wants work.
///
/// The cost of an item is not known, so blocks are a fraction of what is left: whoever asks waits for at most a
/// quarter of it. They do not get shorter than a thirty-second of the piece, because at the end of a loop of
/// cheap items that would be nothing but looking.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    shortest: usize,
    longest: usize,
}

impl Blocks {
    #[inline]
    pub(crate) fn next(self, left: usize) -> usize {
        (left / 4).max(self.shortest).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(grain: Grain, len: usize, longest: usize) -> Vec<usize> {
        let blocks = grain.blocks(len, longest);
        let mut left = len;
        std::iter::from_fn(|| {
            let block = blocks.next(left).min(left);
            left -= block;
            (block > 0).then_some(block)
        })
        .collect()
    }

    #[test]
    fn blocks_cover_everything_in_not_too_many_steps() {
        for len in [1, 2, 3, 10, 31, 32, 33, 1000, 1_000_000] {
            let lengths = lengths(Grain::AUTO, len, 4096);
            assert_eq!(lengths.iter().sum::<usize>(), len);
            assert!(lengths.len() <= 24 + len / 4096, "{len}: {}", lengths.len());
        }
    }

    #[test]
    fn few_items_are_looked_at_one_by_one() {
        assert_eq!(lengths(Grain::AUTO, 4, 4096), [1, 1, 1, 1]);
    }

    #[test]
    fn a_given_grain_is_kept() {
        assert_eq!(lengths(Grain::of(3), 8, 4096), [3, 3, 2]);
        assert_eq!(Grain::of(0), Grain::of(1));
    }
}
