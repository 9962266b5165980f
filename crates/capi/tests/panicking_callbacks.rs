//! Callbacks that are written in Rust and panic: what leaves them is stopped at the border.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use jobtree_base::user_code::caught_panics;
use jobtree_capi::jt_status::*;
use jobtree_capi::*;

static LEFT_OPEN: AtomicU64 = AtomicU64::new(0);

extern "C-unwind" fn sleep(_: *mut c_void) -> i32 {
    jt_sleep_ms(3_600_000) as i32
}

extern "C-unwind" fn leave_open_and_panic(_: *mut c_void) -> i32 {
    let mut nursery = 0;
    // SAFETY: the pointers are to locals, or NULL.
    unsafe {
        assert_eq!(jt_nursery_create(&raw mut nursery), JT_OK);
        assert_eq!(
            jt_nursery_spawn(nursery, Some(sleep), null_mut(), null_mut()),
            JT_OK
        );
    }
    LEFT_OPEN.store(nursery, Ordering::Relaxed);
    panic!("a task that panics");
}

extern "C-unwind" fn nothing(_: *mut c_void) -> i32 {
    0
}

extern "C-unwind" fn panic_in_release(_: *mut c_void) {
    panic!("a release that panics");
}

extern "C-unwind" fn panic_in_scope(_: jt_scope_t, _: *mut c_void) -> i32 {
    panic!("a scope that panics");
}

extern "C-unwind" fn panic_in_decision(
    _: jt_job_t,
    _: i32,
    _: *mut jt_budget_t,
    _: *mut c_void,
) -> i32 {
    panic!("a decision that panics");
}

extern "C-unwind" fn compute(_: *mut c_void) -> i32 {
    loop {
        if jt_tick() != JT_OK {
            return JT_ECANCELED as i32;
        }
    }
}

fn opts(release: jt_release_fn) -> jt_launch_opts {
    jt_launch_opts {
        size: size_of::<jt_launch_opts>(),
        dispatcher: 0,
        stack_size: 0,
        label: null(),
        timeout_ms: 0,
        release,
        budget: null(),
        capabilities: null(),
    }
}

/// One test, since there is one runtime in a process.
#[test]
fn a_panic_in_a_callback_is_stopped_at_the_border() {
    let mut runtime = jt_runtime_opts {
        size: size_of::<jt_runtime_opts>(),
        workers: 1,
        profile: jt_profile_t::JT_PROFILE_CLUSTER as i32,
        blocking_threads: 0,
        small_stacks: 0,
        root_budget: null(),
        root_capabilities: null(),
        on_exhausted: Some(panic_in_decision),
        on_exhausted_arg: null_mut(),
        on_exhausted_release: Some(panic_in_release),
        events: 0,
    };
    let mut job = 0;
    let mut code = 0;
    // SAFETY: all pointers are to locals that outlive the jobs, or NULL.
    unsafe {
        assert_eq!(jt_runtime_init_with(&raw mut runtime), JT_OK);
        // A task: its job fails, and what it has left open is closed.
        let budget = jt_budget_t {
            ops: 1_000,
            memory: 1 << 20,
            spawns: 5,
            channel_ops: 10,
            syscalls: 10,
        };
        let mut with_spawns = opts(None);
        with_spawns.budget = &raw const budget;
        let function = Some(leave_open_and_panic as unsafe extern "C-unwind" fn(_) -> _);
        assert_eq!(
            jt_launch(
                0,
                function,
                null_mut(),
                &raw const with_spawns,
                &raw mut job
            ),
            JT_OK
        );
        assert_eq!(jt_job_join(job, &raw mut code), JT_EPANIC);
        assert_eq!(code, JT_EPANIC as i32);
        let left = LEFT_OPEN.load(Ordering::Relaxed);
        assert_eq!(jt_nursery_destroy(left), JT_EHANDLE);
        // A scope, on this thread.
        assert_eq!(
            jt_scope(Some(panic_in_scope), null_mut(), null_mut()),
            JT_EPANIC
        );
        // A release: recorded, and its job has ended well.
        let before = caught_panics();
        let opts = opts(Some(panic_in_release));
        assert_eq!(
            jt_launch(0, Some(nothing), null_mut(), &raw const opts, &raw mut job),
            JT_OK
        );
        assert_eq!(jt_job_join(job, null_mut()), JT_OK);
        assert!(caught_panics() > before);
        // A decision: the job that it was about is cancelled.
        let before = caught_panics();
        assert_eq!(
            jt_launch(0, Some(compute), null_mut(), null(), &raw mut job),
            JT_OK
        );
        assert_eq!(jt_job_join(job, null_mut()), JT_ECANCELED);
        assert!(caught_panics() > before);
        let before = caught_panics();
        assert_eq!(jt_runtime_shutdown(10_000), JT_OK);
        assert!(
            caught_panics() > before,
            "the handler's release has panicked, too"
        );
    }
}
