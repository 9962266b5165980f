//! A pool of the user's own.

use std::fmt;
use std::sync::Arc;

use jobtree_pool::Pool;

use crate::broadcast::BroadcastContext;
use crate::scope::{Scope, ScopeFifo};
use crate::spawn::Yield;
use crate::{join, pending};

/// A set of threads that share work; made by [`ThreadPoolBuilder`](crate::ThreadPoolBuilder).
///
/// Dropping it lets everything that was spawned finish, then its threads end; the drop itself does not
/// wait.
///
/// ```
/// let pool = rayon_core::ThreadPoolBuilder::new().num_threads(2).build()?;
/// let (a, b) = pool.join(|| 1, || 2);
/// assert_eq!(a + b, 3);
/// # Ok::<(), rayon_core::ThreadPoolBuildError>(())
/// ```
pub struct ThreadPool {
    pool: Arc<Pool>,
}

impl ThreadPool {
    pub(crate) fn new_from(pool: Arc<Pool>) -> ThreadPool {
        pending::remember(&pool);
        ThreadPool { pool }
    }

    /// Runs `op` on a thread of this pool and returns its result; on such a thread, right away.
    /// Everything that it forks and spawns belongs to this pool too.
    ///
    /// A thread of another pool does other work while it waits, any other thread sleeps.
    ///
    /// # Panics
    /// If `op` does.
    pub fn install<OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce() -> R + Send,
        R: Send,
    {
        self.pool.install(op)
    }

    /// Runs `op` once on every thread and returns the results by thread number.
    ///
    /// ```
    /// let pool = rayon_core::ThreadPoolBuilder::new().num_threads(3).build()?;
    /// assert_eq!(pool.broadcast(|context| context.index()), [0, 1, 2]);
    /// # Ok::<(), rayon_core::ThreadPoolBuildError>(())
    /// ```
    ///
    /// # Panics
    /// If `op` does on any thread, after all have ended.
    pub fn broadcast<OP, R>(&self, op: OP) -> Vec<R>
    where
        OP: Fn(BroadcastContext<'_>) -> R + Sync,
        R: Send,
    {
        self.pool
            .broadcast(|context| op(BroadcastContext::new(&context)))
    }

    /// How many threads it has.
    #[inline]
    pub fn current_num_threads(&self) -> usize {
        self.pool.workers()
    }

    /// The calling thread's number, if it belongs to this pool.
    #[inline]
    pub fn current_thread_index(&self) -> Option<usize> {
        self.pool.current_worker_index()
    }

    /// Whether the calling thread has forks or tasks of its own waiting, if it belongs to this pool.
    #[inline]
    pub fn current_thread_has_pending_tasks(&self) -> Option<bool> {
        self.pool.current_worker_has_pending_tasks()
    }

    /// [`join`](crate::join()) on this pool.
    pub fn join<A, B, RA, RB>(&self, oper_a: A, oper_b: B) -> (RA, RB)
    where
        A: FnOnce() -> RA + Send,
        B: FnOnce() -> RB + Send,
        RA: Send,
        RB: Send,
    {
        self.install(|| join::join(oper_a, oper_b))
    }

    /// [`scope`](crate::scope()) on this pool.
    pub fn scope<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&Scope<'scope>) -> R + Send,
        R: Send,
    {
        self.pool.scope(|scope| op(Scope::of(scope)))
    }

    /// [`scope_fifo`](crate::scope_fifo) on this pool.
    pub fn scope_fifo<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&ScopeFifo<'scope>) -> R + Send,
        R: Send,
    {
        self.pool.scope_fifo(|scope| op(ScopeFifo::of(scope)))
    }

    /// A scope whose body runs on the calling thread and whose tasks run on this pool.
    pub fn in_place_scope<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&Scope<'scope>) -> R,
    {
        self.pool.in_place_scope(|scope| op(Scope::of(scope)))
    }

    /// [`in_place_scope`](Self::in_place_scope) whose tasks start first in, first out.
    pub fn in_place_scope_fifo<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&ScopeFifo<'scope>) -> R,
    {
        self.pool
            .in_place_scope_fifo(|scope| op(ScopeFifo::of(scope)))
    }

    /// Runs `op` on this pool some time; nobody waits for it. A panic goes to the panic handler.
    pub fn spawn<OP>(&self, op: OP)
    where
        OP: FnOnce() + Send + 'static,
    {
        self.pool.spawn(op);
    }

    /// [`spawn`](Self::spawn), but what one thread spawns so starts in the order of spawning.
    pub fn spawn_fifo<OP>(&self, op: OP)
    where
        OP: FnOnce() + Send + 'static,
    {
        self.pool.spawn_fifo(op);
    }

    /// Runs `op` once on every thread some time; nobody waits for it.
    pub fn spawn_broadcast<OP>(&self, op: OP)
    where
        OP: Fn(BroadcastContext<'_>) + Send + Sync + 'static,
    {
        self.pool
            .spawn_broadcast(move |context| op(BroadcastContext::new(&context)));
    }

    /// [`yield_now`](crate::yield_now()) if the calling thread belongs to this pool, else `None`.
    pub fn yield_now(&self) -> Option<Yield> {
        self.pool.yield_now().map(Yield::from_pool)
    }

    /// [`yield_local`](crate::yield_local()) if the calling thread belongs to this pool, else `None`.
    pub fn yield_local(&self) -> Option<Yield> {
        self.pool.yield_local().map(Yield::from_pool)
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool")
            .field("num_threads", &self.current_num_threads())
            .field("pool", &self.pool)
            .finish()
    }
}
