//! The border between C and Rust: nothing unwinds across it, and no pointer crosses it unlooked at.
//!
//! Every function of the interface runs its body in [`call`] or [`running`]. A panic in it becomes JT_EPANIC.
//!
//! C frames are never unwound. The pool unwinds a cancelled job only out of forks and loops (`join` and what is built on
//! it), and no function of the interface forks: those that wait, wait for a latch, and return JT_ECANCELED. Should one
//! ever fork, the unwinding ends here, in the function's own frame, and comes out as JT_ECANCELED.
//!
//! In the other direction tasks and callbacks are `extern "C-unwind"` functions. A panic of Rust code in one of them is
//! stopped where it is called: a task's becomes the outcome of its job, that of any other callback is recorded
//! (`jobtree_base::user_code`). A C++ exception that leaves one ends the process with a message, since Rust cannot
//! catch it; it is not undefined behaviour. Jumping out of one (longjmp), or ending its thread, is: the frames in between
//! hold locks of nobody, but their destructors would be left out, and a stack that belongs to the pool would be used
//! after it was given back.

use std::any::Any;
use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::panic::{self, AssertUnwindSafe};
use std::ptr::NonNull;

use jobtree_base::user_code::{Place, call_user, discard_payload};
use jobtree_runtime::binding::Stopped;

use crate::last_error;
use crate::runtime::check_is_up;
use crate::status::CallError;
use crate::status::jt_status::{self, *};

/// Runs a function of the interface that works without a runtime.
pub(crate) fn call(body: impl FnOnce() -> Result<(), CallError>) -> jt_status {
    match caught(body) {
        Ok(()) => JT_OK,
        Err(error) => last_error::remember(error),
    }
}

/// Runs a function of the interface that needs the runtime.
pub(crate) fn running(body: impl FnOnce() -> Result<(), CallError>) -> jt_status {
    call(|| {
        check_is_up()?;
        body()
    })
}

/// Like [`call`], but the last error stays the one before.
pub(crate) fn unrecorded(body: impl FnOnce() -> Result<(), CallError>) -> jt_status {
    match caught(body) {
        Ok(()) => JT_OK,
        Err(error) => error.status,
    }
}

fn caught(body: impl FnOnce() -> Result<(), CallError>) -> Result<(), CallError> {
    // Nothing of the caller's is seen again after a panic, except through handles, whose objects are unwind-safe.
    panic::catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| Err(describe(payload)))
}

fn describe(payload: Box<dyn Any + Send>) -> CallError {
    let error = if payload.is::<Stopped>() {
        JT_ECANCELED.because("the job was cancelled")
    } else if let Some(message) = payload.downcast_ref::<&'static str>() {
        JT_EPANIC.because(*message)
    } else if let Some(message) = payload.downcast_ref::<String>() {
        JT_EPANIC.because(message.clone())
    } else {
        JT_EPANIC.because("a panic with a value that is no text")
    };
    // A payload whose destructor panics must not get across either.
    discard_payload(payload);
    error
}

thread_local! {
    /// How many callbacks are under way on this thread that are not part of a job.
    static CALLBACKS: Cell<usize> = const { Cell::new(0) };
}

/// Calls a function of the program's that may not be part of a job; a panic is recorded, and nothing returned.
pub(crate) fn callback<R>(place: Place, function: impl FnOnce() -> R) -> Option<R> {
    let count = |change: fn(usize) -> usize| {
        // Gone only when the thread ends; then nothing waits for it.
        let _ = CALLBACKS.try_with(|callbacks| callbacks.set(change(callbacks.get())));
    };
    count(|callbacks| callbacks + 1);
    let result = call_user(place, function);
    count(|callbacks| callbacks - 1);
    result
}

/// Whether the caller is inside of [`callback`]: on a thread that may belong to the runtime, outside of all jobs.
pub(crate) fn is_in_callback() -> bool {
    CALLBACKS
        .try_with(Cell::get)
        .is_ok_and(|callbacks| callbacks > 0)
}

/// A pointer for a result that the caller must want.
pub(crate) fn required<T>(pointer: *mut T, name: &'static str) -> Result<NonNull<T>, CallError> {
    NonNull::new(pointer).ok_or_else(|| is_null(name))
}

