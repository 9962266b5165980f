//! A pool: its handle, the global one, and the ways into it from outside.

pub(crate) mod adopted;
mod builder;
mod install;
pub(crate) mod shared;
mod start;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use builder::{BuildError, Builder, WorkerStart};
use shared::{Shared, Waits};

use crate::broadcast::{self, BroadcastContext};
use crate::scope::{self, Scope, ScopeFifo};
use crate::spawn::{self, Yield};
use crate::stats::PoolStats;
use crate::worker::Worker;

static GLOBAL: OnceLock<Pool> = OnceLock::new();

/// A set of worker threads that share work.
///
/// Dropping it lets everything that was spawned finish, then its threads end; the drop itself does not
/// wait. [`Pool::shutdown`] does. It may be dropped anywhere, also by its own tasks, forks and handlers, and on any thread:
/// what runs then goes on, and may use the pool.
///
/// ```
/// use jobtree_pool::{Pool, join};
///
/// let pool = Pool::builder().workers(2).build()?;
/// let (a, b) = pool.install(|| join(|| 1, || 2));
/// assert_eq!(a + b, 3);
/// # Ok::<(), jobtree_pool::BuildError>(())
/// ```
pub struct Pool {
    shared: Arc<Shared>,
    /// Threads of the pool's own, which is all of them unless the builder's thread is worker 0.
    own_threads: usize,
}

