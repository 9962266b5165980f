//! A flood without faults, through the whole engine: how long everybody waits at most.
//!
//! Several addons flood a machine with small jobs; one addon submits a single job now and then, and one submits the
//! largest there is. The bound is the formula of [`WaitBound`], with what the engine itself adds: a claim's way through
//! the store, and the worker's pause before it asks.

use std::time::Duration;

use jobtree_queue::hold::WaitBound;

/// How a flood went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flood {
    /// The longest wait of a small addon's single job.
    pub single: Duration,
    /// The longest wait of the largest job.
    pub largest: Duration,
    /// What the formula allows each of them.
    pub bound: Duration,
}

/// Runs a flood.
///
/// # Errors
/// If somebody waits longer than the formula says.
pub fn flood(_seed: u64) -> Result<Flood, String> {
    let _ = WaitBound {
        age_step: Duration::ZERO,
        longest_run: Duration::ZERO,
        capacity: 1,
        largest_ahead: 1,
        own_ahead: 0,
        own_quantum: 1,
        other_quanta: Vec::new(),
    };
    Err("not yet".into())
}
