//! The life of a nursery: its five states, its link to its owner in both directions, and cancellation through levels.

mod support;

use std::pin::Pin;
use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Duration;

use jobtree_pool::OnceLatch;
use jobtree_runtime::{
    BoxError, EventKind, Job, JobError, JobState, Nursery, NurseryState, Outcome, Runtime,
    block_on, checkpoint, future, nursery, sleep, supervisor, with_timeout,
};
use support::{Census, FAR, end, for_ever, runtime, until, until_it_waits, watch};

use NurseryState::{Cancelled, Cancelling, Closed, Closing, Open};

/// What a scope leaves for the test: the states that were seen, in their order, and its job.
#[derive(Default)]
struct Diary {
    seen: Mutex<Vec<NurseryState>>,
    job: Mutex<Option<Job>>,
}

impl Diary {
    /// Writes down a state, unless it is the last one already.
    fn see(&self, state: NurseryState) {
        let mut seen = self.seen.lock().unwrap();
        if seen.last() != Some(&state) {
            seen.push(state);
        }
    }

    fn begin(&self, n: &Nursery<'_, '_>) {
        *self.job.lock().unwrap() = Some(n.job().clone());
        self.see(n.state());
    }
}

type Scope = fn(&Runtime, &Diary) -> Outcome<()>;

/// Runs a scope, and returns the states that were seen in it, with the last one.
fn life(scope: Scope) -> (Vec<NurseryState>, Outcome<()>) {
    let runtime = runtime(2);
    let diary = Diary::default();
    let outcome = scope(&runtime, &diary);
    let job = diary.job.lock().unwrap().take();
    diary.see(job.expect("the scope has begun").state().into());
    end(&runtime);
    (diary.seen.into_inner().unwrap(), outcome)
}

/// A child that goes on when the body has returned, and writes down what it sees then and afterwards.
fn after_the_body<'scope>(
    n: &'scope Nursery<'scope, '_>,
    diary: &'scope Diary,
    then: impl FnOnce() -> Result<(), BoxError> + Send + 'scope,
) {
    n.launch(move || {
        until(|| n.state() == Closing);
        diary.see(n.state());
        let result = then();
        diary.see(n.state());
        result
    });
}

/// A child that waits until the scope is cancelled, and writes that down.
fn sees_the_cancellation<'scope>(n: &'scope Nursery<'scope, '_>, diary: &'scope Diary) -> Job {
    let child = n.spawn(move || {
        let cancelled = sleep(FAR);
        diary.see(n.state());
        Ok(cancelled?)
    });
    child.job().clone()
}

#[test]
fn open_to_closed() {
    let _watch = watch();
    let (life, outcome) = life(|runtime, diary| {
        runtime.nursery(|n| {
            diary.begin(n);
            Ok(())
        })
    });
    outcome.unwrap();
    assert_eq!(life, [Open, Closed]);
}

#[test]
fn open_to_closing_to_closed() {
    let _watch = watch();
    let (life, outcome) = life(|runtime, diary| {
        runtime.nursery(|n| {
            diary.begin(n);
            after_the_body(n, diary, || Ok(()));
            Ok(())
        })
    });
    outcome.unwrap();
    assert_eq!(life, [Open, Closing, Closed]);
}

#[test]
fn open_to_cancelling_to_cancelled() {
    let _watch = watch();
    let (life, outcome) = life(|runtime, diary| {
        runtime.nursery(|n| {
            diary.begin(n);
            n.launch(for_ever);
            assert!(n.cancel("enough"));
            diary.see(n.state());
            assert!(!n.cancel("once is enough"));
            Ok(())
        })
    });
    assert!(outcome.unwrap_err().is_cancelled());
    assert_eq!(life, [Open, Cancelling, Cancelled]);
}

#[test]
fn open_to_cancelling_to_closed_by_a_child_that_fails() {
    let _watch = watch();
    let (life, outcome) = life(|runtime, diary| {
        runtime.nursery(|n| {
            diary.begin(n);
            let other = sees_the_cancellation(n, diary);
            n.launch(move || {
                until_it_waits(&other);
                Err("broken".into())
            });
            Ok(sleep(FAR)?)
        })
    });
    assert!(matches!(outcome, Err(JobError::Failed(_))), "{outcome:?}");
    assert_eq!(life, [Open, Cancelling, Closed]);
}

