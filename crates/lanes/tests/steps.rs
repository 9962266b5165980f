//! Cooperative jobs: what each step means, how many there are in a dispatch, and that whoever waits costs nothing.

mod support;

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use jobtree_lanes::{Lane, LaneJob, Next, On, Priority, Progress, PumpLimit, Step};
use jobtree_runtime::{BoxError, JobError, channel, future};
use support::{ByHand, FAR, Log, World, note, watch};

#[test]
fn nested_routines_are_run_in_their_place_to_any_depth() {
    let _watchdog = watch();
    let world = World::new(1);
    let log = Log::new();
    fn nested(log: &Log<String>, name: &str, depth: usize) -> Step {
        let say = |what: &str| {
            let (log, what) = (log.clone(), format!("{name}{what}"));
            Step::action(move || {
                log.note(what);
                Ok(())
            })
        };
        let inner = match depth {
            0 => Step::NextDispatch,
            _ => Step::routine([
                nested(log, &format!("{name}.0"), depth - 1),
                nested(log, &format!("{name}.1"), depth - 1),
            ]),
        };
        Step::routine([say("<"), inner, say(">")])
    }
    let job = LaneJob::steps([nested(&log, "a", 2), nested(&log, "b", 0)]);
    world.manager.schedule(job).join().unwrap();
    let expected = [
        "a<", "a.0<", "a.0.0<", "a.0.0>", "a.0.1<", "a.0.1>", "a.0>", "a.1<", "a.1.0<", "a.1.0>",
        "a.1.1<", "a.1.1>", "a.1>", "a>", "b<", "b>",
    ];
    assert_eq!(log.all(), expected);
    world.end();
}

#[test]
fn a_deep_routine_does_not_use_up_the_stack() {
    let _watchdog = watch();
    let world = World::new(1);
    let mut step = Step::payload(7);
    for _ in 0..100_000 {
        step = Step::routine([step]);
    }
    let handle = world.manager.schedule(LaneJob::steps([step]));
    handle.wait().unwrap();
    let payload = handle.payload().unwrap();
    assert_eq!(payload.downcast_ref(), Some(&7));
    world.end();
}

#[test]
fn a_factory_is_called_when_its_step_is_reached() {
    let _watchdog = watch();
    let by_hand = ByHand::new(|builder| builder);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = |step: fn() -> Step| {
        let calls = Arc::clone(&calls);
        Step::start(move || {
            calls.fetch_add(1, Ordering::Relaxed);
            step()
        })
    };
    let steps = [
        Step::NextDispatch,
        counted(|| Step::wait(async { Ok(()) })),
        Step::NextDispatch,
        counted(|| Step::routine([Step::NextDispatch])),
    ];
    let made = Arc::clone(&calls);
    let handle = by_hand.manager.schedule(LaneJob::steps_with(move || {
        assert_eq!(made.load(Ordering::Relaxed), 0);
        steps
    }));
    for expected in [0, 1, 2, 2] {
        by_hand.manager.process();
        assert_eq!(calls.load(Ordering::Relaxed), expected);
    }
    handle.join().unwrap();
    by_hand.end();
}

#[test]
fn after_64_steps_others_have_their_turn() {
    let _watchdog = watch();
    let by_hand = ByHand::new(|builder| builder);
    let manager = &by_hand.manager;
    let log = Log::new();
    let steps: Vec<Step> = (1..=150)
        .map(|number| {
            let log = log.clone();
            Step::action(move || {
                log.note(number);
                Ok(())
            })
        })
        .collect();
    let handles = [
        manager.schedule(LaneJob::steps(steps).boxed()),
        manager.schedule(note(&log, -1).boxed()),
        manager.schedule(note(&log, -2).boxed()),
    ];
    while manager.process().left > 0 {}
    let expected: Vec<i32> = (1..=64).chain([-1, -2]).chain(65..=150).collect();
    assert_eq!(log.all(), expected);
    for handle in handles {
        handle.join().unwrap();
    }
    by_hand.end();
}

#[test]
fn a_dispatch_has_as_many_steps_as_the_builder_says_in_every_kind_of_job() {
    let _watchdog = watch();
    let by_hand = ByHand::new(|builder| builder.steps_per_dispatch(5));
    let manager = &by_hand.manager;
    let count = |manager: &jobtree_lanes::JobManager| {
        let mut dispatches = 1;
        while manager.process().left > 0 {
            dispatches += 1;
        }
        dispatches
    };
    let mut left = 20;
    drop(manager.schedule(LaneJob::coroutine(move |_| {
        left -= 1;
        Ok(match left {
            0 => Next::Done(()),
            _ => Next::Again,
        })
    })));
    assert_eq!(count(manager), 4);
    drop(manager.schedule(LaneJob::future(async |context| {
        for step in 0..20 {
            context.progress(step as f32 / 20.0).await?;
        }
        Ok(())
    })));
    // The first step that there is no room for is the first of the next dispatch, without being taken there.
    assert_eq!(count(manager), 4);
    let steps = (0..19).map(|step| Step::progress(step as f32));
    drop(manager.schedule(LaneJob::steps(steps)));
    assert_eq!(count(manager), 4);
    by_hand.end();
}

