//! What went wrong in more words than a status has, for the job or thread whose call it was.
//!
//! A thread-local alone would not do: jobs take turns on a worker, and one would read another's message. But a job that
//! has begun stays on its thread, so the messages of a thread's jobs lie in that thread, each under its job's id; it is
//! forgotten when the job's function has returned. Outside of jobs the id is 0, which no job has.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_char;

use jobtree_runtime::{Job, JobId};

use crate::border::{put_text, unrecorded};
use crate::status::CallError;
use crate::status::jt_status::{self, *};

thread_local! {
    static MESSAGES: RefCell<HashMap<u64, Cow<'static, str>>> = RefCell::new(HashMap::new());
}

fn key() -> u64 {
    Job::current().map_or(0, |job| job.id().as_u64())
}

/// Keeps what is to be told of `error`, and returns its status.
pub(crate) fn remember(error: CallError) -> jt_status {
    // A thread that is about to end may have lost its messages already; then nobody will ask.
    let _ = MESSAGES.try_with(|messages| messages.borrow_mut().insert(key(), error.detail));
    error.status
}

/// The function of `job` has returned: nobody can ask any more.
pub(crate) fn forget(job: JobId) {
    let _ = MESSAGES.try_with(|messages| messages.borrow_mut().remove(&job.as_u64()));
}

/// Writes what went wrong in the newest call of this job (outside of jobs: of this thread) that did not return JT_OK, as
/// a text that ends with 0, cut off if it has no room.
///
/// Returns JT_EEMPTY if nothing went wrong so far, JT_ENULL, or JT_EINVAL if `length` is 0.
///
/// # Safety
/// `buffer` has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_last_error(buffer: *mut c_char, length: usize) -> jt_status {
    unrecorded(|| {
        let message = MESSAGES
            .try_with(|messages| messages.borrow().get(&key()).cloned())
            .ok()
            .flatten();
        let message = message.ok_or_else(|| JT_EEMPTY.because("nothing went wrong"))?;
        // SAFETY: as this function's contract.
        unsafe { put_text(buffer, length, &message) }
    })
}
