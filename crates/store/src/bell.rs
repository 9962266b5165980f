//! One wake-up for all who wait for the same commit.
//!
//! Waking each thread of a group by itself is a system call each, and each woken thread interrupts the one that wakes
//! the others. So the callers of a group wait for one bell, which is rung once, after all of their answers are there.
//!
//! Protocol. The queue has a bell for the group that gathers. A call that is queued is given it, under the queue's lock;
//! when the group is taken, a [`Ringer`] goes with it, and the queue gets a new bell. The ringer rings when it is
//! dropped, so nobody waits for ever, whatever becomes of the group. A bell that has rung stays so. It does not promise
//! that the answer is there: a group may be cut in two, and then the second half waits for itself, each alone.

use std::sync::{Arc, OnceLock};

/// What the callers of a group wait for.
#[derive(Default)]
pub struct Bell {
    /// Waiting for it takes no lock, which all who are woken would have to pass one after the other.
    rung: OnceLock<()>,
}

impl Bell {
    /// Blocks until it has rung.
    pub fn wait(&self) {
        self.rung.wait();
    }

    fn ring(&self) {
        // Only its ringer rings it, once.
        let _ = self.rung.set(());
    }
}

/// Rings when it is dropped.
#[derive(Default)]
pub(crate) struct Ringer(Arc<Bell>);

impl Ringer {
    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.0
    }
}

impl Drop for Ringer {
    fn drop(&mut self) {
        self.0.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_wait_hear_it_and_who_comes_later_does_not_wait() {
        let ringer = Ringer::default();
        let bell = Arc::clone(ringer.bell());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| bell.wait());
            }
            drop(ringer);
        });
        bell.wait();
    }
}
