//! The granularity of a loop.

use std::num::NonZero;

use crate::pace::Pace;

/// The number of items that a loop handles between two checks for another worker that wants some of the rest, and the fewest that
/// it hands over.
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

    /// Returns the pace for a piece of `len` items: between two checks for a worker that wants work, the loop handles as many as
    /// take some tens of microseconds, but no more than `longest`, where a check costs nothing any more, and no more than an
    /// eighth of the piece.
    #[inline]
    pub(crate) fn pace(self, len: usize, longest: usize) -> Pace {
        match self.0 {
            Some(items) => Pace::fixed(items.get()),
            None => Pace::up_to((len / 8).clamp(1, longest)),
        }
    }

    /// Returns the pace for the last `len` items of a piece, fewer than make a block. These items may be more expensive than
    /// those before, and in one block no other worker could have a part of them.
    #[inline]
    pub(crate) fn last_pace(self, len: usize) -> Pace {
        match self.0 {
            Some(items) => Pace::fixed(items.get()),
            None => Pace::fixed(len.div_ceil(8)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_an_eighth_of_the_piece_within_limits() {
        let lens = [0, 1, 15, 16, 1000, 1_000_000];
        let blocks = lens.map(|len| Grain::AUTO.pace(len, 4096).longest());
        assert_eq!(blocks, [1, 1, 1, 2, 125, 4096]);
    }

    #[test]
    fn the_last_items_of_a_piece_are_cut_again_unless_a_grain_was_given() {
        let blocks = [1, 7, 9, 62].map(|len| Grain::AUTO.last_pace(len).begin());
        assert_eq!(blocks, [1, 1, 2, 8]);
        assert_eq!(Grain::of(100).last_pace(62).begin(), 100);
    }

    #[test]
    fn a_given_grain_is_kept() {
        assert_eq!(Grain::of(3).pace(1000, 2).longest(), 3);
        assert_eq!(Grain::of(3).least(), 3);
        assert_eq!(Grain::of(0), Grain::of(1));
    }
}
