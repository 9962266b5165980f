//! The lifecycle's rules for cancellation: which end a job comes to, what it sees on the way, and what is waited for.

mod support;

use std::error::Error;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use jobtree_pool::{CountLatch, OnceLatch, Stopped, join, scope};
use jobtree_runtime::{
    BoxError, CancelToken, Cause, Job, JobError, JobState, checkpoint, nursery, shield, sleep,
    supervisor,
};
use support::{Census, FAR, end, for_ever, rounds, runtime, until, watch};

fn failed_with(outcome: Result<impl fmt::Debug, JobError>, message: &str) {
    match outcome {
        Err(JobError::Failed(failure)) => assert_eq!(failure.error().to_string(), message),
        other => panic!("expected a failure with {message:?}: {other:?}"),
    }
}

#[track_caller]
fn cancelled_with(outcome: Result<impl fmt::Debug, JobError>, message: &str) {
    match outcome {
        Err(JobError::Cancelled(cancelled)) => {
            assert_eq!(cancelled.reason().message(), Some(message));
        }
        other => panic!("expected a cancellation with {message:?}: {other:?}"),
    }
}

#[test]
fn a_failure_beats_a_cancellation_that_came_before_it() {
    let _watch = watch();
    let of_the_body = nursery(|n| {
        n.cancel("stop");
        Err::<(), _>("broke anyway".into())
    });
    failed_with(of_the_body, "broke anyway");
    let of_a_child = nursery(|n| {
        let (begun, go) = (Arc::new(OnceLatch::new()), Arc::new(OnceLatch::new()));
        let (in_child, wait) = (begun.clone(), go.clone());
        n.launch(move || {
            in_child.set();
            wait.wait();
            Err("broke anyway".into())
        });
        begun.wait();
        n.cancel("stop");
        go.set();
        Ok(())
    });
    failed_with(of_a_child, "broke anyway");
}

#[test]
fn a_failure_beats_a_cancellation_that_comes_after_it() {
    let _watch = watch();
    let outcome = nursery(|n| {
        n.launch(|| Err("first".into()));
        until(|| n.job().is_cancelled());
        assert!(!n.cancel("too late to be the reason"));
        Ok(())
    });
    failed_with(outcome, "first");
}

#[test]
fn a_body_that_returns_its_cancellation_is_cancelled_and_has_not_failed() {
    let _watch = watch();
    let bodies: [fn() -> Result<(), BoxError>; 4] = [
        || Ok(checkpoint()?),
        || Ok(sleep(FAR)?),
        || Ok(jobtree_runtime::block_on(std::future::pending())?),
        || {
            let inner = nursery(|_| Ok(()));
            Ok(inner?)
        },
    ];
    for body in bodies {
        let outcome = nursery(|n| {
            n.cancel("stop");
            body()
        });
        cancelled_with(outcome, "stop");
    }
}

/// An error of the program's own, which keeps its cause.
#[derive(Debug)]
struct Wrapped(BoxError);

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("could not read the configuration")
    }
}

