//! What can be said about a runtime before it exists.

use jobtree_pool::raw::PoolRef;
use jobtree_pool::{BuildError, Pool};

use crate::budget::{Budget, Capabilities, Decision, Exhausted, GroundBuilder, Handler, Profile};
use crate::dispatcher::{Blocking, Route};
use crate::runtime::{MadeOf, Runtime};
use crate::task::TaskStack;

/// Describes a runtime.
#[derive(Debug)]
pub struct RuntimeBuilder {
    pool: jobtree_pool::Builder,
    task_stack: TaskStack,
    ground: GroundBuilder,
    blocking_threads: Option<usize>,
    route: Route,
}

impl RuntimeBuilder {
    pub(crate) fn new() -> RuntimeBuilder {
        RuntimeBuilder {
            pool: Pool::builder(),
            task_stack: TaskStack::Default,
            ground: GroundBuilder::default(),
            blocking_threads: None,
            route: Route::default(),
        }
    }

    /// How many workers; without it as many as the pool's default.
    pub fn workers(mut self, workers: usize) -> RuntimeBuilder {
        self.pool = self.pool.workers(workers);
        self
    }

    /// The pool in full: stack size, names, handlers.
    pub fn pool(mut self, pool: jobtree_pool::Builder) -> RuntimeBuilder {
        self.pool = pool;
        self
    }

    /// Has jobs start on stacks of 64 KiB, so that a million of them can wait at once: for jobs that recurse little and
    /// keep large values on the heap. A job that needs more ends the process, with a report that names it.
    ///
    /// ```
    /// use jobtree_runtime::Runtime;
    ///
    /// let runtime = Runtime::builder().workers(1).small_stacks().build()?;
    /// assert_eq!(runtime.spawn(|| Ok(1)).join()?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn small_stacks(mut self) -> RuntimeBuilder {
        self.task_stack = TaskStack::Small;
        self
    }

    /// What jobs may do if nothing else is said; without it, [`Profile::Open`].
    ///
    /// ```
    /// use jobtree_runtime::{Profile, Runtime};
    ///
    /// let runtime = Runtime::builder().workers(1).profile(Profile::Core).build()?;
    /// assert!(runtime.spawn(|| Ok(())).join().is_err(), "nothing is scheduled there");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn profile(mut self, profile: Profile) -> RuntimeBuilder {
        self.ground.profile = profile;
        self
    }

    /// What each scope or job directly under the root has, if not what the profile says.
    pub fn root_budget(mut self, budget: Budget) -> RuntimeBuilder {
        self.ground.budget = Some(budget);
        self
    }

    /// What each scope or job directly under the root may ask for, if not what the profile says. In
    /// [`Profile::Sovereign`] nobody may ask for anything without this.
    pub fn root_capabilities(mut self, capabilities: Capabilities) -> RuntimeBuilder {
        self.ground.capabilities = Some(capabilities);
        self
    }

    /// Has `handler` decide about scopes and jobs directly under the root that have used up their budget, where a
    /// supervisor has to: see [`Nursery::supervise_budgets`](crate::Nursery::supervise_budgets). What it gives them comes
    /// out of nothing.
    pub fn supervise_budgets(
        mut self,
        handler: impl Fn(&Exhausted) -> Decision + Send + Sync + 'static,
    ) -> RuntimeBuilder {
        self.ground.handler = Some(Handler::new(handler));
        self
    }

    /// How many threads [`Dispatcher::io`](crate::Dispatcher::io) may have at most; without it 64.
    ///
    /// # Panics
    /// If it is 0.
    pub fn blocking_threads(mut self, threads: usize) -> RuntimeBuilder {
        assert!(
            threads > 0,
            "a runtime needs at least one blocking thread; it is only started when it is needed"
        );
        self.blocking_threads = Some(threads);
        self
    }

    /// Blocking jobs run on the workers, as many at once as there would be threads: for a runtime that must not
    /// have other threads.
    #[doc(hidden)]
    pub fn blocking_on_workers(mut self) -> RuntimeBuilder {
        self.route = Route::Workers;
        self
    }

    /// Makes the runtime.
    ///
    /// # Errors
    /// If the pool cannot be made.
    pub fn build(self) -> Result<Runtime, BuildError> {
        let pool = self.pool.build()?;
        let pool_ref = PoolRef::of(&pool);
        Ok(Runtime::made_of(MadeOf {
            own_pool: Some(pool),
            task_stack: self.task_stack,
            ground: self.ground,
            blocking: Blocking::new(self.route, self.blocking_threads),
            ..MadeOf::pool(pool_ref)
        }))
    }
}
