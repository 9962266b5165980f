//! What a runtime's jobs did, counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// What is counted of budgets. Rare events, so plain shared counters will do.
#[derive(Default)]
pub(crate) struct BudgetCounters {
    exhaustions: AtomicU64,
    refusals: AtomicU64,
    recharges: AtomicU64,
}

impl BudgetCounters {
    pub(super) fn exhausted(&self) {
        self.exhaustions.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn recharged(&self) {
        self.recharges.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_to(&self, statistics: &mut Statistics) {
        statistics.exhaustions = self.exhaustions.load(Ordering::Relaxed);
        statistics.refusals = self.refusals.load(Ordering::Relaxed);
        statistics.recharges = self.recharges.load(Ordering::Relaxed);
    }
}

/// What a runtime has done since it was made; see [`Runtime::statistics`](crate::Runtime::statistics).
///
/// Each number is exact, but they are not read at one moment. What the pool counts, it counts for all runtimes on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Tasks and stolen forks that workers ran.
    pub executed: u64,
    /// Jobs that ended with a value.
    pub completed: u64,
    /// Jobs that ended because they or a child failed, or their time was over.
    pub failed: u64,
    /// Jobs that ended because they were cancelled.
    pub cancelled: u64,
    /// Times a stack was parked because it had to wait.
    pub blocked: u64,
    /// Times a job had used up its budget.
    pub exhaustions: u64,
    /// Spawns, channels and executors that were not allowed.
    pub refusals: u64,
    /// Times a job got more from its supervisor.
    pub recharges: u64,
    /// Tasks and forks that workers took from others.
    pub steals: u64,
    /// Tasks and forks that were run where they were made, or came from outside.
    pub local_pops: u64,
    /// Times a worker fell asleep for want of work.
    pub idle: u64,
    /// Panics of callbacks, wakers and destructors that no caller received, in this process; see
    /// [`user_code`](crate::user_code).
    pub caught_panics: u64,
    /// Times the thread that keeps deadlines could not be started. Workers keep them meanwhile: late by at most a
    /// millisecond and the longest time that a task runs without waiting, yielding or ending.
    pub timer_thread_failures: u64,
    /// Times a thread for a job that blocks could not be started. The job waits for another thread, or blocks a worker.
    pub blocking_thread_failures: u64,
    /// How often the system refused the pool a stack for a job that waits.
    pub stack_failures: u64,
    /// Times a waker or callback of the program's, called because a deadline had come, blocked its thread for so long that
    /// another thread took over what waited behind it.
    pub blocked_callbacks: u64,
    /// Times a shutdown found no thread to call callbacks on: the thread that shut down called them, and its time limit did
    /// not hold while they ran.
    pub shutdown_thread_failures: u64,
    /// How often, while this runtime was made by a thread that was panicking, no thread could be started to set the panic hook:
    /// where jobs panic was unknown afterwards, until a later attempt.
    pub hook_thread_failures: u64,
}
