//! Jobs and deferreds: waiting for them, asking and cancelling them.

use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::sync::atomic::Ordering;

use jobtree_runtime::{CancelReason, Cause, Job, JobState, block_on};

use crate::border::{put, required, running, text};
use crate::objects::{self, OBJECTS, Object, jt_deferred_t, jt_job_t};
use crate::openers::opener_of;
use crate::runtime::waiting;
use crate::status::CallError;
use crate::status::jt_status::{self, *};
use crate::task::ending;

/// Where a job is in its life. From JT_JOB_COMPLETED on it has ended.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jt_job_state_t {
    /// Waits to begin.
    JT_JOB_PENDING = 0,
    /// Its function runs.
    JT_JOB_ACTIVE = 1,
    /// Its function has returned; jobs below it still run.
    JT_JOB_COMPLETING = 2,
    /// Asked to end.
    JT_JOB_CANCELLING = 3,
    /// Ended well.
    JT_JOB_COMPLETED = 4,
    /// Ended because its function, or that of a job below it, failed.
    JT_JOB_FAILED = 5,
    /// Ended because it was cancelled.
    JT_JOB_CANCELED = 6,
    /// Ended because its time was over.
    JT_JOB_TIMEDOUT = 7,
}

/// Why a job was asked to end.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jt_cause_t {
    /// A caller asked for it, by jt_cancel for instance.
    JT_CAUSE_EXPLICIT = 0,
    /// Its time was over.
    JT_CAUSE_TIMEOUT = 1,
    /// A job above it was asked to end.
    JT_CAUSE_PARENT = 2,
    /// It, or a job beside or below it, failed.
    JT_CAUSE_FAILURE = 3,
    /// The runtime is shut down.
    JT_CAUSE_SHUTDOWN = 4,
    /// What would have used its result is gone: the nursery was destroyed, for instance.
    JT_CAUSE_ABANDONED = 5,
}

pub(crate) fn number_of_cause(cause: Cause) -> jt_cause_t {
    use jt_cause_t::*;
    match cause {
        Cause::Timeout => JT_CAUSE_TIMEOUT,
        Cause::Parent => JT_CAUSE_PARENT,
        Cause::Failure => JT_CAUSE_FAILURE,
        Cause::Shutdown => JT_CAUSE_SHUTDOWN,
        Cause::Abandoned => JT_CAUSE_ABANDONED,
        // Explicit; what a later version tells apart was asked for by something, too.
        _ => JT_CAUSE_EXPLICIT,
    }
}

pub(crate) fn number_of_state(state: JobState) -> jt_job_state_t {
    use jt_job_state_t::*;
    match state {
        JobState::Pending => JT_JOB_PENDING,
        JobState::Completing => JT_JOB_COMPLETING,
        JobState::Cancelling => JT_JOB_CANCELLING,
        JobState::Completed => JT_JOB_COMPLETED,
        JobState::Failed => JT_JOB_FAILED,
        JobState::Cancelled => JT_JOB_CANCELED,
        JobState::TimedOut => JT_JOB_TIMEDOUT,
        // Active; what a later version tells apart in it is still that.
        _ => JT_JOB_ACTIVE,
    }
}

thread_local! {
    /// The jobs about whose budgets functions of the program's decide on this thread, innermost last.
    static DECIDED_ABOUT: RefCell<Vec<Job>> = const { RefCell::new(Vec::new()) };
}

/// Calls `decide`, without whose return `job` does not go on.
pub(crate) fn deciding_about<R>(job: &Job, decide: impl FnOnce() -> R) -> R {
    DECIDED_ABOUT.with_borrow_mut(|jobs| jobs.push(job.clone()));
    let decision = decide();
    // Another decision on the same thread may have begun meanwhile, and not be over.
    DECIDED_ABOUT.with_borrow_mut(|jobs| {
        if let Some(own) = jobs.iter().rposition(|decided| decided == job) {
            jobs.remove(own);
        }
    });
    decision
}

/// Returns the job that waits for the calling code to decide, if there is one.
fn decided_about() -> Option<Job> {
    DECIDED_ABOUT.with_borrow(|jobs| jobs.last().cloned())
}

/// Refuses to wait for a job that cannot end before the caller has.
pub(crate) fn check_does_not_wait_for_itself(awaited: &Job) -> Result<(), CallError> {
    if awaited.is_ended() {
        return Ok(());
    }
    let mut next = Job::current().or_else(decided_about);
    let mut openers = Vec::new();
    while let Some(job) = next.or_else(|| openers.pop()) {
        if job == *awaited {
            return Err(JT_EBUSY.because("the calling job is part of what it would wait for"));
        }
        openers.extend(opener_of(&job));
        next = job.parent();
    }
    Ok(())
}

/// Waits for the end of a job.
fn wait_for(job: &Job) -> Result<(), CallError> {
    if job.is_ended() {
        return Ok(());
    }
    check_does_not_wait_for_itself(job)?;
    waiting(|waiter| block_on(job.ended()).map_err(|cancelled| waiter.is_cancelled(&cancelled)))
}