#[test]
fn progress_is_kept_clamped_and_forced_to_1_on_success() {
    let _watchdog = watch();
    let by_hand = ByHand::new(|builder| builder);
    let manager = &by_hand.manager;
    let told = Log::new();
    let log = told.clone();
    let steps = [
        Step::progress(0.25),
        Step::NextDispatch,
        Step::progress(-3.0),
        Step::NextDispatch,
        Progress::from_range(3, 4).with_payload("most").into(),
        Step::NextDispatch,
        Step::payload(42),
    ];
    let job = LaneJob::steps(steps)
        .on_progress(move |progress| log.note((progress.fraction(), progress.payload().is_some())));
    let handle = manager.schedule(job);
    for (expected, has_payload) in [(0.25, false), (0.0, false), (0.75, true), (1.0, true)] {
        manager.process();
        assert_eq!(handle.progress(), expected);
        assert_eq!(handle.payload().is_some(), has_payload);
    }
    assert_eq!(handle.payload().unwrap().downcast_ref(), Some(&42));
    let expected = [
        (0.25, false),
        (0.0, false),
        (0.75, true),
        (0.75, true),
        (1.0, false),
    ];
    assert_eq!(told.all(), expected);
    let fails = manager.schedule(LaneJob::steps([Step::progress(0.5), Step::fail("no")]));
    manager.process();
    assert!(fails.is_faulted());
    assert_eq!(fails.progress(), 0.5);
    by_hand.end();
}

#[test]
fn an_awaited_thing_that_fails_fails_the_job_and_one_that_is_cancelled_cancels_it() {
    let _watchdog = watch();
    let world = World::new(2);
    let manager = &world.manager;
    let fails = manager.schedule(LaneJob::steps([Step::wait(async { Err("broken".into()) })]));
    let waits_for_it = manager.schedule(LaneJob::steps([Step::handle(&fails)]));
    let awaits_it = manager.schedule(LaneJob::future(async |_| {
        future::sleep(Duration::ZERO).await?;
        Err::<(), _>("broken, too".into())
    }));
    for handle in [fails, waits_for_it] {
        let error = handle.join().unwrap_err();
        assert!(matches!(error, JobError::Failed(_)));
        assert!(error.to_string().contains("broken"), "{error}");
    }
    assert!(awaits_it.join().unwrap_err().to_string().contains("too"));

    let cancelled = manager.schedule(LaneJob::steps([Step::wait(pending())]));
    let waits_for_it = manager.schedule(LaneJob::steps([Step::handle(&cancelled)]));
    cancelled.cancel("changed my mind");
    let awaits_it = manager.schedule(LaneJob::future(async |_| Ok(cancelled.await?)));
    for handle in [waits_for_it, awaits_it] {
        let error = handle.join().unwrap_err();
        assert!(matches!(error, JobError::Cancelled(_)));
        assert!(error.to_string().contains("changed my mind"), "{error}");
    }
    world.end();
}

#[test]
fn a_cancellation_during_an_awaited_future_is_seen_at_once() {
    let _watchdog = watch();
    let world = World::new(1);
    let job = LaneJob::steps([Step::wait(async {
        future::sleep(FAR).await?;
        Ok(())
    })]);
    let handle = world.manager.schedule(job);
    handle.cancel("enough");
    assert!(handle.wait_timeout(FAR).unwrap().is_err());
    assert!(handle.is_canceled());
    world.end();
}

#[test]
fn a_job_that_waits_is_polled_when_it_is_woken_and_not_before() {
    let _watchdog = watch();
    let world = World::new(1);
    let polls = Arc::new(AtomicUsize::new(0));
    let (wakers, waker) = channel::unbounded::<Waker>();
    let counted = Arc::clone(&polls);
    let waits = poll_fn(
        move |context| match counted.fetch_add(1, Ordering::SeqCst) {
            0 => {
                wakers.try_send(context.waker().clone()).unwrap();
                Poll::Pending
            }
            _ => Poll::Ready(Ok(())),
        },
    );
    let handle = world.manager.schedule(LaneJob::steps([Step::wait(waits)]));
    let waker = waker.recv().unwrap();
    // Many jobs come and go meanwhile.
    for _ in 0..500 {
        world
            .manager
            .schedule(LaneJob::action(|| Ok(())))
            .join()
            .unwrap();
    }
    assert_eq!(polls.load(Ordering::SeqCst), 1);
    assert_eq!(world.manager.queued(&Lane::Any), 0);
    waker.wake();
    handle.join().unwrap();
    assert_eq!(polls.load(Ordering::SeqCst), 2);
    world.end();
}

