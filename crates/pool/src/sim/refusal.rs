//! The operations that simulated code cannot do, and that are refused before anything of it has left its stack.
//!
//! * The hub has no worker: what it calls (callbacks of the clock) can neither fork nor wait, since nothing else could run
//!   meanwhile.
//! * Work for the threads of another pool cannot be waited for by the seed's clock. If such work borrows, the borrow would
//!   leave the simulation, so only work that owns everything can be handed over (`Pool::spawn`).

use std::fmt;

use super::{Simulation, is_simulated};
use crate::pool::shared::Shared;
use crate::raw::PoolRef;
use crate::worker::Worker;

const ON_HUB: &str = "a callback that the clock of a simulation calls can neither fork nor wait, because nothing else \
                      can run meanwhile; spawn a job that does so";

const OTHER_POOL: &str = "simulated code cannot wait for the threads of another pool; use the simulated runtime instead \
                          (`nursery`, `join`, `scope`), or `Pool::spawn` with a closure that owns what it uses";

/// Panics if the calling code is in a simulation and wants to wait for work on `pool`, which is not the simulated one; or
/// is called by the hub, which cannot wait at all. To be called before the work can be seen by others.
#[inline]
pub(crate) fn refuse_outside_work(pool: &Shared) {
    if is_simulated() {
        refuse_work_for(pool);
    }
}

#[cold]
#[inline(never)]
fn refuse_work_for(pool: &Shared) {
    let is_own = Simulation::with(|simulation| std::ptr::eq(simulation.pool, pool)) == Some(true);
    let on_worker = Worker::with_current(|worker| worker.is_some());
    assert!(on_worker, "{}", Outside::Callback);
    assert!(is_own, "{}", Outside::OtherPool);
}

/// Panics if the calling thread is that of a simulation, which cannot sleep: only its workers can wait.
pub(crate) fn refuse_to_sleep() {
    assert!(!is_simulated(), "{}", Outside::Callback);
}

/// The reason why simulated code cannot wait for work that it hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// The code is a callback of the clock.
    Callback,
    /// The work would run on the threads of another pool.
    OtherPool,
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outside::Callback => ON_HUB,
            Outside::OtherPool => OTHER_POOL,
        })
    }
}

impl std::error::Error for Outside {}

/// Returns why the calling code cannot wait for work on `pool`; `None` if it can: it is in no simulation, or in that of
/// `pool`.
#[inline]
pub fn outside_of_simulation(pool: &PoolRef) -> Option<Outside> {
    if !is_simulated() {
        return None;
    }
    let on_worker = Worker::with_current(|worker| worker.is_some());
    match (on_worker, pool.is_current()) {
        (false, _) => Some(Outside::Callback),
        (true, false) => Some(Outside::OtherPool),
        (true, true) => None,
    }
}
