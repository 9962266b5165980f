//! Texts about jobs: a picture of the tree, and why a job was cancelled.

use std::ffi::c_char;

use crate::border::{put, put_whole_text, running};
use crate::job::{jt_cause_t, number_of_cause};
use crate::objects;
use crate::runtime::handle;
use crate::status::jt_status::{self, *};

/// How a picture of the tree is written.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jt_dump_format_t {
    /// A line for each job, for people.
    JT_DUMP_TEXT = 0,
    /// One JSON object: id, label, state, age_ms, waiting_for, children.
    JT_DUMP_JSON = 1,
}

/// Writes a picture of a job, a deferred, a nursery or a scope and of all jobs below it that have not ended, as a UTF-8 text
/// that ends with 0; with 0, of all jobs of the runtime. `format` is a jt_dump_format_t.
///
/// `needed_out`, if not NULL, gets how many bytes the whole text needs with its 0. To ask for that alone, set `buffer` to
/// NULL and `length` to 0. The jobs go on meanwhile, so the next picture may need more.
///
/// Returns JT_ETRUNCATED if the text was cut off because `length` is too small.
///
/// # Safety
/// `buffer` is NULL or has room for `length` bytes; `needed_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_dump_tree(
    handle: u64,
    format: i32,
    buffer: *mut c_char,
    length: usize,
    needed_out: *mut usize,
) -> jt_status {
    const TEXT: i32 = jt_dump_format_t::JT_DUMP_TEXT as i32;
    const JSON: i32 = jt_dump_format_t::JT_DUMP_JSON as i32;
    running(|| {
        if !matches!(format, TEXT | JSON) {
            return Err(JT_EINVAL.because(format!("there is no format {format} of dumps")));
        }
        let dump = match handle {
            0 => self::handle()?.dump_tree(),
            handle => objects::any_job(handle)?.dump_tree(),
        };
        let text = match format {
            JSON => dump.to_json(),
            _ => dump.to_string(),
        };
        // SAFETY: as this function's contract.
        unsafe { put_whole_text(buffer, length, &text, needed_out) }
    })
}

/// Tells why a job, a deferred, a nursery or a scope was asked to end; with 0, the current job. `cause_out`, if not NULL,
/// gets the kind of reason; if the cancellation came from a job above, that job's, as long as it is there. The text is what
/// the caller of jt_cancel said, or what the cause means, written as by jt_dump_tree: with NULL and 0 for `buffer` and
/// `length` it is left out.
///
/// Returns JT_EEMPTY if it was not asked to end (with 0, also outside of jobs), JT_ETRUNCATED if the text was cut off.
///
/// # Safety
/// `buffer` is NULL or has room for `length` bytes; the other pointers are NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_cancel_reason(
    handle: u64,
    cause_out: *mut jt_cause_t,
    buffer: *mut c_char,
    length: usize,
    needed_out: *mut usize,
) -> jt_status {
    running(|| {
        let job = objects::job_or_current(handle)?;
        let cancelled = job
            .cancellation()
            .ok_or_else(|| JT_EEMPTY.because("the job was not asked to end"))?;
        let reason = cancelled.reason();
        // SAFETY: as this function's contract.
        unsafe {
            put(cause_out, number_of_cause(reason.cause()));
            put_whole_text(buffer, length, &reason.to_string(), needed_out)
        }
    })
}
