//! The data that a thread has to itself, for all monitors alike: the index of its line of counters, and ids for the jobs that it
//! makes.
//!
//! # Only one thread writes a line
//!
//! There are [`OWN_LINES`] indices in the process. A thread takes a free one when it first counts, and
//! gives it back when it ends; a thread that finds none free does without, and looks again next time.
//! *At one time* an index has at most one owner: it is taken by clearing its bit in one compare-and-swap,
//! and only the owner sets the bit again.
//!
//! The owner counts by a load and a store. That loses nothing if its load sees the last store of the thread that
//! owned the line before, in each monitor. Let A give the index back, and B be the next to take it:
//!
//! 1. A's stores come before its `give_back`, on the same thread, and A stores nothing after it: it forgets
//!    the index before the bit is set, and without its [`AT_END`] it claims none again.
//! 2. `give_back` is a read-modify-write with Release; B's `take` is one with Acquire that read the bit as
//!    set. No thread took the index in between, so B read what A wrote, or what other read-modify-writes made
//!    of it. Those continue A's release sequence, so A's `give_back` happens before B's `take`.
//! 3. Hence all of A's stores happen before all of B's loads. By the same for A and those before it, B's
//!    first load sees A's last store or, if A stored nothing, what A would have seen: there is no other
//!    store that it could see.
//!
//! A monitor that was made while A ran is no exception: a line is looked at only through a monitor, and
//! its zeros happen before any thread is handed the monitor.
//!
//! A stack that is parked stays with its thread, and nothing here parks, so the thread-local that is read
//! is the one of the thread that counts.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of threads that have a line of their own at a time.
pub(super) const OWN_LINES: usize = u64::BITS as usize;

/// The thread has no index. It is beyond any line, so that one comparison finds out.
const UNCLAIMED: usize = OWN_LINES;

/// Ids that a thread takes at a time.
const ID_BLOCK: u64 = 1024;

static INDICES: Indices = Indices::new();
static NEXT_BLOCK: AtomicU64 = AtomicU64::new(1);

/// The free indices: one bit each.
struct Indices(AtomicU64);

impl Indices {
    const fn new() -> Indices {
        Indices(AtomicU64::new(u64::MAX))
    }

    /// Takes the lowest free index.
    fn take(&self) -> Option<usize> {
        let mut free = self.0.load(Ordering::Relaxed);
        while free != 0 {
            // Acquire: see the module's head.
            match self.0.compare_exchange_weak(
                free,
                free & (free - 1),
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(free.trailing_zeros() as usize),
                Err(now) => free = now,
            }
        }
        None
    }

    /// Gives back an index that the caller took, and does not use any more.
    fn give_back(&self, index: usize) {
        // Release: see the module's head.
        let before = self.0.fetch_or(1 << index, Ordering::Release);
        debug_assert!(before & (1 << index) == 0, "index {index} had no owner");
    }
}

/// The data that a thread has to itself. It has no destructor, so it can be used until the very end.
struct Own {
    line: Cell<usize>,
    /// The next id; the first of a block that this thread does not have if the block is used up. Blocks
    /// begin at 1, 1025 and so on.
    next_id: Cell<u64>,
}

thread_local! {
    static OWN: Own = const {
        Own {
            line: Cell::new(UNCLAIMED),
            next_id: Cell::new(1),
        }
    };
    /// Gives the index back when the thread ends.
    static AT_END: AtEnd = const { AtEnd };
}

struct AtEnd;

impl Drop for AtEnd {
    fn drop(&mut self) {
        // Destructors that come later may count, too: they must not find the line any more.
        let line = OWN.with(|own| own.line.replace(UNCLAIMED));
        if line < OWN_LINES {
            INDICES.give_back(line);
        }
    }
}

/// The line that only the calling thread writes, or a number beyond all lines: see [`claim_line`].
#[inline]
pub(super) fn own_line() -> usize {
    OWN.with(|own| own.line.get())
}

/// Called by a thread without a line; `true` if it has one now.
pub(super) fn claim_line() -> bool {
    // The destructor first, as an index that no thread gives back would be lost. It cannot be had when it
    // has run already.
    if AT_END.try_with(|_| ()).is_err() {
        return false;
    }
    let claimed = INDICES.take();
    OWN.with(|own| own.line.set(claimed.unwrap_or(UNCLAIMED)));
    claimed.is_some()
}

/// An id that no other job of this process has. The first is 1; they are not handed out in order, since
/// threads take them in blocks.
#[inline]
pub(crate) fn next_id() -> u64 {
    OWN.with(|own| {
        let mut id = own.next_id.get();
        if id % ID_BLOCK == 1 {
            id = next_block();
        }
        own.next_id.set(id + 1);
        id
    })
}

#[cold]
#[inline(never)]
fn next_block() -> u64 {
    // Relaxed: only that it is no other thread's matters.
    NEXT_BLOCK.fetch_add(ID_BLOCK, Ordering::Relaxed)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_index_has_one_owner_until_it_is_given_back() {
        let indices = Indices::new();
        let taken: Vec<_> = std::iter::from_fn(|| indices.take()).collect();
        assert_eq!(taken, Vec::from_iter(0..OWN_LINES));
        indices.give_back(63);
        indices.give_back(7);
        assert_eq!(indices.take(), Some(7));
        assert_eq!(indices.take(), Some(63));
        assert_eq!(indices.take(), None);
    }

    #[test]
    fn a_thread_uses_all_ids_of_a_block() {
        std::thread::spawn(|| {
            let first = next_id();
            assert_eq!(first % ID_BLOCK, 1);
            for offset in 1..ID_BLOCK {
                assert_eq!(next_id(), first + offset);
            }
            assert!(next_id() > first);
            assert_eq!((next_id() - 1) % ID_BLOCK, 1, "the second of another block");
        })
        .join()
        .unwrap();
    }
}
