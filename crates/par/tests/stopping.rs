//! Loops and sorts in a context that is told to stop end soon, on every worker, and leave nothing behind.

mod common;

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use common::{Alive, Random};
use jobtree_par::{self as par, Grain};
use jobtree_pool::{OnceLatch, Pool, StopSignal, Stopped, UserContext, with_user_context};

/// So many items that no loop comes to their end.
const ENDLESS: u64 = u64::MAX / 2;

/// Ends the process if what it watches does not end. Only a hang comes that far, so it may be generous.
struct Watchdog {
    ended: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    fn watching(what: &'static str) -> Watchdog {
        let (ended, watched) = channel();
        let watch = move || {
            if watched.recv_timeout(Duration::from_secs(300)) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{what}: does not end although it was stopped");
                std::process::abort();
            }
        };
        Watchdog {
            ended: Some(ended),
            thread: Some(std::thread::spawn(watch)),
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.ended.take());
        let thread = self.thread.take().expect("joined once");
        thread.join().expect("a watchdog does not panic");
    }
}

/// Runs `body` in a context that looks at `word`; says whether it was stopped.
fn is_stopped<R>(word: &AtomicU64, body: impl FnOnce() -> R) -> bool {
    let context = UserContext {
        user: std::ptr::null(),
        stop: Some(StopSignal::new(word, 1)),
    };
    // SAFETY: nobody follows the pointer.
    let call = || unsafe { with_user_context(context, body) };
    match panic::catch_unwind(AssertUnwindSafe(call)) {
        Ok(_) => false,
        Err(payload) if payload.is::<Stopped>() => true,
        Err(payload) => panic::resume_unwind(payload),
    }
}

/// Runs `body` on pools of several sizes, stops it when it has called what it is given, and waits for its end.
fn assert_stops(what: &'static str, body: impl Fn(&dyn Fn()) + Sync) {
    /// The latch, in a closure that loops can share.
    fn call(body: &(impl Fn(&dyn Fn()) + Sync), begun: &OnceLatch) {
        body(&|| begun.set());
    }
    let _watchdog = Watchdog::watching(what);
    for workers in [1, 2, 4] {
        let pool = Pool::builder().workers(workers).build().unwrap();
        let (word, begun) = (AtomicU64::new(0), OnceLatch::new());
        std::thread::scope(|threads| {
            threads.spawn(|| {
                begun.wait();
                word.store(1, Ordering::Relaxed);
                pool.interrupt_forks();
            });
            let body = || is_stopped(&word, || call(&body, &begun));
            assert!(pool.install(body), "{what} on {workers} workers");
        });
        let sum: u64 = pool.install(|| par::over(0..1000_u64).sum());
        assert_eq!(sum, 499_500, "the pool goes on");
    }
}

#[test]
fn a_loop_without_end_ends_when_it_is_stopped() {
    assert_stops("for_each", |begun| {
        begun();
        par::over(0..ENDLESS).for_each(|n| {
            std::hint::black_box(n);
        });
    });
}

#[test]
fn a_reduction_and_a_search_end_when_they_are_stopped() {
    assert_stops("sum", |begun| {
        begun();
        par::over(0..ENDLESS)
            .map(|n| std::hint::black_box(n) & 1)
            .sum::<u64>();
    });
    assert_stops("find_any", |begun| {
        begun();
        par::over(0..ENDLESS).find_any(|n| std::hint::black_box(*n) == ENDLESS);
    });
}

#[test]
fn a_loop_too_coarse_to_be_cut_ends_after_a_block() {
    assert_stops("a coarse loop", |begun| {
        begun();
        let outer = par::over(0..ENDLESS).grain(Grain::of(1_000));
        outer.for_each(|n| {
            // Shorter than two grains, so it is never cut.
            par::over(0..n % 1_500)
                .grain(Grain::of(1_000))
                .for_each(|n| {
                    std::hint::black_box(n);
                });
        });
    });
}

#[test]
fn a_loop_in_a_context_that_was_stopped_before_does_not_begin() {
    for workers in [1, 2] {
        let pool = Pool::builder().workers(workers).build().unwrap();
        let (word, items) = (AtomicU64::new(1), AtomicU64::new(0));
        let count = |_| {
            items.fetch_add(1, Ordering::Relaxed);
        };
        let body = || is_stopped(&word, || par::over(0..1000_u64).for_each(count));
        assert!(pool.install(body));
        assert_eq!(items.into_inner(), 0);
    }
}

#[test]
fn what_a_stopped_loop_has_made_is_dropped() {
    let len = if cfg!(miri) { 500 } else { 100_000 };
    for workers in [1, 2, 4] {
        let pool = Pool::builder().workers(workers).build().unwrap();
        for stop_at in [0, 1, len / 3, len / 2] {
            let (word, alive) = (AtomicU64::new(0), Alive::default());
            let body = || {
                let make = |n| {
                    if n == stop_at {
                        word.store(1, Ordering::Relaxed);
                        pool.interrupt_forks();
                    }
                    alive.track(n)
                };
                is_stopped(&word, || {
                    drop(par::over(0..len).map(make).collect());
                    // Whether it was before or after the last block, this is not reached or does not begin.
                    par::over(0..len).for_each(|_| ());
                })
            };
            assert!(pool.install(body));
            assert_eq!(alive.count(), 0);
        }
    }
}

#[test]
fn a_stopped_sort_keeps_all_items() {
    let len = if cfg!(miri) { 5_000 } else { 200_000 };
    let numbers = Random(7).numbers(len, 1_000_000);
    let mut sorted = numbers.clone();
    sorted.sort();
    for workers in [2, 4] {
        let pool = Pool::builder().workers(workers).build().unwrap();
        let comparisons = len as u64 * 16;
        for stop_after in [0, comparisons / 3, comparisons / 2, comparisons * 9 / 10] {
            let (word, compared) = (AtomicU64::new(0), AtomicU64::new(0));
            let mut items: Vec<String> = numbers.iter().map(u64::to_string).collect();
            let compare = |a: &String, b: &String| {
                if compared.fetch_add(1, Ordering::Relaxed) == stop_after {
                    word.store(1, Ordering::Relaxed);
                    pool.interrupt_forks();
                }
                (a.len(), a).cmp(&(b.len(), b))
            };
            pool.install(|| is_stopped(&word, || par::sort_by(&mut items, compare)));
            // Stopped or not, every item is there once.
            let mut left: Vec<u64> = items.iter().map(|item| item.parse().unwrap()).collect();
            left.sort();
            assert_eq!(left, sorted);
        }
    }
}
