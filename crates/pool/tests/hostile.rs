//! User code that panics where nobody expects it: destructors of payloads, results and closures that never ran, and
//! handlers that panic, wait, fork and spawn.
#![cfg(not(miri))]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use jobtree_base::user_code::{caught_panics, recent_panics};
use jobtree_pool::raw::{BlockingJob, BlockingThreads, Carriers};
use jobtree_pool::{
    CountLatch, Pool, StopSignal, Stopped, UserContext, broadcast, join, join_each, scope, spawn,
    with_user_context,
};

use support::{ends_well, in_child};

/// Panics when it is dropped, with another such payload.
struct PanicsInDrop(usize);

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        if self.0 > 0 {
            resume_unwind(Box::new(PanicsInDrop(self.0 - 1)));
        }
    }
}

fn hostile() -> PanicsInDrop {
    PanicsInDrop(3)
}

/// Calls `body`, which panics, and leaks the payload.
fn panics(body: impl FnOnce()) {
    let payload = catch_unwind(AssertUnwindSafe(body)).expect_err("it panics");
    std::mem::forget(payload);
}

fn pool(workers: usize) -> Pool {
    Pool::builder().workers(workers).build().unwrap()
}

#[test]
fn payloads_of_tasks_that_are_not_the_first() {
    ends_well("payloads_of_tasks_that_are_not_the_first", || {
        for workers in [1, 3] {
            panics(|| {
                pool(workers).scope(|s| {
                    for _ in 0..5 {
                        s.spawn(|_| resume_unwind(Box::new(hostile())));
                    }
                    resume_unwind(Box::new(hostile()));
                });
            });
        }
    });
}

#[test]
fn results_of_scopes_and_forks_whose_other_part_panics() {
    ends_well(
        "results_of_scopes_and_forks_whose_other_part_panics",
        || {
            for workers in [1, 3] {
                panics(|| {
                    pool(workers).scope(|s| {
                        s.spawn(|_| resume_unwind(Box::new(hostile())));
                        hostile()
                    });
                });
                panics(|| {
                    pool(workers).broadcast(|context| match context.index() + 1 {
                        last if last == workers => resume_unwind(Box::new(hostile())),
                        _ => hostile(),
                    });
                });
            }
            // Stolen forks, whose payloads meet.
            let pool = pool(2);
            for first_panics in [false, true] {
                for second_panics in [false, true] {
                    let is_stolen = AtomicBool::new(false);
                    let result = |is_to_panic: bool| {
                        if is_to_panic {
                            resume_unwind(Box::new(hostile()));
                        }
                        hostile()
                    };
                    let both = catch_unwind(AssertUnwindSafe(|| {
                        pool.install(|| {
                            join(
                                || {
                                    while !is_stolen.load(Ordering::Acquire) {
                                        std::thread::yield_now();
                                    }
                                    result(first_panics)
                                },
                                || {
                                    is_stolen.store(true, Ordering::Release);
                                    result(second_panics)
                                },
                            )
                        })
                    }));
                    assert_eq!(both.is_err(), first_panics || second_panics);
                    std::mem::forget(both);
                }
            }
        },
    );
}

/// Calls `body` inside so many forks. Only the outermost ones make a record.
fn inside_forks(depth: usize, body: &(dyn Fn() + Sync)) {
    match depth {
        0 => body(),
        _ => drop(join(|| inside_forks(depth - 1, body), || ())),
    }
}

#[test]
fn what_is_dropped_because_the_other_side_panics() {
    fn fails<R>() -> R {
        resume_unwind(Box::new("the other side"));
    }
    ends_well("what_is_dropped_because_the_other_side_panics", || {
        let forks: [&(dyn Fn() + Sync); 7] = [
            &|| drop(join(hostile, fails::<()>)),
            &|| {
                // A closure that has not begun.
                let captured = hostile();
                join(fails::<()>, move || drop(captured));
            },
            &|| drop(join!(hostile, hostile, fails::<()>)),
            &|| {
                drop(join!(
                    hostile,
                    hostile,
                    hostile,
                    hostile,
                    hostile,
                    fails::<()>
                ))
            },
            &|| {
                let bodies = [0, 1, 2, 3, 4, 5].map(|number| {
                    let captured = hostile();
                    move || match number {
                        3 => {
                            std::mem::forget(captured);
                            fails()
                        }
                        _ => captured,
                    }
                });
                drop(join_each(bodies));
            },
            &|| {
                let captured = hostile();
                broadcast(move |_| {
                    let _used = &captured;
                    fails::<()>();
                });
            },
            &|| {
                let captured = hostile();
                scope(move |s| {
                    s.spawn(|_| fails());
                    captured
                });
            },
        ];
        for workers in [1, 3] {
            let pool = pool(workers);
            for depth in [0, 1, 2, 4, 16] {
                for fork in forks {
                    let run = || pool.install(|| inside_forks(depth, fork));
                    let payload = catch_unwind(AssertUnwindSafe(run)).expect_err("it panics");
                    let passed_on = payload.downcast_ref::<&str>();
                    assert_eq!(passed_on, Some(&"the other side"));
                }
            }
        }
    });
}

#[test]
fn closures_that_a_stop_keeps_from_running() {
    ends_well("closures_that_a_stop_keeps_from_running", || {
        let stopped = |body: &(dyn Fn() + Sync)| {
            let word = AtomicU64::new(1);
            let context = UserContext {
                user: std::ptr::null(),
                stop: Some(StopSignal::new(&word, 1)),
            };
            // SAFETY: nobody follows the pointer.
            let result = catch_unwind(AssertUnwindSafe(|| unsafe {
                with_user_context(context, body)
            }));
            assert!(result.expect_err("it is stopped").is::<Stopped>());
        };
        let pool = pool(2);
        pool.install(|| {
            stopped(&|| {
                let (a, b) = (hostile(), hostile());
                join(move || drop(a), move || drop(b));
            });
            stopped(&|| {
                scope(|s| {
                    let captured = hostile();
                    s.spawn(move |_| drop(captured));
                });
            });
        });
    });
}

