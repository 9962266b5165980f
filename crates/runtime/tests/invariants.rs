//! What must hold of every job at every moment, a test for each invariant, on real workers.

mod support;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;
use std::time::Duration;

use jobtree_pool::OnceLatch;
use jobtree_runtime::{
    BoxError, EventKind, Job, JobError, JobHandle, JobId, JobLocal, JobState, Nursery, Runtime,
    checkpoint, nursery, supervisor, with_local, with_timeout,
};
use support::{Bell, Census, Counted, end, for_ever, rounds, runtime, until, watch};

/// A small tree whose jobs return, fail, wait for ever, cancel themselves or run out of time, as `seed` has it.
fn grow<'scope>(n: &'scope Nursery<'scope, '_>, seed: u64, depth: usize) {
    for child in 0..3 {
        let seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(child * 1_442_695_040_888_963_407 + 1);
        n.launch(move || behave(seed, depth));
    }
}

fn behave(seed: u64, depth: usize) -> Result<(), BoxError> {
    if depth > 0 && seed >> 60 & 1 == 0 {
        let outcome = if seed >> 59 & 1 == 0 {
            nursery(|n| {
                grow(n, seed, depth - 1);
                Ok(())
            })
        } else {
            supervisor(|n| {
                grow(n, seed, depth - 1);
                Ok(())
            })
        };
        return Ok(outcome?);
    }
    match seed >> 56 & 7 {
        0 => Err("failed".into()),
        1 => Ok(with_timeout(Duration::from_millis(1), for_ever)?),
        2 => {
            let own = Job::current().unwrap();
            own.cancel("by itself");
            Ok(checkpoint()?)
        }
        3 => with_timeout(Duration::from_millis(1), for_ever).or(Ok(())),
        _ => Ok(()),
    }
}

/// Runs trees of all kinds, some of them cancelled from outside at some moment.
fn grow_trees(runtime: &Runtime, trees: usize) {
    for seed in 0..trees as u64 {
        let stop = OnceLatch::new();
        std::thread::scope(|threads| {
            let (job_known, known) = std::sync::mpsc::channel::<Job>();
            let stop = &stop;
            if seed % 3 == 0 {
                threads.spawn(move || {
                    let job = known.recv().unwrap();
                    for _ in 0..seed % 50 {
                        std::thread::yield_now();
                    }
                    job.cancel("from outside");
                    stop.set();
                });
            } else {
                stop.set();
            }
            let outcome = runtime.nursery(|n| {
                let _ = job_known.send(n.job().clone());
                grow(n, seed, 3);
                Ok(())
            });
            stop.wait();
            drop(outcome);
        });
    }
}

/// Ours has a phase between: a scope whose body has returned is Completing as long as a child is active.
#[test]
fn a_job_that_has_ended_has_no_active_children() {
    let _watch = watch();
    let runtime = runtime(2);
    for round in 0..rounds(20) {
        let children: Vec<Job> = Vec::new();
        let known = std::sync::Mutex::new((None::<Job>, children));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    std::thread::yield_now();
                    let (scope, children) = &*known.lock().unwrap();
                    let Some(scope) = scope else { continue };
                    if scope.is_ended() {
                        assert!(children.iter().all(Job::is_ended));
                        assert!(scope.children().is_empty());
                    }
                }
            });
            let outcome = runtime.nursery(|n| {
                let handles: Vec<JobHandle<()>> = (0..4)
                    .map(|child| {
                        n.spawn(move || {
                            for _ in 0..(round + child) % 5 * 20 {
                                std::thread::yield_now();
                            }
                            match (round + child) % 9 {
                                0 => Err("failed".into()),
                                1 => for_ever(),
                                _ => Ok(()),
                            }
                        })
                    })
                    .collect();
                let jobs = handles.iter().map(|handle| handle.job().clone());
                *known.lock().unwrap() = (Some(n.job().clone()), jobs.collect());
                if (0..4).any(|child| (round + child) % 9 == 1) {
                    n.cancel("one waits for ever");
                }
                Ok(())
            });
            drop(outcome);
            let (scope, children) = &*known.lock().unwrap();
            assert!(scope.as_ref().unwrap().is_ended() && children.iter().all(Job::is_ended));
            is_over.store(true, Ordering::Release);
        });
    }
    end(&runtime);
}

