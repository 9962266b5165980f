//! Contexts that are told to stop: their forks unwind, soon, everywhere, and nobody else's do.

mod watchdog;

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use jobtree_pool::{
    OnceLatch, Pool, StopSignal, Stopped, UserContext, Worker, isolate, join, join_each, scope,
    stop_requested, with_user_context, with_worker, yield_now,
};

use watchdog::Watchdog;

/// A word with two bits: one that says to stop, and one that says nothing.
struct Stop(AtomicU64);

const STOP: u64 = 0b10;

impl Stop {
    fn new() -> Stop {
        Stop(AtomicU64::new(0b01))
    }

    fn set(&self) {
        self.0.fetch_or(STOP, Ordering::Relaxed);
    }

    /// Sets it and tells the pool.
    fn interrupt(&self, pool: &Pool) {
        self.set();
        pool.interrupt_forks();
    }

    /// Runs `body` in a context that looks at this word; `Err` says that it was stopped.
    fn run<R>(&self, body: impl FnOnce() -> R) -> Result<R, Stopped> {
        let context = UserContext {
            user: std::ptr::null(),
            stop: Some(StopSignal::new(&self.0, STOP)),
        };
        // SAFETY: nobody follows the pointer.
        let call = || unsafe { with_user_context(context, body) };
        panic::catch_unwind(AssertUnwindSafe(call)).map_err(stopped_or_panic)
    }
}

fn stopped_or_panic(payload: Box<dyn Any + Send>) -> Stopped {
    match payload.downcast::<Stopped>() {
        Ok(stopped) => *stopped,
        Err(payload) => panic::resume_unwind(payload),
    }
}

fn shielded<R>(body: impl FnOnce() -> R) -> R {
    let context = UserContext {
        user: std::ptr::null(),
        stop: None,
    };
    // SAFETY: nobody follows the pointer.
    unsafe { with_user_context(context, body) }
}

fn pool(workers: usize) -> Pool {
    Pool::builder().workers(workers).build().unwrap()
}

fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let (a, b) = join(|| fib(n - 1), || fib(n - 2));
    a + b
}

fn fib_on(worker: &Worker, n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let (a, b) = worker.join(|w| fib_on(w, n - 1), |w| fib_on(w, n - 2));
    a + b
}

fn rounds(count: u64) -> u64 {
    if cfg!(miri) {
        return 2;
    }
    let factor = std::env::var("JOBTREE_STRESS").map_or(1, |factor| factor.parse().unwrap());
    count * factor
}

/// Counts its drops.
struct Tracked<'a>(&'a AtomicUsize);

impl Drop for Tracked<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_fork_in_a_stopped_context_unwinds_without_a_hook_and_drops_both_closures() {
    static HOOKS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static COUNTS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if COUNTS.get() {
            HOOKS.fetch_add(1, Ordering::Relaxed);
        } else {
            usual(info);
        }
    }));
    for workers in [1, 2, 4] {
        let pool = pool(workers);
        let drops = AtomicUsize::new(0);
        let (a, b) = (Tracked(&drops), Tracked(&drops));
        let stop = Stop::new();
        stop.set();
        let result = pool.install(|| {
            COUNTS.set(true);
            let result = stop.run(|| {
                assert!(stop_requested());
                join(move || drop(a), move || drop(b));
                unreachable!("the fork does not return");
            });
            COUNTS.set(false);
            result
        });
        assert!(result.is_err());
        assert_eq!(drops.into_inner(), 2);
        assert!(!pool.install(stop_requested));
    }
    assert_eq!(HOOKS.load(Ordering::Relaxed), 0);
}

#[test]
fn a_context_that_was_not_stopped_does_not_disturb() {
    let _watchdog = Watchdog::watching("an interrupt without a stop");
    for workers in [1, 2, 4] {
        let pool = pool(workers);
        let (stop, ended) = (Stop::new(), AtomicBool::new(false));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    pool.interrupt_forks();
                    std::thread::yield_now();
                }
            });
            for _ in 0..rounds(20) {
                let n = if cfg!(miri) { 6 } else { 18 };
                let sum = pool.install(|| stop.run(|| (fib(n), with_worker(|w| fib_on(w, n)))));
                let sum = sum.unwrap();
                assert_eq!(sum.0, sum.1);
            }
            ended.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn a_recursion_without_end_ends_when_it_is_stopped() {
    let _watchdog = Watchdog::watching("fib(60)");
    for workers in [1, 2, 4] {
        let pool = pool(workers);
        for from_worker in [false, true] {
            let (stop, begun) = (Stop::new(), OnceLatch::new());
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    begun.wait();
                    stop.interrupt(&pool);
                });
                let body = || {
                    begun.set();
                    if from_worker {
                        with_worker(|worker| fib_on(worker, 60))
                    } else {
                        fib(60)
                    }
                };
                let result = pool.install(|| stop.run(body));
                assert!(result.is_err());
            });
            assert_eq!(pool.install(|| fib(10)), 55, "the pool goes on");
        }
    }
}

