//! The cases in which two rules meet, a test for each, on real workers.

mod support;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;
use std::time::Duration;

use jobtree_pool::OnceLatch;
use jobtree_runtime::{
    Cause, Job, JobError, JobHandle, JobState, block_on, checkpoint, nursery, sleep, with_timeout,
};
use support::{Bell, FAR, end, for_ever, rounds, runtime, until, until_it_waits, watch};

#[test]
fn self_cancel() {
    let _watch = watch();
    let runtime = runtime(2);
    let job = runtime.spawn(|| {
        let own = Job::current().unwrap();
        assert!(own.cancel("by myself"));
        assert_eq!(own.state(), JobState::Cancelling);
        assert!(!own.cancel("once more"));
        assert!(checkpoint().is_err());
        // Whatever it returns, it was cancelled ...
        Ok("a value")
    });
    let handle = job.job().clone();
    assert!(job.join().unwrap_err().is_cancelled());
    assert_eq!(handle.state(), JobState::Cancelled);
    // ... unless it fails.
    let job = runtime.spawn(|| {
        Job::current().unwrap().cancel("by myself");
        Err::<(), _>("and it broke".into())
    });
    assert!(matches!(job.join(), Err(JobError::Failed(_))));
    end(&runtime);
}

/// A scope that gives itself a time ends itself, too.
#[test]
fn self_cancel_by_a_timeout_of_its_own() {
    let _watch = watch();
    let outcome = nursery(|_| {
        let inner = with_timeout(Duration::ZERO, || Ok("in no time"));
        assert!(inner.unwrap_err().is_timed_out());
        // Only the inner one: out here there is no limit.
        checkpoint()?;
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn parent_cancelled_while_a_childs_failure_is_in_flight() {
    let _watch = watch();
    let runtime = runtime(2);
    for _ in 0..rounds(50) {
        let failing = OnceLatch::new();
        let failing = &failing;
        let mut scope = None;
        let outcome = runtime.nursery(|n| {
            scope = Some(n.job().clone());
            n.launch(move || {
                failing.set();
                Err("in flight".into())
            });
            failing.wait();
            n.cancel("meanwhile");
            Ok(())
        });
        assert!(matches!(outcome, Err(JobError::Failed(_))), "{outcome:?}");
        assert_eq!(scope.unwrap().state(), JobState::Failed);
    }
    end(&runtime);
}

/// The first reason stays: there is no order among reasons by which a later one would replace it.
#[test]
fn timeout_against_explicit_cancel() {
    let _watch = watch();
    // The time is over first.
    let outcome = with_timeout(Duration::ZERO, || {
        let job = Job::current().unwrap();
        until(|| job.is_cancelled());
        assert!(!job.cancel("too late"));
        let reason = job.cancellation().unwrap().reason().clone();
        assert_eq!((reason.cause(), reason.message()), (Cause::Timeout, None));
        Ok(())
    });
    assert!(outcome.unwrap_err().is_timed_out());
    // The explicit reason comes first.
    let outcome = with_timeout(Duration::from_millis(1), || {
        let job = Job::current().unwrap();
        let deadline = job.deadline().unwrap();
        assert!(job.cancel("in time"));
        until(|| std::time::Instant::now() > deadline);
        // The thread that keeps deadlines has had its turn when a later deadline is kept.
        nursery(|_| Ok(())).unwrap_err();
        Ok(())
    });
    match outcome {
        Err(JobError::Cancelled(cancelled)) => {
            assert_eq!(cancelled.reason().cause(), Cause::Explicit);
            assert_eq!(cancelled.reason().message(), Some("in time"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn timeout_and_explicit_cancel_race_and_one_of_them_wins() {
    let _watch = watch();
    for _ in 0..rounds(20) {
        let mut asked = false;
        let outcome = with_timeout(Duration::from_millis(1), || {
            let job = Job::current().unwrap();
            let deadline = job.deadline().unwrap();
            while std::time::Instant::now() < deadline {
                std::hint::spin_loop();
            }
            asked = job.cancel("race");
            Ok(())
        });
        match outcome {
            Err(JobError::Cancelled(_)) => assert!(asked),
            Err(JobError::TimedOut(_)) => assert!(!asked),
            other => panic!("{other:?}"),
        }
    }
}

/// Decided otherwise: a detached job is in the tree, under the root. Its creator neither waits for it nor hears of
/// its failure, and cancelling the creator does not cancel it; the end of the runtime does.
#[test]
fn detached_child() {
    let _watch = watch();
    let runtime = runtime(2);
    let mut detached: Option<JobHandle<()>> = None;
    let outcome = runtime.nursery(|n| {
        detached = Some(runtime.spawn(for_ever));
        n.cancel("only the creator");
        Ok(())
    });
    assert!(outcome.unwrap_err().is_cancelled());
    let detached = detached.unwrap();
    let job = detached.job().clone();
    assert!(!job.is_cancelled());
    assert_eq!(job.parent().as_ref(), Some(runtime.root()));
    drop(detached);
    end(&runtime);
    assert_eq!(job.state(), JobState::Cancelled);
}

/// Decided otherwise: joins can be cancelled, and one that is leaves the others where they are.
#[test]
fn awaiter_cancellation() {
    let _watch = watch();
    let runtime = runtime(2);
    let release = Arc::new(OnceLatch::new());
    let wait = release.clone();
    let awaited = runtime.spawn(move || {
        wait.wait();
        Ok(())
    });
    let job = awaited.job().clone();
    let waiters: Vec<JobHandle<bool>> = (0..64)
        .map(|_| {
            let job = job.clone();
            runtime.spawn(move || Ok(block_on(job.ended()).is_ok()))
        })
        .collect();
    waiters
        .iter()
        .for_each(|waiter| until_it_waits(waiter.job()));
    let (cancelled, patient): (Vec<_>, Vec<_>) = waiters
        .into_iter()
        .enumerate()
        .partition(|(at, _)| at % 2 == 0);
    for (_, waiter) in &cancelled {
        assert!(waiter.cancel("gave up"));
    }
    for (_, waiter) in cancelled {
        assert!(waiter.join().unwrap_err().is_cancelled());
    }
    assert!(!job.is_ended());
    assert!(patient.iter().all(|(_, waiter)| !waiter.is_finished()));
    release.set();
    for (_, waiter) in patient {
        assert!(waiter.join().unwrap());
    }
    end(&runtime);
}

/// Taking one waiter of ten thousand out costs no search through the others: all can go in any order.
#[test]
fn awaiters_leave_in_any_order() {
    let _watch = watch();
    let runtime = runtime(1);
    let awaited = runtime.spawn(for_ever::<()>);
    let job = awaited.job().clone();
    let bell: Arc<Bell> = Arc::default();
    let waker = bell.waker();
    let mut futures: Vec<_> = (0..10_000).map(|_| Box::pin(job.ended())).collect();
    for future in &mut futures {
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
    }
    // From the front, from the back and from the middle; a hundred stay.
    while futures.len() > 100 {
        let at = futures.len() * 7 % 3 * (futures.len() - 1) / 2;
        drop(futures.swap_remove(at));
    }
    awaited.cancel("over");
    until(|| bell.rings() == 100);
    drop(futures);
    assert_eq!(runtime.counters().waiters_woken, 100);
    end(&runtime);
}

#[test]
fn a_wait_that_is_cancelled_before_it_begins_does_not_begin() {
    let _watch = watch();
    let went_on = AtomicBool::new(false);
    let outcome = nursery(|n| {
        n.cancel("before");
        assert!(sleep(FAR).is_err());
        went_on.store(true, Ordering::Relaxed);
        Ok(())
    });
    assert!(outcome.unwrap_err().is_cancelled());
    assert!(went_on.load(Ordering::Relaxed));
}
