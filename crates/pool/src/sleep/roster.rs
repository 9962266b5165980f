//! The sleeping workers, as bits, so that finding a sleeper takes two instructions and not a walk.
//!
//! The bits are hints: a name may stand here a moment too long (its worker is just waking) or be
//! taken by two posters in turn. Whether a worker was really woken is decided by the sleeper's own
//! state. What the protocol needs is one thing only: a worker enters before it counts itself as
//! sleeping and leaves after, so a poster that reads a count above zero finds a name.

use crate::sync::step::{Step, left_out};
use crate::sync::{AtomicU64, Ordering};

const BITS: usize = 64;

/// See the module's head.
pub(crate) struct Roster {
    /// Bit `w` is set if `words[w]` may hold a name.
    summary: AtomicU64,
    words: Box<[AtomicU64]>,
}

impl Roster {
    pub(crate) fn new(workers: usize) -> Roster {
        assert!(workers <= BITS * BITS);
        Roster {
            summary: AtomicU64::new(0),
            words: (0..workers.div_ceil(BITS))
                .map(|_| AtomicU64::new(0))
                .collect(),
        }
    }

    /// Enters `worker`.
    pub(crate) fn enter(&self, worker: usize) {
        let word = worker / BITS;
        self.words[word].fetch_or(1 << (worker % BITS), Ordering::AcqRel);
        // After the word, so that the thread that clears the summary and looks again sees the name.
        self.summary.fetch_or(1 << word, Ordering::AcqRel);
    }

    /// Strikes `worker` out if it is still there.
    pub(crate) fn leave(&self, worker: usize) {
        self.words[worker / BITS].fetch_and(!(1 << (worker % BITS)), Ordering::AcqRel);
    }

    /// Takes the first name off the roster.
    pub(crate) fn take_one(&self) -> Option<usize> {
        loop {
            let summary = self.summary.load(Ordering::Acquire);
            if summary == 0 {
                return None;
            }
            let word = summary.trailing_zeros() as usize;
            let names = self.words[word].load(Ordering::Acquire);
            if names == 0 {
                self.summary.fetch_and(!(1 << word), Ordering::AcqRel);
                // Another worker may have entered between the look and the clearing.
                if self.words[word].load(Ordering::Acquire) != 0 && !left_out(Step::RosterLookAgain)
                {
                    self.summary.fetch_or(1 << word, Ordering::AcqRel);
                }
                continue;
            }
            let bit = names.trailing_zeros() as usize;
            let before = self.words[word].fetch_and(!(1 << bit), Ordering::AcqRel);
            if before & (1 << bit) != 0 {
                return Some(word * BITS + bit);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_entered_worker_is_found_once() {
        let roster = Roster::new(300);
        for worker in [299, 0, 64, 127, 128, 3] {
            roster.enter(worker);
        }
        roster.leave(127);
        let mut found = std::iter::from_fn(|| roster.take_one()).collect::<Vec<_>>();
        found.sort_unstable();
        assert_eq!(found, [0, 3, 64, 128, 299]);
        roster.enter(299);
        assert_eq!(roster.take_one(), Some(299));
        assert_eq!(roster.take_one(), None);
    }
}
