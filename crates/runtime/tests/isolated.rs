//! Jobs inside `isolate`: the scope around them ends also on a pool's only worker, which may run nothing else meanwhile.
#![cfg(not(miri))]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jobtree_pool::{broadcast, isolate};
use jobtree_runtime::{Runtime, channel, future, nursery, sleep};

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
