//! Futures of async scopes that are polled by a job, and then kept by code that outlives it.

mod support;

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use jobtree_runtime::{BoxError, JobError, JobState, Outcome, Runtime, future, sleep};
use support::{end, runtime, until, watch};

const LONG: Duration = Duration::from_secs(3600);

type Kept = Pin<Box<dyn Future<Output = Outcome<()>> + Send>>;

fn poll(future: &mut Kept) -> Poll<Outcome<()>> {
    future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls `kept` once, in a job that then ends; checks that the next poll is ready with a cancellation.
fn check(runtime: &Runtime, mut kept: Kept) {
    let polled_once = poll_fn(|context| {
        assert!(kept.as_mut().poll(context).is_pending());
        Poll::Ready(())
    });
    runtime.block_on(polled_once).unwrap();
    match poll(&mut kept) {
        Poll::Ready(Err(JobError::Cancelled(_))) => {}
        Poll::Ready(other) => panic!("{other:?}"),
        Poll::Pending => panic!("the job of the scope has ended, and the scope has not"),
    }
}

async fn forever() -> Result<(), BoxError> {
    let () = pending().await;
    Ok(())
}

#[test]
fn a_scope_that_is_kept_and_not_polled_does_not_keep_its_job() {
    let _watch = watch();
    let runtime = runtime(1);
    check(&runtime, Box::pin(future::with_timeout(LONG, forever())));
    check(&runtime, Box::pin(future::shield(LONG, forever())));
    check(
        &runtime,
        Box::pin(future::nursery(async |_| forever().await)),
    );
    check(
        &runtime,
        Box::pin(future::supervisor(async |_| forever().await)),
    );
    let nested = future::nursery(async |_| {
        Ok(future::shield(LONG, async {
            Ok(future::with_timeout(LONG, forever()).await?)
        })
        .await?)
    });
    check(&runtime, Box::pin(nested));
    // Dropped or forgotten afterwards, it is gone, too.
    let mut dropped: Kept = Box::pin(future::with_timeout(LONG, forever()));
    let mut forgotten: Kept = Box::pin(future::nursery(async |_| forever().await));
    let once = poll_fn(|context| {
        assert!(dropped.as_mut().poll(context).is_pending());
        Poll::Ready(forgotten.as_mut().poll(context).is_pending())
    });
    assert!(runtime.block_on(once).unwrap());
    drop(dropped);
    std::mem::forget(forgotten);
    assert!(runtime.root().children().is_empty());
    end(&runtime);
}

#[test]
fn the_jobs_of_a_kept_scope_are_cancelled_and_waited_for() {
    const JOBS: usize = 10;
    let _watch = watch();
    let runtime = runtime(2);
    let (begun, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (begun.clone(), ended.clone());
    let mut kept: Kept = Box::pin(future::nursery(async move |n| {
        for _ in 0..JOBS {
            let (begun, ended) = counts.clone();
            n.launch(move || {
                begun.fetch_add(1, Ordering::SeqCst);
                let slept = sleep(LONG);
                ended.fetch_add(1, Ordering::SeqCst);
                Ok(slept?)
            });
        }
        forever().await
    }));
    let until_all_have_begun = poll_fn(|context| {
        assert!(kept.as_mut().poll(context).is_pending());
        if begun.load(Ordering::SeqCst) == JOBS {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    });
    runtime.block_on(until_all_have_begun).unwrap();
    assert_eq!(ended.load(Ordering::SeqCst), JOBS);
    assert!(matches!(
        poll(&mut kept),
        Poll::Ready(Err(JobError::Cancelled(_)))
    ));
    end(&runtime);
}

#[test]
fn a_scope_that_is_polled_elsewhere_when_its_job_returns_ends_with_that_poll() {
    let _watch = watch();
    let runtime = runtime(1);
    let (to_other, from_job) = mpsc::channel::<(Kept, jobtree_runtime::Job)>();
    let other = std::thread::spawn(move || {
        let (mut kept, above) = from_job.recv().unwrap();
        let polled = poll(&mut kept);
        assert!(
            matches!(polled, Poll::Ready(Err(JobError::Cancelled(_)))),
            "{polled:?}"
        );
        until(|| above.is_ended());
    });
    let (begun, is_begun) = mpsc::channel();
    let handle = runtime.spawn_future(async move {
        let above = jobtree_runtime::Job::current().unwrap();
        let outer = above.clone();
        let mut polls = 0;
        let body = poll_fn(move |_| {
            polls += 1;
            if polls == 2 {
                begun.send(()).unwrap();
                until(|| outer.state() == JobState::Completing);
            }
            Poll::<Result<(), BoxError>>::Pending
        });
        let mut kept: Kept = Box::pin(future::with_timeout(LONG, body));
        let once = poll_fn(|context| Poll::Ready(kept.as_mut().poll(context).is_pending()));
        assert!(once.await);
        to_other.send((kept, above)).unwrap();
        // Not before it is being polled there.
        is_begun.recv().unwrap();
        Ok(())
    });
    handle.join().unwrap();
    other.join().unwrap();
    end(&runtime);
}

#[cfg(unix)]
#[test]
fn a_shutdown_keeps_its_limit_and_names_a_scope_that_no_job_has_polled() {
    let ended = support::child::run_in_child(0, Duration::from_secs(60), || {
        // Outside of jobs it is under the root of the global runtime.
        let mut kept: Kept = Box::pin(future::shield(LONG, forever()));
        assert!(poll(&mut kept).is_pending());
        let error = Runtime::global().shutdown(Duration::from_millis(20));
        let error = error.expect_err("the shield has not ended").to_string();
        assert!(error.contains("shield"), "{error}");
        // Its executor drops it, or polls it again.
        drop(kept);
        end(Runtime::global());
    });
    ended.assert_success();
}
