//! The two shapes of work that queues hold: forks, which lie in the frame of the `join` that made
//! them, and tasks, which lie in a box or in the frame of a thread that waits for them.
//!
//! A queue holds thin pointers to [`Job`], the first field of both. Fork deques hold only forks, and
//! task deques, the injector and inboxes hold only tasks; that is what lets each side cast.

use std::marker::PhantomData;
use std::panic::{self, AssertUnwindSafe};
use std::ptr::NonNull;

use crate::deque::Entry;
use crate::stack::StackClass;
use crate::worker::Worker;

/// The beginning of every piece of work.
#[repr(C)]
pub(crate) struct Job {
    pub(crate) kind: &'static JobKind,
}

/// The properties that all jobs of one type have in common.
pub(crate) struct JobKind {
    /// Runs the job and ends it: afterwards the pointer must not be used. Never unwinds.
    pub(crate) execute: unsafe fn(NonNull<Job>, &Worker),
    /// The stack that it needs at least. Forks need the default one, whatever they say.
    pub(crate) stack: StackClass,
    /// The name for reports: the type of the closure that the user gave.
    pub(crate) name: JobName,
}

/// Names a job by the type of its closure: `std::any::type_name`, not yet called.
pub(crate) type JobName = fn() -> &'static str;

impl Job {
    /// Returns the name for reports.
    ///
    /// # Safety
    /// `job` is alive.
    #[inline(always)]
    pub(crate) unsafe fn name(job: NonNull<Job>) -> JobName {
        // SAFETY: alive by contract.
        unsafe { job.as_ref().kind.name }
    }

    /// Runs the job.
    ///
    /// # Safety
    /// The caller has taken it out of its queue and has not run it.
    pub(crate) unsafe fn execute(job: NonNull<Job>, worker: &Worker) {
        // SAFETY: not yet run, so alive; ours to run by contract.
        unsafe { (job.as_ref().kind.execute)(job, worker) }
    }
}

/// The beginning of every task.
#[repr(C)]
pub(crate) struct TaskHeader {
    pub(crate) job: Job,
    /// The scope that waits for this task, or null. Only compared, never followed.
    pub(crate) owner: *const (),
}

impl TaskHeader {
    /// Returns the owner of the task.
    ///
    /// # Safety
    /// `entry` must have come out of a task queue and not have been run.
    pub(crate) unsafe fn owner_of(entry: Entry) -> *const () {
        // SAFETY: task queues hold only tasks, which begin with a `TaskHeader`, and it has not run.
        unsafe { entry.job.cast::<TaskHeader>().as_ref().owner }
    }
}

/// The function that follows a task's body: it gets the task's owner and the result of the body.
///
/// Not part of the body's closure on purpose: what the closure borrows may be gone as soon as the owner
/// is told, and that must not happen while a function is running that has the closure as its argument.
pub(crate) type AfterBody = unsafe fn(*const (), &Worker, std::thread::Result<()>);

/// A task in a box of its own, freed before its body runs.
#[repr(C)]
struct BoxedTask<F, Named> {
    header: TaskHeader,
    after: AfterBody,
    body: F,
    named: PhantomData<Named>,
}

impl<F: FnOnce(&Worker) + Send, Named> BoxedTask<F, Named> {
    const KIND: JobKind = JobKind {
        execute: Self::execute,
        stack: StackClass::Default,
        name: std::any::type_name::<Named>,
    };

    unsafe fn execute(job: NonNull<Job>, worker: &Worker) {
        // SAFETY: made by `Box::into_raw` of this very type, and run once.
        let task = unsafe { *Box::from_raw(job.cast::<BoxedTask<F, Named>>().as_ptr()) };
        let (owner, after, body) = (task.header.owner, task.after, task.body);
        let result = panic::catch_unwind(AssertUnwindSafe(|| body(worker)));
        // SAFETY: by the contract of `boxed_task`, `after` may be called with this owner, once.
        unsafe { after(owner, worker, result) };
    }
}

/// Boxes `body` as a task of `owner`, called after the type `Named`.
///
/// # Safety
/// The entry must be run exactly once, before anything that `body` borrows ends. `after` must be
/// callable with `owner` then, and must not unwind.
pub(crate) unsafe fn boxed_task<Named, F>(
    owner: *const (),
    after: AfterBody,
    body: F,
) -> NonNull<Job>
where
    F: FnOnce(&Worker) + Send,
{
    let task = Box::new(BoxedTask {
        header: TaskHeader {
            job: Job {
                kind: &BoxedTask::<F, Named>::KIND,
            },
            owner,
        },
        after,
        body,
        named: PhantomData::<Named>,
    });
    // SAFETY: `Box::into_raw` is never null.
    unsafe { NonNull::new_unchecked(Box::into_raw(task)) }.cast()
}

/// Ends the process if dropped: for places where an unwind would leave others with dangling memory. Code of the program's is
/// guarded inside of them, so only a defect of ours, or of a task that breaks the contract of `raw::task`, gets here.
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