#[test]
fn a_body_that_returns_while_a_child_runs_does_not_end_its_job() {
    let _watch = watch();
    let runtime = runtime(2);
    let mut scope = None;
    runtime
        .nursery(|n| {
            scope = Some(n.job().clone());
            n.launch(move || {
                until(|| n.job().state() == JobState::Completing);
                assert!(!n.job().is_ended());
                assert_eq!(n.job().children().len(), 1);
                Ok(())
            });
            Ok(())
        })
        .unwrap();
    assert_eq!(scope.unwrap().state(), JobState::Completed);
    end(&runtime);
}

/// Decided otherwise: a child holds no reference to its parent and needs none, since a parent cannot end before it.
/// That each is freed once, and not before, shows in a value that the whole subtree inherits.
#[test]
fn a_parent_is_there_until_its_last_child_has_ended_and_is_freed_once() {
    static INHERITED: JobLocal<Counted> = JobLocal::new();
    let _watch = watch();
    let runtime = runtime(2);
    let census = Census::default();
    for round in 0..rounds(20) {
        let release = Arc::new(OnceLatch::new());
        let wait = release.clone();
        let value = census.value();
        let counts = census.clone();
        // Nobody has a handle of anything in here.
        drop(runtime.spawn(move || {
            let inside = move || {
                nursery(|n| {
                    n.job_options().label("parent").launch(move || {
                        nursery(|n| {
                            n.job_options().label("child").launch(move || {
                                wait.wait();
                                let job = Job::current().unwrap();
                                assert!(job.path().contains("/parent/"));
                                assert!(job.parent().is_some_and(|parent| !parent.is_ended()));
                                assert!(INHERITED.get().is_some());
                                assert_eq!(counts.dropped(), round);
                                Ok(())
                            });
                            Ok(())
                        })?;
                        Ok(())
                    });
                    Ok(())
                })?;
                Ok(())
            };
            Ok(with_local(&INHERITED, value, inside)?)
        }));
        release.set();
        until(|| census.dropped() == round + 1);
    }
    assert_eq!(runtime.counters().failed, 0);
    end(&runtime);
    census.assert_all_gone(rounds(20));
}

