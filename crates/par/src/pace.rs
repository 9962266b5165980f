//! The number of items that a worker goes through between two checks for other workers.
//!
//! A look is one load, but a loop of the cheapest items shall not be made of looks; and an item may take a
//! second, and the thread that asks for work, or cancels, shall not wait for thousands of them. So the first items of
//! a piece are timed, and a block becomes as long as takes some tens of microseconds. Where items turn out to
//! be cheap, only now and then a block is timed again.

use jobtree_pool::raw;

/// About what a block should take, in ticks: 50 to 100 µs.
const BLOCK_TICKS: u64 = 200_000;

/// Items of the first block: what is lost if each takes long.
const FIRST: usize = 8;

/// Blocks of full length between two that are timed.
const BLOCKS_UNTIMED: u32 = 32;

/// See the module's head.
pub(crate) struct Pace {
    longest: usize,
    block: usize,
    /// Blocks until the next one that is timed.
    untimed: u32,
    began: u64,
}

impl Pace {
    /// Blocks of at most `longest` items, fewer if they take long.
    #[inline]
    pub(crate) fn up_to(longest: usize) -> Pace {
        Pace {
            longest,
            block: longest.min(FIRST),
            untimed: 0,
            began: 0,
        }
    }

    /// Blocks of `items`, whatever they take.
    #[inline]
    pub(crate) fn fixed(items: usize) -> Pace {
        Pace {
            longest: items,
            block: items,
            untimed: u32::MAX,
            began: 0,
        }
    }

    /// A block begins: how many items it may have.
    #[inline]
    pub(crate) fn begin(&mut self) -> usize {
        if self.untimed == 0 {
            self.began = raw::ticks();
        }
        self.block
    }

    /// The block that was begun has ended.
    #[inline]
    pub(crate) fn end(&mut self) {
        if self.untimed == 0 {
            self.adapt(raw::ticks().saturating_sub(self.began));
        } else if self.untimed != u32::MAX {
            self.untimed -= 1;
        }
    }

    #[cfg(test)]
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    fn adapt(&mut self, took: u64) {
        let fitting = (self.block as u64).saturating_mul(BLOCK_TICKS) / took.max(1);
        let fitting = usize::try_from(fitting).unwrap_or(usize::MAX);
        self.block = fitting.clamp(1, self.longest);
        if self.block == self.longest {
            self.untimed = BLOCKS_UNTIMED;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cheap_items_get_full_blocks_and_long_ones_are_looked_after_one_by_one() {
        let mut pace = Pace::up_to(4096);
        assert_eq!(pace.begin(), FIRST);
        pace.adapt(100);
        assert_eq!((pace.block, pace.untimed), (4096, BLOCKS_UNTIMED));
        // They became expensive: each a millisecond or so.
        pace.adapt(4096 * 2_000_000);
        assert_eq!(pace.block, 1);
        // A tenth of that.
        pace.adapt(BLOCK_TICKS / 2);
        assert_eq!(pace.block, 2);
    }

    #[test]
    fn a_given_grain_is_kept() {
        let mut pace = Pace::fixed(7);
        for _ in 0..100 {
            assert_eq!(pace.begin(), 7);
            pace.end();
        }
    }

    #[test]
    fn a_short_piece_has_short_blocks() {
        let mut pace = Pace::up_to(3);
        assert_eq!(pace.begin(), 3);
        pace.adapt(1);
        assert_eq!(pace.begin(), 3);
    }
}