#[test]
fn an_idle_job_has_one_step_a_pump_and_none_without() {
    let _watchdog = watch();
    let world = World::new(1);
    let manager = &world.manager;
    let steps = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&steps);
    let idle = manager.schedule(
        LaneJob::coroutine(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(Next::<()>::NextDispatch)
        })
        .lane(Lane::Main),
    );
    for frame in 1..=10 {
        let report = manager.pump(&Lane::Main, PumpLimit::default()).unwrap();
        assert_eq!((report.ran, report.ended, report.left), (1, 0, 1));
        assert_eq!(steps.load(Ordering::SeqCst), frame);
    }
    idle.cancel("enough");
    manager.pump(&Lane::Main, PumpLimit::default()).unwrap();
    assert!(idle.is_canceled());
    world.end();
}

#[test]
fn priorities_go_first_and_equal_ones_in_turn() {
    let _watchdog = watch();
    let by_hand = ByHand::new(|builder| builder);
    let log = Log::new();
    for round in 0..2 {
        for priority in Priority::ALL {
            let job = note(&log, (priority, round)).priority(priority);
            drop(by_hand.manager.schedule(job));
        }
    }
    assert_eq!(by_hand.manager.queued(&Lane::Any), 10);
    assert_eq!(by_hand.manager.queued_at(&Lane::Any, Priority::Low), 2);
    assert_eq!(by_hand.manager.process().ran, 10);
    let expected: Vec<_> = Priority::ALL
        .into_iter()
        .rev()
        .flat_map(|priority| [(priority, 0), (priority, 1)])
        .collect();
    assert_eq!(log.all(), expected);
    assert!(by_hand.manager.average_wait(Priority::Low).is_some());
    by_hand.end();
}

#[test]
fn jobs_come_after_others_and_continue_as_these_ended() {
    let _watchdog = watch();
    let world = World::new(2);
    let manager = &world.manager;
    let log = Log::new();
    let firsts: Vec<_> = (0..4)
        .map(|number| manager.schedule(note(&log, number)))
        .collect();
    let dependencies: Vec<_> = firsts.iter().map(|first| first.dependency()).collect();
    let last = manager.schedule(note(&log, 9).after(&dependencies));
    last.join().unwrap();
    assert_eq!(log.all().last(), Some(&9));
    assert_eq!(log.all().len(), 5);

    let good = &firsts[0];
    let bad = manager.schedule(LaneJob::<()>::steps([Step::fail("no")]));
    for (on, after_good, after_bad) in [
        (On::Success, true, false),
        (On::Failure, false, true),
        (On::Always, true, true),
    ] {
        for (handle, runs) in [(good, after_good), (&bad, after_bad)] {
            let then = handle.then(on, LaneJob::action(|| Ok(())));
            let _ = then.wait();
            assert_eq!((then.is_completed(), then.is_canceled()), (runs, !runs));
        }
    }
    world.end();
}

#[test]
fn a_job_that_comes_after_others_waits_in_no_queue_and_can_be_cancelled() {
    let _watchdog = watch();
    let world = World::new(1);
    let manager = &world.manager;
    let never = manager.schedule(LaneJob::steps([Step::wait(pending())]));
    let after = manager.schedule(LaneJob::action(|| Ok(())).after([&never.dependency()]));
    // It has had its first look when this one is done.
    manager.schedule(LaneJob::action(|| Ok(()))).join().unwrap();
    assert_eq!(manager.queued(&Lane::Any), 0);
    after.cancel("enough");
    assert!(after.wait().is_err());
    assert!(after.is_canceled() && !never.is_finished());
    world.end();
}

#[test]
fn jobs_with_more_than_64_steps_take_turns() {
    let _watchdog = watch();
    let by_hand = ByHand::new(|builder| builder);
    let manager = &by_hand.manager;
    let log = Log::new();
    let endless: Vec<_> = ["a", "b", "c"]
        .map(|name| {
            let log = log.clone();
            manager.schedule(LaneJob::coroutine(move |_| {
                log.note(name);
                Ok(Next::<()>::Again)
            }))
        })
        .into();
    for _ in 0..10 {
        let report = manager.process();
        assert_eq!((report.ran, report.ended, report.left), (3, 0, 3));
    }
    let turns: Vec<_> = log
        .all()
        .chunk_by(|a, b| a == b)
        .map(|c| (c[0], c.len()))
        .collect();
    let round = [("a", 64), ("b", 64), ("c", 64)];
    assert_eq!(turns, round.repeat(10));
    drop(endless);
    by_hand.end();
}

