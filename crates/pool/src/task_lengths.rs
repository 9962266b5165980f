//! Lengths of tasks by kind: some are so short that a fiber which becomes ready meanwhile need not mind.
//!
//! A kind is a type of closure or future: the code that runs. A few measurements of a kind decide, and one long run
//! changes the verdict at once. The table is a cache: kinds that fall on the same place drive each other out, and what is not
//! known counts as long.

use std::ptr;

use crate::job::JobKind;
use crate::sync::{AtomicUsize, Ordering};

/// The time below which a task is short: some 20 µs, in [`ticks`](crate::raw::ticks). To pass a task to a worker that sleeps costs
/// about as much.
pub(crate) const SHORT: u64 = 60_000;

/// The number of short runs, one after the other, after which a kind counts as short.
const RUNS: usize = 3;

/// Kinds are aligned to more than this, so their addresses leave room for a count up to it.
const COUNT_BITS: usize = 3;
const _: () = assert!(align_of::<JobKind>() > COUNT_BITS && RUNS <= COUNT_BITS);

const SLOTS: usize = 256;

/// See the module's head.
pub(crate) struct TaskLengths {
    /// The address of a kind, with the number of its short runs in the lowest bits.
    slots: Box<[AtomicUsize]>,
}

impl TaskLengths {
    pub(crate) fn new() -> TaskLengths {
        // In a model each is an object that loom follows.
        let slots = if cfg!(loom) { 1 } else { SLOTS };
        TaskLengths {
            slots: (0..slots).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    fn slot(&self, kind: &'static JobKind) -> &AtomicUsize {
        let address = ptr::from_ref(kind).addr();
        // Statics lie one after the other, of some five words each.
        &self.slots[(address >> 3 ^ address >> 11) % self.slots.len()]
    }

    /// Returns `true` if tasks of `kind` are known to be short.
    #[inline]
    pub(crate) fn are_short(&self, kind: &'static JobKind) -> bool {
        self.slot(kind).load(Ordering::Relaxed) == ptr::from_ref(kind).addr() + RUNS
    }

    /// Notes that a task of `kind` was short, or was not. Threads that do so at the same moment may lose one of the two.
    pub(crate) fn learn(&self, kind: &'static JobKind, was_short: bool) {
        let (slot, address) = (self.slot(kind), ptr::from_ref(kind).addr());
        let before = slot.load(Ordering::Relaxed);
        let runs = match before & !COUNT_BITS == address {
            true => before & COUNT_BITS,
            false => 0,
        };
        let runs = if was_short { (runs + 1).min(RUNS) } else { 0 };
        slot.store(address + runs, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::stack::StackClass;

    static KIND: JobKind = kind();
    static OTHER: JobKind = kind();

    const fn kind() -> JobKind {
        JobKind {
            execute: |_, _| (),
            stack: StackClass::Default,
            name: || "a kind",
        }
    }

    #[test]
    fn a_kind_is_short_after_some_short_runs_and_long_after_one_long_run() {
        let lengths = TaskLengths::new();
        for _ in 0..RUNS {
            assert!(!lengths.are_short(&KIND));
            lengths.learn(&KIND, true);
        }
        assert!(lengths.are_short(&KIND));
        lengths.learn(&KIND, true);
        assert!(lengths.are_short(&KIND));
        lengths.learn(&KIND, false);
        assert!(!lengths.are_short(&KIND));
        lengths.learn(&KIND, true);
        assert!(!lengths.are_short(&KIND), "it is learnt anew");
    }

    #[test]
    fn kinds_in_the_same_place_are_not_mistaken_for_each_other() {
        let lengths = TaskLengths {
            slots: [AtomicUsize::new(0)].into(),
        };
        (0..RUNS).for_each(|_| lengths.learn(&KIND, true));
        assert!(!lengths.are_short(&OTHER));
        lengths.learn(&OTHER, true);
        assert!(!lengths.are_short(&KIND));
    }
}
