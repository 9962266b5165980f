//! The iterators of [`orx-parallel`](orx_parallel) on jobtree's pool.
//!
//! They have what [`Loop`](crate::Loop) has not: iterators that are no slices or ranges as sources, recursive ones,
//! collecting into maps and sets, fallible chains, values per thread. For slices and ranges, prefer
//! [`over`](crate::over): it is faster, keeps the order in reductions too, and its closures need not be `Copy`.
//!
//! Give an iterator our [`runner`], or it does not run on a pool of ours:
//!
//! ```
//! use jobtree_par::iter::{self, prelude::*};
//!
//! let numbers: Vec<u64> = (0..1000).collect();
//! let even = numbers.par().runner(iter::runner()).filter(|n| **n % 2 == 0).count();
//! assert_eq!(even, 500);
//! ```
//!
//! # Cancellation and destructors
//!
//! The loop is `orx-parallel`'s, not ours. In a job that is cancelled it does not begin; one that has begun goes on to its last
//! item, unless a closure of it forks, which unwinds. And what it has collected when a closure panics or is stopped, a
//! `Vec` of the standard library drops: if destructors of two items panic there, the process ends.
//! [`over`](crate::over) stops between two blocks, and guards each destructor.

use std::num::NonZero;

use jobtree_pool::Pool;
pub use orx_parallel;
use orx_parallel::{ParRunner, Runner, ThreadPool};

/// The traits that give collections and ranges their parallel iterators.
pub mod prelude {
    pub use orx_parallel::{
        IntoParIter, IterIntoParIter, Par, ParCollection, ParCollectionMut, ParDrain, ParExtend,
        ParOption, ParRec, ParResult, Parallelizable,
    };
}

/// Runs an iterator on the current pool; outside of any pool, on the global one.
pub fn runner() -> impl ParRunner {
    Runner::fixed_with_pool(Workers { pool: None })
}

/// Runs an iterator on the given pool.
///
/// ```
/// use jobtree_par::iter::{self, prelude::*};
///
/// let pool = jobtree_pool::Pool::builder().workers(2).build()?;
/// let sum: usize = (0..100).into_par().runner(iter::runner_on(&pool)).sum();
/// assert_eq!(sum, 4950);
/// # Ok::<(), jobtree_pool::BuildError>(())
/// ```
pub fn runner_on(pool: &Pool) -> impl ParRunner {
    Runner::fixed_with_pool(Workers { pool: Some(pool) })
}

/// A pool of ours, as `orx-parallel` wants it; `None` is the current one.
#[derive(Clone, Copy, Debug)]
pub struct Workers<'p> {
    pool: Option<&'p Pool>,
}

impl<'p> Workers<'p> {
    /// The current pool; outside of any pool, the global one.
    pub fn current() -> Workers<'static> {
        Workers { pool: None }
    }

    /// The given pool.
    pub fn of(pool: &'p Pool) -> Workers<'p> {
        Workers { pool: Some(pool) }
    }
}

impl ThreadPool for Workers<'_> {
    type ScopeRef<'s, 'env, 'scope>
        = ScopeRef<'s, 'scope>
    where
        'scope: 's,
        'env: 'scope + 's;

    fn scope<'env, 'scope, F>(&'env self, body: F)
    where
        'env: 'scope,
        for<'s> F: FnOnce(ScopeRef<'s, 'scope>) + Send,
    {
        match self.pool {
            Some(pool) => pool.scope(|scope| body(ScopeRef(scope))),
            None => jobtree_pool::scope(|scope| body(ScopeRef(scope))),
        }
    }

    fn max_num_threads(&self) -> NonZero<usize> {
        let workers = self
            .pool
            .map_or_else(jobtree_pool::current_workers, Pool::workers);
        NonZero::new(workers).unwrap_or(NonZero::<usize>::MIN)
    }
}

/// A scope of ours, as `orx-parallel` wants it.
#[derive(Clone, Copy, Debug)]
pub struct ScopeRef<'s, 'scope>(&'s jobtree_pool::Scope<'scope>);

impl<'s, 'env, 'scope> orx_parallel::Scope<'s, 'env, 'scope> for ScopeRef<'s, 'scope> {
    fn run<W>(self, work: W)
    where
        'scope: 's,
        'env: 'scope + 's,
        W: FnOnce() + Send + 'scope + 'env,
    {
        // Parts of a loop are forks, not tasks of the program.
        self.0.spawn_part(work);
    }
}