impl Pool {
    /// A builder with the defaults.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// The pool that free functions such as [`join`](crate::join()) use outside of any pool. Made on
    /// first use.
    ///
    /// # Panics
    /// If it cannot be made; [`Pool::try_global`] returns that as an error.
    pub fn global() -> &'static Pool {
        match Pool::try_global() {
            Ok(pool) => pool,
            Err(error) => panic!("jobtree: the global pool cannot be made: {error}"),
        }
    }

    /// The global pool, or why it cannot be made.
    ///
    /// ```
    /// let pool = jobtree_pool::Pool::try_global()?;
    /// assert!(pool.workers() >= 1);
    /// # Ok::<(), jobtree_pool::BuildError>(())
    /// ```
    pub fn try_global() -> Result<&'static Pool, BuildError> {
        if let Some(pool) = GLOBAL.get() {
            return Ok(pool);
        }
        match Pool::builder().build_global_unasked() {
            Ok(()) | Err(BuildError::GlobalPoolExists) => {
                Ok(GLOBAL.get().expect("just set, by us or by another"))
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) fn global_if_made() -> Option<&'static Pool> {
        GLOBAL.get()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the number of workers of the pool.
    pub fn workers(&self) -> usize {
        self.shared.workers.len()
    }

    /// Runs `body` on a worker of this pool and returns its result; on such a worker, right away.
    ///
    /// A worker of another pool does other work while it waits; any other thread sleeps.
    ///
    /// # Panics
    /// If `body` does. In a simulation, if this is not the simulated pool: `body` is not called then, since what it borrows
    /// must not leave the simulation. The same holds for the other methods that wait.
    pub fn install<F, R>(&self, body: F) -> R
    where
        F: FnOnce() -> R + Send,
        R: Send,
    {
        self.install_on_worker(|_| body())
    }

    pub(crate) fn install_on_worker<F, R>(&self, body: F) -> R
    where
        F: FnOnce(&Worker) -> R + Send,
        R: Send,
    {
        install::run_on_worker_of(&self.shared, body)
    }

    /// [`join`](crate::join()) on this pool.
    pub fn join<A, B, RA, RB>(&self, a: A, b: B) -> (RA, RB)
    where
        A: FnOnce() -> RA + Send,
        B: FnOnce() -> RB + Send,
        RA: Send,
        RB: Send,
    {
        self.install_on_worker(|worker| worker.join(|_| a(), |_| b()))
    }

    /// [`scope`](crate::scope()) on this pool.
    pub fn scope<'scope, F, R>(&self, body: F) -> R
    where
        F: FnOnce(&Scope<'scope>) -> R + Send,
        R: Send,
    {
        self.install(|| scope::scope(body))
    }

    /// [`scope_fifo`](crate::scope_fifo) on this pool.
    pub fn scope_fifo<'scope, F, R>(&self, body: F) -> R
    where
        F: FnOnce(&ScopeFifo<'scope>) -> R + Send,
        R: Send,
    {
        self.install(|| scope::scope_fifo(body))
    }

    /// A scope whose body runs on the calling thread and whose tasks run on this pool.
    ///
    /// ```
    /// let pool = jobtree_pool::Pool::builder().workers(2).build()?;
    /// let mut numbers = [1, 2, 3];
    /// pool.in_place_scope(|s| {
    ///     for n in &mut numbers {
    ///         s.spawn(move |_| *n *= 2);
    ///     }
    /// });
    /// assert_eq!(numbers, [2, 4, 6]);
    /// # Ok::<(), jobtree_pool::BuildError>(())
    /// ```
    pub fn in_place_scope<'scope, F, R>(&self, body: F) -> R
    where
        F: FnOnce(&Scope<'scope>) -> R,
    {
        scope::in_place_scope_of(&self.shared, body)
    }

    /// [`Pool::in_place_scope`] whose tasks start first in, first out.
    pub fn in_place_scope_fifo<'scope, F, R>(&self, body: F) -> R
    where
        F: FnOnce(&ScopeFifo<'scope>) -> R,
    {
        scope::in_place_scope_fifo_of(&self.shared, body)
    }

    /// Runs `body` on this pool some time; no code waits for it.
    ///
    /// A panic goes to the pool's panic handler; without one it is recorded
    /// (`jobtree::user_code`), and the pool goes on.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use jobtree_pool::{OnceLatch, Pool};
    ///
    /// let pool = Pool::builder().workers(1).build()?;
    /// let done = Arc::new(OnceLatch::new());
    /// let latch = done.clone();
    /// pool.spawn(move || latch.set());
    /// done.wait();
    /// # Ok::<(), jobtree_pool::BuildError>(())
    /// ```
    pub fn spawn<F>(&self, body: F)
    where
        F: FnOnce() + Send + 'static,
    {
        spawn::spawn_on(&self.shared, body);
    }

    /// [`Pool::spawn`], but tasks spawned so by one worker start in the order of spawning.
    pub fn spawn_fifo<F>(&self, body: F)
    where
        F: FnOnce() + Send + 'static,
    {
        spawn::spawn_fifo_on(&self.shared, body);
    }

    /// Runs `body` once on every worker and returns the results by worker number.
    ///
    /// ```
    /// let pool = jobtree_pool::Pool::builder().workers(3).build()?;
    /// assert_eq!(pool.broadcast(|context| context.index()), [0, 1, 2]);
    /// # Ok::<(), jobtree_pool::BuildError>(())
    /// ```
    pub fn broadcast<F, R>(&self, body: F) -> Vec<R>
    where
        F: Fn(BroadcastContext<'_>) -> R + Sync,
        R: Send,
    {
        broadcast::broadcast_on(&self.shared, body)
    }

    /// Runs `body` once on every worker some time; no code waits for it.
    pub fn spawn_broadcast<F>(&self, body: F)
    where
        F: Fn(BroadcastContext<'_>) + Send + Sync + 'static,
    {
        broadcast::spawn_broadcast_on(&self.shared, body);
    }

    /// [`yield_now`](crate::yield_now) if the caller is a worker of this pool, else `None`.
    pub fn yield_now(&self) -> Option<Yield> {
        self.with_own_worker(spawn::yield_worker)
    }

    /// [`yield_local`](crate::yield_local) if the caller is a worker of this pool, else `None`.
    pub fn yield_local(&self) -> Option<Yield> {
        self.with_own_worker(spawn::yield_worker_locally)
    }

    /// The calling worker's number, if it is one of this pool's.
    pub fn current_worker_index(&self) -> Option<usize> {
        self.with_own_worker(Worker::index)
    }

    /// Returns `true` if the calling worker has tasks of its own waiting, if it is one of this pool's.
    pub fn current_worker_has_pending_tasks(&self) -> Option<bool> {
        self.with_own_worker(|worker| {
            let own = &self.shared.workers[worker.index()];
            // SAFETY: this is the worker's own thread.
            own.has_public_work() || unsafe { worker.strand().forks.outstanding() > 0 }
        })
    }

    fn with_own_worker<R>(&self, body: impl FnOnce(&Worker) -> R) -> Option<R> {
        Worker::with_current(|worker| match worker {
            Some(worker) if std::ptr::eq(worker.pool(), &*self.shared) => Some(body(worker)),
            _ => None,
        })
    }

    /// Has the forks, scopes and `install`s of this pool nest their waits from now on, as `Builder::nested_waits` says; other
    /// waits park as before. For a pool that was made before it was known that code needs that.
    #[doc(hidden)]
    pub fn nest_forks(&self) {
        if self.shared.waits() == Waits::Park {
            self.shared.set_waits(Waits::NestForks);
        }
    }

    /// Returns the counts of the pool's workers so far.
    pub fn stats(&self) -> PoolStats {
        self.shared.stats()
    }

    /// Lets everything that was spawned finish, then waits at most `limit` for the threads to end.
    ///
    /// Work that does not end in time keeps its threads; the error says how much there is. Called by code that runs on the
    /// pool itself, it always fails, and does not wait: that code has not ended. The pool ends after it.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let pool = jobtree_pool::Pool::builder().workers(2).build()?;
    /// pool.spawn(|| ());
    /// pool.shutdown(Duration::from_secs(60))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown(self, limit: Duration) -> Result<(), ShutdownError> {
        let shared = self.shared.clone();
        let expected = self.own_threads;
        drop(self);
        // A pool that is shut down from one of its own workers cannot wait for that one.
        let inside = Worker::with_current(|worker| {
            worker.is_some_and(|worker| std::ptr::eq(worker.pool(), &*shared))
        });
        if inside {
            return Err(ShutdownError {
                unfinished_tasks: shared.unfinished_tasks().max(1),
            });
        }
        if shared.wait_until_gone(expected, limit) {
            Ok(())
        } else {
            Err(ShutdownError {
                unfinished_tasks: shared.unfinished_tasks(),
            })
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        adopted::give_up(&self.shared);
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("workers", &self.workers())
            .field("sleep", &self.shared.sleep.snapshot())
            .field("stack_size", &self.shared.stack_size)
            .finish_non_exhaustive()
    }
}

/// A pool did not end in the time it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownError {
    /// The number of tasks that had not finished when the time was up.
    pub unfinished_tasks: u64,
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the pool did not end in time: {} tasks are unfinished; its threads end when they do",
            self.unfinished_tasks
        )
    }
}

impl std::error::Error for ShutdownError {}