#[test]
fn an_outside_thread_is_stopped_through_install_join_and_scope() {
    let _watchdog = Watchdog::watching("fib(60) from outside");
    let pool = pool(2);
    type Enter = fn(&Pool, &OnceLatch);
    let ways: [Enter; 4] = [
        |pool, begun| {
            pool.install(|| {
                begun.set();
                fib(60)
            });
        },
        |pool, begun| {
            pool.join(|| begun.set(), || fib(60));
        },
        |pool, begun| {
            pool.scope(|s| {
                s.spawn(|_| {
                    begun.set();
                    fib(60);
                });
            });
        },
        |pool, begun| {
            pool.in_place_scope(|s| {
                s.spawn(|_| {
                    begun.set();
                    fib(60);
                });
            });
        },
    ];
    for enter in ways {
        let (stop, begun) = (Stop::new(), OnceLatch::new());
        std::thread::scope(|threads| {
            threads.spawn(|| {
                begun.wait();
                stop.interrupt(&pool);
            });
            assert!(stop.run(|| enter(&pool, &begun)).is_err());
        });
    }
    assert!(!stop_requested());
}

#[test]
fn another_pool_is_stopped_too_if_it_is_interrupted() {
    let _watchdog = Watchdog::watching("fib(60) on another pool");
    let (here, there) = (pool(1), pool(1));
    let (stop, begun) = (Stop::new(), OnceLatch::new());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            begun.wait();
            stop.interrupt(&there);
        });
        let far = || {
            begun.set();
            fib(60)
        };
        assert!(here.install(|| stop.run(|| there.install(far))).is_err());
    });
}

#[test]
fn a_stolen_fork_is_stopped_and_its_joiner_learns_of_it() {
    let _watchdog = Watchdog::watching("a stolen fork");
    let pool = pool(2);
    for _ in 0..rounds(20) {
        let (stop, stolen) = (Stop::new(), OnceLatch::new());
        let drops = AtomicUsize::new(0);
        let result = pool.install(|| {
            stop.run(|| {
                join(
                    || {
                        // Only a thief runs the other one.
                        while !stolen.is_set() {
                            std::thread::yield_now();
                        }
                        Tracked(&drops)
                    },
                    || {
                        stolen.set();
                        stop.set();
                        // Each fork of a stopped context that makes a record unwinds, and a thief's first one does.
                        fib(2);
                        unreachable!("the fork was stopped");
                    },
                )
            })
        });
        assert!(result.is_err());
        assert_eq!(drops.into_inner(), 1, "the result of the other closure");
    }
}

#[test]
fn a_panic_counts_for_more_than_a_stop() {
    let pool = pool(2);
    let stop = Stop::new();
    let begun = AtomicUsize::new(0);
    let both_begin = || {
        begun.fetch_add(1, Ordering::AcqRel);
        while begun.load(Ordering::Acquire) < 2 {
            std::thread::yield_now();
        }
    };
    let call = || {
        stop.run(|| {
            join(
                || {
                    both_begin();
                    stop.set();
                    pool.interrupt_forks();
                    join(|| (), || ());
                },
                || {
                    both_begin();
                    panic::resume_unwind(Box::new("a failure"));
                },
            )
        })
    };
    let payload = pool.install(|| panic::catch_unwind(AssertUnwindSafe(call)));
    let payload = payload.expect_err("a panic that is no stop");
    assert_eq!(payload.downcast_ref(), Some(&"a failure"));

    // The same for the tasks of a scope.
    let stop = Stop::new();
    let call = || {
        stop.run(|| {
            scope(|s| {
                s.spawn(|_| panic::resume_unwind(Box::new("a failure")));
                stop.set();
                s.spawn(|_| ());
            })
        })
    };
    let payload = pool.install(|| panic::catch_unwind(AssertUnwindSafe(call)));
    let payload = payload.expect_err("a panic that is no stop");
    assert_eq!(payload.downcast_ref(), Some(&"a failure"));
}

