//! The one place that decides where the blocking jobs of a runtime go: to threads of their own; or, in a runtime that must
//! not have any (a simulated one), to its workers as ordinary tasks, as many at once as there would be threads.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jobtree_pool::raw::{BlockingThreads, Carriers, PoolRef};
use jobtree_tree::Job;

use super::Queue;
use super::load::Load;
use crate::runtime::{Inner, runtime_of};
use crate::sim;

/// How many blocking threads a runtime has at most, if it was not told.
const DEFAULT_LIMIT: usize = 64;

/// How long one of them stays without work.
const KEEP: Duration = Duration::from_secs(10);

/// What blocking jobs run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Route {
    #[default]
    Threads,
    Workers,
}

impl Route {
    fn carriers(self, pool: &PoolRef, name: &str) -> Carriers {
        match self {
            Route::Threads => Carriers::Threads(name.to_owned()),
            Route::Workers => Carriers::Workers(pool.clone()),
        }
    }
}

/// What a dispatcher that is made here, by the current job or outside of any, runs on.
pub(super) fn carriers_here(name: &str) -> Carriers {
    let carriers_of = |runtime: &Inner| runtime.blocking.route.carriers(runtime.pool(), name);
    match Job::current().and_then(|job| runtime_of(&job)) {
        Some(runtime) => carriers_of(&runtime),
        None => sim::with_runtime(|simulated| match simulated {
            Some(simulated) => carriers_of(simulated.inner()),
            // Without need for a runtime, which would start its workers.
            None => Carriers::Threads(name.to_owned()),
        }),
    }
}

/// The reason why a dispatcher cannot run the jobs of a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsuitable {
    /// The runtime is simulated, and the dispatcher has threads.
    HasThreads,
    /// The dispatcher's jobs run on the workers of a simulation that is not the runtime's.
    OfSimulation,
}

impl fmt::Display for Unsuitable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unsuitable::HasThreads => {
                "the dispatcher was made outside of the simulation and has threads, which cannot run simulated jobs; \
                 make one inside with `Dispatcher::new`, or use `Dispatcher::io()`"
            }
            Unsuitable::OfSimulation => {
                "the dispatcher was made in a simulation and runs on its workers, which cannot run jobs of another \
                 runtime; make one for this runtime with `Dispatcher::new`"
            }
        })
    }
}

impl std::error::Error for Unsuitable {}

impl Queue {
    /// Fails if jobs of `runtime` cannot run here: they would leave their simulation, or wait for one that is over.
    pub(super) fn check_suits(&self, runtime: &Inner) -> Result<(), Unsuitable> {
        match (self.threads.pool(), runtime.blocking.route) {
            (None, Route::Threads) => Ok(()),
            (None, Route::Workers) => Err(Unsuitable::HasThreads),
            (Some(pool), Route::Workers) if pool == runtime.pool() => Ok(()),
            (Some(_), _) => Err(Unsuitable::OfSimulation),
        }
    }
}

/// What a runtime has for blocking jobs.
pub(crate) struct Blocking {
    route: Route,
    limit: usize,
    /// Made when it is first needed.
    io: OnceLock<Queue>,
    /// What was dispatched to the workers.
    workers: Arc<Load>,
}

impl Blocking {
    /// With at most `limit` at once; `None` is the default.
    pub(crate) fn new(route: Route, limit: Option<usize>) -> Blocking {
        Blocking {
            route,
            limit: limit.unwrap_or(DEFAULT_LIMIT).max(1),
            io: OnceLock::new(),
            workers: Arc::default(),
        }
    }

    pub(super) fn io(&self, pool: &PoolRef) -> &Queue {
        self.io.get_or_init(|| {
            let carriers = self.route.carriers(pool, "jobtree-io");
            Queue::new(BlockingThreads::new(self.limit, Some(KEEP), carriers))
        })
    }

    pub(super) fn workers_load(&self) -> &Arc<Load> {
        &self.workers
    }

    /// All jobs have ended: ends the threads; `false` if `limit` was over first.
    pub(crate) fn shut_down(&self, limit: Duration) -> bool {
        self.io.get().is_none_or(|io| {
            io.threads.close();
            // Tasks of the pool are waited for with the pool.
            self.route == Route::Workers || io.threads.wait_until_gone(limit)
        })
    }
}