#[test]
fn handlers_that_panic_fork_and_spawn() {
    ends_well("handlers_that_panic_fork_and_spawn", || {
        for has_panic_handler in [false, true] {
            let ran = Arc::new(AtomicUsize::new(0));
            let count = ran.clone();
            let handler = move |_: usize| {
                let count = count.clone();
                assert_eq!(join(|| 1, || 2), (1, 2));
                scope(|s| s.spawn(|_| ()));
                spawn(move || {
                    count.fetch_add(1, Ordering::Relaxed);
                });
                resume_unwind(Box::new(hostile()));
            };
            let mut builder = Pool::builder()
                .workers(2)
                .on_start(handler.clone())
                .on_exit(handler);
            let handled = Arc::new(AtomicUsize::new(0));
            if has_panic_handler {
                let handled = handled.clone();
                builder = builder.on_panic(move |payload| {
                    handled.fetch_add(1, Ordering::Relaxed);
                    join(|| (), || ());
                    resume_unwind(payload);
                });
            }
            let pool = builder.build().unwrap();
            if has_panic_handler {
                pool.spawn(|| resume_unwind(Box::new(hostile())));
            }
            pool.shutdown(Duration::from_secs(20)).unwrap();
            assert_eq!(ran.load(Ordering::Relaxed), 4);
            let expected = if has_panic_handler { 5 } else { 0 };
            assert_eq!(handled.load(Ordering::Relaxed), expected);
        }
    });
}

#[test]
fn a_broadcast_in_an_exit_handler_ends() {
    ends_well("a_broadcast_in_an_exit_handler_ends", || {
        let ended = Arc::new(CountLatch::new(3));
        let count = ended.clone();
        let pool = Pool::builder()
            .workers(3)
            .on_exit(move |_| {
                assert_eq!(broadcast(|_| ()).len(), 3);
                count.count_down();
            })
            .build()
            .unwrap();
        drop(pool);
        ended.wait();
    });
}

#[test]
fn a_payload_on_a_blocking_thread() {
    ends_well("a_payload_on_a_blocking_thread", || {
        let threads = BlockingThreads::new(1, None, Carriers::Threads("blocking".to_owned()));
        let done = Arc::new(CountLatch::new(3));
        for _ in 0..3 {
            let done = done.clone();
            let job = BlockingJob::new(Box::new(move || {
                done.count_down();
                panic_any(hostile());
            }));
            let pushed = threads.push(&threads.ticket(), job);
            assert!(pushed.is_ok());
        }
        done.wait();
    });
}

#[test]
fn a_spawned_task_that_panics_without_a_handler_is_recorded() {
    ends_well(
        "a_spawned_task_that_panics_without_a_handler_is_recorded",
        || {
            let pool = pool(1);
            pool.spawn(|| panic!("nobody waits for this"));
            // The only worker runs it before what comes from outside later.
            pool.install(|| ());
            while caught_panics() == 0 {
                std::thread::yield_now();
            }
            assert!(
                recent_panics()
                    .iter()
                    .any(|panic| { panic.message.as_deref() == Some("nobody waits for this") })
            );
            assert_eq!(pool.install(|| 1), 1);
        },
    );
}

/// Forks the process, and returns how the new one ended after `body`: its exit status or, negative, its signal.
#[cfg(target_os = "linux")]
fn forked(body: impl FnOnce()) -> i32 {
    // SAFETY: what the new process does here is what the library is asked to make sense of; it ends without returning.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        body();
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(7) };
    }
    let mut status = 0;
    // SAFETY: writes the status to a place of ours.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    match libc::WIFSIGNALED(status) {
        true => -libc::WTERMSIG(status),
        false => libc::WEXITSTATUS(status),
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_forked_process_ends_when_it_needs_threads_that_it_does_not_have() {
    let test = "a_forked_process_ends_when_it_needs_threads_that_it_does_not_have";
    let ended = in_child(test, || {
        let pool = pool(2);
        pool.install(|| ());
        let uses: [fn(&Pool); 5] = [
            |pool| pool.install(|| ()),
            |pool| pool.spawn(|| ()),
            |pool| pool.scope(|s| s.spawn(|_| ())),
            |pool| pool.in_place_scope(|s| s.spawn(|_| ())),
            |pool| drop(pool.broadcast(|_| ())),
        ];
        for pool_is_used in uses {
            assert_eq!(forked(|| pool_is_used(&pool)), -libc::SIGABRT);
        }
        // On a worker: it waits for one that is not there.
        let gate = jobtree_pool::OnceLatch::new();
        assert_eq!(pool.install(|| forked(|| gate.wait())), -libc::SIGABRT);
        // Here it goes on as ever.
        assert_eq!(pool.join(|| 1, || 2), (1, 2));
    });
    assert!(
        ended.status.is_some_and(|status| status.success()),
        "{ended:?}"
    );
    let message = "was forked after its pool was made";
    assert_eq!(ended.stderr.matches(message).count(), 6, "{ended:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_forked_process_may_make_a_pool_of_its_own() {
    ends_well("a_forked_process_may_make_a_pool_of_its_own", || {
        let before = pool(2);
        before.install(|| ());
        let status = forked(|| {
            let own = pool(2);
            let sum = own.install(|| join(|| 40, || 2));
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(sum.0 + sum.1) };
        });
        assert_eq!(status, 42);
    });
}