impl Error for Wrapped {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

#[test]
fn a_cancellation_inside_of_other_errors_is_still_one() {
    let _watch = watch();
    let outcome = nursery(|n| {
        n.cancel("stop");
        let error = checkpoint().unwrap_err();
        Err::<(), _>(Wrapped(Wrapped(error.into()).into()).into())
    });
    cancelled_with(outcome, "stop");
}

/// `io::Error` is what code in the middle of reading and writing returns. Its source is that of the error inside, not
/// the error itself.
#[test]
fn a_cancellation_inside_of_an_io_error_is_still_one() {
    let _watch = watch();
    let outcome = nursery(|n| {
        n.cancel("stop");
        checkpoint().map_err(std::io::Error::other)?;
        Ok(())
    });
    cancelled_with(outcome, "stop");
}

#[test]
fn the_join_of_a_child_cancelled_by_the_same_cancellation_is_no_failure() {
    let _watch = watch();
    let outcome = nursery(|n| {
        let child = n.spawn(|| {
            let below = nursery(|n| Ok(n.spawn(for_ever::<()>).join()?));
            Ok(below?)
        });
        n.cancel("stop");
        // So that the error is the child's and not that of the body's own wait.
        until(|| child.is_finished());
        let error = child.join().unwrap_err();
        assert!(error.is_cancelled());
        Err::<(), _>(error.into())
    });
    cancelled_with(outcome, "stop");
}

#[test]
fn the_join_of_a_child_cancelled_alone_is_a_failure_if_the_body_returns_it() {
    let _watch = watch();
    let mut scope = None;
    let outcome = nursery(|n| {
        scope = Some(n.job().clone());
        let child = n.spawn(for_ever::<()>);
        child.cancel("only this one");
        let error = child.join().unwrap_err();
        assert!(error.is_cancelled());
        // A cancelled child does not cancel its parent ...
        assert_eq!(n.job().state(), JobState::Active);
        // ... but the parent may think of it as a failure.
        Err::<(), _>(error.into())
    });
    assert!(matches!(outcome, Err(JobError::Failed(_))), "{outcome:?}");
    assert_eq!(scope.unwrap().state(), JobState::Failed);
}

#[test]
fn a_cancelled_child_leaves_its_parent_alone_and_a_timed_out_one_fails_it() {
    let _watch = watch();
    let fine = nursery(|n| {
        n.spawn(for_ever::<()>).cancel("not needed");
        n.spawn(for_ever::<()>).cancel(Cause::Abandoned);
        Ok("fine")
    });
    assert_eq!(fine.unwrap(), "fine");
    let mut scope = None;
    let outcome = nursery(|n| {
        scope = Some(n.job().clone());
        let limit = Duration::from_millis(1);
        let late = n.job_options().timeout(limit).spawn(for_ever::<()>);
        drop(late);
        for_ever::<()>()
    });
    assert!(matches!(outcome, Err(JobError::TimedOut(_))), "{outcome:?}");
    assert_eq!(scope.unwrap().state(), JobState::Failed);
}

#[test]
fn a_job_that_is_born_cancelled_never_runs_and_its_body_is_dropped() {
    let _watch = watch();
    let census = Census::default();
    let ran = AtomicBool::new(false);
    let ran = &ran;
    let outcome = nursery(|n| {
        n.cancel("closed");
        let inside = census.value();
        let child = n.spawn(move || {
            ran.store(true, Ordering::Relaxed);
            Ok(inside)
        });
        assert_eq!(child.job().state(), JobState::Cancelled);
        census.assert_all_gone(1);
        let inside = census.value();
        n.launch(move || {
            ran.store(true, Ordering::Relaxed);
            drop(inside);
            Ok(())
        });
        census.assert_all_gone(2);
        assert_eq!(child.join().unwrap_err().secondary().len(), 0);
        // Scopes are born cancelled, too: the body is not called.
        let inner = supervisor(|_| {
            ran.store(true, Ordering::Relaxed);
            Ok(())
        });
        assert!(inner.unwrap_err().is_cancelled());
        Ok(())
    });
    cancelled_with(outcome, "closed");
    assert!(!ran.load(Ordering::Relaxed));
}

/// A child may use the scope for as long as it runs, and it may run longer than the scope's body.
#[test]
fn children_can_be_attached_while_the_scope_is_completing() {
    let _watch = watch();
    let runtime = runtime(2);
    for _ in 0..rounds(20) {
        let ran = AtomicUsize::new(0);
        let ran = &ran;
        let outcome = runtime.nursery(|n| {
            n.launch(move || {
                until(|| n.job().state() == JobState::Completing);
                for _ in 0..10 {
                    n.launch(move || {
                        ran.fetch_add(1, Ordering::Relaxed);
                        n.launch(move || {
                            ran.fetch_add(1, Ordering::Relaxed);
                            Ok(())
                        });
                        Ok(())
                    });
                }
                Ok(())
            });
            Ok(())
        });
        outcome.unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 20);
    }
    end(&runtime);
}

#[test]
fn a_child_that_fails_while_the_scope_is_completing_cancels_the_others() {
    let _watch = watch();
    let runtime = runtime(2);
    let outcome = runtime.nursery(|n| {
        n.launch(for_ever);
        n.launch(move || {
            until(|| n.job().state() == JobState::Completing);
            Err("after the body".into())
        });
        Ok("a value that nobody gets")
    });
    failed_with(outcome, "after the body");
    end(&runtime);
}

/// Forks for ever, with something to clean up in every frame.
fn fork_for_ever(census: &Census, depth: usize) -> usize {
    let _guard = census.value();
    if depth == 0 {
        return 1;
    }
    let mut sum: usize = 0;
    loop {
        let (a, b) = join(
            || fork_for_ever(census, depth - 1),
            || fork_for_ever(census, depth - 1),
        );
        sum = sum.wrapping_add(a).wrapping_add(b);
        if depth < 12 {
            return sum;
        }
    }
}

#[test]
fn forks_of_a_cancelled_job_unwind_and_their_destructors_run() {
    let _watch = watch();
    let runtime = runtime(2);
    for _ in 0..rounds(5) {
        let census = Census::default();
        let counted = census.clone();
        let job = runtime.spawn(move || Ok(fork_for_ever(&counted, 12)));
        until(|| census.made() > 1000);
        assert!(job.cancel("enough"));
        cancelled_with(job.join(), "enough");
        census.assert_all_gone(census.made());
    }
    end(&runtime);
}