#[test]
fn a_panic_anywhere_in_its_code_fails_the_job() {
    let _watchdog = watch();
    let world = World::new(1);
    let manager = &world.manager;
    fn panics<T>() -> T {
        std::panic::resume_unwind(Box::new("with intent"))
    }
    let handles = [
        manager.schedule(LaneJob::steps_with(panics::<[Step; 1]>)),
        manager.schedule(LaneJob::steps(std::iter::from_fn(panics::<Option<Step>>))),
        manager.schedule(LaneJob::steps([Step::start(panics)])),
        manager.schedule(LaneJob::steps([Step::action(panics)])),
        manager.schedule(LaneJob::steps([Step::wait(async { panics() })])),
        manager.schedule(LaneJob::action(panics)),
        manager.schedule(LaneJob::task(|_| panics())),
        manager.schedule(LaneJob::future(async |_| panics())),
        manager.schedule(LaneJob::coroutine(|_| panics())),
    ];
    for handle in handles {
        assert!(matches!(handle.wait(), Err(JobError::Panicked(_))));
        assert!(handle.is_faulted());
    }
    assert_eq!(manager.slots().in_use, 0);
    world.end();
}

#[test]
fn an_action_that_fails_ends_the_job_and_no_step_comes_after_it() {
    let _watchdog = watch();
    let world = World::new(1);
    let job = LaneJob::steps([
        Step::progress(0.5),
        Step::action(|| Err("the disk is full".into())),
        Step::start(|| unreachable!("it has failed")),
    ]);
    let handle = world.manager.schedule(job);
    let error = handle.wait().unwrap_err();
    assert!(error.to_string().contains("the disk is full"), "{error}");
    assert!(handle.is_faulted());
    world.end();
}

#[test]
fn an_awaited_job_of_the_runtime_that_fails_or_is_cancelled_does_so_to_the_job() {
    let _watchdog = watch();
    let world = World::new(2);
    let fails = world.runtime.spawn(|| Err::<(), _>("there".into()));
    let sleeps = world.runtime.spawn(|| Ok(jobtree_runtime::sleep(FAR)?));
    sleeps.cancel("changed my mind");
    let waits_for = |handle: jobtree_runtime::JobHandle<()>| {
        let step = Step::wait(async { Ok(handle.await?) });
        world.manager.schedule(LaneJob::steps([step]))
    };
    let (failed, cancelled) = (waits_for(fails), waits_for(sleeps));
    assert!(matches!(failed.wait(), Err(JobError::Failed(_))));
    let error = cancelled.wait().unwrap_err();
    assert!(matches!(error, JobError::Cancelled(_)));
    assert!(error.to_string().contains("changed my mind"), "{error}");
    world.end();
}

#[test]
fn plain_numbers_are_progress_and_whatever_else_is_payload() {
    let _watchdog = watch();
    let by_hand = ByHand::new(|builder| builder);
    let steps: [Step; 6] = [
        0.25f32.into(),
        Step::NextDispatch,
        0.5f64.into(),
        Step::NextDispatch,
        Step::payload(vec![1, 2, 3]),
        Step::NextDispatch,
    ];
    let handle = by_hand.manager.schedule(LaneJob::steps(steps));
    for expected in [0.25, 0.5, 0.5] {
        by_hand.manager.process();
        assert_eq!(handle.progress(), expected);
    }
    let payload = handle.payload().unwrap();
    assert_eq!(payload.downcast_ref::<Vec<i32>>().unwrap(), &[1, 2, 3]);
    assert!(!handle.is_finished());
    by_hand.manager.process();
    assert_eq!(handle.progress(), 1.0);
    by_hand.end();
}

#[test]
fn an_iterator_is_asked_for_a_step_when_the_last_one_is_done() {
    let _watchdog = watch();
    let by_hand = ByHand::new(|builder| builder);
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let (sender, receiver) = channel::bounded::<()>(1);
    let mut wait = Some(Step::wait(async move { Ok(receiver.recv_async().await?) }));
    let steps = std::iter::from_fn(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        wait.take()
    });
    let handle = by_hand.manager.schedule(LaneJob::steps(steps));
    by_hand.manager.process();
    by_hand.manager.process();
    assert_eq!(asked.load(Ordering::SeqCst), 1, "it waits");
    let sent: Result<(), BoxError> = sender.send(()).map_err(Into::into);
    sent.unwrap();
    by_hand.manager.process();
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert!(handle.is_completed());
    by_hand.end();
}
