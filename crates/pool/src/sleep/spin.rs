//! The length of a worker's search before it sleeps, and the pauses between its scans.
//!
//! Sleeping and being woken costs two system calls and some microseconds; looking around costs this
//! core's time, and each look takes a cache line from a worker that works. So a search looks often at
//! first and more rarely later, and how long it goes on is learnt: work that came while searching, or
//! right after falling asleep, makes the next search longer; a long sleep makes it as short as can be.

use std::cell::Cell;
use std::time::Duration;

use crate::sync::spin_pause;

/// Rounds of a search when searching has not paid: some 0.5 µs, far less than a sleep and a wake cost.
///
/// None in a model: there a worker in want of work announces itself at once.
const FEWEST_ROUNDS: u32 = if cfg!(loom) { 0 } else { 3 };

/// Rounds of a search when it has paid: some 190 µs. Picked by feel: longer than the gaps of a
/// fork-join program, short for a machine that has something else to do.
const MOST_ROUNDS: u32 = 80;

/// A sleep so short that it would have been better to go on looking.
const SHORT_SLEEP: Duration = Duration::from_micros(50);

/// Pauses (some 15–40 ns each) added per round, up to [`MOST_PAUSES`]: about 4 µs between two looks.
const PAUSES_PER_ROUND: u32 = 4;
const MOST_PAUSES: u32 = 256;

/// The memory of a worker from one search to the next.
pub(crate) struct SpinMemory(Cell<u32>);

impl SpinMemory {
    pub(crate) fn new() -> SpinMemory {
        SpinMemory(Cell::new(FEWEST_ROUNDS))
    }
}

/// One search's patience.
pub(super) struct Spin {
    rounds: u32,
    budget: u32,
    /// `true` if nothing had come for long when the worker was last woken.
    was_quiet: bool,
}

impl Spin {
    pub(super) fn new(memory: &SpinMemory) -> Spin {
        Spin {
            rounds: 0,
            budget: memory.0.get(),
            was_quiet: false,
        }
    }

    /// Looks in vain since the search began or the worker last woke.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// A look was in vain: pauses and returns `true`, or `false` if it is time to sleep.
    pub(super) fn pause(&mut self) -> bool {
        self.rounds += 1;
        if self.rounds > self.budget {
            return false;
        }
        let pauses = (PAUSES_PER_ROUND * self.rounds).min(MOST_PAUSES);
        for _ in 0..if cfg!(loom) { 1 } else { pauses } {
            spin_pause();
        }
        true
    }

    /// Returns `true` if the next pause is none.
    pub(super) fn is_used_up(&self) -> bool {
        self.rounds >= self.budget
    }

    /// The worker was woken after a sleep.
    pub(super) fn woke(&mut self, slept: Duration) {
        self.rounds = 0;
        self.was_quiet = slept >= SHORT_SLEEP;
        self.budget = if self.was_quiet {
            FEWEST_ROUNDS
        } else {
            longer(self.budget)
        };
    }

    /// The search has found something.
    pub(super) fn found(self, memory: &SpinMemory) {
        let paid = !self.was_quiet && self.rounds <= self.budget;
        memory.0.set(if paid {
            longer(self.budget)
        } else {
            self.budget
        });
    }
}

/// As between two looks late in a search.
pub(super) fn longest_pause() {
    for _ in 0..MOST_PAUSES {
        spin_pause();
    }
}

fn longer(budget: u32) -> u32 {
    (2 * budget).min(MOST_ROUNDS)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn rounds_until_sleep(memory: &SpinMemory) -> (u32, Spin) {
        let mut spin = Spin::new(memory);
        while spin.pause() {}
        (spin.rounds() - 1, spin)
    }

    #[test]
    fn work_that_comes_quickly_makes_searches_longer_and_long_sleeps_make_them_short() {
        let memory = SpinMemory::new();
        for _ in 0..20 {
            Spin::new(&memory).found(&memory);
        }
        let (rounds, mut spin) = rounds_until_sleep(&memory);
        assert_eq!(rounds, MOST_ROUNDS);
        spin.woke(Duration::from_millis(1));
        while spin.pause() {}
        assert_eq!(spin.rounds() - 1, FEWEST_ROUNDS);
    }

    #[test]
    fn one_task_after_a_long_sleep_leaves_the_next_search_short() {
        let memory = SpinMemory::new();
        for _ in 0..5 {
            let (rounds, mut spin) = rounds_until_sleep(&memory);
            assert_eq!(rounds, FEWEST_ROUNDS);
            spin.woke(Duration::from_millis(1));
            spin.found(&memory);
        }
    }

    #[test]
    fn a_short_sleep_makes_the_search_longer() {
        let memory = SpinMemory::new();
        let (rounds, mut spin) = rounds_until_sleep(&memory);
        spin.woke(Duration::from_micros(1));
        while spin.pause() {}
        assert_eq!(spin.rounds() - 1, 2 * rounds);
    }
}
