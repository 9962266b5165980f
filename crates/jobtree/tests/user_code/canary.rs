//! Checks that the library still works: threads that died, locks that stayed taken and lost workers show here.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jobtree::{
    Dispatcher, Runtime, channel, future, join, nursery, par, scope, sleep, with_timeout,
};

/// Checks the global runtime, the calling thread, and a new runtime.
pub fn check_everything() {
    sleep(Duration::from_millis(1)).expect("the calling thread belongs to no cancelled job");
    assert_eq!(join(|| 1, || 2), (1, 2));
    check_runtime(Runtime::global());
    let fresh = Runtime::builder().workers(2).build().unwrap();
    check_runtime(&fresh);
    fresh.shutdown(Duration::from_secs(5)).unwrap();
}

/// Checks that a runtime runs jobs, forks, futures and timers, and that its jobs can wait and be cancelled.
pub fn check_runtime(runtime: &Runtime) {
    assert_eq!(runtime.spawn(|| Ok(1)).join().unwrap(), 1);
    let slept = runtime.spawn(|| Ok(sleep(Duration::from_millis(1))?));
    slept.join().unwrap();
    let timed_out = runtime.spawn(|| {
        let limited = with_timeout(Duration::from_millis(1), || Ok(sleep(Duration::MAX)?));
        Ok(limited.is_err_and(|error| error.is_timed_out()))
    });
    assert!(timed_out.join().unwrap());
    let sum = runtime.spawn(|| {
        let squares = par::map(0..1000_u64, |number| number * number);
        Ok(squares.iter().sum::<u64>())
    });
    assert_eq!(sum.join().unwrap(), 332_833_500);
    let tasks = AtomicUsize::new(0);
    let outcome = runtime.nursery(|n| {
        let (sender, receiver) = channel::bounded(1);
        n.launch(move || Ok(sender.send(7)?));
        n.launch(|| {
            let task = || tasks.fetch_add(1, Ordering::Relaxed);
            scope(|s| {
                (0..4).for_each(|_| {
                    s.spawn(|_| {
                        task();
                    })
                })
            });
            Ok(())
        });
        let late = n.spawn_future(async {
            future::sleep(Duration::from_millis(1)).await?;
            Ok(1)
        });
        Ok((receiver.recv()?, late.join()?))
    });
    assert_eq!((outcome.unwrap(), tasks.into_inner()), ((7, 1), 4));
    let cancelled = runtime.spawn(|| Ok(sleep(Duration::MAX)?));
    cancelled.cancel("the canary is done");
    assert!(cancelled.join().unwrap_err().is_cancelled());
    let blocking = runtime.spawn(|| {
        let answer = nursery(|n| {
            Ok(n.job_options()
                .on(&Dispatcher::io())
                .spawn(|| Ok(1))
                .join()?)
        })?;
        Ok(answer)
    });
    assert_eq!(blocking.join().unwrap(), 1);
}