pub(crate) fn is_null(name: &'static str) -> CallError {
    JT_ENULL.because(format!("`{name}` must not be NULL"))
}

/// Writes a result, if the caller wants it.
///
/// # Safety
/// `pointer` is NULL or may be written to.
pub(crate) unsafe fn put<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: by contract.
        unsafe { pointer.write(value) };
    }
}

/// Writes `text` with a 0 at its end, cut off where it has no room, between two characters.
///
/// # Safety
/// `buffer` is NULL or has room for `length` bytes.
pub(crate) unsafe fn put_text(
    buffer: *mut c_char,
    length: usize,
    text: &str,
) -> Result<(), CallError> {
    let buffer = required(buffer, "buffer")?;
    let Some(room) = length.checked_sub(1) else {
        return Err(JT_EINVAL.because("a buffer needs room for one byte at least"));
    };
    let mut end = text.len().min(room);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // SAFETY: `end` and one more byte are at most `length`, for which there is room by contract; a text of ours does
    // not overlap with memory that the caller may write to.
    unsafe {
        let start = buffer.as_ptr();
        start.copy_from_nonoverlapping(text.as_ptr().cast(), end);
        start.add(end).write(0);
    }
    Ok(())
}

/// Writes `text` with a 0 at its end, and how many bytes that takes. With NULL and a `length` of 0 only the latter.
///
/// # Safety
/// `buffer` is NULL or has room for `length` bytes, and `needed_out` is NULL or may be written to.
pub(crate) unsafe fn put_whole_text(
    buffer: *mut c_char,
    length: usize,
    text: &str,
    needed_out: *mut usize,
) -> Result<(), CallError> {
    // To C, a 0 inside would be the end.
    let text = text.replace('\0', "\u{fffd}");
    let needed = text.len() + 1;
    // SAFETY: by contract.
    unsafe { put(needed_out, needed) };
    if buffer.is_null() && length == 0 {
        return Ok(());
    }
    // SAFETY: by contract.
    unsafe { put_text(buffer, length, &text) }?;
    if length < needed {
        return Err(JT_ETRUNCATED.because(format!("the text needs {needed} bytes, not {length}")));
    }
    Ok(())
}

/// A text of the caller's; `None` for NULL.
///
/// # Safety
/// `text` is NULL, or bytes that end with 0.
pub(crate) unsafe fn text(
    text: *const c_char,
    name: &'static str,
) -> Result<Option<String>, CallError> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: by contract.
    match unsafe { CStr::from_ptr(text) }.to_str() {
        Ok(text) => Ok(Some(text.to_owned())),
        Err(_) => Err(JT_EINVAL.because(format!("`{name}` is not UTF-8"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(length: usize, text: &str) -> (jt_status, Vec<u8>) {
        let mut buffer = vec![b'x'; 16];
        // SAFETY: every `length` of these tests is at most the buffer's.
        let result = unsafe { put_text(buffer.as_mut_ptr().cast(), length, text) };
        (result.err().map_or(JT_OK, |error| error.status), buffer)
    }

    #[test]
    fn a_text_is_cut_off_between_characters() {
        assert_eq!(written(16, "abc").1[..4], *b"abc\0");
        assert_eq!(written(3, "abc").1[..4], *b"ab\0x");
        assert_eq!(
            written(3, "aé").1[..4],
            *b"a\0xx",
            "half of é is no character"
        );
        assert_eq!(written(1, "abc").1[..2], *b"\0x");
        assert_eq!(written(0, "abc"), (JT_EINVAL, vec![b'x'; 16]));
    }

    #[test]
    fn a_panic_becomes_a_status() {
        assert_eq!(call(|| panic!("with a text")), JT_EPANIC);
        assert_eq!(call(|| panic::panic_any(7)), JT_EPANIC);
        struct Nasty;
        impl Drop for Nasty {
            fn drop(&mut self) {
                panic!("while it is dropped");
            }
        }
        assert_eq!(call(|| panic::panic_any(Nasty)), JT_EPANIC);
    }
}
