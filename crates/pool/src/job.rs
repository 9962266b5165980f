//! The two shapes of work that queues hold: forks, which lie in the frame of the `join` that made
//! them, and tasks, which lie in a box or in the frame of a thread that waits for them.
//!
//! A queue holds thin pointers to [`Job`], the first field of both. Fork deques hold only forks, and
//! task deques, the injector and inboxes hold only tasks; that is what lets each side cast.

use std::ptr::NonNull;

use crate::deque::Entry;
use crate::worker::Worker;

/// What every piece of work begins with.
#[repr(C)]
pub(crate) struct Job {
    /// Runs the job and ends it: afterwards the pointer must not be used. Never unwinds.
    pub(crate) execute: unsafe fn(NonNull<Job>, &Worker),
}

/// What every task begins with.
#[repr(C)]
pub(crate) struct TaskHeader {
    pub(crate) job: Job,
    /// The scope that waits for this task, or null. Only compared, never followed.
    pub(crate) owner: *const (),
}

impl TaskHeader {
    /// Whose task this is.
    ///
    /// # Safety
    /// `entry` must have come out of a task queue and not have been run.
    pub(crate) unsafe fn owner_of(entry: Entry) -> *const () {
        // SAFETY: task queues hold only tasks, which begin with a `TaskHeader`, and it has not run.
        unsafe { entry.job.cast::<TaskHeader>().as_ref().owner }
    }
}

/// A task in a box of its own, freed when it has run.
#[repr(C)]
struct HeapTask<F> {
    header: TaskHeader,
    body: F,
}

/// Boxes `body` as a task of `owner`.
///
/// # Safety
/// The entry must be run exactly once, before anything that `body` borrows ends. `body` must not
/// unwind.
pub(crate) unsafe fn boxed_task<F>(owner: *const (), body: F) -> NonNull<Job>
where
    F: FnOnce(&Worker) + Send,
{
    unsafe fn execute<F: FnOnce(&Worker) + Send>(job: NonNull<Job>, worker: &Worker) {
        // SAFETY: made by `Box::into_raw` of this very type below, and run once.
        let task = unsafe { Box::from_raw(job.cast::<HeapTask<F>>().as_ptr()) };
        (task.body)(worker);
    }
    let task = Box::new(HeapTask {
        header: TaskHeader {
            job: Job {
                execute: execute::<F>,
            },
            owner,
        },
        body,
    });
    // SAFETY: `Box::into_raw` is never null.
    unsafe { NonNull::new_unchecked(Box::into_raw(task)) }.cast()
}

/// Ends the process if dropped: for places where an unwind would leave others with dangling memory.
pub(crate) struct AbortOnUnwind(pub(crate) &'static str);

impl AbortOnUnwind {
    pub(crate) fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        eprintln!("jobtree: a panic left {}; aborting", self.0);
        std::process::abort();
    }
}
