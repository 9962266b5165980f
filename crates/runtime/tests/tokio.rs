//! Beside another runtime: jobs are awaited by its tasks, and jobs wait for its tasks.

mod support;

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use jobtree_pool::OnceLatch;
use jobtree_runtime::{Cause, JobError, JobState, Runtime, block_on, nursery};
use support::{Census, FAR, end, for_ever, runtime, until, until_it_waits, watch};

fn tokio_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap()
}

async fn compute(runtime: &Runtime, number: u64) -> Result<u64, JobError> {
    runtime.spawn(move || Ok((1..=number).sum())).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_await_jobs() {
    let _watch = watch();
    let runtime = Arc::new(runtime(2));
    let tasks: Vec<_> = (0..200)
        .map(|number| {
            let runtime = Arc::clone(&runtime);
            tokio::spawn(async move { compute(&runtime, number).await })
        })
        .collect();
    for (number, task) in tasks.into_iter().enumerate() {
        let number = number as u64;
        assert_eq!(task.await.unwrap().unwrap(), number * (number + 1) / 2);
    }
    let failing = runtime.spawn(|| Err::<(), _>("broke".into()));
    assert!(matches!(failing.await, Err(JobError::Failed(_))));
    let panicking = runtime.spawn(|| -> Result<(), _> { panic!("on purpose") });
    assert!(matches!(panicking.await, Err(JobError::Panicked(_))));
    tokio::task::spawn_blocking(move || end(&runtime))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_is_one_branch_of_a_select() {
    let _watch = watch();
    let runtime = runtime(2);
    let release = Arc::new(OnceLatch::new());
    let wait = release.clone();
    let mut handle = runtime.spawn(move || {
        wait.wait();
        Ok(42)
    });
    // Polled and given up several times, with other wakers.
    for _ in 0..3 {
        tokio::select! {
            outcome = &mut handle => panic!("{outcome:?}"),
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
    }
    let waiter = tokio::spawn(handle);
    release.set();
    assert_eq!(waiter.await.unwrap().unwrap(), 42);
    tokio::task::spawn_blocking(move || end(&runtime))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_is_aborted_cancels_its_job_if_it_was_asked_to() {
    let _watch = watch();
    let runtime = runtime(2);
    let handle = runtime.spawn(for_ever::<()>);
    let job = handle.job().clone();
    let task = tokio::spawn(handle.cancel_on_drop());
    tokio::task::yield_now().await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    job.ended().await;
    assert_eq!(job.state(), JobState::Cancelled);
    let reason = job.cancellation().unwrap();
    assert_eq!(reason.reason().cause(), Cause::Abandoned);
    // A future that is dropped before it was polled, too.
    let handle = runtime.spawn(for_ever::<()>);
    let job = handle.job().clone();
    drop(handle.cancel_on_drop());
    job.ended().await;
    assert_eq!(job.state(), JobState::Cancelled);
    // But one that was awaited to its end has nothing to cancel.
    let handle = runtime.spawn(|| Ok(42));
    let job = handle.job().clone();
    assert_eq!(handle.cancel_on_drop().await.unwrap(), 42);
    assert_eq!(job.state(), JobState::Completed);
    tokio::task::spawn_blocking(move || end(&runtime))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_is_aborted_leaves_its_job_alone_otherwise() {
    let _watch = watch();
    let runtime = runtime(2);
    let release = Arc::new(OnceLatch::new());
    let wait = release.clone();
    let handle = runtime.spawn(move || {
        wait.wait();
        Ok(())
    });
    let job = handle.job().clone();
    let task = tokio::spawn(handle);
    tokio::task::yield_now().await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert!(!job.is_cancelled());
    release.set();
    job.ended().await;
    assert_eq!(job.state(), JobState::Completed);
    tokio::task::spawn_blocking(move || end(&runtime))
        .await
        .unwrap();
}

#[test]
fn jobs_wait_for_tasks() {
    let _watch = watch();
    let tokio = tokio_runtime();
    let runtime = runtime(1);
    let total = runtime.nursery(|n| {
        // More of them than workers: whoever waits parks its stack only.
        let handles: Vec<_> = (0..50_u64)
            .map(|number| {
                let task = tokio.spawn(async move {
                    tokio::time::sleep(Duration::from_micros(100)).await;
                    number
                });
                n.spawn(move || Ok(block_on(task)??))
            })
            .collect();
        let mut total = 0;
        for handle in handles {
            total += handle.join()?;
        }
        Ok(total)
    });
    assert_eq!(total.unwrap(), 49 * 50 / 2);
    end(&runtime);
}

/// The future is polled where the job runs: it needs the other runtime's timers, so that is entered first.
#[test]
fn a_job_can_drive_a_future_that_needs_the_other_runtime() {
    let _watch = watch();
    let tokio = tokio_runtime();
    let outcome = nursery(|n| {
        let child = n.spawn(|| {
            let timer = {
                let _entered = tokio.enter();
                tokio::time::sleep(Duration::from_millis(1))
            };
            Ok(block_on(timer)?)
        });
        Ok(child.join()?)
    });
    outcome.unwrap();
}

#[test]
fn a_cancelled_job_stops_waiting_for_a_task_and_drops_its_handle() {
    let _watch = watch();
    let tokio = tokio_runtime();
    let runtime = runtime(2);
    let census = Census::default();
    let (value, in_task) = (census.value(), census.value());
    let task = tokio.spawn(async move {
        let _in_task = in_task;
        pending::<()>().await;
    });
    let abort = task.abort_handle();
    let job = runtime.spawn(move || {
        // Dropped with the wait; the task itself is tokio's, which detaches it.
        let awaited = async move {
            let _value = value;
            task.await
        };
        Ok(block_on(awaited)??)
    });
    until_it_waits(job.job());
    assert!(job.cancel("no longer needed"));
    assert!(job.join().unwrap_err().is_cancelled());
    assert_eq!(census.dropped(), 1);
    assert!(!abort.is_finished());
    abort.abort();
    until(|| census.dropped() == 2);
    end(&runtime);
}

#[test]
fn a_scope_on_the_other_runtimes_thread_waits_for_its_children() {
    let _watch = watch();
    let tokio = tokio_runtime();
    let sum = tokio.block_on(async {
        let blocking = tokio::task::spawn_blocking(|| {
            let numbers = [1, 2, 3];
            nursery(|n| {
                let handles: Vec<_> = numbers.iter().map(|v| n.spawn(move || Ok(v * 2))).collect();
                let mut sum = 0;
                for handle in handles {
                    sum += handle.join()?;
                }
                Ok(sum)
            })
        });
        blocking.await.unwrap()
    });
    assert_eq!(sum.unwrap(), 12);
    tokio.shutdown_timeout(FAR);
}

/// Nothing can be entered on a thread whose locals are gone. A future that was kept in one of them is dropped all the same.
#[cfg(feature = "tokio")]
#[test]
fn a_future_inside_a_runtime_may_be_dropped_with_its_thread() {
    use jobtree_runtime::tokio::{Inside, inside};
    use std::cell::RefCell;
    use std::future::Pending;
    use std::sync::mpsc;

    struct Dropped(mpsc::Sender<()>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
        }
    }
    async fn keeps(_dropped: Dropped) {
        let never: Pending<()> = pending();
        never.await;
    }
    type Kept = Box<Inside<std::pin::Pin<Box<dyn Future<Output = ()> + Send>>>>;
    thread_local! {
        static KEPT: RefCell<Option<Kept>> = const { RefCell::new(None) };
    }
    let tokio = tokio_runtime();
    let (dropped, was_dropped) = mpsc::channel();
    let handle = tokio.handle().clone();
    let thread = std::thread::spawn(move || {
        // Before tokio's own local is first used, so that it is dropped after that.
        KEPT.with_borrow_mut(|kept| {
            *kept = Some(Box::new(inside(&handle, Box::pin(keeps(Dropped(dropped))))));
        });
        drop(handle.enter());
    });
    thread.join().unwrap();
    was_dropped.recv().unwrap();
}
