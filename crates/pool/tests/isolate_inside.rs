//! Waits inside `isolate` end whatever way the work that they wait for was queued, also on a pool's only worker.
#![cfg(not(miri))]

mod support;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jobtree_pool::raw::PoolRef;
use jobtree_pool::raw::task::{RawContext, RawTask, RawTaskKind};
use jobtree_pool::{
    CountLatch, OnceLatch, Pool, UserContext, Worker, broadcast, isolate, join, scope, scope_fifo,
    spawn, with_user_context, yield_local, yield_now,
};

use support::ends_well;

fn pool(workers: usize) -> Pool {
    Pool::builder().workers(workers).build().unwrap()
}

/// Runs `body` in a context that is nested in the current one.
fn nested<R>(body: impl FnOnce() -> R) -> R {
    let context = UserContext {
        user: std::ptr::dangling(),
        stop: None,
    };
    // SAFETY: nobody follows the pointer.
    unsafe { with_user_context(context, body) }
}

#[test]
fn a_broadcast_inside_reaches_the_worker_that_waits() {
    ends_well("a_broadcast_inside_reaches_the_worker_that_waits", || {
        for workers in [1, 2, 4] {
            let pool = pool(workers);
            for _ in 0..100 {
                let indices = pool.install(|| isolate(|| nested(|| broadcast(|c| c.index()))));
                assert_eq!(indices, (0..workers).collect::<Vec<_>>());
            }
        }
    });
}

#[test]
fn tasks_below_a_detached_one_are_found() {
    ends_well("tasks_below_a_detached_one_are_found", || {
        let pool = pool(1);
        pool.install(|| {
            isolate(|| {
                scope(|s| {
                    s.spawn(|_| ());
                    spawn(|| ());
                    s.spawn(|_| ());
                    spawn(|| ());
                });
                scope_fifo(|s| {
                    s.spawn_fifo(|_| ());
                    spawn(|| ());
                });
            });
        });
    });
}

#[test]
fn a_fork_of_the_waiting_stack_itself_is_run() {
    ends_well("a_fork_of_the_waiting_stack_itself_is_run", || {
        let pool = pool(2);
        let busy = Arc::new(OnceLatch::new());
        let (started, gate) = (Arc::new(AtomicBool::new(false)), busy.clone());
        let flag = started.clone();
        // Blocks the other worker.
        pool.spawn(move || {
            flag.store(true, Ordering::Release);
            while !gate.is_set() {
                std::thread::yield_now();
            }
        });
        while !started.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        pool.install(|| {
            isolate(|| {
                let latch = OnceLatch::new();
                join(|| latch.wait(), || latch.set());
            });
        });
        busy.set();
    });
}

/// A task that posts itself again from another thread, or on its worker, some times.
#[repr(C)]
struct Reposted {
    task: RawTask,
    left: AtomicUsize,
    requeues: bool,
    pool: PoolRef,
    context: RawContext,
    done: CountLatch,
}

// SAFETY: the context outlives the task, which the test waits for.
unsafe impl Send for Reposted {}
// SAFETY: as above.
unsafe impl Sync for Reposted {}

static REPOSTED: RawTaskKind = RawTaskKind::new(run_reposted, || "reposted");

unsafe fn run_reposted(task: NonNull<RawTask>, worker: &Worker) {
    // SAFETY: each is the first field of a `Reposted`, which is leaked.
    let this: &'static Reposted = unsafe { task.cast().as_ref() };
    if this.left.fetch_sub(1, Ordering::Relaxed) == 1 {
        return this.done.count_down();
    }
    if this.requeues {
        // SAFETY: it is in no queue; the context outlives it.
        return unsafe { worker.requeue_raw(task, this.context) };
    }
    this.pool.hold();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        this.submit();
        this.pool.release();
    });
}

impl Reposted {
    fn new(times: usize, requeues: bool) -> &'static Reposted {
        Box::leak(Box::new(Reposted {
            task: RawTask::new(&REPOSTED, std::ptr::null()),
            left: AtomicUsize::new(times),
            requeues,
            pool: PoolRef::current().unwrap(),
            context: RawContext::current(),
            done: CountLatch::new(1),
        }))
    }

    fn submit(&'static self) {
        // SAFETY: leaked, in no queue, and waited for in the frame of its context.
        unsafe {
            self.pool
                .submit_raw(NonNull::from(self).cast(), self.context)
        };
    }
}

fn reposted(times: usize, requeues: bool) {
    let this = Reposted::new(times, requeues);
    this.submit();
    this.done.wait();
}

#[test]
fn a_task_that_yields_goes_on() {
    ends_well("a_task_that_yields_goes_on", || {
        for workers in [1, 3] {
            pool(workers).install(|| isolate(|| nested(|| reposted(1000, true))));
        }
    });
}

#[test]
fn a_task_that_another_thread_wakes_goes_on() {
    ends_well("a_task_that_another_thread_wakes_goes_on", || {
        for workers in [1, 3] {
            pool(workers).install(|| {
                isolate(|| {
                    nested(|| {
                        reposted(4, false);
                        isolate(|| reposted(4, false));
                        reposted(4, false);
                    })
                })
            });
        }
    });
}

/// The isolated task is woken on a worker that has older tasks, and then blocks for what the isolated waiter holds.
#[test]
fn a_task_on_the_worker_of_a_blocked_stranger_is_found() {
    ends_well(
        "a_task_on_the_worker_of_a_blocked_stranger_is_found",
        || {
            let pool = pool(2);
            let (task, released) = (OnceLock::new(), AtomicBool::new(false));
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    pool.install(|| {
                        isolate(|| {
                            let waiting = Reposted::new(1, false);
                            task.set(waiting).ok().unwrap();
                            waiting.done.wait();
                        });
                        released.store(true, Ordering::Release);
                    });
                });
                let task = task.wait();
                std::thread::sleep(Duration::from_millis(20));
                pool.install(|| {
                    spawn(|| ());
                    task.submit();
                    spawn(|| ());
                    // Blocks its thread as a lock would.
                    while !released.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                });
            });
        },
    );
}

#[test]
fn yields_inside_run_nobody_else() {
    let pool = pool(1);
    pool.install(|| {
        let ran = Arc::new(AtomicBool::new(false));
        let stranger = ran.clone();
        spawn(move || stranger.store(true, Ordering::Relaxed));
        isolate(|| {
            yield_local();
            yield_now();
        });
        assert!(!ran.load(Ordering::Relaxed), "a stranger ran inside");
        while !ran.load(Ordering::Relaxed) {
            yield_now();
        }
    });
}
