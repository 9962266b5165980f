//! `join` in all its positions.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};

use jobtree_pool::{Pool, Worker, join, with_worker};

fn fib(w: &Worker, n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (a, b) = w.join(|w| fib(w, n - 1), |w| fib(w, n - 2));
    a + b
}

#[test]
fn fib_is_right_on_any_number_of_workers() {
    let (crowds, rounds, n, expected): (&[usize], _, _, _) = if cfg!(miri) {
        (&[1, 2, 3], 2, 9, 34)
    } else {
        (&[1, 2, 3, 8, 64], 20, 18, 2584)
    };
    for workers in crowds {
        let pool = Pool::builder().workers(*workers).build().unwrap();
        for _ in 0..rounds {
            assert_eq!(pool.install(|| with_worker(|w| fib(w, n))), expected);
        }
    }
}

#[test]
fn join_from_many_outside_threads_at_once() {
    let pool = Pool::builder().workers(4).build().unwrap();
    std::thread::scope(|threads| {
        let (callers, rounds) = if cfg!(miri) { (3, 5) } else { (8, 200) };
        for seed in 0..callers {
            let pool = &pool;
            threads.spawn(move || {
                for round in 0..rounds {
                    let (a, b) = pool.join(|| seed + round, || seed * round);
                    assert_eq!((a, b), (seed + round, seed * round));
                }
            });
        }
    });
}

#[test]
fn a_panic_reaches_the_joiner_after_both_sides_ended() {
    let pool = Pool::builder().workers(4).build().unwrap();
    for _ in 0..if cfg!(miri) { 3 } else { 200 } {
        let ended = AtomicUsize::new(0);
        struct CountOnDrop<'a>(&'a AtomicUsize);
        impl Drop for CountOnDrop<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        for (left, right) in [(true, false), (false, true), (true, true)] {
            ended.store(0, Ordering::SeqCst);
            let (a, b) = (CountOnDrop(&ended), CountOnDrop(&ended));
            let result = panic::catch_unwind(AssertUnwindSafe(|| {
                pool.install(|| {
                    join(
                        move || {
                            let _a = a;
                            if left {
                                panic::resume_unwind(Box::new("left"));
                            }
                        },
                        move || {
                            let _b = b;
                            if right {
                                panic::resume_unwind(Box::new("right"));
                            }
                        },
                    )
                })
            }));
            let payload = result.unwrap_err();
            let side = *payload.downcast::<&str>().unwrap();
            assert_eq!(side, if left { "left" } else { "right" });
            assert_eq!(ended.load(Ordering::SeqCst), 2, "both closures are gone");
        }
    }
}