/// By a clock that stands still until all wait.
#[cfg(all(unix, not(miri)))]
#[test]
fn open_to_cancelling_to_closed_by_its_time() {
    let _watch = watch();
    let (life, outcome) = life(|_, diary| {
        let simulated = jobtree_runtime::sim::Runtime::new(1).run(|_| {
            Ok(with_timeout(Duration::from_millis(1), || {
                let job = Job::current().unwrap();
                *diary.job.lock().unwrap() = Some(job.clone());
                diary.see(job.state().into());
                let over = sleep(FAR);
                diary.see(job.state().into());
                Ok(over?)
            }))
        });
        simulated.outcome.unwrap()
    });
    assert!(outcome.unwrap_err().is_timed_out());
    assert_eq!(life, [Open, Cancelling, Closed]);
}

#[test]
fn closing_to_cancelling_to_cancelled() {
    let _watch = watch();
    let (life, outcome) = life(|runtime, diary| {
        runtime.nursery(|n| {
            diary.begin(n);
            after_the_body(n, diary, move || {
                assert!(n.cancel("after the body"));
                Ok(checkpoint()?)
            });
            Ok(())
        })
    });
    assert!(outcome.unwrap_err().is_cancelled());
    assert_eq!(life, [Open, Closing, Cancelling, Cancelled]);
}

#[test]
fn closing_to_cancelling_to_closed_by_a_child_that_fails() {
    let _watch = watch();
    let (life, outcome) = life(|runtime, diary| {
        runtime.nursery(|n| {
            diary.begin(n);
            let other = sees_the_cancellation(n, diary);
            after_the_body(n, diary, move || {
                until_it_waits(&other);
                Err("broken, late".into())
            });
            Ok(())
        })
    });
    assert!(matches!(outcome, Err(JobError::Failed(_))), "{outcome:?}");
    assert_eq!(life, [Open, Closing, Cancelling, Closed]);
}

/// There is nobody left to be cancelled, but the failure is the scope's all the same.
#[test]
fn closing_to_closed_by_the_last_child_that_fails() {
    let _watch = watch();
    let (life, outcome) = life(|runtime, diary| {
        runtime.nursery(|n| {
            diary.begin(n);
            after_the_body(n, diary, || Err("the last one".into()));
            Ok(())
        })
    });
    assert!(matches!(outcome, Err(JobError::Failed(_))), "{outcome:?}");
    assert_eq!(life, [Open, Closing, Closed]);
}

#[test]
fn open_to_cancelling_to_closed_by_a_failure_after_the_cancellation() {
    let _watch = watch();
    let (life, outcome) = life(|runtime, diary| {
        runtime.nursery(|n| {
            diary.begin(n);
            n.cancel("enough");
            diary.see(n.state());
            Err("and broken".into())
        })
    });
    assert!(matches!(outcome, Err(JobError::Failed(_))), "{outcome:?}");
    assert_eq!(life, [Open, Cancelling, Closed]);
}

#[test]
fn a_supervisor_stays_open_when_its_children_fail_and_closes() {
    let _watch = watch();
    let (life, outcome) = life(|runtime, diary| {
        runtime.supervisor(|n| {
            diary.begin(n);
            let broken = n.spawn::<_, ()>(|| Err("alone".into()));
            assert!(broken.join().is_err());
            diary.see(n.state());
            after_the_body(n, diary, || Err("alone, too".into()));
            Ok(())
        })
    });
    outcome.unwrap();
    assert_eq!(life, [Open, Closing, Closed]);
}

