//! What a job does with its own time: look whether it is cancelled, give way, sleep.

use std::time::Duration;

use jobtree_runtime::binding::yield_now;
use jobtree_runtime::{checkpoint, sleep};

use crate::border::running;
use crate::runtime::{Waiter, waiting};
use crate::status::CallError;
use crate::status::jt_status;

pub(crate) fn look() -> Result<(), CallError> {
    checkpoint().map_err(|cancelled| Waiter::Job.is_cancelled(&cancelled))
}

/// JT_ECANCELED if the current job was asked to end, else JT_OK: for jobs that compute for long without waiting.
#[unsafe(no_mangle)]
pub extern "C" fn jt_checkpoint() -> jt_status {
    running(look)
}

/// To be called in long loops: the cheapest way to be a good neighbour. Returns what jt_checkpoint does.
#[unsafe(no_mangle)]
pub extern "C" fn jt_tick() -> jt_status {
    running(look)
}

/// Lets another job run first, if there is one. Returns what jt_checkpoint does.
#[unsafe(no_mangle)]
pub extern "C" fn jt_yield() -> jt_status {
    running(|| {
        look()?;
        if yield_now().is_none() {
            std::thread::yield_now();
        }
        look()
    })
}

/// Waits for so many milliseconds, in which the thread does other jobs. JT_ECANCELED if the current job is cancelled
/// first; outside of jobs, JT_ESHUTDOWN if the runtime is shut down first.
#[unsafe(no_mangle)]
pub extern "C" fn jt_sleep_ms(milliseconds: u64) -> jt_status {
    running(|| {
        // Even if there is nothing to wait for.
        look()?;
        waiting(|waiter| {
            sleep(Duration::from_millis(milliseconds))
                .map_err(|cancelled| waiter.is_cancelled(&cancelled))
        })
    })
}
