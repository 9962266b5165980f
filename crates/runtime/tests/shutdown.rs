//! The end of a runtime: everything is cancelled and waited for, and what does not listen is named.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use jobtree_pool::{CountLatch, OnceLatch};
use jobtree_runtime::{
    BoxError, Cause, Job, JobState, Nursery, Runtime, checkpoint, nursery, shield, sleep,
};
use support::{Census, FAR, end, for_ever, rounds, runtime, until, until_it_waits, watch};

const TINY: Duration = Duration::from_millis(1);

#[test]
fn shutdown_cancels_everything_and_waits() {
    let _watch = watch();
    let runtime = runtime(2);
    let cleaned_up = Arc::new(AtomicUsize::new(0));
    let all_run = Arc::new(CountLatch::new(10));
    let jobs: Vec<Job> = (0..10)
        .map(|number| {
            let (cleaned_up, running) = (cleaned_up.clone(), all_run.clone());
            let job = runtime.spawn(move || {
                running.count_down();
                let ended = if number % 2 == 0 {
                    for_ever()
                } else {
                    nursery(|n| Ok(n.spawn(for_ever::<()>).join()?)).map_err(BoxError::from)
                };
                cleaned_up.fetch_add(1, Ordering::Relaxed);
                ended
            });
            job.job().clone()
        })
        .collect();
    all_run.wait();
    runtime.shutdown(FAR).unwrap();
    assert_eq!(cleaned_up.load(Ordering::Relaxed), 10);
    assert!(jobs.iter().all(|job| job.state() == JobState::Cancelled));
    assert_eq!(runtime.root().state(), JobState::Cancelled);
    assert!(runtime.dump_tree().jobs().len() == 1);
}

#[test]
fn an_idle_runtime_ends_at_once() {
    let _watch = watch();
    let runtime = runtime(2);
    runtime.shutdown(FAR).unwrap();
    assert_eq!(runtime.root().state(), JobState::Cancelled);
}

#[test]
fn a_job_that_ignores_cancellation_is_named_and_left_alone() {
    let _watch = watch();
    let runtime = runtime(2);
    let (begun, release) = (Arc::new(OnceLatch::new()), Arc::new(OnceLatch::new()));
    let (is_begun, wait) = (begun.clone(), release.clone());
    let program = runtime.spawn(move || {
        nursery(|n| {
            n.job_options().label("deaf").launch(move || {
                is_begun.set();
                wait.wait();
                Ok(())
            });
            n.job_options().label("good").launch(for_ever);
            Ok(())
        })?;
        Ok(())
    });
    begun.wait();
    let error = runtime.shutdown(Duration::from_millis(20)).unwrap_err();
    let stragglers = error.stragglers();
    assert_eq!(stragglers.len(), 1, "{stragglers:?}");
    assert!(stragglers[0].starts_with("root/"), "{stragglers:?}");
    assert!(stragglers[0].ends_with("/deaf"), "{stragglers:?}");
    assert!(error.to_string().contains("/deaf"), "{error}");
    // It goes on on its thread; when it has ended, the runtime can end.
    assert!(!program.is_finished());
    release.set();
    assert!(program.join().unwrap_err().is_cancelled());
    runtime.shutdown(FAR).unwrap();
}

/// A job cannot wait for its own end. It hears of that at once, whatever the limit is, and is asked to end like all
/// others.
#[test]
fn shutdown_from_inside_of_a_job_is_an_error_and_does_not_hang() {
    let _watch = watch();
    let runtime = runtime(2);
    let inside = runtime.clone();
    let job = runtime.spawn(move || {
        let result = inside.shutdown(Duration::from_millis(20));
        assert!(checkpoint().is_err());
        assert!(result.unwrap_err().stragglers().len() == 1);
        Ok(())
    });
    assert!(job.join().unwrap_err().is_cancelled());
    runtime.shutdown(FAR).unwrap();
}

#[test]
fn shutdown_from_inside_of_a_job_does_not_wait_for_that_job() {
    let _watch = watch();
    let runtime = runtime(2);
    let inside = runtime.clone();
    // Not for ever, so that the test ends if it should wait.
    let limit = Duration::from_secs(5);
    let (sender, took) = channel();
    let job = runtime.spawn(move || {
        let began = Instant::now();
        let result = inside.shutdown(limit);
        sender.send((result.is_err(), began.elapsed()))?;
        Ok(())
    });
    assert!(job.join().unwrap_err().is_cancelled());
    let (is_error, took) = took.recv().unwrap();
    assert!(is_error);
    assert!(took < limit, "it waited for itself");
    runtime.shutdown(FAR).unwrap();
}

#[test]
fn a_job_spawned_after_the_shutdown_is_born_cancelled() {
    let _watch = watch();
    let runtime = runtime(2);
    runtime.shutdown(FAR).unwrap();
    let census = Census::default();
    let value = census.value();
    let late = runtime.spawn(move || Ok(value));
    assert!(late.is_finished());
    assert_eq!(late.job().state(), JobState::Cancelled);
    census.assert_all_gone(1);
    assert!(late.join().unwrap_err().is_cancelled());
}

#[test]
fn a_scope_opened_after_the_shutdown_is_an_error() {
    let _watch = watch();
    let runtime = runtime(2);
    runtime.shutdown(FAR).unwrap();
    let ran = AtomicBool::new(false);
    let body = |_: &Nursery<'_, '_>| -> Result<(), BoxError> {
        ran.store(true, Ordering::Relaxed);
        Ok(())
    };
    for outcome in [runtime.nursery(body), runtime.supervisor(body)] {
        let error = outcome.unwrap_err();
        assert!(error.is_cancelled(), "{error:?}");
        assert!(error.to_string().contains("the runtime ends"), "{error}");
    }
    assert!(!ran.load(Ordering::Relaxed));
}

