//! Where a job runs: on which threads, and on what stack.

use jobtree_runtime::Dispatcher;

use crate::objects::{self, jt_dispatcher_t};
use crate::status::CallError;
use crate::status::jt_status::*;

/// The runtime's worker threads.
pub const JT_DISPATCHER_DEFAULT: u64 = 0;

/// Threads for jobs that block theirs, in a system call for instance: 64 at most.
pub const JT_DISPATCHER_IO: u64 = 1;

/// A job that asks for a `stack_size` of at most this starts on a small stack, of 64 KiB: a million of them can wait at
/// once.
pub const JT_STACK_SIZE_SMALL: usize = 64 * 1024;

/// The most that may be asked for as `stack_size`, in bytes: what every other job gets, of which only the pages that it
/// touches cost memory.
pub const JT_STACK_SIZE_MAX: usize = 2 * 1024 * 1024;

/// Where a job runs.
pub(crate) struct Placement {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) small_stack: bool,
}

/// Where a job with these wishes runs: the only place that maps them to what the runtime offers. A size of 0 is no
/// wish.
pub(crate) fn placement(
    dispatcher: jt_dispatcher_t,
    stack_size: usize,
) -> Result<Placement, CallError> {
    let dispatcher = dispatcher_of(dispatcher)?;
    if stack_size > JT_STACK_SIZE_MAX {
        return Err(JT_EINVAL.because(format!(
            "no stack has {stack_size} bytes; ask for {JT_STACK_SIZE_MAX} at most, or 0"
        )));
    }
    Ok(Placement {
        dispatcher,
        small_stack: (1..=JT_STACK_SIZE_SMALL).contains(&stack_size),
    })
}

/// What a number stands for: one of the runtime's own, or a handle.
pub(crate) fn dispatcher_of(dispatcher: jt_dispatcher_t) -> Result<Dispatcher, CallError> {
    match dispatcher {
        JT_DISPATCHER_DEFAULT => Ok(Dispatcher::default()),
        JT_DISPATCHER_IO => Ok(Dispatcher::io()),
        handle => objects::dispatcher(handle),
    }
}
