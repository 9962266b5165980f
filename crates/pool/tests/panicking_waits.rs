//! Destructors that wait while their thread panics, for something that a parked stack of the same worker brings about.
#![cfg(all(not(miri), jobtree_stacks))]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use jobtree_pool::{OnceLatch, Pool, scope, yield_now};

use support::ends_well;

fn pool() -> Pool {
    Pool::builder().workers(1).build().unwrap()
}

/// Calls a closure when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Panics, and does `in_drop` on the way.
fn panic_and(in_drop: impl FnMut()) {
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _on_drop = OnDrop(in_drop);
        std::panic::resume_unwind(Box::new("on purpose"));
    }));
    assert!(caught.is_err());
}

#[test]
fn a_latch_that_a_parked_stack_sets() {
    ends_well("a_latch_that_a_parked_stack_sets", || {
        let (parked, go, done) = (OnceLatch::new(), OnceLatch::new(), OnceLatch::new());
        pool().scope(|s| {
            s.spawn(|_| {
                parked.set();
                go.wait();
                done.set();
            });
            parked.wait();
            panic_and(|| {
                assert!(std::thread::panicking());
                go.set();
                done.wait();
                assert!(std::thread::panicking());
            });
            assert!(!std::thread::panicking());
        });
    });
}

#[test]
fn a_loop_of_yields_for_a_parked_stack() {
    ends_well("a_loop_of_yields_for_a_parked_stack", || {
        let (parked, go, done) = (OnceLatch::new(), OnceLatch::new(), OnceLatch::new());
        pool().scope(|s| {
            s.spawn(|_| {
                parked.set();
                go.wait();
                done.set();
            });
            parked.wait();
            panic_and(|| {
                go.set();
                while !done.is_set() {
                    yield_now();
                }
            });
        });
    });
}

#[test]
fn a_stack_that_has_to_wait_again_meanwhile() {
    ends_well("a_stack_that_has_to_wait_again_meanwhile", || {
        let [parked, go, again, done] = &std::array::from_fn(|_| OnceLatch::new());
        let steps = AtomicUsize::new(0);
        pool().scope(|s| {
            s.spawn(|_| {
                parked.set();
                go.wait();
                // New tasks, forks and waits, all while the other stack's panic is under way.
                scope(|s| {
                    for _ in 0..10 {
                        s.spawn(|_| {
                            jobtree_pool::join(yield_now, yield_now);
                            steps.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
                std::thread::scope(|threads| {
                    threads.spawn(|| {
                        std::thread::sleep(std::time::Duration::from_millis(30));
                        again.set();
                    });
                    again.wait();
                });
                done.set();
            });
            parked.wait();
            panic_and(|| {
                go.set();
                done.wait();
            });
        });
        assert_eq!(steps.into_inner(), 10);
    });
}

/// Many stacks panic, each waits in a destructor for the one before or after it, so that panics end in the order in which
/// they began, in the opposite one, and mixed.
#[test]
fn panics_of_many_stacks_end_in_any_order() {
    const STACKS: usize = 8;
    ends_well("panics_of_many_stacks_end_in_any_order", || {
        for order in 0..4 {
            let pool = pool();
            let started: [OnceLatch; STACKS] = std::array::from_fn(|_| OnceLatch::new());
            let ended: [OnceLatch; STACKS] = std::array::from_fn(|_| OnceLatch::new());
            let (started, ended) = (&started, &ended);
            let all_panic = &OnceLatch::new();
            let panicking = &AtomicUsize::new(0);
            // Whose end the stack waits for in its destructor.
            let waits_for = move |number: usize| match order {
                0 => number.checked_sub(1),
                1 => Some(number + 1).filter(|next| *next < STACKS),
                2 => number.is_multiple_of(2).then_some(number + 1),
                _ => None,
            };
            pool.scope(|s| {
                for number in 0..STACKS {
                    s.spawn(move |_| {
                        started[number].set();
                        // All park once, without a panic.
                        started[(number + 1) % STACKS].wait();
                        panic_and(|| {
                            if panicking.fetch_add(1, Ordering::Relaxed) + 1 == STACKS {
                                all_panic.set();
                            }
                            all_panic.wait();
                            if let Some(other) = waits_for(number) {
                                ended[other].wait();
                            }
                        });
                        ended[number].set();
                    });
                }
            });
            pool.install(|| assert!(!std::thread::panicking(), "the counts add up"));
            // And panics still come out where they should.
            let result = catch_unwind(AssertUnwindSafe(|| pool.install(|| panic!("out"))));
            assert!(result.is_err());
        }
    });
}