#[test]
fn scopes_of_tasks_unwind_out_of_a_cancelled_job() {
    let _watch = watch();
    let runtime = runtime(2);
    let census = Census::default();
    let counted = census.clone();
    let job = runtime.spawn(move || {
        loop {
            scope(|s| {
                for _ in 0..16 {
                    let guard = counted.value();
                    s.spawn(|s| {
                        let _guard = guard;
                        let guard = counted.value();
                        s.spawn(|_| drop(guard));
                    });
                }
            });
        }
        #[expect(unreachable_code, reason = "gives the loop's closure its type")]
        Ok(())
    });
    until(|| census.made() > 1000);
    job.cancel("enough");
    cancelled_with(job.join(), "enough");
    census.assert_all_gone(census.made());
    end(&runtime);
}

#[test]
fn every_later_point_sees_the_cancellation_again() {
    let _watch = watch();
    let outcome = nursery(|n| {
        let endless = supervisor(|inner| {
            n.cancel("again and again");
            let child = inner.spawn(for_ever::<()>);
            for _ in 0..3 {
                assert!(checkpoint().is_err());
                assert!(sleep(FAR).is_err());
                assert!(jobtree_runtime::block_on(std::future::pending::<()>()).is_err());
                assert!(nursery(|_| Ok(())).is_err());
                let caught = panic::catch_unwind(AssertUnwindSafe(|| join(|| (), || ())));
                assert!(caught.unwrap_err().is::<Stopped>());
            }
            assert!(child.join().unwrap_err().is_cancelled());
            Ok(())
        });
        assert!(endless.unwrap_err().is_cancelled());
        Ok(())
    });
    cancelled_with(outcome, "again and again");
}

#[test]
fn a_join_in_a_cancelled_job_returns_although_the_child_goes_on() {
    let _watch = watch();
    let runtime = runtime(2);
    let release = Arc::new(OnceLatch::new());
    let wait = release.clone();
    let deaf = runtime.spawn(move || {
        wait.wait();
        Ok(())
    });
    let deaf_job = deaf.job().clone();
    let waiter = runtime.spawn(move || {
        let by_reference = deaf.job().ended();
        let first = jobtree_runtime::block_on(by_reference);
        assert!(first.is_err());
        let second = deaf.join();
        assert!(second.as_ref().is_err_and(JobError::is_cancelled));
        Ok(second?)
    });
    support::until_it_waits(waiter.job());
    waiter.cancel("both waits");
    cancelled_with(waiter.join(), "both waits");
    assert!(!deaf_job.is_ended());
    release.set();
    until(|| deaf_job.is_ended());
    assert_eq!(deaf_job.state(), JobState::Completed);
    end(&runtime);
}

#[test]
fn a_shield_keeps_a_cancellation_out_for_as_long_as_it_is_open() {
    let _watch = watch();
    let outcome = nursery(|n| {
        n.cancel("stop");
        let kept = shield(FAR, || {
            checkpoint()?;
            sleep(Duration::from_millis(1))?;
            let (a, b) = join(|| 1, || 2);
            let below = nursery(|n| Ok(n.spawn(|| Ok(39)).join()?))?;
            Ok(a + b + below)
        });
        assert_eq!(kept.unwrap(), 42);
        checkpoint()?;
        Ok(())
    });
    cancelled_with(outcome, "stop");
}

#[test]
fn the_limit_of_a_shield_counts_from_the_cancellation() {
    let _watch = watch();
    let outcome = nursery(|n| {
        // Nobody has cancelled, so even a limit of nothing is no limit.
        let quiet = shield(Duration::ZERO, || Ok(sleep(Duration::from_millis(2))?));
        quiet?;
        let scope = n.job().clone();
        let cancelled_inside = shield(Duration::from_millis(1), || {
            scope.cancel("stop");
            for_ever::<()>()
        });
        assert!(cancelled_inside.unwrap_err().is_timed_out());
        let cancelled_before = shield(Duration::ZERO, for_ever::<()>);
        assert!(cancelled_before.unwrap_err().is_timed_out());
        Ok(())
    });
    cancelled_with(outcome, "stop");
}