/// Asks a job to end.
pub(crate) fn cancel(job: &Job, reason: Option<String>) {
    let reason = match reason {
        Some(reason) => CancelReason::from(reason),
        None => CancelReason::from("cancelled by the program"),
    };
    job.cancel(reason);
}

/// Waits for a deferred job and gives its result: JT_OK, or why there is none, as jt_job_join does. Can be called by
/// any number of jobs and threads, and again; all get the same.
///
/// # Safety
/// `result_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_await(
    deferred: jt_deferred_t,
    result_out: *mut *mut c_void,
) -> jt_status {
    running(|| {
        let deferred = objects::deferred(deferred)?;
        wait_for(&deferred.job)?;
        ending(deferred.job.error()).1?;
        // SAFETY: as this function's contract.
        unsafe { put(result_out, deferred.result.load(Ordering::Relaxed)) };
        Ok(())
    })
}

/// Asks a job, a deferred, a nursery or a scope, and everything below it, to end: calls in it that wait return
/// JT_ECANCELED from now on. Does not wait for it. It is no error if that was asked before, or if it has ended.
/// `reason`, for reports, may be NULL.
///
/// # Safety
/// `reason` is NULL or ends with 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_cancel(handle: u64, reason: *const c_char) -> jt_status {
    running(|| {
        let object = objects::get(handle)?;
        let job = object
            .as_job()
            .ok_or_else(|| object.is_not("anything that can be cancelled"))?;
        // SAFETY: as this function's contract.
        cancel(job, unsafe { text(reason, "reason") }?);
        Ok(())
    })
}

/// Asks the current job to end. Outside of jobs it returns JT_EEMPTY.
///
/// # Safety
/// `reason` is NULL or ends with 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_cancel_current(reason: *const c_char) -> jt_status {
    running(|| {
        // SAFETY: as this function's contract.
        cancel(&current()?, unsafe { text(reason, "reason") }?);
        Ok(())
    })
}

fn current() -> Result<Job, CallError> {
    Job::current().ok_or_else(|| JT_EEMPTY.because("the caller is not in a job"))
}

/// Gives a handle to the current job, to be released with jt_job_release. Outside of jobs it returns JT_EEMPTY. In a
/// scope, or under a time limit, the current job is that scope.
///
/// # Safety
/// `job_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_job_current(job_out: *mut jt_job_t) -> jt_status {
    running(|| {
        let job_out = required(job_out, "job_out")?;
        let job = objects::insert(Object::Job(current()?))?;
        // SAFETY: as this function's contract.
        unsafe { job_out.write(job) };
        Ok(())
    })
}

/// Waits until a job and all jobs below it have ended, and tells what came of it: JT_OK, JT_EFAILED, JT_EPANIC,
/// JT_ETIMEDOUT or JT_ECANCELED. If the *calling* job is cancelled meanwhile, it returns JT_ECANCELED, too;
/// jt_checkpoint tells which of them was.
///
/// If `code_out` is not NULL, it gets what the task has returned, or the same as is returned here if it was something
/// else that ended it. A job that would wait for itself gets JT_EBUSY.
///
/// # Safety
/// `code_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_job_join(job: jt_job_t, code_out: *mut i32) -> jt_status {
    running(|| {
        let job = objects::job(job)?;
        wait_for(&job)?;
        let (code, result) = ending(job.error());
        // SAFETY: as this function's contract.
        unsafe { put(code_out, code) };
        result
    })
}

/// What jt_job_join would tell, without waiting: JT_EBUSY if the job has not ended.
///
/// # Safety
/// `code_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_job_result(job: jt_job_t, code_out: *mut i32) -> jt_status {
    running(|| {
        let job = objects::job(job)?;
        if !job.is_ended() {
            return Err(JT_EBUSY.because("the job has not ended"));
        }
        let (code, result) = ending(job.error());
        // SAFETY: as this function's contract.
        unsafe { put(code_out, code) };
        result
    })
}

/// Where a job is in its life.
///
/// # Safety
/// `state_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_job_state(job: jt_job_t, state_out: *mut jt_job_state_t) -> jt_status {
    running(|| {
        let state_out = required(state_out, "state_out")?;
        let state = number_of_state(objects::job(job)?.state());
        // SAFETY: as this function's contract.
        unsafe { state_out.write(state) };
        Ok(())
    })
}

/// Whether a job was asked to end, or has ended so: 1 or 0.
///
/// # Safety
/// `canceled_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_job_is_canceled(job: jt_job_t, canceled_out: *mut i32) -> jt_status {
    running(|| {
        let canceled_out = required(canceled_out, "canceled_out")?;
        let is_cancelled = objects::job(job)?.is_cancelled();
        // SAFETY: as this function's contract.
        unsafe { canceled_out.write(i32::from(is_cancelled)) };
        Ok(())
    })
}

/// Releases the handle to a job or a deferred. The job goes on.
#[unsafe(no_mangle)]
pub extern "C" fn jt_job_release(job: jt_job_t) -> jt_status {
    running(|| {
        objects::job(job)?;
        match OBJECTS.remove(job) {
            Some(_) => Ok(()),
            None => Err(objects::stale(job)),
        }
    })
}
