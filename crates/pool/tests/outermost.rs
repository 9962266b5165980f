//! Code that runs in the outermost context, and what it keeps of the frames below.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use jobtree_pool::raw::fuel::{Meter, Turn, meter, with_meter};
use jobtree_pool::raw::{can_be_stopped, outermost, outermost_at_end};
use jobtree_pool::{
    OnceLatch, Pool, StopSignal, UserContext, isolate, join, scope, spawn, user_context,
    with_user_context,
};

/// Runs `body` in a context with a user pointer, a stop signal that is set, and a meter.
fn in_a_stopped_job(body: impl FnOnce()) {
    let (user, word) = (7u32, AtomicU64::new(1));
    let context = UserContext {
        user: (&raw const user).cast(),
        stop: Some(StopSignal::new(&word, 1)),
    };
    let limited = Meter {
        turn: Turn {
            ops: 3,
            channel_ops: 3,
            syscalls: 3,
        },
        refills: false,
        account: (&raw const user).cast(),
        gate: None,
        share: std::ptr::null(),
    };
    // SAFETY: both outlive the call, which ends after all that it forks.
    unsafe { with_user_context(context, || with_meter(limited, body)) };
}

#[test]
fn nothing_of_the_job_is_left() {
    let pool = Pool::builder().workers(1).build().unwrap();
    let check = || {
        assert!(user_context().is_null());
        assert!(!can_be_stopped());
        assert!(meter().account.is_null());
        assert_eq!(join(|| 1, || 2), (1, 2));
    };
    let in_and_out = || {
        in_a_stopped_job(|| {
            outermost(check);
            outermost_at_end(check);
            assert!(!user_context().is_null());
            assert!(can_be_stopped());
            assert_eq!(meter().turn.ops, 3);
        });
    };
    pool.install(in_and_out);
    if !cfg!(miri) {
        // The fork needs the global pool, which never ends, as Miri wants all threads to.
        in_and_out();
    }
}

/// Whether a stranger can run on the only worker while `wait` waits for a latch that a thread sets later.
fn strangers_run_during(wait: impl FnOnce(&OnceLatch)) -> bool {
    let stranger_ran = Arc::new(AtomicBool::new(false));
    let latch = OnceLatch::new();
    let stranger = stranger_ran.clone();
    spawn(move || stranger.store(true, Ordering::SeqCst));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            latch.set();
        });
        wait(&latch);
        stranger_ran.load(Ordering::SeqCst)
    })
}

#[test]
fn the_isolation_of_the_frames_below_is_kept() {
    let pool = Pool::builder().workers(1).build().unwrap();
    pool.install(|| {
        assert!(strangers_run_during(|latch| outermost(|| latch.wait())));
        assert!(strangers_run_during(|latch| outermost_at_end(
            || latch.wait()
        )));
        // In the frame of `isolate` itself.
        isolate(|| {
            assert!(!strangers_run_during(|latch| outermost(|| latch.wait())));
            assert!(!strangers_run_during(|latch| outermost_at_end(
                || latch.wait()
            )));
        });
        // In a task on top of an isolated wait.
        isolate(|| {
            scope(|s| {
                s.spawn(|_| {
                    assert!(!strangers_run_during(|latch| outermost(|| latch.wait())));
                    assert!(!strangers_run_during(|latch| outermost_at_end(
                        || latch.wait()
                    )));
                });
            });
        });
        assert!(strangers_run_during(|latch| latch.wait()));
    });
}

#[test]
fn the_end_of_a_stolen_task_is_not_isolated() {
    let pool = Pool::builder().workers(2).build().unwrap();
    pool.install(|| {
        isolate(|| {
            // The first closure keeps its worker, so the other one takes the second.
            let is_stolen = AtomicBool::new(false);
            let (_, (in_task, at_end)) = join(
                || {
                    while !is_stolen.load(Ordering::SeqCst) {
                        std::thread::yield_now();
                    }
                },
                || {
                    is_stolen.store(true, Ordering::SeqCst);
                    (
                        strangers_run_during(|latch| outermost(|| latch.wait())),
                        strangers_run_during(|latch| outermost_at_end(|| latch.wait())),
                    )
                },
            );
            assert!(!in_task && at_end);
        });
    });
}