#[test]
fn scopes_wait_for_their_children_however_the_body_ends() {
    let _watch = watch();
    type Body = fn() -> Result<(), BoxError>;
    let bodies: [Body; 3] = [|| Ok(()), || Err("no".into()), || panic!("on purpose")];
    for body in bodies {
        let begun = CountLatch::new(4);
        let finished = AtomicUsize::new(0);
        let (begun, finished) = (&begun, &finished);
        let outcome = nursery(|n| {
            for _ in 0..4 {
                // Deaf to cancellation: the scope must wait all the same.
                n.launch(move || {
                    begun.count_down();
                    until(|| n.job().state() != JobState::Active);
                    for _ in 0..100 {
                        std::thread::yield_now();
                    }
                    finished.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                });
            }
            begun.wait();
            body()
        });
        assert_eq!(finished.load(Ordering::Relaxed), 4, "{outcome:?}");
    }
}

#[test]
fn a_panic_of_the_body_is_an_outcome_of_the_scope() {
    let _watch = watch();
    let outcome = nursery(|n| {
        n.launch(for_ever);
        panic!("on purpose");
        #[expect(unreachable_code, reason = "gives the closure its type")]
        Ok(())
    });
    match outcome {
        Err(JobError::Panicked(panic)) => assert_eq!(panic.message(), "on purpose"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn callbacks_are_called_once_and_not_when_they_were_taken_back() {
    let _watch = watch();
    let calls = Arc::new(AtomicUsize::new(0));
    let outcome = nursery(|n| {
        let child = n.spawn(for_ever::<()>);
        let call = |calls: &Arc<AtomicUsize>| {
            let calls = calls.clone();
            move |reason: &jobtree_runtime::CancelReason| {
                assert_eq!(reason.message(), Some("stop"));
                calls.fetch_add(1, Ordering::Relaxed);
            }
        };
        let on_scope = n.job().on_cancel(call(&calls));
        let on_child = child.job().on_cancel(call(&calls));
        drop(n.job().on_cancel(call(&calls)));
        let token = CancelToken::of_job(n.job()).child();
        let on_token = token.on_cancel(call(&calls));
        n.cancel("stop");
        assert_eq!(calls.load(Ordering::Relaxed), 3);
        let late = n.job().on_cancel(call(&calls));
        assert_eq!(calls.load(Ordering::Relaxed), 4);
        drop((on_scope, on_child, on_token, late));
        Ok(())
    });
    cancelled_with(outcome, "stop");
    assert_eq!(calls.load(Ordering::Relaxed), 4);
}

#[test]
fn dropping_a_handle_neither_cancels_nor_detaches() {
    let _watch = watch();
    let release = OnceLatch::new();
    let ended = AtomicBool::new(false);
    let (release, ended) = (&release, &ended);
    nursery(|n| {
        let handle = n.spawn(move || {
            release.wait();
            checkpoint()?;
            ended.store(true, Ordering::Relaxed);
            Ok(())
        });
        let job = handle.job().clone();
        drop(handle);
        assert!(!job.is_cancelled());
        assert_eq!(job.parent().as_ref(), Some(n.job()));
        release.set();
        Ok(())
    })
    .unwrap();
    assert!(ended.load(Ordering::Relaxed));
}

#[test]
fn cancelling_races_with_the_end_without_a_third_outcome() {
    let _watch = watch();
    let runtime = runtime(2);
    for round in 0..rounds(300) {
        let job = runtime.spawn(move || Ok(round));
        let asked = job.cancel("race");
        match job.join() {
            Ok(value) => assert!(!asked && value == round),
            Err(JobError::Cancelled(_)) => assert!(asked),
            Err(other) => panic!("{other:?}"),
        }
    }
    end(&runtime);
}

#[test]
fn outside_of_jobs_nothing_is_cancelled() {
    assert_eq!(Job::current(), None);
    checkpoint().unwrap();
    sleep(Duration::ZERO).unwrap();
}

#[test]
fn a_latch_is_no_cancellation_point_and_the_next_one_sees_the_cancellation() {
    let _watch = watch();
    let runtime = runtime(2);
    let (latch, count) = (Arc::new(OnceLatch::new()), Arc::new(CountLatch::new(1)));
    let passed = Arc::new(AtomicUsize::new(0));
    let (in_job, counted, steps) = (latch.clone(), count.clone(), passed.clone());
    let begun = Arc::new(OnceLatch::new());
    let begins = begun.clone();
    let job = runtime.spawn(move || {
        begins.set();
        in_job.wait();
        steps.fetch_add(1, Ordering::Relaxed);
        counted.wait();
        steps.fetch_add(1, Ordering::Relaxed);
        checkpoint()?;
        steps.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    begun.wait();
    job.job().cancel("stop");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(passed.load(Ordering::Relaxed), 0, "it waits for the latch");
    latch.set();
    count.count_down();
    cancelled_with(job.join(), "stop");
    assert_eq!(passed.load(Ordering::Relaxed), 2);
    end(&runtime);
}
