//! Nurseries.
//!
//! A nursery is a scope under the job that made it, and belongs to it: it is cancelled with that job, and destroyed when
//! that job's function returns. One that was made outside of jobs is under the root, and is destroyed by the shutdown.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use jobtree_runtime::binding::OwnedNursery;
use jobtree_runtime::{Job, JobId, NurseryState, Runtime, block_on, checkpoint};

use crate::border::{put, required, running, text};
use crate::job::{cancel, check_does_not_wait_for_itself};
use crate::launch::launch;
use crate::leftovers;
use crate::objects::{self, NurseryObject, OBJECTS, Object, Started, jt_job_t, jt_nursery_t};
use crate::options::Options;
use crate::runtime::{Waiter, while_up};
use crate::status::CallError;
use crate::status::jt_status::{self, *};
use crate::task::{ending, jt_task_fn};

/// Where a nursery is in its life.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jt_nursery_state_t {
    /// Jobs can be started in it.
    JT_NURSERY_OPEN = 0,
    /// It is awaited, and jobs in it have not ended.
    JT_NURSERY_CLOSING = 1,
    /// It has ended, by itself or by a failure.
    JT_NURSERY_CLOSED = 2,
    /// It was asked to end, or a job in it failed.
    JT_NURSERY_CANCELLING = 3,
    /// It has ended by cancellation.
    JT_NURSERY_CANCELED = 4,
}

/// Opens a nursery under the current job, to which it belongs; outside of jobs, under the runtime. If a job in it fails,
/// the others are cancelled.
///
/// Returns JT_ECANCELED if the current job is cancelled.
///
/// # Safety
/// `nursery_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_nursery_create(nursery_out: *mut jt_nursery_t) -> jt_status {
    // SAFETY: as this function's contract.
    running(|| unsafe { create(nursery_out, false) })
}

/// Opens a nursery whose jobs fail alone: jt_nursery_create.
///
/// # Safety
/// As jt_nursery_create.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_nursery_create_supervisor(nursery_out: *mut jt_nursery_t) -> jt_status {
    // SAFETY: as this function's contract.
    running(|| unsafe { create(nursery_out, true) })
}

/// # Safety
/// `nursery_out` is NULL or may be written to.
pub(crate) unsafe fn create(
    nursery_out: *mut jt_nursery_t,
    supervisor: bool,
) -> Result<(), CallError> {
    let nursery_out = required(nursery_out, "nursery_out")?;
    checkpoint().map_err(|cancelled| Waiter::Job.is_cancelled(&cancelled))?;
    let owner = Job::current().map(|job| job.id());
    let handle = keep(owner, true, |runtime| {
        let scope = match owner {
            Some(_) => OwnedNursery::open(supervisor),
            None => runtime.owned_nursery(supervisor),
        };
        scope.map_err(|error| JT_ECANCELED.because(error.to_string()))
    })?;
    // SAFETY: by contract.
    unsafe { nursery_out.write(handle) };
    Ok(())
}

/// Opens a nursery and makes a handle to it, which is released when the function of `owner` has returned.
pub(crate) fn keep(
    owner: Option<JobId>,
    is_below_owner: bool,
    open: impl FnOnce(&Runtime) -> Result<OwnedNursery, CallError>,
) -> Result<jt_nursery_t, CallError> {
    let handle = while_up(|runtime| {
        let nursery = NurseryObject {
            scope: open(runtime)?,
            owner,
            is_below_owner,
            started: Started::default(),
        };
        objects::insert(Object::Nursery(Arc::new(nursery)))
    })?;
    if let Some(owner) = owner {
        leftovers::note(owner, handle);
    }
    Ok(handle)
}

/// Starts a job in a nursery: jt_launch with the default options.
///
/// # Safety
/// As jt_launch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_nursery_spawn(
    nursery: jt_nursery_t,
    function: jt_task_fn,
    arg: *mut c_void,
    job_out: *mut jt_job_t,
) -> jt_status {
    running(|| {
        objects::nursery(nursery)?;
        // SAFETY: as this function's contract.
        unsafe { launch(nursery, function, arg, Options::default(), job_out) }
    })
}