#[test]
fn waiters_are_told_once_and_none_is_left() {
    let _watch = watch();
    let runtime = runtime(2);
    let mut all_bells = Vec::new();
    let mut racing_bells = Vec::new();
    let mut stay = Vec::new();
    for round in 0..rounds(50) {
        let release = Arc::new(OnceLatch::new());
        let wait = release.clone();
        let job = runtime.spawn(move || {
            wait.wait();
            Ok(())
        });
        let job = job.job().clone();
        let bells: Vec<Arc<Bell>> = (0..8).map(|_| Arc::default()).collect();
        let mut futures: Vec<_> = (0..8).map(|_| Box::pin(job.ended())).collect();
        for (bell, future) in bells.iter().zip(&mut futures) {
            let waker = bell.waker();
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
        // Gives up while the job ends. It may have been chosen to be told by then, and hear of it a moment later.
        let racing = futures.remove(round % 8);
        release.set();
        drop(racing);
        until(|| job.is_ended());
        racing_bells.push(bells[round % 8].clone());
        all_bells.extend(bells);
        stay.extend(futures);
    }
    // Jobs tell who waits for them before they tell their parents: now everybody was told.
    end(&runtime);
    drop(stay);
    let rings: Vec<usize> = all_bells.iter().map(|bell| bell.rings()).collect();
    assert!(rings.iter().all(|rings| *rings <= 1));
    let gave_up_in_time = racing_bells.iter().filter(|bell| bell.rings() == 0).count();
    let told: usize = rings.iter().sum();
    assert_eq!(
        told + gave_up_in_time,
        all_bells.len(),
        "one who stayed was not told"
    );
    let counters = runtime.counters();
    // The end of the runtime may have waited for its root, too.
    let by_the_end = counters.waiters_woken as usize - told;
    assert!(
        by_the_end <= 1,
        "{by_the_end} were told twice, or not counted"
    );
    let never_told = counters.waiters_registered - counters.waiters_woken;
    assert_eq!(never_told as usize, gave_up_in_time);
}

/// Ours also begins as Pending, and shows a returned body as Completing; neither is ever returned to.
#[test]
fn a_job_passes_through_one_intermediate_state_at_most() {
    let _watch = watch();
    let runtime = runtime(2);
    runtime.record_events(10_000_000);
    grow_trees(&runtime, rounds(20).min(2000));
    end(&runtime);
    let recorded = runtime.take_events();
    assert_eq!(recorded.lost, 0);
    let mut lives: HashMap<JobId, Vec<EventKind>> = HashMap::new();
    for event in recorded.events {
        lives.entry(event.job).or_default().push(event.kind);
    }
    let root = runtime.root().id();
    let mut ends: HashMap<JobState, usize> = HashMap::new();
    for (job, life) in lives.iter().filter(|(job, _)| **job != root) {
        let count =
            |wanted: fn(&EventKind) -> bool| life.iter().filter(|kind| wanted(kind)).count();
        assert_eq!(
            count(|kind| matches!(kind, EventKind::Create { .. })),
            1,
            "{job}"
        );
        assert_eq!(
            count(|kind| matches!(kind, EventKind::Finalize { .. })),
            1,
            "{job}: {life:?}"
        );
        let cancelling = |kind: &EventKind| {
            let to = JobState::Cancelling;
            *kind == EventKind::State { to }
        };
        assert!(count(cancelling) <= 1, "{job}: {life:?}");
        let active = |kind: &EventKind| {
            let to = JobState::Active;
            *kind == EventKind::State { to }
        };
        assert!(count(active) <= 1, "{job}: {life:?}");
        for kind in life {
            if let EventKind::Finalize { state } = kind {
                assert!(state.is_terminal());
                *ends.entry(*state).or_default() += 1;
            }
        }
    }
    // The trees have seen everything.
    for state in [
        JobState::Completed,
        JobState::Failed,
        JobState::Cancelled,
        JobState::TimedOut,
    ] {
        assert!(ends.contains_key(&state), "no job ended as {state}");
    }
    let counters = runtime.counters();
    let all_ends = counters.completed + counters.failed + counters.cancelled + counters.timed_out;
    // The root was made before anything was counted.
    assert_eq!(all_ends, counters.created + 1);
}

/// In either order of failure and cancellation; but a time that was over first stays the outcome, with the failure
/// attached.
#[test]
fn a_failed_child_fails_its_parent_unless_that_had_timed_out() {
    let _watch = watch();
    let runtime = runtime(2);
    for cancel_first in [false, true] {
        let mut scope = None;
        let begun = OnceLatch::new();
        let go = OnceLatch::new();
        let (begun, go) = (&begun, &go);
        let outcome = runtime.nursery(|n| {
            scope = Some(n.job().clone());
            n.launch(move || {
                begun.set();
                go.wait();
                Err("failed".into())
            });
            begun.wait();
            if cancel_first {
                assert!(n.cancel("first"));
                go.set();
            } else {
                go.set();
                until(|| n.job().is_cancelled());
                assert!(!n.cancel("second"));
            }
            Ok(())
        });
        assert!(matches!(outcome, Err(JobError::Failed(_))), "{outcome:?}");
        assert_eq!(scope.unwrap().state(), JobState::Failed);
    }
    let late = with_timeout(Duration::from_millis(1), || {
        until(|| checkpoint().is_err());
        Err::<(), _>("failed while it was ending".into())
    });
    let error = late.unwrap_err();
    assert!(error.is_timed_out(), "{error:?}");
    assert_eq!(error.more(), 1);
    let attached = error.secondary()[0].to_string();
    assert!(
        attached.ends_with("failed while it was ending"),
        "{attached}"
    );
    end(&runtime);
}
