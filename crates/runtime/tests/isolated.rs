//! Jobs inside `isolate`: the scope around them ends also on a pool's only worker, which may run nothing else meanwhile.
#![cfg(not(miri))]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jobtree_pool::{OnceLatch, broadcast, isolate, join, scope};
use jobtree_runtime::{Dispatcher, JobError, Runtime, channel, future, nursery, sim, sleep};

use support::{runtime, watch};

/// Runs `body` as a job.
fn on(runtime: &Runtime, body: impl FnOnce() + Send + 'static) {
    let job = runtime.spawn(move || {
        body();
        Ok(())
    });
    job.join().unwrap();
}

#[test]
fn a_nursery_inside_with_futures_that_yield_and_sleep_ends() {
    let _watch = watch();
    for workers in [1, 3] {
        let runtime = runtime(workers);
        on(&runtime, move || {
            let stranger_ran = AtomicBool::new(false);
            nursery(|n| {
                isolate(|| {
                    let _job = n.spawn(|| {
                        stranger_ran.store(true, Ordering::Relaxed);
                        Ok(())
                    });
                    nursery(|inside| {
                        for _ in 0..4 {
                            let _job = inside.spawn_future(async {
                                for _ in 0..20 {
                                    future::yield_now().await;
                                }
                                future::sleep(Duration::from_millis(5)).await?;
                                Ok(())
                            });
                            let _job = inside.spawn(|| {
                                sleep(Duration::from_millis(5))?;
                                nursery(|deeper| {
                                    let _job = deeper.spawn_future(async {
                                        future::sleep(Duration::from_millis(5)).await?;
                                        Ok(())
                                    });
                                    Ok(())
                                })?;
                                Ok(())
                            });
                        }
                        Ok(())
                    })
                    .unwrap();
                    if workers == 1 {
                        assert!(!stranger_ran.load(Ordering::Relaxed), "it was isolated");
                    }
                });
                Ok(())
            })
            .unwrap();
        });
    }
}

#[test]
fn a_channel_between_jobs_inside_works() {
    let _watch = watch();
    let runtime = runtime(1);
    on(&runtime, move || {
        isolate(|| {
            nursery(|n| {
                let (sender, receiver) = channel::bounded(1);
                let _job = n.spawn_future(async move {
                    for number in 0..50 {
                        sender.send_async(number).await?;
                    }
                    Ok(())
                });
                let _job = n.spawn_future(async move {
                    let mut sum = 0;
                    while let Ok(number) = receiver.recv_async().await {
                        sum += number;
                    }
                    assert_eq!(sum, 49 * 50 / 2);
                    Ok(())
                });
                Ok(())
            })
            .unwrap();
        });
    });
}

#[test]
fn a_broadcast_inside_a_job_ends() {
    let _watch = watch();
    for workers in [1, 3] {
        let runtime = runtime(workers);
        on(&runtime, move || {
            nursery(|n| {
                let _job = n.spawn(|| {
                    assert_eq!(isolate(|| broadcast(|c| c.index())).len(), workers);
                    Ok(())
                });
                Ok(())
            })
            .unwrap();
        });
    }
}

/// Forks in each way: everything runs on the workers, wherever the calling code runs.
fn forks() -> usize {
    let (left, right) = join(|| 1, || 2);
    scope(|s| s.spawn(|_| ()));
    let child = nursery(|n| Ok(n.spawn(|| Ok(4)).join()?)).unwrap();
    left + right + child
}

#[test]
fn a_job_on_a_dispatcher_inside_forks_on_the_isolated_worker() {
    let _watch = watch();
    for workers in [1, 3] {
        let runtime = runtime(workers);
        on(&runtime, move || {
            let stranger_ran = AtomicBool::new(false);
            nursery(|outside| {
                isolate(|| {
                    let _job = outside.spawn(|| {
                        stranger_ran.store(true, Ordering::Relaxed);
                        Ok(())
                    });
                    for dispatcher in [Dispatcher::io(), Dispatcher::new(1).unwrap()] {
                        assert_eq!(dispatcher.run(|| Ok(forks())).unwrap(), 7);
                        // And one level deeper: from the dispatcher's thread back to the workers, and out again.
                        let nested = dispatcher.run(|| {
                            let (inner, _) = join(|| Dispatcher::io().run(|| Ok(forks())), || ());
                            Ok(inner?)
                        });
                        assert_eq!(nested.unwrap(), 7);
                    }
                    if workers == 1 {
                        assert!(!stranger_ran.load(Ordering::Relaxed), "it was isolated");
                    }
                });
                Ok(())
            })
            .unwrap();
        });
    }
}

#[test]
fn values_of_jobs_on_a_dispatcher_inside_may_fork_when_they_are_dropped() {
    struct Forks;
    impl Drop for Forks {
        fn drop(&mut self) {
            assert_eq!(forks(), 7);
        }
    }
    let _watch = watch();
    let runtime = runtime(1);
    on(&runtime, || {
        isolate(|| {
            nursery(|n| {
                drop(n.job_options().on(&Dispatcher::io()).spawn(|| Ok(Forks)));
                let captured = Forks;
                n.job_options().on(&Dispatcher::io()).launch(move || {
                    let _captured = &captured;
                    Ok(())
                });
                Ok(())
            })
            .unwrap();
        });
    });
}

#[test]
fn a_job_that_is_cancelled_in_a_dispatchers_queue_inside_ends() {
    let _watch = watch();
    let runtime = runtime(1);
    on(&runtime, || {
        let dispatcher = Dispatcher::new(1).unwrap();
        let (begun, may_end) = (OnceLatch::new(), OnceLatch::new());
        isolate(|| {
            nursery(|n| {
                let first = n.job_options().on(&dispatcher).spawn(|| {
                    begun.set();
                    may_end.wait();
                    Ok(())
                });
                begun.wait();
                let queued = n.job_options().on(&dispatcher).spawn(|| Ok(()));
                queued.cancel("not needed");
                assert!(matches!(queued.join(), Err(JobError::Cancelled(_))));
                // Only now, so that no thread was there to see the cancellation.
                may_end.set();
                first.join()?;
                Ok(())
            })
            .unwrap();
        });
    });
}

#[test]
fn a_dispatcher_inside_ends_in_a_simulation_with_one_worker() {
    let _watch = watch();
    for seed in 0..20 {
        let simulated = sim::Runtime::builder(seed).workers(1).build();
        let report = simulated.run(|_| {
            let own = Dispatcher::new(1)?;
            let run_both = || {
                let here = Dispatcher::io().run(|| Ok(forks()))?;
                Ok(here + own.run(|| Ok(forks()))?)
            };
            isolate(run_both)
        });
        assert_eq!(report.outcome.unwrap(), 14);
    }
}
