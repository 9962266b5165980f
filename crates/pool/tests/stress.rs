//! More workers than cores, panics everywhere, parking everywhere, pools that end while work comes.
//!
//! Seeded; `JOBTREE_STRESS` multiplies the rounds.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jobtree_pool::{CountLatch, OnceLatch, Pool, isolate, join, scope, spawn, yield_now};

fn rounds(base: u64) -> u64 {
    let factor = std::env::var("JOBTREE_STRESS").map_or(1, |factor| {
        factor
            .parse()
            .expect("JOBTREE_STRESS must be a whole number")
    });
    if cfg!(miri) {
        // A few: each is some thousand times slower there.
        return (base / 60).min(3);
    }
    base * factor
}

/// A generator that tasks pass down, so that a run depends on its seed only as far as it decides.
#[derive(Clone, Copy)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }

    fn split(&mut self) -> Dice {
        self.roll(2);
        Dice(self.0 ^ 0x9E37_79B9_7F4A_7C15)
    }
}

/// The number of nodes of a random tree of forks, scopes, yields, latch waits and panics; every panic
/// is caught somewhere above, and counts as nothing.
fn grow(mut dice: Dice, depth: u32, nodes: &AtomicU64) -> u64 {
    nodes.fetch_add(1, Ordering::Relaxed);
    if depth == 0 {
        return 1;
    }
    let (left, right) = (dice.split(), dice.split());
    match dice.roll(9) {
        0..=3 => {
            let (a, b) = join(
                || grow(left, depth - 1, nodes),
                || grow(right, depth - 1, nodes),
            );
            a + b + 1
        }
        4 => {
            let (mut a, mut b) = (0, 0);
            scope(|s| {
                s.spawn(|_| a = grow(left, depth - 1, nodes));
                s.spawn(|_| b = grow(right, depth - 1, nodes));
            });
            a + b + 1
        }
        5 => {
            yield_now();
            grow(left, depth - 1, nodes) + 1
        }
        6 => {
            let latch = OnceLatch::new();
            let mut below = 0;
            scope(|s| {
                s.spawn(|_| {
                    below = grow(left, depth - 1, nodes);
                    latch.set();
                });
                latch.wait();
            });
            below + 1
        }
        7 => isolate(|| {
            let (a, b) = join(
                || grow_plainly(left, depth / 2),
                || grow_plainly(right, depth / 2),
            );
            a + b + 1
        }),
        _ => {
            let caught = panic::catch_unwind(AssertUnwindSafe(|| {
                join(
                    || grow(left, depth - 1, nodes),
                    || -> u64 { panic::resume_unwind(Box::new("planned")) },
                )
            }));
            assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "planned");
            1
        }
    }
}

/// Forks only: inside `isolate` nothing may wait for what was made outside.
fn grow_plainly(mut dice: Dice, depth: u32) -> u64 {
    if depth == 0 {
        return 1;
    }
    let (left, right) = (dice.split(), dice.split());
    let (a, b) = join(
        || grow_plainly(left, depth - 1),
        || grow_plainly(right, depth - 1),
    );
    a + b + 1
}

#[test]
fn random_trees_give_the_same_result_on_any_number_of_workers() {
    let reference = Pool::builder().workers(1).build().unwrap();
    let crowds = [2, 5, 16].map(|workers| {
        let pool = Pool::builder()
            .workers(workers)
            .seed(workers as u64)
            .build();
        pool.unwrap()
    });
    for seed in 0..rounds(60) {
        let count = |pool: &Pool| {
            let nodes = AtomicU64::new(0);
            pool.install(|| grow(Dice(seed), if cfg!(miri) { 4 } else { 11 }, &nodes))
        };
        let expected = count(&reference);
        for pool in &crowds {
            assert_eq!(
                count(pool),
                expected,
                "seed {seed}, {} workers",
                pool.workers()
            );
        }
    }
}

#[test]
fn pools_end_while_their_tasks_spawn_more() {
    for round in 0..rounds(60) {
        let workers = 1 + (round % 5) as usize;
        let pool = Pool::builder().workers(workers).build().unwrap();
        let done = Arc::new(CountLatch::new(1));
        fn spread(dice: Dice, depth: u32, done: Arc<CountLatch>) {
            let mut dice = dice;
            if depth > 0 {
                for _ in 0..dice.roll(4) {
                    let (dice, done) = (dice.split(), done.clone());
                    done.increment();
                    spawn(move || spread(dice, depth - 1, done));
                }
                yield_now();
            }
            done.count_down();
        }
        let first = done.clone();
        pool.spawn(move || spread(Dice(round), if cfg!(miri) { 3 } else { 8 }, first));
        pool.shutdown(Duration::from_secs(120)).unwrap();
        assert!(done.is_set(), "a pool ends after its last task");
    }
}

#[test]
fn many_threads_install_into_one_small_pool() {
    let pool = Pool::builder().workers(3).build().unwrap();
    let per_thread = rounds(300);
    std::thread::scope(|threads| {
        for thread in 0..8 {
            let pool = &pool;
            threads.spawn(move || {
                for round in 0..per_thread {
                    let nodes = AtomicU64::new(0);
                    let dice = Dice(thread * 1_000_003 + round);
                    pool.install(|| grow(dice, 5, &nodes));
                }
            });
        }
    });
}

#[test]
fn idle_gaps_between_bursts_lose_no_wake_up() {
    // Each burst finds the workers in another stage of falling asleep.
    let pool = Pool::builder().workers(4).build().unwrap();
    let mut dice = Dice(7);
    for _ in 0..rounds(3000) {
        let tasks = 1 + dice.roll(6) as usize;
        let done = CountLatch::new(tasks);
        pool.in_place_scope(|s| {
            for _ in 0..tasks {
                s.spawn(|_| done.count_down());
            }
            done.wait();
        });
        for _ in 0..dice.roll(2000) {
            std::hint::spin_loop();
        }
    }
}
