//! Counters cheap enough to stay on: each is written by one worker only, so an increment is a load and
//! a store on a line that no other thread writes.

use crate::stack::StackError;
use crate::sync::{AtomicU64, Ordering};

/// A counter with one writer.
#[derive(Default)]
pub(crate) struct OwnCounter(AtomicU64);

impl OwnCounter {
    /// Counts; only the worker it belongs to may call this.
    #[inline]
    pub(crate) fn add(&self, amount: u64) {
        self.0
            .store(self.0.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
    }

    /// Counts, and the thread that reads the new value sees what was done before.
    #[inline]
    pub(crate) fn add_release(&self, amount: u64) {
        self.0
            .store(self.0.load(Ordering::Relaxed) + amount, Ordering::Release);
    }

    /// Takes back what was counted; only the worker it belongs to may call this.
    #[cfg_attr(not(jobtree_stacks), allow(dead_code))]
    #[inline]
    pub(crate) fn subtract(&self, amount: u64) {
        self.0
            .store(self.0.load(Ordering::Relaxed) - amount, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// The counters of a worker.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct WorkerCounters {
    pub(crate) executed: OwnCounter,
    pub(crate) stolen: OwnCounter,
    pub(crate) failed_steals: OwnCounter,
    pub(crate) parks: OwnCounter,
    /// Fibers that are parked now.
    pub(crate) waiting: OwnCounter,
    pub(crate) injected: OwnCounter,
    pub(crate) made_tasks: OwnCounter,
    pub(crate) finished_tasks: OwnCounter,
    /// Waits and tasks for which there was no stack.
    pub(crate) without_stack: OwnCounter,
    pub(crate) passed_on: OwnCounter,
    pub(crate) gave_way: OwnCounter,
}

impl WorkerCounters {
    /// A reading, with what the worker's bed counts.
    pub(crate) fn snapshot(&self, (sleeps, wakes): (u64, u64)) -> WorkerStats {
        WorkerStats {
            executed: self.executed.read(),
            stolen: self.stolen.read(),
            failed_steals: self.failed_steals.read(),
            parks: self.parks.read(),
            sleeps,
            wakes,
            injected: self.injected.read(),
            without_stack: self.without_stack.read(),
            passed_on: self.passed_on.read(),
            gave_way: self.gave_way.read(),
        }
    }
}

/// The counts of a worker since its pool was made.
///
/// Forks that their own worker takes back are not counted: that would cost as much as the fork.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Tasks and stolen forks that ran here.
    pub executed: u64,
    /// Forks and tasks taken from other workers.
    pub stolen: u64,
    /// Looks at all other workers that found nothing.
    pub failed_steals: u64,
    /// Times a waiting stack was parked so that its worker could do something else.
    pub parks: u64,
    /// Times the worker fell asleep.
    pub sleeps: u64,
    /// Times it was woken.
    pub wakes: u64,
    /// Tasks it took that came from outside the pool.
    pub injected: u64,
    /// Times the system had no stack for it: it then ran other work on top of a stack that waits, or a task on a stack of
    /// another size. [`PoolStats::stacks`] says why.
    pub without_stack: u64,
    /// Tasks that it passed to an idle worker because stacks that wait here would have had to wait for their end.
    pub passed_on: u64,
    /// Times a computation gave way, at a fork, at a tick or between two blocks of a loop, to stacks whose wait was over.
    pub gave_way: u64,
}

/// The supply of stacks of a pool.
///
/// A stack that waits is parked, and its worker goes on on another. If the system has no memory, no address space or no
/// mappings for another, the worker runs other work on top of the waiting stack, as other pools always do. That is
/// correct as long as the program would be in such a pool: a stack that is below another goes on only after that one,
/// so work on top that waits for work below waits for ever. And deep nests may overflow the stack, which is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackStats {
    /// `true` if waiting stacks can be parked on this platform at all.
    pub can_park: bool,
    /// The most stacks that the process may have, if their guards cost mappings: on Linux before 6.13, a quarter of
    /// `vm.max_map_count`, 16 382 by default. Otherwise `None`, and memory is the bound.
    pub most: Option<usize>,
    /// The number of stacks that the system refused.
    pub refused: u64,
    /// The reason of the last refusal.
    pub last_refusal: Option<StackError>,
}

/// The counts of a pool: a reading of its workers' counters, each exact, not all at one instant.
///
/// ```
/// let pool = jobtree_pool::Pool::builder().workers(2).build()?;
/// pool.install(|| ());
/// assert_eq!(pool.stats().total().injected, 1);
/// # Ok::<(), jobtree_pool::BuildError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// One a worker, by its number.
    pub workers: Vec<WorkerStats>,
    /// The pool's stacks.
    pub stacks: StackStats,
}

impl PoolStats {
    /// Returns what the pool had to do without so far, as a line for reports; `None` if nothing.
    ///
    /// ```
    /// let pool = jobtree_pool::Pool::builder().workers(1).build()?;
    /// assert_eq!(pool.stats().degradation(), None);
    /// # Ok::<(), jobtree_pool::BuildError>(())
    /// ```
    pub fn degradation(&self) -> Option<String> {
        let refused = self.stacks.refused;
        let error = self.stacks.last_refusal?;
        let without = self.total().without_stack;
        Some(format!(
            "out of stacks: {refused} refused, {without} waits ran other work on top instead; the last time: {error}"
        ))
    }

    /// All workers together.
    pub fn total(&self) -> WorkerStats {
        self.workers
            .iter()
            .fold(WorkerStats::default(), |sum, one| WorkerStats {
                executed: sum.executed + one.executed,
                stolen: sum.stolen + one.stolen,
                failed_steals: sum.failed_steals + one.failed_steals,
                parks: sum.parks + one.parks,
                sleeps: sum.sleeps + one.sleeps,
                wakes: sum.wakes + one.wakes,
                injected: sum.injected + one.injected,
                without_stack: sum.without_stack + one.without_stack,
                passed_on: sum.passed_on + one.passed_on,
                gave_way: sum.gave_way + one.gave_way,
            })
    }
}
