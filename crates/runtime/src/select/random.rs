//! Where the fair form begins.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// A clause to begin with, of `count` (at least one): each equally often.
pub(crate) fn random_start(count: usize) -> usize {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(seed());
    }
    let random = STATE.with(|state| {
        // Xorshift: fast, and good enough to be impartial.
        let mut word = state.get();
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        state.set(word);
        word
    });
    // The upper half, scaled: the lower bits are the weaker ones.
    (((random >> 32) * count as u64) >> 32) as usize
}

/// Different for each thread, and never zero.
fn seed() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(1);
    let thread = THREADS.fetch_add(1, Ordering::Relaxed);
    thread.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
}
