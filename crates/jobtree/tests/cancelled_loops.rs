//! Loops and sorts in a job that is cancelled end soon, on every worker, and leave nothing behind.

#[path = "../../par/tests/common/mod.rs"]
mod common;

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Alive, Random};
use jobtree::par::{self, Grain};
use jobtree::{Job, OnceLatch, Outcome, Runtime, Stopped, nursery};
use watchdog::Watchdog;

/// So many items that no loop comes to their end.
const ENDLESS: u64 = u64::MAX / 2;

fn runtime(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).build().unwrap()
}

/// Runs `body` as a job on a worker of `runtime`.
fn run(runtime: &Runtime, body: impl FnOnce() + Send) -> Outcome<()> {
    runtime.nursery(|n| {
        let job = n.spawn(|| {
            body();
            Ok(())
        });
        Ok(job.join())
    })?
}

fn cancel_current() {
    Job::current().expect("a job").cancel("enough");
}

/// Runs `body` in runtimes of several sizes, cancels it when it has called what it is given, and waits for its end.
fn assert_ends(what: &'static str, body: impl Fn(&dyn Fn()) + Sync) {
    let _watchdog = Watchdog::watching(what);
    for workers in [1, 2, 4] {
        let runtime = runtime(workers);
        let begun = OnceLatch::new();
        let outcome = runtime.nursery(|n| {
            let job = n.spawn(|| {
                body(&|| begun.set());
                Ok(())
            });
            begun.wait();
            job.cancel("enough");
            Ok(job.join())
        });
        let error = outcome.unwrap().unwrap_err();
        assert!(error.is_cancelled(), "{what} on {workers} workers: {error}");
        let mut sum = 0;
        run(&runtime, || sum = par::over(0..1000_u64).sum()).unwrap();
        assert_eq!(sum, 499_500, "the pool goes on");
    }
}

#[test]
fn a_loop_without_end_ends_when_its_job_is_cancelled() {
    assert_ends("for_each", |begun| {
        begun();
        par::over(0..ENDLESS).for_each(|n| {
            black_box(n);
        });
    });
}

#[test]
fn a_reduction_and_a_search_end_when_their_job_is_cancelled() {
    assert_ends("sum", |begun| {
        begun();
        par::over(0..ENDLESS).map(|n| black_box(n) & 1).sum::<u64>();
    });
    assert_ends("find_any", |begun| {
        begun();
        par::over(0..ENDLESS).find_any(|n| black_box(*n) == ENDLESS);
    });
}

#[test]
fn a_loop_too_coarse_to_be_cut_ends_after_a_block() {
    assert_ends("a coarse loop", |begun| {
        begun();
        let outer = par::over(0..ENDLESS).grain(Grain::of(1_000));
        outer.for_each(|n| {
            // Shorter than two grains, so it is never cut.
            let inner = par::over(0..n % 1_500).grain(Grain::of(1_000));
            inner.for_each(|n| {
                black_box(n);
            });
        });
    });
}

#[test]
fn a_loop_in_a_job_that_was_cancelled_before_does_not_begin() {
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let items = AtomicU64::new(0);
        let outcome = run(&runtime, || {
            cancel_current();
            par::over(0..1000_u64).for_each(|_| {
                items.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert!(outcome.unwrap_err().is_cancelled());
        assert_eq!(items.into_inner(), 0);
    }
}

#[test]
fn what_a_cancelled_loop_has_made_is_dropped() {
    let len = 100_000;
    for workers in [1, 2, 4] {
        let runtime = runtime(workers);
        for cancel_at in [0, 1, len / 3, len / 2] {
            let alive = Alive::default();
            let outcome = run(&runtime, || {
                let make = |n| {
                    if n == cancel_at {
                        cancel_current();
                    }
                    alive.track(n)
                };
                drop(par::over(0..len).map(make).collect());
                // Whether it was before or after the last block, this is not reached or does not begin.
                par::over(0..len).for_each(|_| ());
            });
            assert!(outcome.unwrap_err().is_cancelled());
            assert_eq!(alive.count(), 0);
        }
    }
}

#[test]
fn a_cancelled_sort_keeps_all_items() {
    let len = 200_000;
    let numbers = Random(7).numbers(len, 1_000_000);
    let mut sorted = numbers.clone();
    sorted.sort();
    for workers in [2, 4] {
        let runtime = runtime(workers);
        let comparisons = len as u64 * 16;
        for cancel_after in [0, comparisons / 3, comparisons / 2, comparisons * 9 / 10] {
            let compared = AtomicU64::new(0);
            let mut items: Vec<String> = numbers.iter().map(u64::to_string).collect();
            let compare = |a: &String, b: &String| {
                if compared.fetch_add(1, Ordering::Relaxed) == cancel_after {
                    cancel_current();
                }
                (a.len(), a).cmp(&(b.len(), b))
            };
            let outcome = run(&runtime, || par::sort_by(&mut items, compare));
            assert!(outcome.unwrap_err().is_cancelled());
            // Wherever it stopped, every item is there once.
            let mut left: Vec<u64> = items.iter().map(|item| item.parse().unwrap()).collect();
            left.sort();
            assert_eq!(left, sorted);
        }
    }
}

/// Calls `body` in a job that is cancelled when `body` has called what it is given; returns what `body` returns.
fn in_cancelled<T: Send>(body: impl FnOnce(&dyn Fn()) -> T + Send) -> T {
    let runtime = runtime(2);
    let begun = OnceLatch::new();
    let mut result = None;
    let outcome = runtime.nursery(|n| {
        let job = n.spawn(|| {
            result = Some(body(&|| begun.set()));
            Ok(())
        });
        begun.wait();
        job.cancel("enough");
        Ok(job.join())
    });
    assert!(outcome.unwrap().unwrap_err().is_cancelled());
    result.expect("the body has returned")
}

#[test]
fn a_cancelled_loop_unwinds_with_stopped() {
    let _watchdog = Watchdog::watching("a loop that unwinds");
    let lock = std::sync::Mutex::new(());
    let is_stopped = in_cancelled(|begun| {
        let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _locked = lock.lock();
            begun();
            par::over(0..ENDLESS).for_each(|n| _ = black_box(n));
        }));
        payload.is_err_and(|payload| payload.is::<Stopped>())
    });
    assert!(is_stopped);
    assert!(lock.is_poisoned());
}

#[test]
fn a_nursery_around_a_loop_returns_the_cancellation() {
    let _watchdog = Watchdog::watching("a loop in a nursery");
    let outcome = in_cancelled(|begun| {
        nursery(|_| {
            begun();
            par::over(0..ENDLESS).for_each(|n| _ = black_box(n));
            Ok(())
        })
    });
    assert!(outcome.unwrap_err().is_cancelled());
}

#[test]
fn a_loop_that_asks_ends_early() {
    let _watchdog = Watchdog::watching("a loop that asks");
    let outcome = in_cancelled(|begun| {
        nursery(|_| {
            begun();
            par::over(0..ENDLESS).try_for_each(|_| jobtree::checkpoint())?;
            Ok(())
        })
    });
    assert!(outcome.unwrap_err().is_cancelled());
}
