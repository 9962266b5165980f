//! The seeded generator that picks victims. Not for secrets.

use std::cell::Cell;

/// xorshift64*: a few instructions, good enough to spread thieves.
pub(crate) struct Random(Cell<u64>);

impl Random {
    /// A stream of its own for each worker of a pool.
    pub(crate) fn new(seed: u64, worker: usize) -> Random {
        // A multiplicative hash keeps neighbouring workers' streams apart; the state must not be 0.
        let mixed = (seed ^ (worker as u64 + 1)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Random(Cell::new(mixed | 1))
    }

    fn next(&self) -> u64 {
        let mut x = self.0.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.set(x);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound`, which must not be 0.
    pub(crate) fn below(&self, bound: usize) -> usize {
        // The high half of a product instead of a division.
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_victims_and_every_victim_comes() {
        let (a, b) = (Random::new(7, 3), Random::new(7, 3));
        let mut seen = [false; 5];
        for _ in 0..200 {
            let victim = a.below(5);
            assert_eq!(victim, b.below(5));
            seen[victim] = true;
        }
        assert!(seen.iter().all(|seen| *seen));
    }

    #[test]
    fn workers_of_one_pool_have_different_streams() {
        let (a, b) = (Random::new(7, 0), Random::new(7, 1));
        let differ = (0..64).filter(|_| a.below(1000) != b.below(1000)).count();
        assert!(differ > 50, "{differ} of 64 draws differ");
    }
}