/// Whoever watches the events sees that, too.
#[test]
fn the_events_tell_of_a_cancellation_by_a_child_that_fails() {
    let _watch = watch();
    let runtime = runtime(2);
    runtime.record_events(1_000);
    let mut job = None;
    let outcome = runtime.nursery(|n| {
        job = Some(n.job().id());
        n.launch(for_ever);
        n.launch(|| Err("broken".into()));
        Ok(())
    });
    assert!(matches!(outcome, Err(JobError::Failed(_))), "{outcome:?}");
    let recorded = runtime.take_events();
    let told: Vec<_> = recorded
        .events
        .iter()
        .filter(|event| Some(event.job) == job)
        .filter_map(|event| match event.kind {
            EventKind::State { to } => Some(to),
            EventKind::Finalize { state } => Some(state),
            _ => None,
        })
        // The child may fail before or after the body returns.
        .filter(|state| *state != JobState::Completing)
        .collect();
    assert_eq!(told, [JobState::Cancelling, JobState::Failed]);
    end(&runtime);
}

/// An end is one for ever: nothing moves a nursery that is closed or cancelled.
#[test]
fn closed_and_cancelled_are_for_ever() {
    let _watch = watch();
    for cancels in [false, true] {
        let mut job = None;
        let _ = nursery(|n| {
            job = Some(n.job().clone());
            if cancels {
                n.cancel("enough");
            }
            Ok(())
        });
        let job = job.unwrap();
        let state = NurseryState::from(job.state());
        assert_eq!(state, if cancels { Cancelled } else { Closed });
        assert!(!job.cancel("too late"));
        assert_eq!(NurseryState::from(job.state()), state);
    }
}

// The link between a nursery and its owner.

#[test]
fn the_owner_knows_its_nursery_and_the_nursery_its_owner() {
    let _watch = watch();
    let runtime = runtime(2);
    let owner = runtime.spawn(|| {
        let owner = Job::current().unwrap();
        let mut inner = None;
        nursery(|n| {
            assert_eq!(n.job().parent().as_ref(), Some(&owner));
            assert_eq!(owner.children(), [n.job().clone()]);
            let child = n.spawn(|| Ok(Job::current().and_then(|job| job.parent())));
            assert_eq!(child.join()?.as_ref(), Some(n.job()));
            inner = Some(n.job().clone());
            Ok(())
        })?;
        assert!(inner.unwrap().is_ended());
        // It leaves its owner right after its end.
        until(|| owner.children().is_empty());
        Ok(())
    });
    owner.join().unwrap();
    let owner = runtime.spawn_future(async {
        let owner = Job::current().unwrap();
        let known = owner.clone();
        future::nursery(async move |n| {
            assert_eq!(n.job().parent().as_ref(), Some(&known));
            assert_eq!(known.children(), [n.job().clone()]);
            Ok(())
        })
        .await?;
        until(|| owner.children().is_empty());
        Ok(())
    });
    owner.join().unwrap();
    end(&runtime);
}

