//! The isolation in which a piece of work was made, as a small number that travels with every queue entry.
//!
//! A worker that waits inside `isolate` may run only what was made inside, and has to know that of entries in other
//! workers' queues. Their contexts lie in frames that may be gone while it looks: the entry may have been taken and run by
//! another thread. So an entry says by itself which isolation it belongs to: its number stands in the bits of the context's
//! address that no address uses ([`ContextRef`](crate::context::ContextRef)). And which isolation is nested in which, a
//! table says, whose memory is never freed.
//!
//! # Protocol
//!
//! `isolate` takes a number that is not in use, writes into the table which isolation it is nested in, and only then lets
//! any thread see the number. It gives the number back when its body has ended, and with it everything that was made inside. So as
//! long as an entry with the number is in a queue, neither the number's line in the table changes nor that of an isolation
//! around it. Who reads an entry that it then does not get may have read lines that others wrote meanwhile: then what it
//! concludes is worth nothing, and is not used.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};

/// The bits of a context's address that say in which isolation it lies.
#[cfg(target_pointer_width = "64")]
pub(crate) const BITS: u32 = 16;
#[cfg(not(target_pointer_width = "64"))]
pub(crate) const BITS: u32 = 8;

/// The numbers there are, including that of no isolation.
const NUMBERS: usize = 1 << BITS;

/// Numbers that a worker keeps for its next calls of `isolate`.
const MOST_KEPT: usize = 8;

/// The number of an `isolate` that has not ended, or [`Isolation::NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Isolation(u16);

/// The isolation around each, by number.
static AROUND: [AtomicU16; NUMBERS] = [const { AtomicU16::new(0) }; NUMBERS];

static UNUSED: Mutex<Unused> = Mutex::new(Unused {
    next: 1,
    given_back: Vec::new(),
});

struct Unused {
    /// All from here on were never used.
    next: usize,
    given_back: Vec<u16>,
}

impl Isolation {
    /// The isolation of what is in none.
    pub(crate) const NONE: Isolation = Isolation(0);

    /// Returns `true` if it is no isolation.
    #[inline(always)]
    pub(crate) fn is_none(self) -> bool {
        self == Isolation::NONE
    }

    /// Returns the number, below 2^[`BITS`].
    #[inline(always)]
    pub(crate) fn number(self) -> usize {
        usize::from(self.0)
    }

    /// The isolation with this number.
    #[inline(always)]
    pub(crate) fn from_number(number: usize) -> Isolation {
        Isolation(number as u16)
    }

    /// Returns `true` if this is `outer` or nested in it. See the module's head for what the result is worth.
    pub(crate) fn is_within(self, outer: Isolation) -> bool {
        let mut at = self;
        // Lines that change meanwhile could lead in a circle for a while, but no honest nesting is longer than this.
        for _ in 0..NUMBERS {
            if at == outer {
                return true;
            }
            if at.is_none() {
                return false;
            }
            at = Isolation(AROUND[at.number()].load(Ordering::Relaxed));
        }
        false
    }
}

/// A worker's few numbers for its next calls of `isolate`, so that these need no lock.
#[derive(Default)]
pub(crate) struct KeptNumbers {
    numbers: RefCell<Vec<u16>>,
}

impl KeptNumbers {
    /// Opens an isolation that is nested in `around`.
    ///
    /// # Panics
    /// If there are as many as there are numbers.
    pub(crate) fn open(&self, around: Isolation) -> Isolation {
        let kept = self.numbers.borrow_mut().pop();
        let Some(number) = kept.or_else(take_unused) else {
            panic!(
                "jobtree: {} calls of `isolate` are open at once, and there is no number for another; \
                 nest them less deeply",
                NUMBERS - 1
            );
        };
        // Relaxed: the thread that gets an entry with the number got it through a queue, and so sees this.
        AROUND[usize::from(number)].store(around.0, Ordering::Relaxed);
        Isolation(number)
    }

    /// Closes an isolation that was opened by this worker: nothing carries its number any more.
    pub(crate) fn close(&self, isolation: Isolation) {
        let mut numbers = self.numbers.borrow_mut();
        if numbers.len() < MOST_KEPT {
            numbers.push(isolation.0);
        } else {
            unused().given_back.push(isolation.0);
        }
    }
}

impl Drop for KeptNumbers {
    fn drop(&mut self) {
        unused().given_back.append(self.numbers.get_mut());
    }
}

fn unused() -> std::sync::MutexGuard<'static, Unused> {
    UNUSED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cold]
fn take_unused() -> Option<u16> {
    let mut unused = unused();
    if let Some(number) = unused.given_back.pop() {
        return Some(number);
    }
    if unused.next == NUMBERS {
        return None;
    }
    unused.next += 1;
    Some((unused.next - 1) as u16)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_nested_is_within_and_siblings_are_not() {
        let kept = KeptNumbers::default();
        let outer = kept.open(Isolation::NONE);
        let (first, second) = (kept.open(outer), kept.open(outer));
        let inner = kept.open(first);
        for inside in [outer, first, second, inner] {
            assert!(inside.is_within(outer) && inside.is_within(inside));
        }
        assert!(inner.is_within(first) && !inner.is_within(second));
        assert!(!outer.is_within(first) && !Isolation::NONE.is_within(outer));
        for isolation in [inner, second, first, outer] {
            kept.close(isolation);
        }
    }

    #[test]
    fn numbers_are_used_again() {
        let kept = KeptNumbers::default();
        // Miri sees what there is to see in a few.
        let numbers = if cfg!(miri) { 200 } else { NUMBERS };
        for _ in 0..3 * numbers {
            let isolation = kept.open(Isolation::NONE);
            kept.close(isolation);
        }
        for _ in 0..8 {
            let many: Vec<_> = (0..numbers / 4)
                .map(|_| kept.open(Isolation::NONE))
                .collect();
            many.into_iter().for_each(|isolation| kept.close(isolation));
        }
    }
}
