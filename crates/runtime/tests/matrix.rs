//! The testing matrix of structured jobs, a test for each row, on real workers.

mod support;

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::task::Context;
use std::time::Duration;

use jobtree_pool::{CountLatch, OnceLatch};
use jobtree_runtime::{
    BoxError, Cancelled, EventKind, JobError, JobHandle, JobState, WaitingFor, block_on,
    checkpoint, nursery, with_timeout,
};
use support::{Bell, Census, end, for_ever, rounds, runtime, until, until_it_waits, watch};

#[test]
fn simple_scope_with_3_children_completes() {
    let _watch = watch();
    let runtime = runtime(2);
    let mut scope = None;
    let sum = runtime.nursery(|n| {
        scope = Some(n.job().clone());
        let children: Vec<JobHandle<u32>> = (1..=3).map(|v| n.spawn(move || Ok(v))).collect();
        let mut sum = 0;
        for child in children {
            sum += child.join()?;
        }
        Ok(sum)
    });
    assert_eq!(sum.unwrap(), 6);
    assert_eq!(scope.unwrap().state(), JobState::Completed);
    let counters = runtime.counters();
    assert_eq!((counters.created, counters.completed), (4, 4));
    end(&runtime);
}

#[test]
fn child_failure_fails_the_parent_and_cancels_siblings() {
    let _watch = watch();
    let runtime = runtime(2);
    let mut sibling = None;
    let outcome = runtime.nursery(|n| {
        sibling = Some(n.spawn(for_ever::<()>));
        n.launch(|| Err("broke".into()));
        // The body is cancelled too: else this would not end.
        for_ever::<()>()
    });
    match outcome {
        Err(JobError::Failed(failure)) => assert_eq!(failure.error().to_string(), "broke"),
        other => panic!("{other:?}"),
    }
    let sibling = sibling.unwrap();
    assert_eq!(sibling.job().state(), JobState::Cancelled);
    assert!(sibling.join().unwrap_err().is_cancelled());
    end(&runtime);
}

#[test]
fn child_failure_under_a_supervisor_leaves_it_completed() {
    let _watch = watch();
    let runtime = runtime(2);
    let mut scope = None;
    let (survivor, casualty) = runtime
        .supervisor(|n| {
            scope = Some(n.job().clone());
            let casualty = n.spawn(|| Err::<(), _>("alone".into()));
            let casualty = casualty.join();
            // Spawned after the failure: nothing was cancelled by it.
            let survivor = n.spawn(|| Ok(checkpoint().is_ok()));
            Ok((survivor.join()?, casualty))
        })
        .unwrap();
    assert!(survivor);
    assert!(matches!(casualty, Err(JobError::Failed(_))));
    assert_eq!(scope.unwrap().state(), JobState::Completed);
    end(&runtime);
}

