//! Dispatchers of one's own: threads for jobs that block, or that must not run more than so many at once.

use std::time::Duration;

use jobtree_runtime::{Dispatcher, DispatcherError, DrainError};

use crate::border::{required, running};
use crate::objects::{self, OBJECTS, Object, jt_dispatcher_t};
use crate::placement::{JT_DISPATCHER_DEFAULT, JT_DISPATCHER_IO, dispatcher_of};
use crate::runtime::{limit, waiting};
use crate::status::jt_status::{self, *};

/// Starts so many threads for jobs (`dispatcher` in jt_launch_opts): for jobs that block theirs and must not wait for
/// others, or that must not run more often at once. On one thread, they run one after another.
///
/// Returns JT_EINVAL for 0 threads, JT_ENOMEM if the system does not give that many, JT_EREFUSED if the calling job may not
/// start threads.
///
/// # Safety
/// `dispatcher_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_dispatcher_create(
    threads: u32,
    dispatcher_out: *mut jt_dispatcher_t,
) -> jt_status {
    running(|| {
        let dispatcher_out = required(dispatcher_out, "dispatcher_out")?;
        let dispatcher = Dispatcher::new(threads as usize).map_err(|error| {
            let status = match error {
                DispatcherError::Thread(_) => JT_ENOMEM,
                DispatcherError::Refused(_) => JT_EREFUSED,
                _ => JT_EINVAL,
            };
            status.because(error.to_string())
        })?;
        let dispatcher = objects::insert(Object::Dispatcher(dispatcher))?;
        // SAFETY: as this function's contract.
        unsafe { dispatcher_out.write(dispatcher) };
        Ok(())
    })
}

/// Waits until everything that was started on a dispatcher has ended, no longer than `timeout_ms` milliseconds: for ever
/// if that is negative. Nothing keeps others from starting more. A job on the dispatcher would wait for itself. Of the
/// runtime's own, JT_DISPATCHER_IO can be waited for.
///
/// Returns JT_ETIMEDOUT, and jt_last_error names what is left, or JT_ECANCELED if the current job is cancelled.
#[unsafe(no_mangle)]
pub extern "C" fn jt_dispatcher_drain(dispatcher: jt_dispatcher_t, timeout_ms: i64) -> jt_status {
    running(|| {
        if dispatcher == JT_DISPATCHER_DEFAULT {
            return Err(JT_EINVAL.because(
                "the runtime's own threads are never drained; wait for a nursery or a scope",
            ));
        }
        let dispatcher = dispatcher_of(dispatcher)?;
        waiting(|waiter| {
            let limit = limit(timeout_ms).unwrap_or(Duration::MAX);
            dispatcher.drain(limit).map_err(|error| match &error {
                DrainError::Cancelled(cancelled) => waiter.is_cancelled(cancelled),
                _ => JT_ETIMEDOUT.because(error.to_string()),
            })
        })
    })
}

/// Gives a dispatcher up. What was started on it still runs; its threads end when all of that has ended.
///
/// Returns JT_EINVAL for those that are the runtime's own.
#[unsafe(no_mangle)]
pub extern "C" fn jt_dispatcher_destroy(dispatcher: jt_dispatcher_t) -> jt_status {
    running(|| {
        if matches!(dispatcher, JT_DISPATCHER_DEFAULT | JT_DISPATCHER_IO) {
            return Err(JT_EINVAL.because("this dispatcher is the runtime's own"));
        }
        // Nothing of another kind may be taken out.
        objects::dispatcher(dispatcher)?;
        match OBJECTS.remove(dispatcher) {
            Some(_) => Ok(()),
            None => Err(objects::stale(dispatcher)),
        }
    })
}
