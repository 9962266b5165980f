//! Code that runs as a job on the calling thread: scopes, time limits, shields.

use std::ffi::c_void;
use std::sync::Arc;

use jobtree_runtime::binding::{current_nursery, within_limits};
use jobtree_runtime::{BoxError, Outcome, nursery, shield, supervisor, with_timeout};

use crate::border::{is_null, put, running};
use crate::objects::{self, OBJECTS, Object, ScopeObject, Started};
use crate::runtime::{limit, waiting};
use crate::status::CallError;
use crate::status::jt_status::{self, *};
use crate::task::{ending, jt_scope_fn, jt_task_fn, run_body};

/// Runs code that is a job, and tells what came of it as jt_job_join does.
///
/// # Safety
/// `code_out` is NULL or may be written to.
pub(crate) unsafe fn run(
    code_out: *mut i32,
    job: impl FnOnce() -> Outcome<()>,
) -> Result<(), CallError> {
    let (code, result) = waiting(|_| Ok(ending(job().err())))?;
    // SAFETY: by contract.
    unsafe { put(code_out, code) };
    result
}

/// Tells what came of a job as jt_job_join does.
///
/// # Safety
/// `code_out` is NULL or may be written to.
pub(crate) unsafe fn run_outcome(
    code_out: *mut i32,
    outcome: Outcome<()>,
) -> Result<(), CallError> {
    let (code, result) = ending(outcome.err());
    // SAFETY: by contract.
    unsafe { put(code_out, code) };
    result
}

/// Calls `function` with a handle to the current job as a scope. What is returned releases it: to be kept until the
/// job has ended.
///
/// # Safety
/// `function` may be called with `arg`.
pub(crate) unsafe fn call_with_scope(
    function: unsafe extern "C-unwind" fn(u64, *mut c_void) -> i32,
    arg: *mut c_void,
    release: &mut Option<ReleaseScope>,
) -> Result<(), BoxError> {
    let Some(nursery) = current_nursery() else {
        unreachable!("the body of a scope runs in a job")
    };
    let object = Arc::new(ScopeObject {
        nursery: within_limits(nursery),
        started: Started::default(),
    });
    let handle = match objects::insert(Object::Scope(object)) {
        Ok(handle) => handle,
        Err(error) => return Err(error.detail.into()),
    };
    *release = Some(ReleaseScope(handle));
    // SAFETY: by contract.
    run_body(|| unsafe { function(handle, arg) })
}

pub(crate) struct ReleaseScope(u64);

impl Drop for ReleaseScope {
    fn drop(&mut self) {
        if let Some(Object::Scope(scope)) = OBJECTS.remove(self.0) {
            scope.started.release();
        }
    }
}

/// Runs `function` on the calling thread with a scope, and returns when everything that was started in that scope has
/// ended: so what is started may use what lies on the caller's stack. If the function or a job fails, the rest
/// is cancelled.
///
/// Returns what jt_job_join returns for such a job; `code_out` as there.
///
/// # Safety
/// `function` may be called with `arg`; `code_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_scope(
    function: jt_scope_fn,
    arg: *mut c_void,
    code_out: *mut i32,
) -> jt_status {
    running(|| {
        let function = function.ok_or_else(|| is_null("function"))?;
        let mut release = None;
        // SAFETY: as this function's contract.
        let mut body = || unsafe { call_with_scope(function, arg, &mut release) };
        // SAFETY: as this function's contract.
        unsafe { run(code_out, || nursery(|_| body())) }
    })
}

/// Runs `function` with a scope whose jobs fail alone: jt_scope.
///
/// # Safety
/// As jt_scope.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_supervisor(
    function: jt_scope_fn,
    arg: *mut c_void,
    code_out: *mut i32,
) -> jt_status {
    running(|| {
        let function = function.ok_or_else(|| is_null("function"))?;
        let mut release = None;
        // SAFETY: as this function's contract.
        let mut body = || unsafe { call_with_scope(function, arg, &mut release) };
        // SAFETY: as this function's contract.
        unsafe { run(code_out, || supervisor(|_| body())) }
    })
}

/// Runs `function` on the calling thread, for no longer than `timeout_ms` milliseconds: then what waits in it, and what
/// was started in it, is cancelled, and this returns JT_ETIMEDOUT when all of that has ended. Else as jt_scope. A
/// negative time is JT_EINVAL.
///
/// # Safety
/// As jt_scope.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_with_timeout(
    timeout_ms: i64,
    function: jt_task_fn,
    arg: *mut c_void,
    code_out: *mut i32,
) -> jt_status {
    running(|| {
        let function = function.ok_or_else(|| is_null("function"))?;
        let limit = limit(timeout_ms).ok_or_else(is_negative)?;
        // SAFETY: as this function's contract.
        let body = || run_body(|| unsafe { function(arg) });
        // SAFETY: as this function's contract.
        unsafe { run(code_out, || with_timeout(limit, body)) }
    })
}

/// Runs `function` on the calling thread so that a cancellation of the current job does not reach it, but from that
/// cancellation on for no longer than `timeout_ms` milliseconds: for what must be put in order before one ends.
///
/// # Safety
/// As jt_scope.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_shield(
    timeout_ms: i64,
    function: jt_task_fn,
    arg: *mut c_void,
    code_out: *mut i32,
) -> jt_status {
    running(|| {
        let function = function.ok_or_else(|| is_null("function"))?;
        let limit = limit(timeout_ms).ok_or_else(is_negative)?;
        // SAFETY: as this function's contract.
        let body = || run_body(|| unsafe { function(arg) });
        // SAFETY: as this function's contract.
        unsafe { run(code_out, || shield(limit, body)) }
    })
}

fn is_negative() -> CallError {
    JT_EINVAL.because("`timeout_ms` is negative")
}
