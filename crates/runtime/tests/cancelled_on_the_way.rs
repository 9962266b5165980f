//! A job that is cancelled between its way out of a queue and its first instruction: it never runs, and all hear of its
//! end.

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};

use jobtree_pool::OnceLatch;
use jobtree_runtime::{Job, JobState, checkpoint};
use support::{Census, end, rounds, runtime, until, watch};

/// A little work that the compiler does not see through.
fn spin(turns: usize) {
    for _ in 0..turns {
        std::hint::spin_loop();
    }
}

/// What came of a job that was cancelled while it was on its way.
#[derive(Default)]
struct Fates {
    ran: usize,
    in_queue: usize,
    /// A worker had it in its hands, and had not begun with it.
    between: usize,
}

/// A simulation can stop a worker right there. Whether it has is seen by the count of steals: there is one job to steal.
#[cfg(all(unix, not(miri)))]
#[test]
fn a_job_cancelled_between_dequeue_and_run_never_runs_and_its_nursery_ends() {
    let _watch = watch();
    for is_future in [false, true] {
        let fates = Mutex::new(Fates::default());
        jobtree_runtime::sim::check(0..1_000, |rt| {
            let census = Census::default();
            let ran = AtomicBool::new(false);
            let mut was_pending_and_taken = None;
            rt.nursery(|n| {
                let before = rt.statistics().steals;
                let (inside, ran) = (census.value(), &ran);
                let child = if is_future {
                    n.spawn_future(async move {
                        ran.store(true, Ordering::Relaxed);
                        drop(inside);
                        Ok(())
                    })
                } else {
                    n.spawn(move || {
                        ran.store(true, Ordering::Relaxed);
                        drop(inside);
                        Ok(())
                    })
                };
                for _ in 0..3 {
                    checkpoint()?;
                }
                // Nothing comes between this look and the cancellation.
                let is_pending = child.job().state() == JobState::Pending;
                let is_taken = rt.statistics().steals > before;
                was_pending_and_taken = Some((is_pending, is_taken));
                assert_eq!(is_pending, !ran.load(Ordering::Relaxed));
                assert_eq!(
                    child.cancel("on its way"),
                    !child.is_finished() || is_pending
                );
                Ok(())
            })?;
            // All that was to be ended has; and what was not begun then was never begun.
            census.assert_all_gone(1);
            let (was_pending, was_taken) = was_pending_and_taken.unwrap();
            assert_eq!(ran.into_inner(), !was_pending);
            let mut fates = fates.lock().unwrap();
            match (was_pending, was_taken) {
                (false, _) => fates.ran += 1,
                (true, false) => fates.in_queue += 1,
                (true, true) => fates.between += 1,
            }
            Ok(())
        });
        let Fates {
            ran,
            in_queue,
            between,
        } = fates.into_inner().unwrap();
        println!("{ran} ran, {in_queue} were in a queue, {between} in a worker's hands");
        assert!(ran > 0 && in_queue > 0 && between > 20);
    }
}

/// The same on threads, where nobody knows how far the job has come: it runs and has a value, or it is cancelled; and
/// what it holds is dropped once.
#[test]
fn a_job_cancelled_on_its_way_to_a_worker_is_ended_once() {
    let _watch = watch();
    let runtime = runtime(2);
    let (census, start) = (Census::default(), Barrier::new(2));
    let (start, census) = (&start, &census);
    let total = if cfg!(miri) { 10 } else { rounds(2_000) };
    let mut never_ran = 0;
    std::thread::scope(|threads| {
        let (to_canceller, jobs) = std::sync::mpsc::channel::<Job>();
        threads.spawn(move || {
            for (round, job) in jobs.iter().enumerate() {
                start.wait();
                spin(round % 11 * 10);
                job.cancel("on its way");
            }
        });
        for round in 0..total {
            let ran = AtomicBool::new(false);
            let mut known = None;
            let outcome = runtime.nursery(|n| {
                let (inside, ran) = (census.value(), &ran);
                let body = move || {
                    ran.store(true, Ordering::Relaxed);
                    Ok(inside)
                };
                let child = if round.is_multiple_of(2) {
                    n.spawn(body)
                } else {
                    n.spawn_future(async move { body() })
                };
                to_canceller.send(child.job().clone())?;
                start.wait();
                known = Some(child.job().clone());
                Ok(child.join().is_ok())
            });
            let (has_value, ran) = (outcome.unwrap(), ran.into_inner());
            let expected = if has_value {
                JobState::Completed
            } else {
                JobState::Cancelled
            };
            assert_eq!(known.unwrap().state(), expected);
            assert!(ran || !has_value);
            never_ran += usize::from(!ran);
            until(|| census.dropped() == round + 1);
        }
        drop(to_canceller);
    });
    println!("{never_ran} of {total} never ran");
    census.assert_all_gone(total);
    end(&runtime);
}

/// A worker that is busy has a queue full of jobs; cancelled there, all of them end, and none runs.
#[test]
fn jobs_cancelled_in_the_queue_of_a_busy_worker_end_and_never_run() {
    let _watch = watch();
    let runtime = runtime(1);
    let (begun, release) = (OnceLatch::new(), OnceLatch::new());
    let (begun, release) = (&begun, &release);
    let (census, ran) = (Census::default(), AtomicUsize::new(0));
    let outcome = runtime.nursery(|n| {
        n.launch(move || {
            begun.set();
            // Keeps the thread, not only the stack.
            while !release.is_set() {
                std::thread::yield_now();
            }
            Ok(())
        });
        begun.wait();
        for _ in 0..10_000 {
            let (inside, ran) = (census.value(), &ran);
            n.launch(move || {
                ran.fetch_add(1, Ordering::Relaxed);
                drop(inside);
                Ok(())
            });
        }
        n.cancel("none of it");
        release.set();
        Ok(())
    });
    assert!(outcome.unwrap_err().is_cancelled());
    assert_eq!(ran.into_inner(), 0);
    census.assert_all_gone(10_000);
    end(&runtime);
}
