//! A stack whose wait is over goes on between two blocks of a loop, and within a sort by a comparison of the program's.
//!
//! No test here depends on time: the pools have one worker, so what runs next is known.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use jobtree::par::{self, Grain};
use jobtree::{OnceLatch, Pool, scope};

/// Calls `body` on the worker of a pool of one while a task waits there. `body` gets a function that wakes the task and returns
/// `true` if the task has gone on.
fn beside_one_that_waits(body: impl FnOnce(&(dyn Fn() -> bool + Sync)) + Send) {
    let (gate, went_on) = (OnceLatch::new(), AtomicBool::new(false));
    let wake = || {
        gate.set();
        went_on.load(Ordering::Acquire)
    };
    let pool = Pool::builder().workers(1).build().unwrap();
    pool.install(|| {
        scope(|s| {
            s.spawn(|_| {
                body(&wake);
                gate.set();
            });
            // The newest task of a worker is the first to run.
            s.spawn(|_| {
                gate.wait();
                went_on.store(true, Ordering::Release);
            });
        });
    });
}

/// Wakes the task with the first item of a loop, and returns the number of the first item that finds that it has gone on.
fn first_item_after(items: usize, grain: Grain) -> Option<usize> {
    let first = AtomicUsize::new(usize::MAX);
    beside_one_that_waits(|wake| {
        par::over(0..items).grain(grain).for_each(|item| {
            if wake() {
                first.fetch_min(item, Ordering::Relaxed);
            }
        });
    });
    Some(first.into_inner()).filter(|item| *item < usize::MAX)
}

#[test]
fn a_loop_on_the_only_worker_gives_way_after_a_block() {
    assert_eq!(first_item_after(1000, Grain::AUTO), Some(8));
}

#[test]
fn a_loop_gives_way_where_what_is_left_is_too_short_to_be_shared() {
    assert_eq!(first_item_after(15, Grain::of(10)), Some(10));
}

#[test]
fn a_sort_by_a_comparison_of_the_programs_gives_way_within_a_piece() {
    /// Far behind the pass that looks whether the items are sorted already.
    const WAKES: usize = 50_000;
    let (count, first) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let mut numbers: Vec<u64> = (0..20_000_u64).map(|n| n * 7919 % 20_011).collect();
    beside_one_that_waits(|wake| {
        par::sort_by(&mut numbers, |a: &u64, b: &u64| {
            let number = count.fetch_add(1, Ordering::Relaxed);
            if number >= WAKES && wake() {
                first.fetch_min(number, Ordering::Relaxed);
            }
            a.cmp(b)
        });
    });
    assert!(numbers.is_sorted());
    let first = first.into_inner();
    assert!(
        (WAKES..WAKES + 2048).contains(&first),
        "gave way at comparison {first} of {count:?}"
    );
}
