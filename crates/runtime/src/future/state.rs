//! Where a future that runs as a job is: in a queue, polled, at rest, or gone; see the head of `task.rs`.
//!
//! Everything that threads hand over to each other by these states goes through the functions here, so that the loom
//! models (`models.rs`) run the same code.

use std::cell::Cell;

use crate::atomics::{AtomicPtr, AtomicU8, Ordering, UnsafeCell};
use crate::step::{Step, left_out, order_at};

const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
const DONE: u8 = 4;

/// The state of one task.
pub(super) struct TaskState {
    word: AtomicU8,
    /// The stack that the task is polled on, or null.
    polled_on: AtomicPtr<()>,
    /// `true` if the task was woken on that very stack, which needs no locked instruction.
    woke_itself: UnsafeCell<bool>,
    /// Whether the pool was told that the task waits. Only the worker that runs it looks. Here, where there is room:
    /// one word more may cost a future a cache line.
    pub(super) holds_pool: Cell<bool>,
}

impl TaskState {
    /// The state of a task that is about to be queued.
    pub(super) fn queued() -> TaskState {
        TaskState {
            word: AtomicU8::new(QUEUED),
            polled_on: AtomicPtr::new(std::ptr::null_mut()),
            woke_itself: UnsafeCell::new(false),
            holds_pool: Cell::new(false),
        }
    }

    /// Begins to run the task: called by the worker that has taken it out of a queue, and nobody else until
    /// [`TaskState::comes_to_rest`] has returned.
    pub(super) fn begin_run(&self) {
        // Acquire: what was written before each wake is seen by the poll. Release: a waker that finds the task
        // running goes on from here.
        let order = order_at(Step::TaskRunAcquires, Ordering::AcqRel);
        self.word.swap(RUNNING, order);
    }

    /// Called before a poll on `stack`.
    pub(super) fn begin_poll(&self, stack: *const ()) {
        self.polled_on.store(stack.cast_mut(), Ordering::Relaxed);
    }

    /// Called after a poll, on the same stack.
    pub(super) fn end_poll(&self) {
        self.polled_on
            .store(std::ptr::null_mut(), Ordering::Relaxed);
    }

    /// Called after a poll that was not ready. Returns `false` if the task was woken meanwhile: then the caller queues
    /// it. `RUNNING` stays set until it runs, which keeps other threads from queueing it, too; a store here could hide
    /// from the next poll what a thread wrote that woke the task just before.
    pub(super) fn comes_to_rest(&self) -> bool {
        // SAFETY: only the stack that polls the task uses the cell, and it is the caller's.
        let woke_itself = unsafe { std::mem::take(&mut *self.woke_itself.get()) };
        if woke_itself && !left_out(Step::TaskSelfWakeCounts) {
            return false;
        }
        let release = order_at(Step::TaskRestReleases, Ordering::Release);
        if left_out(Step::TaskRestLooks) {
            self.word.store(0, release);
            return true;
        }
        let rests = self
            .word
            .compare_exchange(RUNNING, 0, release, Ordering::Relaxed);
        if rests.is_err() && left_out(Step::TaskRequeueKeepsWord) {
            self.word.store(RUNNING, Ordering::Relaxed);
        }
        rests.is_ok()
    }

    /// Ends the task: the future is gone, and the task is queued no more.
    pub(super) fn end(&self) {
        self.word.store(DONE, Ordering::Release);
    }

    /// Wakes the task. Returns `true` if the caller has to queue it.
    ///
    /// `current_stack` names the calling stack; it is asked only while the task is polled.
    pub(super) fn wake(&self, current_stack: impl FnOnce() -> *const ()) -> bool {
        let polled_on = self.polled_on.load(Ordering::Relaxed).cast_const();
        let is_own =
            || std::ptr::eq(polled_on, current_stack()) || left_out(Step::TaskOwnStackOnly);
        if !polled_on.is_null() && is_own() {
            // SAFETY: no other stack writes the name of this one, and no other uses the cell while it stands there.
            unsafe { *self.woke_itself.get() = true };
            return false;
        }
        let order = order_at(Step::TaskWakeReleases, Ordering::AcqRel);
        let before = self.word.fetch_or(QUEUED, order);
        let mut taken_care_of = QUEUED | RUNNING | DONE;
        if left_out(Step::TaskRunnerQueues) {
            taken_care_of &= !RUNNING;
        }
        if left_out(Step::TaskDoneStays) {
            taken_care_of &= !DONE;
        }
        before & taken_care_of == 0
    }
}
