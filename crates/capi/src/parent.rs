//! Jobs above jobs: scopes and nurseries under a job that the caller names, and the way up from a job.

use std::ffi::c_void;

use jobtree_runtime::binding::{OwnedNursery, scope_under};
use jobtree_runtime::{Job, nursery, supervisor};

use crate::border::{is_null, required, running};
use crate::nursery::{create, keep};
use crate::objects::{self, Object, jt_job_t, jt_nursery_t};
use crate::openers;
use crate::scope::{call_with_scope, run, run_outcome};
use crate::status::CallError;
use crate::status::jt_status::{self, *};
use crate::task::jt_scope_fn;

/// Jobs in the scope or nursery fail alone (`flags` of jt_scope_in and jt_nursery_create_in).
pub const JT_SCOPE_SUPERVISOR: u32 = 1;

fn is_supervisor(flags: u32) -> Result<bool, CallError> {
    match flags {
        0 => Ok(false),
        JT_SCOPE_SUPERVISOR => Ok(true),
        other => Err(JT_EINVAL.because(format!("there are no flags {other:#x} for a scope"))),
    }
}

/// A job under which something can be opened now.
fn open_parent(handle: u64) -> Result<Job, CallError> {
    let job = objects::any_job(handle)?;
    if job.is_ended() {
        return Err(has_ended());
    }
    match job.cancellation() {
        Some(cancelled) => Err(JT_ECANCELED.because(cancelled.to_string())),
        None => Ok(job),
    }
}

fn has_ended() -> CallError {
    JT_ECLOSED.because("the parent has ended; nothing can be opened under it")
}

/// Runs `function` on the calling thread with a scope under `parent`, which is a job, a deferred, a nursery or a scope; with
/// 0 as jt_scope, or as jt_supervisor if `flags` is JT_SCOPE_SUPERVISOR. The scope is cancelled with `parent`, which ends
/// after it, and not with the calling job: that one waits for it in any case.
///
/// Returns JT_ECANCELED if `parent` is cancelled, JT_ECLOSED if it has ended; the function is not called then. Else what
/// jt_scope returns.
///
/// # Safety
/// `function` may be called with `arg`; `code_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_scope_in(
    parent: u64,
    flags: u32,
    function: jt_scope_fn,
    arg: *mut c_void,
    code_out: *mut i32,
) -> jt_status {
    running(|| {
        let function = function.ok_or_else(|| is_null("function"))?;
        let is_supervisor = is_supervisor(flags)?;
        let mut release = None;
        // SAFETY: as this function's contract.
        let mut body = || unsafe { call_with_scope(function, arg, &mut release) };
        if parent == 0 {
            let job = || match is_supervisor {
                true => supervisor(|_| body()),
                false => nursery(|_| body()),
            };
            // SAFETY: as this function's contract.
            return unsafe { run(code_out, job) };
        }
        let parent = open_parent(parent)?;
        let opener = Job::current();
        let outcome = scope_under(&parent, is_supervisor, || {
            let _noted = openers::note(opener);
            body()
        })
        .map_err(|_| has_ended())?;
        // SAFETY: as this function's contract.
        unsafe { run_outcome(code_out, outcome) }
    })
}

/// Opens a nursery under `parent`, which is a job, a deferred, a nursery or a scope; with 0 as jt_nursery_create, or as
/// jt_nursery_create_supervisor if `flags` is JT_SCOPE_SUPERVISOR. The nursery is cancelled with `parent`, which ends after
/// it. It belongs to the calling job all the same: it is destroyed when the function of that job returns, or by the
/// shutdown if it was made outside of jobs.
///
/// Returns JT_ECANCELED if `parent` is cancelled, JT_ECLOSED if it has ended.
///
/// # Safety
/// `nursery_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_nursery_create_in(
    parent: u64,
    flags: u32,
    nursery_out: *mut jt_nursery_t,
) -> jt_status {
    running(|| {
        let is_supervisor = is_supervisor(flags)?;
        if parent == 0 {
            // SAFETY: as this function's contract.
            return unsafe { create(nursery_out, is_supervisor) };
        }
        let nursery_out = required(nursery_out, "nursery_out")?;
        let parent = open_parent(parent)?;
        let owner = Job::current().map(|job| job.id());
        let is_below_owner = owner == Some(parent.id());
        let handle = keep(owner, is_below_owner, |_| {
            OwnedNursery::open_under(&parent, is_supervisor).ok_or_else(has_ended)
        })?;
        // SAFETY: as this function's contract.
        unsafe { nursery_out.write(handle) };
        Ok(())
    })
}

/// Gives a handle to the job above a job, a deferred, a nursery or a scope; with 0, above the current job. Release it with
/// jt_job_release.
///
/// Returns JT_EEMPTY if there is none: it is directly under the runtime, or has ended, and with 0 outside of jobs.
///
/// # Safety
/// `parent_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_job_parent(handle: u64, parent_out: *mut jt_job_t) -> jt_status {
    running(|| {
        let parent_out = required(parent_out, "parent_out")?;
        let above = objects::job_or_current(handle)?.parent();
        // The root is the runtime's own: who could cancel it would cancel everything.
        let parent = above
            .filter(|job| job.parent().is_some())
            .ok_or_else(|| JT_EEMPTY.because("there is no job above"))?;
        let parent = objects::insert(Object::Job(parent))?;
        // SAFETY: as this function's contract.
        unsafe { parent_out.write(parent) };
        Ok(())
    })
}

/// Gives the number of a job, a deferred, a nursery or a scope, by which events and dumps name it; with 0, of the current
/// job. Numbers are never used twice.
///
/// # Safety
/// `id_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_job_id(handle: u64, id_out: *mut u64) -> jt_status {
    running(|| {
        let id_out = required(id_out, "id_out")?;
        let id = objects::job_or_current(handle)?.id().as_u64();
        // SAFETY: as this function's contract.
        unsafe { id_out.write(id) };
        Ok(())
    })
}
