//! A handle that knows a pool and does not decide about its life.

use std::fmt;
use std::sync::Arc;

use crate::isolation::Isolation;
use crate::out_of_stacks::OutOfStacks;
use crate::pool::Pool;
use crate::pool::shared::Shared;
use crate::scope::current_pool;
use crate::spawn::{spawn_inside, spawn_unasked};
use crate::stats::PoolStats;
use crate::worker::Worker;

/// A pool, for layers that must find it again. Other than a [`Pool`], it can be cloned, and dropping it does not end
/// the pool; keeping it keeps the pool's memory, but not its threads.
#[derive(Clone)]
pub struct PoolRef {
    shared: Arc<Shared>,
}

impl PoolRef {
    /// The calling worker's pool; `None` on other threads.
    pub fn current() -> Option<PoolRef> {
        Worker::with_current(|worker| {
            worker.map(|worker| PoolRef {
                shared: worker.thread().pool.clone(),
            })
        })
    }

    /// The calling worker's pool; on other threads the global one.
    ///
    /// # Panics
    /// If the global pool is needed and cannot be made (see [`Pool::try_global`]).
    pub fn current_or_global() -> PoolRef {
        PoolRef {
            shared: current_pool(),
        }
    }

    /// The global pool, if there is one already.
    pub fn global_if_made() -> Option<PoolRef> {
        Pool::global_if_made().map(PoolRef::of)
    }

    /// The pool behind a handle.
    ///
    /// ```
    /// use jobtree_pool::{Pool, raw::PoolRef};
    ///
    /// let pool = Pool::builder().workers(1).build()?;
    /// let known = PoolRef::of(&pool);
    /// assert!(pool.install(|| known.is_current()) && !known.is_current());
    /// # Ok::<(), jobtree_pool::BuildError>(())
    /// ```
    pub fn of(pool: &Pool) -> PoolRef {
        PoolRef {
            shared: pool.shared().clone(),
        }
    }

    #[cfg(jobtree_stacks)]
    pub(crate) fn of_shared(shared: &Arc<Shared>) -> PoolRef {
        PoolRef {
            shared: shared.clone(),
        }
    }

    /// Returns the number of workers of the pool.
    pub fn workers(&self) -> usize {
        self.shared.workers.len()
    }

    /// Returns `true` if the calling thread is one of the pool's workers.
    pub fn is_current(&self) -> bool {
        Worker::with_current(|worker| {
            worker.is_some_and(|worker| std::ptr::eq(worker.pool(), &*self.shared))
        })
    }

    /// Returns the counts of the pool's workers: [`Pool::stats`].
    pub fn stats(&self) -> PoolStats {
        self.shared.stats()
    }

    /// Returns `true` if the pool is to end, and nothing is left to do but a task that asks this.
    pub fn waits_only_for_caller(&self) -> bool {
        self.shared.is_terminating() && self.shared.unfinished_tasks() <= 1
    }

    /// Has every worker look whether its context was stopped: [`Pool::interrupt_forks`].
    pub fn interrupt_forks(&self) {
        self.shared.interrupt_forks();
    }

    #[cfg(all(test, jobtree_stacks))]
    pub(crate) fn shared_for_tests(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Runs `body` on this pool some time: [`Pool::spawn`], but the limits of the calling code are not asked: that is the
    /// caller's duty. As with a task, the caller sees to it that the pool is kept.
    pub fn spawn<F: FnOnce() + Send + 'static>(&self, body: F) {
        spawn_unasked(&self.shared, body);
    }

    /// [`spawn`](PoolRef::spawn) for a task that code inside `isolation` waits for.
    pub(crate) fn spawn_inside<F>(&self, isolation: Isolation, body: F)
    where
        F: FnOnce() + Send + 'static,
    {
        spawn_inside(&self.shared, isolation, body);
    }

    /// Has `listener` called when the system refuses a stack for the first time; now, if it has done so. Only a task of the
    /// pool that is on its way keeps the listener.
    pub fn on_out_of_stacks(&self, listener: &Arc<dyn OutOfStacks>) {
        self.shared.out_of_stacks.add(listener);
    }

    /// Has every further stack of the pool refused, or none any more. For tests of layers above; nothing happens where stacks
    /// cannot be parked.
    pub fn refuse_stacks(&self, are_refused: bool) {
        #[cfg(jobtree_stacks)]
        self.shared.stacks.refuse_all(are_refused.then_some(
            crate::stack::StackError::NoAddressSpace {
                bytes: 1 << 20,
                os_error: 12,
            },
        ));
        #[cfg(not(jobtree_stacks))]
        let _ = are_refused;
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }
}

impl PartialEq for PoolRef {
    fn eq(&self, other: &PoolRef) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for PoolRef {}

impl fmt::Debug for PoolRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolRef")
            .field("workers", &self.workers())
            .finish_non_exhaustive()
    }
}
