//! A cancelled job ends soon, even in the middle of an endless parallel computation.
//!
//! Of several rounds the quickest counts: others may have been held up by other programs, but not all of them.

mod support;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jobtree_pool::{OnceLatch, join};
use jobtree_runtime::{Job, nursery};
use support::{end, runtime, until, watch};

const ROUNDS: usize = 20;
const SOON: Duration = Duration::from_millis(10);

/// More forks than could be done in a day, each with a little work.
fn endless(done: &AtomicU64, depth: u32) {
    if depth == 0 {
        for value in 0..100_u64 {
            black_box(value);
        }
        done.fetch_add(1, Ordering::Relaxed);
        return;
    }
    join(|| endless(done, depth - 1), || endless(done, depth - 1));
}

fn assert_soon(what: &str, times: &[Duration]) {
    let (best, worst) = (times.iter().min().unwrap(), times.iter().max().unwrap());
    println!("{what}: from cancel to the end {best:?} at best, {worst:?} at worst");
    assert!(*best < SOON, "{what}: never sooner than {best:?}");
}

/// The whole time passes when the last fork on the last worker has unwound: only then the job ends.
#[test]
fn a_job_in_the_middle_of_a_parallel_computation_ends_soon() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let times: Vec<Duration> = (0..ROUNDS)
            .map(|_| {
                let done = std::sync::Arc::new(AtomicU64::new(0));
                let inside = done.clone();
                let job = runtime.spawn(move || {
                    endless(&inside, 60);
                    Ok(())
                });
                until(|| done.load(Ordering::Relaxed) > 1000);
                let began = Instant::now();
                assert!(job.cancel("enough"));
                assert!(job.join().unwrap_err().is_cancelled());
                let took = began.elapsed();
                let after = done.load(Ordering::Relaxed);
                std::thread::yield_now();
                assert_eq!(done.load(Ordering::Relaxed), after, "something still runs");
                took
            })
            .collect();
        assert_soon(&format!("{workers} workers"), &times);
        end(&runtime);
    }
}

/// The body is part of a thread that is no worker; its forks run on the global pool.
#[test]
fn a_scope_on_an_outside_thread_ends_soon() {
    let _watch = watch();
    let times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            cancel_from_beside(|body| {
                nursery(|n| {
                    body(n.job());
                    Ok(())
                })
            })
        })
        .collect();
    assert_soon("an outside thread", &times);
}

/// The same with a runtime of one's own, whose pool is not the one that an outside thread forks on.
#[test]
fn a_scope_of_another_runtime_on_an_outside_thread_ends_soon() {
    let _watch = watch();
    let runtime = runtime(2);
    let times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            cancel_from_beside(|body| {
                runtime.nursery(|n| {
                    body(n.job());
                    Ok(())
                })
            })
        })
        .collect();
    assert_soon("an outside thread, a runtime of its own", &times);
    end(&runtime);
}

/// Opens a scope by `open` whose body computes for ever, cancels it from another thread and says how long it took.
fn cancel_from_beside(
    open: impl FnOnce(&mut dyn FnMut(&Job)) -> jobtree_runtime::Outcome<()>,
) -> Duration {
    let done = AtomicU64::new(0);
    let is_known = OnceLatch::new();
    let scope = std::sync::Mutex::new(None::<Job>);
    std::thread::scope(|threads| {
        let canceller = threads.spawn(|| {
            is_known.wait();
            until(|| done.load(Ordering::Relaxed) > 1000);
            let job = scope.lock().unwrap().take().unwrap();
            let began = Instant::now();
            assert!(job.cancel("enough"));
            began
        });
        let outcome = open(&mut |job| {
            *scope.lock().unwrap() = Some(job.clone());
            is_known.set();
            endless(&done, 60);
        });
        let ended = Instant::now();
        assert!(outcome.unwrap_err().is_cancelled());
        ended.duration_since(canceller.join().unwrap())
    })
}

/// A job that is parked deep inside of forks is woken by its cancellation.
#[test]
fn a_job_that_waits_inside_of_forks_ends_soon() {
    fn wait_below(waiting: &AtomicBool, depth: u32) {
        if depth == 0 {
            waiting.store(true, Ordering::Release);
            let _ = jobtree_runtime::sleep(Duration::MAX);
            return;
        }
        join(|| wait_below(waiting, depth - 1), || ());
    }
    let _watch = watch();
    let runtime = runtime(2);
    let times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let waiting = std::sync::Arc::new(AtomicBool::new(false));
            let inside = waiting.clone();
            let job = runtime.spawn(move || {
                wait_below(&inside, 10);
                Ok(())
            });
            until(|| waiting.load(Ordering::Acquire));
            let began = Instant::now();
            assert!(job.cancel("enough"));
            assert!(job.join().unwrap_err().is_cancelled());
            began.elapsed()
        })
        .collect();
    assert_soon("parked inside of forks", &times);
    end(&runtime);
}
