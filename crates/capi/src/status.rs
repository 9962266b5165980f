//! What every function returns.
//!
//! The numbers are part of the interface: they never change, and new ones are added at the end. They are negative, so
//! that the codes with which tasks fail, which are anything but 0, can be told from them by being positive.

use std::borrow::Cow;
use std::ffi::{CStr, c_char};

/// What every function returns: JT_OK, or why it did not do what it was asked for.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jt_status {
    /// It was done.
    JT_OK = 0,
    /// An argument has a value that it must not have.
    JT_EINVAL = -1,
    /// A pointer is NULL that must not be.
    JT_ENULL = -2,
    /// A handle is 0, was released or destroyed, is of another kind, or never was one.
    JT_EHANDLE = -3,
    /// The runtime was not started, or is shut down.
    JT_ESHUTDOWN = -4,
    /// Not now: it runs already, has not ended yet, or would have to wait for itself.
    JT_EBUSY = -5,
    /// The system gives no more memory or threads.
    JT_ENOMEM = -6,
    /// The calling job, or the job that was waited for, was cancelled.
    JT_ECANCELED = -7,
    /// The time was over.
    JT_ETIMEDOUT = -8,
    /// A task returned something else than 0.
    JT_EFAILED = -9,
    /// A panic in Rust code was caught.
    JT_EPANIC = -10,
    /// The channel is closed (and, for receivers, empty), or the nursery has ended.
    JT_ECLOSED = -11,
    /// The channel has no room.
    JT_EFULL = -12,
    /// There is nothing: in the channel, or to tell.
    JT_EEMPTY = -13,
    /// The budget or the capabilities of the job do not allow it.
    JT_EREFUSED = -14,
    /// The buffer is too small; the text was cut off.
    JT_ETRUNCATED = -15,
}

use jt_status::*;

const ALL: [jt_status; 16] = [
    JT_OK,
    JT_EINVAL,
    JT_ENULL,
    JT_EHANDLE,
    JT_ESHUTDOWN,
    JT_EBUSY,
    JT_ENOMEM,
    JT_ECANCELED,
    JT_ETIMEDOUT,
    JT_EFAILED,
    JT_EPANIC,
    JT_ECLOSED,
    JT_EFULL,
    JT_EEMPTY,
    JT_EREFUSED,
    JT_ETRUNCATED,
];

impl jt_status {
    /// The status as an error of a call, with what `jt_last_error` shall tell.
    pub(crate) fn because(self, detail: impl Into<Cow<'static, str>>) -> CallError {
        CallError {
            status: self,
            detail: detail.into(),
        }
    }

    fn message(self) -> &'static CStr {
        match self {
            JT_OK => c"it was done",
            JT_EINVAL => c"an argument has a value that it must not have",
            JT_ENULL => c"a pointer is NULL that must not be",
            JT_EHANDLE => c"the handle was released, is of another kind, or never was one",
            JT_ESHUTDOWN => c"the runtime is not running; call jt_runtime_init first",
            JT_EBUSY => c"not now: it runs already, has not ended, or would wait for itself",
            JT_ENOMEM => c"the system gives no more memory or threads",
            JT_ECANCELED => c"the job was cancelled",
            JT_ETIMEDOUT => c"the time was over",
            JT_EFAILED => c"a task returned something else than 0",
            JT_EPANIC => c"a panic in Rust code was caught",
            JT_ECLOSED => c"the channel is closed, or the nursery has ended",
            JT_EFULL => c"the channel has no room",
            JT_EEMPTY => c"there is nothing",
            JT_EREFUSED => c"the budget or the capabilities of the job do not allow it",
            JT_ETRUNCATED => c"the buffer is too small; the text was cut off",
        }
    }
}

/// A call that did not do what it was asked for.
#[derive(Debug)]
pub(crate) struct CallError {
    pub(crate) status: jt_status,
    pub(crate) detail: Cow<'static, str>,
}

/// A short text for a status; "unknown status" for a number that is none. The text is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn jt_status_message(status: i32) -> *const c_char {
    let known = ALL.iter().find(|known| **known as i32 == status);
    known
        .map_or(c"unknown status", |status| status.message())
        .as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_a_message_of_its_own() {
        let messages: std::collections::HashSet<_> =
            ALL.iter().map(|status| status.message()).collect();
        assert_eq!(messages.len(), ALL.len());
        for (position, status) in ALL.iter().enumerate() {
            assert_eq!(*status as i32, -i32::try_from(position).unwrap());
        }
    }
}
