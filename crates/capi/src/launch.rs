//! Starting jobs.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use jobtree_runtime::binding::{
    current_nursery, nursery_of, root_nursery, try_spawn, within_limits,
};
use jobtree_runtime::budget::Refusal;
use jobtree_runtime::{BoxError, Job, JobHandle, future};

use crate::border::{is_null, put, required, running};
use crate::objects::{
    self, DeferredObject, NurseryObject, Object, ScopeObject, Started, jt_deferred_t, jt_job_t,
    jt_scope_t,
};
use crate::options::{self, Options, jt_launch_opts};
use crate::runtime;
use crate::status::CallError;
use crate::status::jt_status::{self, *};
use crate::task::{Argument, call_for_result, jt_async_fn, jt_task_fn, run_body};

/// Where a job is started.
pub(crate) enum Target {
    Nursery(Arc<NurseryObject>),
    Scope(Arc<ScopeObject>),
    /// Under a job, or under the root.
    Here(future::Nursery),
}

impl Target {
    pub(crate) fn of(scope: jt_scope_t) -> Result<Target, CallError> {
        if scope == 0 {
            return match current_nursery() {
                Some(nursery) => Ok(Target::Here(within_limits(nursery))),
                None => Ok(Target::Here(root_nursery(&runtime::handle()?))),
            };
        }
        match objects::get(scope)? {
            Object::Nursery(nursery) => Ok(Target::Nursery(nursery)),
            Object::Scope(scope) => Ok(Target::Scope(scope)),
            Object::Job(job) => Target::under(&job),
            Object::Deferred(deferred) => Target::under(&deferred.job),
            other => Err(other.is_not("anything that jobs can be started in")),
        }
    }

    fn under(job: &Job) -> Result<Target, CallError> {
        match nursery_of(job) {
            Some(nursery) => Ok(Target::Here(within_limits(nursery))),
            None => Err(JT_ECLOSED.because("the job has ended; nothing can be started under it")),
        }
    }

    pub(crate) fn nursery(&self) -> &future::Nursery {
        match self {
            Target::Nursery(nursery) => nursery.scope.nursery(),
            Target::Scope(scope) => &scope.nursery,
            Target::Here(nursery) => nursery,
        }
    }

    /// Whether jobs can be started in it now. If it is cancelled a moment later, they are born cancelled.
    fn check_is_open(&self) -> Result<(), CallError> {
        let job = self.nursery().job();
        if job.is_ended() {
            return Err(JT_ECLOSED.because("the nursery has ended; nothing can be started in it"));
        }
        match job.cancellation() {
            Some(cancelled) => Err(JT_ECANCELED.because(cancelled.to_string())),
            None => Ok(()),
        }
    }

    fn started(&self) -> Option<&Started> {
        match self {
            Target::Nursery(nursery) => Some(&nursery.started),
            Target::Scope(scope) => Some(&scope.started),
            Target::Here(_) => None,
        }
    }

    /// Makes a handle to a job that was started in it.
    fn handle(&self, object: Object) -> Result<u64, CallError> {
        let handle = objects::insert(object)?;
        if let Some(started) = self.started() {
            started.add(handle);
        }
        Ok(handle)
    }
}

/// Starts a job whose body `make` returns.
fn start<F>(
    target: &Target,
    options: Options,
    make: impl FnOnce() -> F,
) -> Result<JobHandle<()>, CallError>
where
    F: FnOnce() -> Result<(), BoxError> + Send + 'static,
{
    try_spawn(target.nursery(), options.description, make).map_err(|refusal| {
        let status = match refusal {
            Refusal::ScopeCancelled(_) => JT_ECANCELED,
            _ => JT_EREFUSED,
        };
        status.because(refusal.to_string())
    })
}

/// Starts a job.
///
/// # Safety
/// `function` may be called with `arg` on any thread, until the job has ended. `job_out` is NULL or may be written to.
pub(crate) unsafe fn launch(
    scope: jt_scope_t,
    function: jt_task_fn,
    arg: *mut c_void,
    options: Options,
    job_out: *mut jt_job_t,
) -> Result<(), CallError> {
    let function = function.ok_or_else(|| is_null("function"))?;
    let target = Target::of(scope)?;
    target.check_is_open()?;
    let release = options.release;
    let handle = start(&target, options, || {
        // Made when nothing can be refused any more: it is released when it is dropped.
        let argument = Argument::new(arg, release);
        move || {
            // The whole of it, so that it is dropped with this closure if that never runs.
            let argument = argument;
            // SAFETY: by contract.
            run_body(|| unsafe { function(argument.pointer()) })
        }
    })?;
    if !job_out.is_null() {
        let job = target.handle(Object::Job(handle.job().clone()))?;
        // SAFETY: by contract.
        unsafe { put(job_out, job) };
    }
    Ok(())
}

/// Starts a job in a scope or nursery, or under another job, which then ends after it; with 0, under the current job. With
/// 0 outside of jobs it belongs to nobody: it fails alone, and ends by the shutdown at the latest.
///
/// `opts` may be NULL. `job_out` may be NULL, if nobody needs the job's handle. Else release the handle with
/// jt_job_release; that of a job in a scope or nursery is released with that, at the latest.
///
/// Returns JT_ECANCELED if the scope is cancelled, JT_ECLOSED if it has ended, JT_EREFUSED if the budget or the capabilities
/// of the scope do not allow another job (jt_last_error says what is missing); the function will not be called then.
/// Nor is it if the job is cancelled before it began: see `release` in jt_launch_opts.
///
/// # Safety
/// `function` may be called with `arg` on any thread until the job has ended; other pointers are valid or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_launch(
    scope: jt_scope_t,
    function: jt_task_fn,
    arg: *mut c_void,
    opts: *const jt_launch_opts,
    job_out: *mut jt_job_t,
) -> jt_status {
    running(|| {
        // SAFETY: as this function's contract.
        let options = unsafe { options::read(opts) }?;
        // SAFETY: as this function's contract.
        unsafe { launch(scope, function, arg, options, job_out) }
    })
}

/// Starts a job whose result can be awaited: as jt_launch, but the handle is required. Release it with jt_job_release.
///
/// # Safety
/// As jt_launch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_async(
    scope: jt_scope_t,
    function: jt_async_fn,
    arg: *mut c_void,
    opts: *const jt_launch_opts,
    deferred_out: *mut jt_deferred_t,
) -> jt_status {
    running(|| {
        let deferred_out = required(deferred_out, "deferred_out")?;
        let function = function.ok_or_else(|| is_null("function"))?;
        // SAFETY: as this function's contract.
        let options = unsafe { options::read(opts) }?;
        let target = Target::of(scope)?;
        target.check_is_open()?;
        let result = Arc::new(AtomicPtr::new(null_mut()));
        let writer = Arc::clone(&result);
        let release = options.release;
        let handle = start(&target, options, || {
            // Made when nothing can be refused any more: it is released when it is dropped.
            let argument = Argument::new(arg, release);
            move || {
                // The whole of it, so that it is dropped with this closure if that never runs.
                let argument = argument;
                // Read after the job's end, which comes after this and is seen by whoever awaits it.
                let put = |pointer| writer.store(pointer, Ordering::Relaxed);
                // SAFETY: as this function's contract.
                run_body(|| unsafe { call_for_result(function, &argument, put) })
            }
        })?;
        let job = handle.job().clone();
        let deferred = DeferredObject { job, result };
        let deferred = target.handle(Object::Deferred(Arc::new(deferred)))?;
        // SAFETY: as this function's contract.
        unsafe { deferred_out.write(deferred) };
        Ok(())
    })
}
