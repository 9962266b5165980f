//! What can be said about a job before it starts.

use std::ffi::c_char;
use std::mem::offset_of;

use jobtree_runtime::binding::JobDescription;

use crate::border::text;
use crate::growing::{self, Growing};
use crate::limits::{jt_budget_t, jt_capabilities_t, read_budget, read_capabilities};
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
    /// How much the job may use, at most as much as the scope has left; NULL for what the profile gives. It is copied.
    pub budget: *const jt_budget_t,
    /// What the job may ask for, as far as the scope may, too; NULL for all that the scope may. It is copied.
    pub capabilities: *const jt_capabilities_t,
}

// SAFETY: `repr(C)`, begins with its size, and consists of numbers, pointers and functions, of which 0 is a value. The first
// version ended before `budget`.
unsafe impl Growing for jt_launch_opts {
    const NAME: &'static str = "struct jt_launch_opts";
    const EARLIER: &'static [usize] = &[offset_of!(jt_launch_opts, budget)];
}

#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) description: JobDescription,
    pub(crate) release: jt_release_fn,
}

/// Reads the options that a program gave; NULL for the defaults.
///
/// # Safety
/// `opts` is NULL, or points to as many bytes as its `size` says, its `label` is NULL or ends with 0, and its `budget` and
/// `capabilities` are NULL or point to such.
pub(crate) unsafe fn read(opts: *const jt_launch_opts) -> Result<Options, CallError> {
    if opts.is_null() {
        return Ok(Options::default());
    }
    // SAFETY: by contract.
    let known = unsafe { growing::read(opts) }?;
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
            // SAFETY: by contract.
            budget: unsafe { read_budget(known.budget) },
            // SAFETY: by contract.
            capabilities: unsafe { read_capabilities(known.capabilities) }?,
        },
        release: known.release,
    })
}

#[cfg(test)]
mod tests {
    use std::ptr::null;

    use super::*;

    #[test]
    fn nothing_is_the_default() {
        // SAFETY: NULL is allowed.
        let options = unsafe { read(null()) }.unwrap();
        assert!(options.description.label.is_none() && options.description.limit.is_none());
    }

    #[test]
    fn the_first_version_of_the_struct_is_understood() {
        let opts = jt_launch_opts {
            size: offset_of!(jt_launch_opts, budget),
            dispatcher: 0,
            stack_size: 0,
            label: c"name".as_ptr(),
            timeout_ms: 5,
            release: None,
            // Not there, for a program that knows the first version.
            budget: std::ptr::dangling(),
            capabilities: std::ptr::dangling(),
        };
        // SAFETY: as many bytes as it says.
        let options = unsafe { read(&raw const opts) }.unwrap();
        assert_eq!(options.description.label.as_deref(), Some("name"));
        assert!(options.description.budget.is_none());
    }
}
