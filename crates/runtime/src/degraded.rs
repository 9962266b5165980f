//! What a runtime could not get from the system or what the program blocks, and what the runtime does instead.
//!
//! Nothing of it stops a job. But each is a counter ([`Statistics`]), an event of the root
//! ([`EventKind::Degraded`](jobtree_tree::EventKind::Degraded)) and a line in a dump of the tree, because a program that
//! runs with less than it should is otherwise a riddle.
//!
//! * **No thread for deadlines** (`timers.rs`): a task on the workers keeps them. It looks at them between other tasks of
//!   its worker, and at least every millisecond while that worker is idle. So a deadline is late by at most a millisecond
//!   and the longest time that a task of that worker runs without waiting, yielding or ending. Inside
//!   [`isolate`](jobtree_pool::isolate()) on the only worker of a pool no other task runs, and so no deadline comes. The
//!   thread is tried again every 100 ms.
//! * **No thread for a job that blocks** (`dispatcher/job.rs`): the job waits for one of the threads that are there. If
//!   there is none, it runs on the workers, and blocks at most all of them. Every further job tries to start a thread.
//! * **User code that blocks the thread which calls it for deadlines** (`expiry_calls.rs`): wakers of the program's own, and
//!   callbacks of jobs whose time is over. After 100 ms another thread takes over what waits behind such a call, and the
//!   blocked one ends when its call returns. Waits of the library and its deadlines are not delayed.
//! * **No thread for a shutdown** (`runtime.rs`): the thread that shuts down calls callbacks and wakers itself. So the shutdown
//!   takes as long as they do, whatever its time limit is.
//! * **No thread for the panic hook** (`panics.rs`), which is needed only if a runtime is made by a thread that panics:
//!   where jobs panic is unknown. The next runtime that is made, and the next job that panics, try again.
//! * **No stack for a job that waits** (`pool/src/parking.rs`): its worker runs other work on top of the waiting stack, as pools
//!   without stacks of their own always do. That the waiting job goes on only after what runs on top, and how many stacks
//!   there may be, is told by [`StackStats`](jobtree_pool::StackStats). The event comes once for each pool.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use jobtree_pool::raw::OutOfStacks;
use jobtree_tree::{Lacking, Reporter, TreeDump};

use crate::budget::Statistics;
use crate::panics;

/// See the module's head.
#[derive(Default)]
pub(crate) struct Degraded {
    timer_threads: AtomicU64,
    blocking_threads: AtomicU64,
    blocked_callbacks: AtomicU64,
    shutdown_threads: AtomicU64,
    hook_threads: AtomicU64,
    reporter: OnceLock<Reporter>,
}

impl OutOfStacks for Degraded {
    fn out_of_stacks(&self) {
        self.add(Lacking::Stack);
    }
}

impl Degraded {
    /// Has events recorded from now on.
    pub(crate) fn report_to(&self, reporter: Reporter) {
        // A runtime has one tree.
        let _ = self.reporter.set(reporter);
    }

    /// Counts and reports what could not be had. Not to be called under a lock.
    #[cold]
    pub(crate) fn add(&self, lacking: Lacking) {
        let counter = match lacking {
            Lacking::TimerThread => Some(&self.timer_threads),
            Lacking::BlockingThread => Some(&self.blocking_threads),
            Lacking::CallbackThread => Some(&self.blocked_callbacks),
            Lacking::ShutdownThread => Some(&self.shutdown_threads),
            Lacking::HookThread => Some(&self.hook_threads),
            // The pool counts.
            _ => None,
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(reporter) = self.reporter.get() {
            reporter.degraded(lacking);
        }
    }

    pub(crate) fn add_to(&self, statistics: &mut Statistics) {
        statistics.timer_thread_failures = self.timer_threads.load(Ordering::Relaxed);
        statistics.blocking_thread_failures = self.blocking_threads.load(Ordering::Relaxed);
        statistics.blocked_callbacks = self.blocked_callbacks.load(Ordering::Relaxed);
        statistics.shutdown_thread_failures = self.shutdown_threads.load(Ordering::Relaxed);
        statistics.hook_thread_failures = self.hook_threads.load(Ordering::Relaxed);
    }

    /// Adds a line for each thing that is or was lacking.
    pub(crate) fn note_in(&self, mut dump: TreeDump, timers_on_workers: bool) -> TreeDump {
        let failures = self.timer_threads.load(Ordering::Relaxed);
        if failures > 0 {
            let now = match timers_on_workers {
                true => "workers keep deadlines, which may be late",
                false => "it runs now, or nothing waits for a deadline",
            };
            dump = dump.with_note(format!(
                "the thread that keeps deadlines could not be started {failures} times: {now}; raise the limit of threads"
            ));
        }
        let failures = self.blocking_threads.load(Ordering::Relaxed);
        if failures > 0 {
            dump = dump.with_note(format!(
                "threads for jobs that block could not be started {failures} times: such jobs wait for other threads, or \
                 block workers; raise the limit of threads"
            ));
        }
        let blocked = self.blocked_callbacks.load(Ordering::Relaxed);
        if blocked > 0 {
            dump = dump.with_note(format!(
                "wakers or callbacks that deadlines called blocked their thread {blocked} times, and another thread took over: \
                 do not block there"
            ));
        }
        let failures = self.shutdown_threads.load(Ordering::Relaxed);
        if failures > 0 {
            dump = dump.with_note(format!(
                "the thread that calls callbacks for a shutdown could not be started {failures} times: the thread that shuts \
                 down called them, outside of its time limit; raise the limit of threads"
            ));
        }
        let failures = self.hook_threads.load(Ordering::Relaxed);
        if failures > 0 {
            let now = match panics::is_installed() {
                true => "it is known now",
                false => "the next job that panics tries again",
            };
            dump = dump.with_note(format!(
                "the thread that sets the panic hook could not be started, so where jobs panicked is unknown: {now}; raise \
                 the limit of threads"
            ));
        }
        dump
    }
}
