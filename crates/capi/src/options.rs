//! What can be said about a job before it starts.
//!
//! The struct grows at its end from version to version. A program says in `size` how large it knows it; one that knows
//! more than this library may use it as long as it asks for nothing new.

use std::ffi::c_char;
use std::mem::size_of;

use jobtree_runtime::binding::JobDescription;

use crate::border::text;
use crate::objects::jt_dispatcher_t;
use crate::placement::placement;
use crate::runtime::limit;
use crate::status::CallError;
use crate::status::jt_status::*;
use crate::task::jt_release_fn;

/// How a job is started. Set everything to 0, and `size` to sizeof(struct jt_launch_opts): these are the defaults.
/// JT_LAUNCH_OPTS does that.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct jt_launch_opts {
    /// sizeof(struct jt_launch_opts).
    pub size: usize,
    /// On which threads it runs; 0 for the runtime's own.
    pub dispatcher: jt_dispatcher_t,
    /// How many bytes of stack it needs; 0 for the default.
    pub stack_size: usize,
    /// What reports call it, in UTF-8; NULL for no name. It is copied.
    pub label: *const c_char,
    /// How many milliseconds it may take; then it is cancelled, and counts as failed. 0 for no limit.
    pub timeout_ms: i64,
    /// Called with `arg` when nobody needs it any more; NULL if nothing has to be done then. If the call that starts
    /// the job does not return JT_OK, it is not called.
    pub release: jt_release_fn,
}

#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) description: JobDescription,
    pub(crate) release: jt_release_fn,
}

/// Reads the options that a program gave; NULL for the defaults.
///
/// # Safety
/// `opts` is NULL, or points to as many bytes as its `size` says, and its `label` is NULL or ends with 0.
pub(crate) unsafe fn read(opts: *const jt_launch_opts) -> Result<Options, CallError> {
    if opts.is_null() {
        return Ok(Options::default());
    }
    // SAFETY: whatever the version, it begins with its size.
    let size = unsafe { (*opts).size };
    if size < size_of::<jt_launch_opts>() {
        return Err(JT_EINVAL.because("set `size` to sizeof(struct jt_launch_opts)"));
    }
    // SAFETY: at least as large as the struct that we know.
    let known = unsafe { opts.read() };
    let added = size - size_of::<jt_launch_opts>();
    // SAFETY: these bytes are there, as `size` says.
    let mut beyond = (0..added).map(|at| unsafe { opts.add(1).cast::<u8>().add(at).read() });
    if beyond.any(|byte| byte != 0) {
        return Err(JT_EINVAL.because("options are set that this version does not know"));
    }
    let placement = placement(known.dispatcher, known.stack_size)?;
    if known.timeout_ms < 0 {
        return Err(JT_EINVAL.because("`timeout_ms` is negative; 0 is no limit"));
    }
    Ok(Options {
        description: JobDescription {
            // SAFETY: by contract.
            label: unsafe { text(known.label, "label") }?,
            limit: limit(known.timeout_ms).filter(|limit| !limit.is_zero()),
            small_stack: placement.small_stack,
            dispatcher: placement.dispatcher,
        },
        release: known.release,
    })
}

#[cfg(test)]
mod tests {
    use std::ptr::null;

    use super::*;
    use crate::status::jt_status;

    #[repr(C)]
    struct Longer {
        known: jt_launch_opts,
        added: u64,
    }

    fn longer(size: usize, added: u64) -> Longer {
        let known = jt_launch_opts {
            size,
            dispatcher: 0,
            stack_size: 0,
            label: c"name".as_ptr(),
            timeout_ms: 5,
            release: None,
        };
        Longer { known, added }
    }

    fn status(opts: &Longer) -> jt_status {
        // SAFETY: no size of these tests is larger than the struct.
        unsafe { read(&raw const *opts as *const jt_launch_opts) }
            .map_or_else(|error| error.status, |_| JT_OK)
    }

    #[test]
    fn nothing_is_the_default() {
        // SAFETY: NULL is allowed.
        let options = unsafe { read(null()) }.unwrap();
        assert!(options.description.label.is_none() && options.description.limit.is_none());
    }

    #[test]
    fn a_later_version_is_read_unless_it_asks_for_something_new() {
        let size = size_of::<jt_launch_opts>();
        assert_eq!(status(&longer(size, 1)), JT_OK);
        assert_eq!(status(&longer(size_of::<Longer>(), 0)), JT_OK);
        assert_eq!(status(&longer(size_of::<Longer>(), 1)), JT_EINVAL);
        assert_eq!(status(&longer(size - 1, 0)), JT_EINVAL);
        assert_eq!(status(&longer(0, 0)), JT_EINVAL);
    }
}