/// Downwards: the owner's cancellation is the nursery's. Upwards: the owner has not ended before its nursery has.
#[test]
fn cancelling_the_owner_cancels_the_nursery_and_the_owner_ends_after_it() {
    let _watch = watch();
    let runtime = runtime(2);
    let (begun, release) = (OnceLatch::new(), OnceLatch::new());
    let (begun, release) = (&begun, &release);
    let inner = Mutex::new(None);
    runtime
        .supervisor(|n| {
            let inner = &inner;
            let owner = n.spawn(move || {
                nursery(|scope| {
                    *inner.lock().unwrap() = Some(scope.job().clone());
                    scope.launch(move || {
                        begun.set();
                        // Deaf to the cancellation for a while.
                        release.wait();
                        Ok(checkpoint()?)
                    });
                    Ok(())
                })?;
                Ok(())
            });
            begun.wait();
            let scope = inner.lock().unwrap().clone().unwrap();
            until(|| NurseryState::from(scope.state()) == Closing);
            assert!(owner.cancel("from above"));
            assert_eq!(NurseryState::from(scope.state()), Cancelling);
            assert!(scope.cancellation().is_some());
            assert!(!owner.is_finished());
            release.set();
            block_on(scope.ended())?;
            assert_eq!(NurseryState::from(scope.state()), Cancelled);
            assert!(owner.join().unwrap_err().is_cancelled());
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

/// The other direction: what happens in a nursery does not end its owner, who gets the outcome instead.
#[test]
fn cancelling_the_nursery_leaves_the_owner_alone() {
    let _watch = watch();
    let outer = supervisor(|outer| {
        let inner = nursery(|n| {
            n.cancel("only this one");
            Ok(())
        });
        assert!(inner.unwrap_err().is_cancelled());
        assert_eq!(outer.state(), Open);
        let inner = nursery(|n| {
            n.launch(|| Err("only this one".into()));
            Ok(())
        });
        assert!(matches!(inner, Err(JobError::Failed(_))));
        assert_eq!(outer.state(), Open);
        Ok(checkpoint()?)
    });
    outer.unwrap();
}

/// The scope of async code can be kept, since its children borrow nothing. What is spawned in it then is born cancelled,
/// and so is no orphan.
#[test]
fn a_job_spawned_in_an_awaiting_scope_that_has_ended_is_born_cancelled() {
    let _watch = watch();
    let runtime = runtime(1);
    let census = Census::default();
    let kept = runtime.block_on(future::nursery(async |n| Ok(n)));
    let kept = kept.unwrap().unwrap();
    assert!(kept.job().is_ended());
    let (of_task, of_future) = (census.value(), census.value());
    let late = [
        kept.spawn(move || {
            drop(of_task);
            Ok(())
        }),
        kept.spawn_future(async move {
            drop(of_future);
            Ok(())
        }),
    ];
    for job in late {
        assert_eq!(job.job().state(), JobState::Cancelled);
        assert!(job.join().unwrap_err().is_cancelled());
    }
    census.assert_all_gone(2);
    end(&runtime);
}

// Cancellation through levels.

/// What the scope and the job at a level are.
#[derive(Clone, Copy, Debug)]
enum Level {
    Task,
    Future,
}

/// A job on each level, in a scope of the level above; the lowest waits for ever. Each holds a value.
fn descend(levels: &'static [Level], census: Census, lowest: mpsc::Sender<Job>) -> Program {
    Box::pin(async move {
        let _kept = census.value();
        let Some((level, below)) = levels.split_first() else {
            lowest.send(Job::current().unwrap())?;
            future::sleep(FAR).await?;
            return Ok(());
        };
        let inner = descend(below, census, lowest);
        match level {
            Level::Future => {
                future::nursery(async |n| Ok(n.spawn_future(inner).await?)).await?;
            }
            Level::Task => {
                let task = move || {
                    block_on(inner)??;
                    Ok(())
                };
                nursery(|n| Ok(n.spawn(task).join()?))?;
            }
        }
        Ok(())
    })
}

type Program = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

#[test]
fn cancelling_the_top_ends_three_levels_of_tasks_futures_and_any_mixture() {
    use Level::{Future as F, Task as T};
    let _watch = watch();
    const MIXTURES: [&[Level]; 8] = [
        &[T, T, T],
        &[F, F, F],
        &[T, T, F],
        &[T, F, T],
        &[F, T, T],
        &[T, F, F],
        &[F, T, F],
        &[F, F, T],
    ];
    let runtime = runtime(2);
    for levels in MIXTURES {
        for top_is_task in [false, true] {
            let census = Census::default();
            let (say, heard) = mpsc::channel();
            let program = descend(levels, census.clone(), say);
            let top = if top_is_task {
                runtime.spawn(move || {
                    block_on(program)??;
                    Ok(())
                })
            } else {
                runtime.spawn_future(program)
            };
            let lowest = heard.recv().unwrap();
            let mut path = vec![lowest.clone()];
            while let Some(parent) = path.last().unwrap().parent() {
                path.push(parent);
            }
            // The lowest, three scopes with their jobs, and the root; the top is the job of the uppermost.
            assert_eq!(path.len(), 8, "{levels:?}");
            assert!(top.cancel("from the top"));
            let (root, jobs) = path.split_last().unwrap();
            assert!(jobs.iter().all(Job::is_cancelled), "{levels:?}");
            assert!(!root.is_cancelled());
            assert!(top.join().unwrap_err().is_cancelled());
            for job in jobs {
                assert_eq!(job.state(), JobState::Cancelled, "{levels:?}");
            }
            census.assert_all_gone(4);
        }
    }
    // A job leaves the tree right after its end.
    until(|| runtime.dump_tree().jobs().len() == 1);
    end(&runtime);
}