#[test]
fn a_spawn_in_a_stopped_context_unwinds_and_the_scope_waits_for_the_others() {
    for workers in [1, 2] {
        let pool = pool(workers);
        let (stop, ran, drops) = (Stop::new(), AtomicUsize::new(0), AtomicUsize::new(0));
        let result = pool.install(|| {
            stop.run(|| {
                scope(|s| {
                    for _ in 0..10 {
                        s.spawn(|_| {
                            yield_now();
                            ran.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                    stop.set();
                    let tracked = Tracked(&drops);
                    s.spawn(move |_| drop(tracked));
                    unreachable!("the spawn does not return");
                })
            })
        });
        assert!(result.is_err());
        assert_eq!((ran.into_inner(), drops.into_inner()), (10, 1));
    }
}

#[test]
fn many_at_once_are_stopped_as_two() {
    for workers in [1, 3] {
        let pool = pool(workers);
        let stop = Stop::new();
        stop.set();
        let ran = AtomicUsize::new(0);
        let count = || ran.fetch_add(1, Ordering::Relaxed);
        let result = pool.install(|| stop.run(|| join_each([count; 7])));
        assert!(result.is_err());
        assert_eq!(ran.into_inner(), 0);
    }
}

#[test]
fn behind_a_shield_nothing_is_stopped() {
    let (n, expected) = if cfg!(miri) { (7, 13) } else { (20, 6765) };
    for workers in [1, 2, 4] {
        let pool = pool(workers);
        let stop = Stop::new();
        let result = pool.install(|| {
            stop.run(|| {
                stop.interrupt(&pool);
                assert!(stop_requested());
                shielded(|| {
                    assert!(!stop_requested());
                    assert_eq!(fib(n), expected);
                    let mut in_scope = 0;
                    scope(|s| s.spawn(|_| in_scope = fib(n)));
                    assert_eq!(in_scope, expected);
                    // A context of its own inside the shield can be stopped again.
                    let inner = Stop::new();
                    inner.set();
                    assert!(inner.run(|| fib(2)).is_err());
                    assert_eq!(fib(n), expected);
                });
                assert!(stop_requested());
                isolate(|| {
                    assert!(stop_requested(), "isolation is no shield");
                    fib(2)
                })
            })
        });
        assert!(result.is_err(), "outside of the shield it counts");
    }
}

#[test]
fn who_catches_the_stop_and_goes_on_is_stopped_again() {
    for workers in [1, 2] {
        let pool = pool(workers);
        let stop = Stop::new();
        let result = pool.install(|| {
            stop.run(|| {
                stop.interrupt(&pool);
                for _ in 0..3 {
                    let caught = panic::catch_unwind(|| fib(2)).map_err(stopped_or_panic);
                    assert!(caught.is_err());
                }
            })
        });
        assert!(result.is_ok());
    }
}

#[test]
fn a_destructor_that_forks_while_a_stop_unwinds_is_not_stopped() {
    /// Forks when it is dropped, widely enough for thieves.
    struct ForksAtLast<'a>(&'a AtomicU64, u32);
    impl Drop for ForksAtLast<'_> {
        fn drop(&mut self) {
            assert!(std::thread::panicking());
            let mut in_scope = 0;
            scope(|s| s.spawn(|_| in_scope = fib(self.1)));
            self.0.fetch_add(fib(self.1) + in_scope, Ordering::Relaxed);
        }
    }
    let (n, expected) = if cfg!(miri) { (5, 5) } else { (20, 6765) };
    for workers in [1, 2, 4] {
        let pool = pool(workers);
        for _ in 0..rounds(5) {
            let (stop, sum) = (Stop::new(), AtomicU64::new(0));
            let result = pool.install(|| {
                stop.run(|| {
                    let _at_last = ForksAtLast(&sum, n);
                    stop.interrupt(&pool);
                    fib(2)
                })
            });
            assert!(result.is_err());
            assert_eq!(sum.into_inner(), 2 * expected);
        }
    }
}

#[test]
fn an_interrupt_is_not_lost_whatever_the_workers_do_meanwhile() {
    /// Forks, waits, shields, isolates and yields without an end.
    fn busy(seed: u64, depth: u32) -> u64 {
        if depth == 0 {
            return seed;
        }
        let next = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        match (next >> 33) % 64 {
            0 => shielded(|| fib(8)) ^ busy(next, depth - 1),
            1 => isolate(|| join(|| busy(next, depth - 1), || busy(!next, depth - 1)).0),
            2 => {
                let mut below = 0;
                scope(|s| s.spawn(|_| below = busy(next, depth - 1)));
                below
            }
            3 => {
                yield_now();
                busy(next, depth - 1)
            }
            _ => {
                let (a, b) = join(|| busy(next, depth - 1), || busy(!next, depth - 1));
                a ^ b
            }
        }
    }
    let _watchdog = Watchdog::watching("a busy tree");
    for workers in [1, 2, 4] {
        let pool = pool(workers);
        for round in 0..rounds(200) {
            let (stop, begun) = (Stop::new(), OnceLatch::new());
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    begun.wait();
                    // Sooner or later in the life of the tree.
                    for _ in 0..(round % 50) * (round % 7) * 20 {
                        std::hint::spin_loop();
                    }
                    stop.interrupt(&pool);
                });
                let result = pool.install(|| {
                    stop.run(|| {
                        begun.set();
                        busy(round, 60)
                    })
                });
                assert!(result.is_err());
            });
        }
    }
}

#[test]
fn a_stack_that_is_parked_while_it_is_stopped_learns_of_it_when_it_goes_on() {
    let _watchdog = Watchdog::watching("a parked stack");
    for workers in [1, 2] {
        let pool = pool(workers);
        for _ in 0..rounds(20) {
            let (stop, released) = (Stop::new(), OnceLatch::new());
            let result = pool.install(|| {
                scope(|s| {
                    // In a pool of one it runs when the other waits: the interrupt does not meet that one's stack.
                    s.spawn(|_| {
                        stop.interrupt(&pool);
                        released.set();
                    });
                    stop.run(|| {
                        released.wait();
                        fib(60)
                    })
                })
            });
            assert!(result.is_err());
        }
    }
}