/// A job that was cancelled before it began does not begin at all.
#[test]
fn external_cancel_before_children_start_cancels_all() {
    let _watch = watch();
    // One worker, whose thread is kept busy: so nothing can start.
    let runtime = runtime(1);
    let (is_busy, busy) = channel();
    let (release, released) = channel::<()>();
    let occupant = runtime.spawn(move || {
        is_busy.send(())?;
        Ok(released.recv()?)
    });
    busy.recv().unwrap();
    let started = AtomicUsize::new(0);
    let started = &started;
    let mut children = Vec::new();
    let mut scope = None;
    let outcome = runtime.nursery(|n| {
        scope = Some(n.job().clone());
        for _ in 0..3 {
            children.push(n.spawn(move || Ok(started.fetch_add(1, Ordering::Relaxed))));
        }
        let states: Vec<JobState> = children.iter().map(|child| child.job().state()).collect();
        assert_eq!(states, [JobState::Pending; 3]);
        assert!(n.cancel("not today"));
        release.send(())?;
        Ok(())
    });
    match outcome {
        Err(JobError::Cancelled(cancelled)) => {
            assert_eq!(cancelled.reason().message(), Some("not today"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(scope.unwrap().state(), JobState::Cancelled);
    for child in children {
        assert_eq!(child.job().state(), JobState::Cancelled);
        assert!(child.join().unwrap_err().is_cancelled());
    }
    assert_eq!(started.load(Ordering::Relaxed), 0);
    occupant.join().unwrap();
    end(&runtime);
}

/// Decided otherwise: a scope whose time is over ends as `TimedOut`, an outcome of its own, and not as a cancelled
/// one with a special reason. What is below it is cancelled.
#[test]
fn timeout_fires_first() {
    let _watch = watch();
    let mut below = None;
    let outcome = with_timeout(Duration::from_millis(1), || {
        nursery(|n| {
            below = Some(n.spawn(for_ever::<()>));
            for_ever::<()>()
        })?;
        Ok(())
    });
    assert!(matches!(outcome, Err(JobError::TimedOut(_))), "{outcome:?}");
    // Unless the time was over before the scope could be opened.
    assert!(below.is_none_or(|below| below.job().state() == JobState::Cancelled));
}

#[test]
fn deferred_value_await_success() {
    let _watch = watch();
    let runtime = runtime(2);
    runtime
        .nursery(|n| {
            assert_eq!(n.spawn(|| Ok("joined")).join()?, "joined");
            assert_eq!(block_on(n.spawn(|| Ok("awaited")))??, "awaited");
            // Of a job that has ended already, too.
            let done = n.spawn(|| Ok("late"));
            until(|| done.is_finished());
            assert_eq!(done.join()?, "late");
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn deferred_failure() {
    let _watch = watch();
    let runtime = runtime(2);
    runtime
        .supervisor(|n| {
            let failing = || Err::<u32, BoxError>("no value".into());
            for outcome in [n.spawn(failing).join(), block_on(n.spawn(failing))?] {
                match outcome {
                    Err(JobError::Failed(failure)) => {
                        assert_eq!(failure.error().to_string(), "no value");
                    }
                    other => panic!("{other:?}"),
                }
            }
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

/// Decided otherwise than in the first plan: a join can be cancelled, at once.
#[test]
fn cancellation_during_await() {
    let _watch = watch();
    let runtime = runtime(2);
    let release = Arc::new(OnceLatch::new());
    let awaited = runtime.spawn({
        let release = release.clone();
        move || {
            release.wait();
            Ok(42)
        }
    });
    let awaited_job = awaited.job().clone();
    let waiter = runtime.spawn(move || Ok(awaited.join().unwrap_err()));
    let id = awaited_job.id();
    until(|| waiter.job().waiting_for() == Some(WaitingFor::Job(id)));
    assert!(waiter.cancel("no time for it"));
    // It got its own cancellation, before what it waited for has ended.
    let waiter_job = waiter.job().clone();
    assert!(waiter.join().unwrap_err().is_cancelled());
    assert_eq!(waiter_job.state(), JobState::Cancelled);
    assert_eq!(awaited_job.state(), JobState::Active);
    release.set();
    until(|| awaited_job.is_ended());
    assert_eq!(awaited_job.state(), JobState::Completed);
    end(&runtime);
}

#[test]
fn cancellation_during_await_is_seen_by_the_awaiting_code() {
    let _watch = watch();
    let runtime = runtime(2);
    let seen: Arc<Mutex<Option<Cancelled>>> = Arc::default();
    let endless = runtime.spawn(for_ever::<()>);
    let waiter = runtime.spawn({
        let seen = seen.clone();
        move || {
            let error = endless.join().unwrap_err();
            let JobError::Cancelled(cancelled) = error else {
                panic!("{error:?}");
            };
            *seen.lock().unwrap() = Some(cancelled);
            Ok(())
        }
    });
    until_it_waits(waiter.job());
    waiter.cancel("stop waiting");
    let id = waiter.job().id();
    assert!(waiter.join().is_err());
    let cancelled = seen.lock().unwrap().take().unwrap();
    assert_eq!((cancelled.job(), cancelled.origin()), (id, id));
    assert_eq!(cancelled.reason().message(), Some("stop waiting"));
    end(&runtime);
}

#[test]
fn nested_scopes_with_inner_failure() {
    let _watch = watch();
    let runtime = runtime(2);
    let order = Mutex::new(Vec::new());
    let note = |what: &'static str| order.lock().unwrap().push(what);
    let note = &note;
    let both_run = CountLatch::new(2);
    let both_run = &both_run;
    let outcome = runtime.nursery(|outer| {
        outer.launch(move || {
            both_run.count_down();
            let ended = for_ever::<()>();
            note("beside the inner scope");
            ended
        });
        let result = nursery(|inner| {
            inner.launch(move || {
                both_run.count_down();
                let ended = for_ever::<()>();
                note("inside the inner scope");
                ended
            });
            inner.job_options().label("innermost").launch(move || {
                both_run.wait();
                Err("deep".into())
            });
            Ok(())
        });
        note("the inner scope");
        Ok(result?)
    });
    // From the inside out: the inner scope is over before anything outside of it hears of the failure.
    assert_eq!(
        *order.lock().unwrap(),
        [
            "inside the inner scope",
            "the inner scope",
            "beside the inner scope"
        ]
    );
    let error = outcome.unwrap_err();
    assert!(matches!(error, JobError::Failed(_)), "{error:?}");
    assert!(error.to_string().ends_with("/innermost failed: deep"));
    end(&runtime);
}

/// Decided otherwise: a detached job is a child of the root, so that there are no orphans; the root is a supervisor.
#[test]
fn detached_child_failure() {
    let _watch = watch();
    let runtime = runtime(2);
    let release = Arc::new(OnceLatch::new());
    let outcome = runtime.nursery(|n| {
        let wait = release.clone();
        let detached = runtime.spawn(move || {
            wait.wait();
            Err::<(), _>("nobody minds".into())
        });
        assert_eq!(detached.job().parent().as_ref(), Some(runtime.root()));
        release.set();
        assert!(matches!(detached.join(), Err(JobError::Failed(_))));
        assert_eq!(n.job().state(), JobState::Active);
        Ok(())
    });
    assert!(outcome.is_ok());
    assert_eq!(runtime.root().state(), JobState::Active);
    end(&runtime);
}

#[test]
fn race_failure_vs_external_cancel() {
    let _watch = watch();
    let runtime = runtime(2);
    let start = Barrier::new(2);
    let start = &start;
    for round in 0..rounds(100) {
        let outcome = runtime.nursery(|n| {
            n.launch(move || {
                start.wait();
                for _ in 0..round % 7 * 50 {
                    std::hint::spin_loop();
                }
                Err("failed".into())
            });
            start.wait();
            for _ in 0..round % 5 * 50 {
                std::hint::spin_loop();
            }
            n.cancel("cancelled");
            Ok(())
        });
        assert!(matches!(outcome, Err(JobError::Failed(_))), "{outcome:?}");
    }
    end(&runtime);
}

/// That it takes time in proportion to the number of jobs is shown by the events: as many for each of four thousand
/// jobs as for each of one thousand.
#[test]
fn many_siblings_cancel_stress() {
    let _watch = watch();
    let events_of = |siblings: usize| {
        let runtime = runtime(2);
        runtime.record_events(1_000_000);
        let census = Census::default();
        let outcome = runtime.nursery(|n| {
            for _ in 0..siblings {
                let value = census.value();
                n.launch(move || {
                    let _value = value;
                    for_ever()
                });
            }
            n.cancel("all of them");
            Ok(())
        });
        assert!(matches!(outcome, Err(JobError::Cancelled(_))));
        census.assert_all_gone(siblings);
        let counters = runtime.counters();
        assert_eq!(counters.cancelled, siblings as u64 + 1);
        // A scope is over when its end is visible; a moment later its parent knows it, too.
        until(|| runtime.root().children().is_empty());
        let recorded = runtime.take_events();
        assert_eq!(recorded.lost, 0);
        let requests = recorded
            .events
            .iter()
            .filter(|event| matches!(event.kind, EventKind::CancelRequest { .. }));
        assert_eq!(requests.count(), 1);
        end(&runtime);
        recorded.events.len()
    };
    let (thousand, four_thousand) = (events_of(1000), events_of(4000));
    // Each child: made, attached, begun or not, cancelling, ended.
    assert!(thousand <= 5 * 1000 + 10, "{thousand} events");
    assert!(four_thousand <= 5 * 4000 + 10, "{four_thousand} events");
}

#[test]
fn waiters_storm_32() {
    let _watch = watch();
    let runtime = runtime(2);
    for _ in 0..rounds(5) {
        let release = Arc::new(OnceLatch::new());
        let wait = release.clone();
        let awaited = runtime.spawn(move || {
            wait.wait();
            Ok(())
        });
        let job = awaited.job().clone();
        // Half a storm of futures whose wakers count ...
        let bells: Vec<Arc<Bell>> = (0..32).map(|_| Arc::default()).collect();
        let mut futures: Vec<_> = (0..32).map(|_| Box::pin(job.ended())).collect();
        for (bell, future) in bells.iter().zip(&mut futures) {
            let waker = bell.waker();
            assert!(
                future
                    .as_mut()
                    .poll(&mut Context::from_waker(&waker))
                    .is_pending()
            );
        }
        // ... and half a storm of jobs whose stacks are parked.
        let returned = AtomicUsize::new(0);
        let returned = &returned;
        runtime
            .nursery(|n| {
                let waiters: Vec<JobHandle<()>> = (0..32)
                    .map(|_| {
                        let job = job.clone();
                        n.spawn(move || {
                            block_on(job.ended())?;
                            returned.fetch_add(1, Ordering::Relaxed);
                            Ok(())
                        })
                    })
                    .collect();
                waiters
                    .iter()
                    .for_each(|waiter| until_it_waits(waiter.job()));
                release.set();
                Ok(())
            })
            .unwrap();
        assert_eq!(returned.load(Ordering::Relaxed), 32);
        for bell in &bells {
            assert_eq!(bell.rings(), 1);
        }
        awaited.join().unwrap();
    }
    let counters = runtime.counters();
    assert_eq!(counters.waiters_registered, counters.waiters_woken);
    end(&runtime);
}

/// Waiting costs nothing when there is nothing to wait for.
#[test]
fn a_late_waiter_is_not_entered() {
    let _watch = watch();
    let runtime = runtime(1);
    let done = AtomicBool::new(false);
    runtime
        .nursery(|n| {
            let child = n.spawn(|| {
                done.store(true, Ordering::Relaxed);
                Ok(())
            });
            until(|| child.is_finished());
            let bell: Arc<Bell> = Arc::default();
            let ended = pin!(child.job().ended());
            let waker = bell.waker();
            assert!(ended.poll(&mut Context::from_waker(&waker)).is_ready());
            assert_eq!(bell.rings(), 0);
            assert_eq!(runtime.counters().waiters_registered, 0);
            Ok(())
        })
        .unwrap();
    assert!(done.load(Ordering::Relaxed));
    end(&runtime);
}
