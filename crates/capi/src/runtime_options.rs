//! What can be said about the runtime before it starts.

use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use jobtree_runtime::Runtime;

use crate::border::{call, required, running};
use crate::budget::{Handler, jt_exhausted_fn};
use crate::growing::{self, Growing};
use crate::limits::{
    jt_budget_t, jt_capabilities_t, jt_profile_t, number_of_profile, profile, read_budget,
    read_capabilities,
};
use crate::runtime::{handle, start};
use crate::status::jt_status::{self, *};
use crate::task::{Argument, jt_release_fn};

/// How the runtime is started. Set everything to 0, and `size` to sizeof(struct jt_runtime_opts): these are the defaults.
/// JT_RUNTIME_OPTS does that.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct jt_runtime_opts {
    /// sizeof(struct jt_runtime_opts).
    pub size: usize,
    /// How many worker threads; 0 for the default, as in jt_runtime_init.
    pub workers: u32,
    /// A jt_profile_t; 0 is JT_PROFILE_OPEN.
    pub profile: i32,
    /// How many threads JT_DISPATCHER_IO may have at most; 0 for 64.
    pub blocking_threads: u32,
    /// 1 to start jobs on stacks of 64 KiB unless they ask for more, else 0.
    pub small_stacks: i32,
    /// How much a scope or job directly under the runtime may use; NULL for what the profile gives. It is copied.
    pub root_budget: *const jt_budget_t,
    /// What a scope or job directly under the runtime may ask for; NULL for what the profile gives. It is copied.
    pub root_capabilities: *const jt_capabilities_t,
    /// Decides about scopes and jobs directly under the runtime that have used up their budget; NULL if they wait. What it
    /// gives comes out of nothing. See jt_supervise_budgets.
    pub on_exhausted: jt_exhausted_fn,
    /// What `on_exhausted` is called with.
    pub on_exhausted_arg: *mut c_void,
    /// Called with `on_exhausted_arg` when the runtime is gone; NULL if nothing has to be done then. It is not called if the
    /// runtime was not started.
    pub on_exhausted_release: jt_release_fn,
    /// How many events are kept from the start on: jt_events_record.
    pub events: usize,
}

// SAFETY: `repr(C)`, begins with its size, and consists of numbers, pointers and functions, of which 0 is a value.
unsafe impl Growing for jt_runtime_opts {
    const NAME: &'static str = "struct jt_runtime_opts";
}

/// Starts the runtime as `opts` says; NULL for the defaults, as jt_runtime_init(0).
///
/// Returns JT_EBUSY if there is one already, and in a callback, JT_EINVAL if an option has a value that it must not have, JT_ENOMEM if the
/// system gives no threads.
///
/// # Safety
/// `opts` is NULL, or points to as many bytes as its `size` says, and the pointers in it are NULL or valid. `on_exhausted`
/// may be called on any thread, by several at once, until the runtime is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_runtime_init_with(opts: *const jt_runtime_opts) -> jt_status {
    call(|| {
        let mut builder = Runtime::builder();
        if opts.is_null() {
            return start(builder, 0);
        }
        // SAFETY: as this function's contract.
        let opts = unsafe { growing::read(opts) }?;
        builder = builder.profile(profile(opts.profile)?);
        if opts.workers > 0 {
            builder = builder.workers(opts.workers as usize);
        }
        if opts.blocking_threads > 0 {
            builder = builder.blocking_threads(opts.blocking_threads as usize);
        }
        builder = match opts.small_stacks {
            0 => builder,
            1 => builder.small_stacks(),
            other => {
                return Err(JT_EINVAL.because(format!("`small_stacks` is 0 or 1, not {other}")));
            }
        };
        // SAFETY: as this function's contract.
        if let Some(budget) = unsafe { read_budget(opts.root_budget) } {
            builder = builder.root_budget(budget);
        }
        // SAFETY: as this function's contract.
        if let Some(capabilities) = unsafe { read_capabilities(opts.root_capabilities) }? {
            builder = builder.root_capabilities(capabilities);
        }
        // Released only if the runtime was started, and then with its handler.
        let released = Arc::new(OnceLock::new());
        // SAFETY: as this function's contract.
        let handler = unsafe { Handler::new(opts.on_exhausted, opts.on_exhausted_arg, None) };
        if let Some(handler) = handler {
            let released = Arc::clone(&released);
            builder = builder.supervise_budgets(move |exhausted| {
                let _ = &released;
                handler.decide(exhausted)
            });
        }
        start(builder, opts.events)?;
        let argument = Argument::new(opts.on_exhausted_arg, opts.on_exhausted_release);
        let _ = released.set(argument);
        Ok(())
    })
}

/// Gives the profile of the runtime.
///
/// # Safety
/// `profile_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_runtime_profile(profile_out: *mut jt_profile_t) -> jt_status {
    running(|| {
        let profile_out = required(profile_out, "profile_out")?;
        let profile = number_of_profile(handle()?.profile());
        // SAFETY: as this function's contract.
        unsafe { profile_out.write(profile) };
        Ok(())
    })
}
