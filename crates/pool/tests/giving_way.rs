//! A stack whose wait is over goes on at the next tick, and at the next piece of a sort, of what its worker computes.
//!
//! No test here depends on time: the pools have one worker, so what runs next is known.
#![cfg(jobtree_stacks)]

use std::cmp::Ordering as Order;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use jobtree_pool::raw::{fuel, let_woken_run, merge_sort};
use jobtree_pool::{OnceLatch, Pool, isolate, scope, with_worker};

/// A task that waits, and has a worker in common with what the test computes.
struct Waiting {
    gate: OnceLatch,
    went_on: AtomicBool,
}

impl Waiting {
    fn wake(&self) {
        self.gate.set();
    }

    fn went_on(&self) -> bool {
        self.went_on.load(Ordering::Acquire)
    }
}

fn pool() -> Pool {
    Pool::builder().workers(1).build().unwrap()
}

/// Calls `body` on the only worker of `pool` while a task waits there.
fn beside_one_that_waits<R: Send>(pool: &Pool, body: impl FnOnce(&Waiting) -> R + Send) -> R {
    let waiting = Waiting {
        gate: OnceLatch::new(),
        went_on: AtomicBool::new(false),
    };
    let waiting = &waiting;
    pool.install(|| {
        let mut result = None;
        scope(|s| {
            s.spawn(|_| {
                result = Some(body(waiting));
                waiting.wake();
            });
            // The newest task of a worker is the first to run.
            s.spawn(|_| {
                waiting.gate.wait();
                waiting.went_on.store(true, Ordering::Release);
            });
        });
        result.expect("both tasks have run")
    })
}

/// What a tick of the layer above does.
fn tick() {
    let one = fuel::Turn {
        ops: 1,
        ..fuel::Turn::EMPTY
    };
    if !fuel::burn_at_tick(one) {
        let_woken_run();
        assert!(fuel::burn(one), "the time slice is not over");
    }
}

#[test]
fn a_tick_lets_a_stack_go_on_that_its_own_worker_woke() {
    let pool = pool();
    let seen = beside_one_that_waits(&pool, |waiting| {
        tick();
        let before = waiting.went_on();
        waiting.wake();
        tick();
        (before, waiting.went_on())
    });
    assert_eq!(seen, (false, true));
    assert_eq!(pool.stats().total().gave_way, 1);
}

#[test]
fn a_tick_lets_a_stack_go_on_that_another_thread_woke() {
    let pool = pool();
    let went_on = beside_one_that_waits(&pool, |waiting| {
        tick();
        std::thread::scope(|threads| {
            threads.spawn(|| waiting.wake());
        });
        tick();
        waiting.went_on()
    });
    assert!(went_on);
    assert_eq!(pool.stats().total().gave_way, 1);
}

#[test]
fn a_tick_that_gives_way_takes_no_more_than_the_rest_of_its_time_slice() {
    let left = beside_one_that_waits(&pool(), |waiting| {
        for _ in 0..10 {
            tick();
        }
        let before = fuel::fuel().expect("on a worker").ops;
        waiting.wake();
        tick();
        assert!(waiting.went_on());
        (before, fuel::fuel().expect("on a worker").ops)
    });
    assert_eq!(left.1, left.0 - 1);
}

#[test]
fn no_tick_gives_way_while_its_thread_is_panicking() {
    struct TicksWhenDropped<'a>(&'a Waiting, &'a AtomicBool);
    impl Drop for TicksWhenDropped<'_> {
        fn drop(&mut self) {
            assert!(std::thread::panicking());
            self.0.wake();
            tick();
            self.1.store(self.0.went_on(), Ordering::Release);
        }
    }
    let meanwhile = AtomicBool::new(true);
    let after = beside_one_that_waits(&pool(), |waiting| {
        let panics = catch_unwind(AssertUnwindSafe(|| {
            let _ticks = TicksWhenDropped(waiting, &meanwhile);
            std::panic::resume_unwind(Box::new("expected"));
        }));
        assert!(panics.is_err());
        tick();
        waiting.went_on()
    });
    assert_eq!((meanwhile.into_inner(), after), (false, true));
}

#[test]
fn no_tick_gives_way_inside_isolate_and_the_first_one_after_it_does() {
    let seen = beside_one_that_waits(&pool(), |waiting| {
        let inside = isolate(|| {
            waiting.wake();
            tick();
            waiting.went_on()
        });
        tick();
        (inside, waiting.went_on())
    });
    assert_eq!(seen, (false, true));
}

#[test]
fn no_tick_gives_way_where_waits_nest_or_the_thread_is_the_programs_own() {
    let nested = Pool::builder().workers(1).nested_waits().build().unwrap();
    let adopted = Pool::builder()
        .workers(1)
        .use_current_thread()
        .build()
        .unwrap();
    for pool in [nested, adopted] {
        // The stack that waits lies below the one that ticks.
        let went_on = beside_one_that_waits(&pool, |waiting| {
            waiting.wake();
            tick();
            waiting.went_on()
        });
        assert!(!went_on);
        assert_eq!(pool.stats().total().gave_way, 0);
    }
}

#[test]
fn a_sort_gives_way_between_two_pieces() {
    let went_on = beside_one_that_waits(&pool(), |waiting| {
        let mut numbers: Vec<u32> = (0..64).rev().collect();
        let seen = std::sync::Mutex::new(Vec::new());
        with_worker(|worker| {
            let is_less = |a: &u32, b: &u32| a.cmp(b) == Order::Less;
            let sort_piece = |piece: &mut [u32]| {
                seen.lock().unwrap().push(waiting.went_on());
                waiting.wake();
                piece.sort();
            };
            merge_sort(worker, &mut numbers, 1, &is_less, &sort_piece);
        });
        assert!(numbers.is_sorted());
        seen.into_inner().unwrap()
    });
    assert_eq!(went_on, [false, true]);
}
