//! Forks, loops and sorts in a simulation: right under every seed, in another order under each.
#![cfg(not(miri))]

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jobtree::{
    BoxError, Runtime, checkpoint, current_worker_index, join, nursery, par, scope, sim, sleep,
    with_timeout,
};
use watchdog::Watchdog;

fn watch() -> Watchdog {
    Watchdog::watching(std::thread::current().name().unwrap_or("main"))
}

fn everything(_: &Runtime) -> Result<Vec<usize>, BoxError> {
    let mut workers = HashSet::new();
    let squares = par::map(&Vec::from_iter(0..500_u64), |n| n * n);
    assert!((0..500).all(|n| squares[n as usize] == n * n));
    let mut numbers: Vec<u64> = squares.iter().map(|n| n * 7919 % 1009).collect();
    par::sort(&mut numbers);
    assert!(numbers.is_sorted());
    let met = Mutex::new(Vec::new());
    par::for_each(0..64, |_| met.lock().unwrap().push(current_worker_index()));
    let met = met.into_inner().unwrap();
    assert_eq!(met.len(), 64);
    workers.extend(met.into_iter().flatten());
    let (left, right) = join(
        || par::over(0..100_u64).sum::<u64>(),
        || {
            let ran = AtomicUsize::new(0);
            scope(|s| {
                for _ in 0..5 {
                    s.spawn(|_| {
                        ran.fetch_add(1, Ordering::Relaxed);
                    });
                }
            });
            ran.into_inner()
        },
    );
    assert_eq!((left, right), (4950, 5));
    let mut workers: Vec<_> = workers.into_iter().collect();
    workers.sort_unstable();
    Ok(workers)
}

#[test]
fn loops_are_right_and_shared_in_many_ways() {
    let _watch = watch();
    let mut hashes = HashSet::new();
    let mut crowds = HashSet::new();
    for seed in 0..100 {
        let (report, again) = (
            sim::Runtime::new(seed).run(everything),
            sim::Runtime::new(seed).run(everything),
        );
        assert_eq!(report.trace_hash, again.trace_hash, "seed {seed}");
        hashes.insert(report.trace_hash);
        crowds.insert(report.outcome.unwrap());
        assert!(report.steps > 50, "{} steps", report.steps);
    }
    assert!(hashes.len() >= 95, "{} different runs", hashes.len());
    assert!(crowds.len() > 5, "who took part: {crowds:?}");
}

#[test]
fn a_loop_ends_when_its_job_is_cancelled() {
    let _watch = watch();
    let mut cut_short = 0;
    for seed in 0..100 {
        let handled = AtomicUsize::new(0);
        let report = sim::Runtime::new(seed).run(|_| {
            nursery(|n| {
                let handled = &handled;
                let looping = n.spawn(move || {
                    par::for_each(0..1000, |_| {
                        handled.fetch_add(1, Ordering::Relaxed);
                    });
                    Ok(())
                });
                for _ in 0..20 {
                    checkpoint()?;
                }
                looping.cancel("enough");
                let _ = looping.join();
                Ok(())
            })?;
            Ok(())
        });
        report.outcome.unwrap();
        cut_short += usize::from((1..1000).contains(&handled.into_inner()));
    }
    assert!(cut_short > 5, "{cut_short} of 100 loops were cut short");
}

#[test]
fn a_loop_that_waits_is_ended_by_its_time() {
    let _watch = watch();
    sim::check(0..50, |_| {
        let outcome = with_timeout(Duration::from_secs(1), || {
            par::for_each(0..10_u64, |n| {
                let _ = sleep(Duration::from_millis(300 * n));
            });
            Ok(())
        });
        assert!(outcome.unwrap_err().is_timed_out());
        assert_eq!(sim::elapsed(), Some(Duration::from_secs(1)));
        Ok(())
    });
}