/// Between the cancellation and the end of the root, and at the very moment of its end.
#[test]
fn spawning_races_with_the_shutdown() {
    let _watch = watch();
    for round in 0..rounds(30) {
        let runtime = runtime(1);
        let census = Census::default();
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    loop {
                        let value = census.value();
                        let job = runtime.spawn(move || {
                            drop(value);
                            Ok(())
                        });
                        let was_cancelled = job.join().is_err();
                        let scope = runtime.nursery(|n| {
                            n.launch(|| Ok(()));
                            Ok(())
                        });
                        if was_cancelled && scope.is_err() {
                            return;
                        }
                    }
                });
            }
            for _ in 0..round % 10 {
                std::thread::yield_now();
            }
            runtime.shutdown(FAR).unwrap();
        });
        until(|| census.made() == census.dropped());
    }
}

#[test]
fn two_shutdowns_are_one() {
    let _watch = watch();
    let runtime = runtime(2);
    let job = runtime.spawn(for_ever::<()>);
    std::thread::scope(|threads| {
        let both = [(); 2].map(|()| threads.spawn(|| runtime.shutdown(FAR)));
        for one in both {
            one.join().unwrap().unwrap();
        }
    });
    runtime.shutdown(FAR).unwrap();
    assert!(job.join().unwrap_err().is_cancelled());
}

#[test]
fn a_shield_may_hold_up_the_shutdown_for_its_limit_only() {
    let _watch = watch();
    let runtime = runtime(2);
    let (sender, seen) = channel();
    let job = runtime.spawn(move || {
        // Tidies up when it is cancelled, and one that never ends tidying up.
        assert!(sleep(FAR).is_err());
        let tidy = shield(FAR, || Ok(sleep(TINY)?));
        let endless = shield(TINY, for_ever::<()>);
        sender.send((tidy.is_ok(), endless.unwrap_err().is_timed_out()))?;
        Ok(())
    });
    until_it_waits(job.job());
    runtime.shutdown(FAR).unwrap();
    assert_eq!(seen.recv().unwrap(), (true, true));
}

#[test]
fn dropping_the_runtime_cancels_its_jobs() {
    let _watch = watch();
    let runtime = runtime(2);
    let job = runtime.spawn(for_ever::<()>);
    let clone = runtime.clone();
    drop(runtime);
    // A clone is the same runtime.
    assert!(!job.job().is_cancelled());
    drop(clone);
    assert!(job.job().is_cancelled());
    assert!(job.join().unwrap_err().is_cancelled());
}

/// A scope that is open inside of a job does not keep the runtime.
#[test]
fn dropping_the_runtime_cancels_jobs_that_wait_in_scopes() {
    let _watch = watch();
    let runtime = runtime(2);
    let job = runtime.spawn(|| Ok(nursery(|n| Ok(n.spawn(for_ever::<()>).join()?))?));
    until(|| {
        job.job()
            .children()
            .pop()
            .is_some_and(|scope| scope.waiting_for().is_some())
    });
    drop(runtime);
    let is_cancelled = job.job().is_cancelled();
    // So that the test ends in any case.
    job.cancel("not by the runtime");
    assert!(job.join().is_err());
    assert!(is_cancelled);
}

/// What a job of a dropped runtime opens belongs to it as before: not to the global runtime, where nobody would have
/// cancelled it.
#[test]
fn a_job_of_a_dropped_runtime_cannot_escape_its_cancellation() {
    let _watch = watch();
    let runtime = runtime(2);
    let (begun, dropped) = (Arc::new(OnceLatch::new()), Arc::new(OnceLatch::new()));
    let (is_begun, wait) = (begun.clone(), dropped.clone());
    let (sender, seen) = channel();
    let job = runtime.spawn(move || {
        is_begun.set();
        wait.wait();
        assert!(checkpoint().is_err());
        sender.send(nursery(|_| Ok(checkpoint().is_ok())))?;
        Ok(())
    });
    begun.wait();
    drop(runtime);
    dropped.set();
    assert!(job.join().unwrap_err().is_cancelled());
    let escaped = seen.recv().unwrap();
    assert!(
        escaped.as_ref().is_err_and(|error| error.is_cancelled()),
        "{escaped:?}"
    );
}

#[test]
fn the_reason_of_a_shutdown_is_known_to_the_jobs() {
    let _watch = watch();
    let runtime = runtime(1);
    let (sender, seen) = channel();
    let job = runtime.spawn(move || {
        let cancelled = sleep(FAR).unwrap_err();
        Ok(sender.send(cancelled.reason().cause())?)
    });
    until_it_waits(job.job());
    end(&runtime);
    assert_eq!(seen.recv().unwrap(), Cause::Shutdown);
}

/// Shuts its runtime down when it is dropped.
struct ShutsDown(Runtime, Sender<bool>);

impl Drop for ShutsDown {
    fn drop(&mut self) {
        let _ = self
            .1
            .send(self.0.shutdown(Duration::from_secs(60)).is_err());
    }
}

#[test]
fn a_destructor_that_a_job_ends_with_cannot_shut_down_and_is_told_so() {
    let _watch = watch();
    let runtime = runtime(2);
    let (sender, receiver) = channel();
    let (go, value) = (
        Arc::new(OnceLatch::new()),
        ShutsDown(runtime.clone(), sender),
    );
    let told = go.clone();
    let handle = runtime.spawn(move || {
        told.wait();
        Ok(value)
    });
    drop(handle);
    go.set();
    assert!(
        receiver.recv().unwrap(),
        "it has not ended what it is part of"
    );
    end(&runtime);
}