/// Closes a nursery, waits until all jobs in it have ended, and tells what came of them: JT_OK, or JT_EFAILED,
/// JT_EPANIC or JT_ETIMEDOUT for the first of them that did not end well, or JT_ECANCELED. Jobs in it can still start
/// others. Can be called again, by others too: it tells the same.
///
/// If `code_out` is not NULL, it gets 0, what the first task that failed has returned, or the same as is returned.
///
/// If the *calling* job is cancelled, and is not the one that made the nursery under itself, it returns JT_ECANCELED at
/// once. A job that is in the nursery cannot wait for its end: JT_EBUSY.
///
/// # Safety
/// `code_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_nursery_await(nursery: jt_nursery_t, code_out: *mut i32) -> jt_status {
    running(|| {
        let nursery = objects::nursery(nursery)?;
        check_does_not_wait_for_itself(nursery.scope.job())?;
        let caller = Job::current().map(|job| job.id());
        let is_own = caller == nursery.owner && nursery.is_below_owner;
        if caller.is_none() || is_own {
            // Cancelled together with the caller, so it ends.
            let _ = nursery.scope.wait();
        } else {
            nursery.scope.close();
            block_on(nursery.scope.job().ended())
                .map_err(|cancelled| Waiter::Job.is_cancelled(&cancelled))?;
        }
        let (code, result) = ending(nursery.scope.job().error());
        // SAFETY: as this function's contract.
        unsafe { put(code_out, code) };
        result
    })
}

/// Asks everything in a nursery to end, and does not wait for it. `reason`, for reports, may be NULL.
///
/// # Safety
/// `reason` is NULL or ends with 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_nursery_cancel(
    nursery: jt_nursery_t,
    reason: *const c_char,
) -> jt_status {
    running(|| {
        let nursery = objects::nursery(nursery)?;
        // SAFETY: as this function's contract.
        cancel(nursery.scope.job(), unsafe { text(reason, "reason") }?);
        Ok(())
    })
}

/// Where a nursery is in its life.
///
/// # Safety
/// `state_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_nursery_state(
    nursery: jt_nursery_t,
    state_out: *mut jt_nursery_state_t,
) -> jt_status {
    use jt_nursery_state_t::*;
    running(|| {
        let state_out = required(state_out, "state_out")?;
        let nursery = objects::nursery(nursery)?;
        let state = match NurseryState::from(nursery.scope.job().state()) {
            NurseryState::Open => JT_NURSERY_OPEN,
            NurseryState::Closing => JT_NURSERY_CLOSING,
            NurseryState::Closed => JT_NURSERY_CLOSED,
            NurseryState::Cancelling => JT_NURSERY_CANCELLING,
            NurseryState::Cancelled => JT_NURSERY_CANCELED,
        };
        // SAFETY: as this function's contract.
        unsafe { state_out.write(state) };
        Ok(())
    })
}

/// Ends a nursery: cancels what still runs in it, waits until that has ended, cancelled or not, and releases its
/// handle and those of its jobs. Call it from the job that made the nursery, or from outside of it: a job that is in it
/// gets JT_EBUSY.
#[unsafe(no_mangle)]
pub extern "C" fn jt_nursery_destroy(nursery: jt_nursery_t) -> jt_status {
    running(|| {
        let found = objects::nursery(nursery)?;
        check_does_not_wait_for_itself(found.scope.job())?;
        if OBJECTS.remove(nursery).is_none() {
            return Err(objects::stale(nursery));
        }
        if let Some(owner) = found.owner {
            leftovers::strike(owner, nursery);
        }
        destroy(&found);
        Ok(())
    })
}

fn destroy(nursery: &NurseryObject) {
    if !nursery.scope.job().is_ended() {
        nursery.scope.abandon();
        let _ = nursery.scope.wait();
    }
    nursery.started.release();
}

/// Destroys a nursery that its job has not.
pub(crate) fn destroy_left(handle: jt_nursery_t) {
    if let Some(Object::Nursery(nursery)) = OBJECTS.remove(handle) {
        destroy(&nursery);
    }
}
