//! Counts what bodies make and capture: each is dropped exactly once, or something leaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What bodies return.
    Value,
    /// What bodies capture.
    Body,
    /// What jobs inherit. Freed with the last job that does, so it tells whether jobs are freed.
    Local,
}

/// See the module's head.
#[derive(Default)]
pub struct Ledger {
    made: [AtomicI64; 3],
    alive: [AtomicI64; 3],
}

impl Ledger {
    pub fn token(self: &Arc<Ledger>, kind: Kind) -> Token {
        self.made[kind as usize].fetch_add(1, Ordering::AcqRel);
        self.alive[kind as usize].fetch_add(1, Ordering::AcqRel);
        Token {
            ledger: Arc::clone(self),
            kind,
        }
    }

    /// The kinds of which something is still there, or was dropped twice.
    pub fn unbalanced(&self) -> Vec<(Kind, i64)> {
        [Kind::Value, Kind::Body, Kind::Local]
            .into_iter()
            .map(|kind| (kind, self.alive[kind as usize].load(Ordering::Acquire)))
            .filter(|(_, alive)| *alive != 0)
            .collect()
    }

    /// How many were made so far.
    pub fn made(&self, kind: Kind) -> i64 {
        self.made[kind as usize].load(Ordering::Acquire)
    }
}

/// One of what is counted.
pub struct Token {
    ledger: Arc<Ledger>,
    kind: Kind,
}

impl Drop for Token {
    fn drop(&mut self) {
        self.ledger.alive[self.kind as usize].fetch_sub(1, Ordering::AcqRel);
    }
}
