//! The work that a service thread does before it sleeps in a wait of ours.
//!
//! A thread that serves others (the one that calls user code for deadlines) may wait there: for instance for another call that
//! this very thread is to make. So the thread is told before it sleeps, and can hand its service over first.

use std::cell::Cell;

thread_local! {
    static BEFORE_SLEEP: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Has `call` called on this thread, which is no worker, before each sleep in a wait of the library.
pub fn set_before_sleep(call: fn()) {
    BEFORE_SLEEP.set(Some(call));
}

/// The thread is about to sleep. No lock is held, and no frame that is about to wait is known to others.
#[inline]
pub(crate) fn before_sleep() {
    if let Some(call) = BEFORE_SLEEP.get() {
        call();
    }
}
