//! Functions of the caller's, run as the bodies of jobs.

use std::error::Error;
use std::ffi::c_void;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::ptr::null_mut;

use jobtree_base::user_code::Place;
use jobtree_runtime::{BoxError, Job, JobError, checkpoint};

use crate::border::callback;
use crate::last_error;
use crate::leftovers;
use crate::nursery;
use crate::objects::jt_scope_t;
use crate::status::CallError;
use crate::status::jt_status::*;

/// What a job does. It returns 0, or a code with which it fails; what fails cancels the jobs beside it. A cancelled
/// job that returns the JT_ECANCELED that it was told has not failed.
///
/// It may be run on any thread, but stays there once it has begun. It must return: longjmp out of it, or ending its thread, is
/// forbidden. A Rust panic that leaves it is its failure, JT_EPANIC; a C++ exception that leaves it ends the process.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
pub type jt_task_fn = Option<unsafe extern "C-unwind" fn(arg: *mut c_void) -> i32>;

/// What a deferred job does: a task that gives a result, which counts if it returns 0.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
pub type jt_async_fn =
    Option<unsafe extern "C-unwind" fn(arg: *mut c_void, result: *mut *mut c_void) -> i32>;

/// What runs in a scope.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
pub type jt_scope_fn =
    Option<unsafe extern "C-unwind" fn(scope: jt_scope_t, arg: *mut c_void) -> i32>;

/// Called with a task's `arg` when nobody needs it any more: after its function has returned, or instead, if the job
/// was cancelled before it began. It must not wait, and must return, as a task must. It may call the functions of this
/// interface; jt_runtime_shutdown returns JT_EBUSY.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
pub type jt_release_fn = Option<unsafe extern "C-unwind" fn(arg: *mut c_void)>;

/// An argument on its way to the thread that runs its function, and what becomes of it then.
pub(crate) struct Argument {
    pointer: *mut c_void,
    release: jt_release_fn,
}

// SAFETY: the pointer is only handed through, to a function that may be run on any thread: so the header says.
unsafe impl Send for Argument {}
// SAFETY: as above: through a reference it is only handed through, to functions that several threads may call at once.
unsafe impl Sync for Argument {}

impl Argument {
    pub(crate) fn new(pointer: *mut c_void, release: jt_release_fn) -> Argument {
        Argument { pointer, release }
    }

    pub(crate) fn pointer(&self) -> *mut c_void {
        self.pointer
    }
}

impl Drop for Argument {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the caller gave the function for this pointer, and nothing else uses it any more.
            callback(Place::Callback, || unsafe { release(self.pointer) });
        }
    }
}

/// A code with which a task failed.
#[derive(Debug)]
pub(crate) struct TaskFailed(pub(crate) i32);

impl fmt::Display for TaskFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the task returned {}", self.0)
    }
}

impl Error for TaskFailed {}

/// Runs a function as the body of the current job.
pub(crate) fn run_body(body: impl FnOnce() -> i32) -> Result<(), BoxError> {
    // A panic goes on when what the body has left open is closed: the job cannot end before.
    let returned = panic::catch_unwind(AssertUnwindSafe(body));
    if let Some(job) = Job::current() {
        for left in leftovers::take(job.id()).into_iter().rev() {
            nursery::destroy_left(left);
        }
        last_error::forget(job.id());
    }
    let code = returned.unwrap_or_else(|payload| panic::resume_unwind(payload));
    if code == 0 {
        return Ok(());
    }
    let tells_of_cancellation = code == JT_ECANCELED as i32 || code == JT_ESHUTDOWN as i32;
    if tells_of_cancellation {
        checkpoint()?;
    }
    Err(TaskFailed(code).into())
}

/// Calls `function` for a result.
///
/// # Safety
/// `function` may be called with `argument`.
pub(crate) unsafe fn call_for_result(
    function: unsafe extern "C-unwind" fn(*mut c_void, *mut *mut c_void) -> i32,
    argument: &Argument,
    result: impl FnOnce(*mut c_void),
) -> i32 {
    let mut pointer = null_mut();
    // SAFETY: by contract; the second pointer is to a local.
    let code = unsafe { function(argument.pointer(), &raw mut pointer) };
    if code == 0 {
        result(pointer);
    }
    code
}

/// What came of a job that has ended: the code with which it failed, and the error that a call returns for it.
pub(crate) fn ending(error: Option<JobError>) -> (i32, Result<(), CallError>) {
    let Some(error) = error else {
        return (0, Ok(()));
    };
    let status = match &error {
        JobError::Failed(_) => JT_EFAILED,
        JobError::Panicked(_) => JT_EPANIC,
        JobError::TimedOut(_) => JT_ETIMEDOUT,
        _ => JT_ECANCELED,
    };
    let code = match &error {
        JobError::Failed(failure) => failure
            .error()
            .downcast_ref::<TaskFailed>()
            .map_or(status as i32, |failed| failed.0),
        _ => status as i32,
    };
    (code, Err(status.because(error.report().to_string())))
}
