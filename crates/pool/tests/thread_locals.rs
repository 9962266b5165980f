//! Thread-locals and jobs that wait: what `docs/soundness.md` promises.
#![cfg(all(not(miri), jobtree_stacks))]

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jobtree_pool::{CountLatch, OnceLatch, Pool, isolate, join, scope, yield_now};

static MADE: AtomicUsize = AtomicUsize::new(0);
static DROPPED: AtomicUsize = AtomicUsize::new(0);

/// Knows whether it is alive.
struct Value {
    is_alive: Cell<bool>,
}

impl Value {
    /// Waits for forks, tasks and another thread.
    fn after_waiting() -> Value {
        join(yield_now, yield_now);
        scope(|s| s.spawn(|_| ()));
        let latch = OnceLatch::new();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                std::thread::sleep(Duration::from_millis(30));
                latch.set();
            });
            latch.wait();
        });
        MADE.fetch_add(1, Ordering::Relaxed);
        Value {
            is_alive: Cell::new(true),
        }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.is_alive.set(false);
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

thread_local! {
    static VALUE: Value = Value::after_waiting();
}

#[test]
fn isolated_accesses_keep_a_value_whose_initialiser_waits() {
    const JOBS: usize = 8;
    let pool = Pool::builder().workers(1).build().unwrap();
    let (entered, gate) = (CountLatch::new(JOBS), OnceLatch::new());
    pool.scope(|s| {
        for _ in 0..JOBS {
            s.spawn(|_| {
                // The first access, isolated; later ones may wait inside.
                isolate(|| VALUE.with(|value| assert!(value.is_alive.get())));
                VALUE.with(|value| {
                    entered.count_down();
                    gate.wait();
                    assert!(value.is_alive.get(), "dropped under a reference");
                });
            });
        }
        entered.wait();
        gate.set();
    });
    assert_eq!(MADE.load(Ordering::Relaxed), 1, "one a worker");
    assert_eq!(DROPPED.load(Ordering::Relaxed), 0);
    pool.shutdown(Duration::from_secs(60)).unwrap();
}

#[test]
fn a_constant_initialiser_is_safe_across_waits() {
    thread_local! {
        static DEPTH: Cell<usize> = const { Cell::new(0) };
    }
    let pool = Pool::builder().workers(1).build().unwrap();
    let (entered, gate) = (CountLatch::new(3), OnceLatch::new());
    pool.scope(|s| {
        for _ in 0..3 {
            s.spawn(|_| {
                DEPTH.with(|depth| {
                    depth.set(depth.get() + 1);
                    entered.count_down();
                    gate.wait();
                    depth.set(depth.get() - 1);
                });
            });
        }
        entered.wait();
        DEPTH.with(|depth| assert_eq!(depth.get(), 3));
        gate.set();
    });
    assert_eq!(pool.install(|| DEPTH.get()), 0);
}
