//! Where a job runs: on which threads, and on what stack.

use crate::status::CallError;
use crate::status::jt_status::*;

/// Threads for jobs; 0 is the runtime's own.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
pub type jt_dispatcher_t = u64;

/// The runtime's worker threads.
pub const JT_DISPATCHER_DEFAULT: u64 = 0;

/// The most that may be asked for as `stack_size`, in bytes: what every job gets at present, of which only the pages that
/// it touches cost memory.
pub const JT_STACK_SIZE_MAX: usize = 2 * 1024 * 1024;

/// Where a job with these wishes runs: the only place that maps them to what the runtime offers.
pub(crate) fn check(dispatcher: jt_dispatcher_t, stack_size: usize) -> Result<(), CallError> {
    if dispatcher != JT_DISPATCHER_DEFAULT {
        return Err(JT_EINVAL.because("there is no such dispatcher; use JT_DISPATCHER_DEFAULT"));
    }
    if stack_size > JT_STACK_SIZE_MAX {
        return Err(JT_EINVAL.because(format!(
            "no stack has {stack_size} bytes; ask for {JT_STACK_SIZE_MAX} at most, or 0"
        )));
    }
    Ok(())
}
