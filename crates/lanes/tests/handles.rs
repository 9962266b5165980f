//! Handles: waiting, flags, names, and what a job is when nobody has one.

mod support;

use std::sync::mpsc;
use std::time::Duration;

use jobtree_lanes::{FrameLane, Lane, LaneJob, Priority, Step};
use jobtree_runtime::{JobError, JobState, Runtime, block_on, sim};
use support::{ByHand, FAR, World, watch};

#[test]
fn flags_tell_how_a_job_ended_and_one_at_a_time() {
    let _watchdog = watch();
    let by_hand = ByHand::new(|builder| builder);
    let manager = &by_hand.manager;
    let completes = manager.schedule(LaneJob::steps([]));
    let fails = manager.schedule(LaneJob::steps([Step::fail("no")]));
    let panics = manager.schedule(LaneJob::steps([Step::action(|| {
        std::panic::resume_unwind(Box::new("with intent"))
    })]));
    let waits = manager.schedule(LaneJob::steps([Step::wait(std::future::pending())]));
    let all = [&completes, &fails, &panics, &waits];
    let flags = || {
        all.map(|handle| {
            let ends = [
                handle.is_completed(),
                handle.is_canceled(),
                handle.is_faulted(),
            ];
            assert_eq!(handle.is_finished(), ends.contains(&true));
            ends
        })
    };
    assert_eq!(flags(), [[false; 3]; 4]);
    manager.process();
    let [completed, canceled, faulted] = [
        [true, false, false],
        [false, true, false],
        [false, false, true],
    ];
    assert_eq!(flags(), [completed, faulted, faulted, [false; 3]]);
    assert!(waits.cancel("enough"));
    assert!(!waits.cancel("twice"), "it was asked before");
    manager.process();
    assert_eq!(flags(), [completed, faulted, faulted, canceled]);
    assert_eq!(completes.state(), JobState::Completed);
    assert!(completes.wait().is_ok());
    assert!(matches!(fails.wait(), Err(JobError::Failed(_))));
    assert!(matches!(panics.wait(), Err(JobError::Panicked(_))));
    let error = waits.wait().unwrap_err();
    assert!(error.to_string().contains("enough"), "{error}");
    by_hand.end();
}

#[test]
fn a_handle_tells_priority_lane_label_kind_and_an_id_of_its_own() {
    let _watchdog = watch();
    let world = World::new(1);
    let manager = &world.manager;
    let plain = manager.schedule(LaneJob::action(|| Ok(())));
    let named = LaneJob::action(|| Ok(())).label("upload").kind("texture");
    let named = named
        .priority(Priority::Highest)
        .lane(FrameLane::COLLECT_VISIBLE_SWAP);
    let named = manager.schedule(named);
    assert_ne!(plain.id(), named.id());
    assert_eq!(named.id(), named.job().id());
    assert_eq!(
        (plain.priority(), plain.lane()),
        (Priority::Normal, Lane::Any)
    );
    assert_eq!(named.priority(), Priority::Highest);
    assert_eq!(named.lane(), Lane::frame("CollectVisibleSwap"));
    assert_eq!((&*named.label(), named.kind()), ("upload", "texture"));
    assert_eq!(plain.kind(), "action");
    world.end();
}

#[test]
fn a_wait_with_a_limit_ends_with_it() {
    let _watchdog = watch();
    let report = sim::Runtime::new(2).run(|runtime: &Runtime| {
        let manager = jobtree_lanes::JobManager::builder()
            .runtime(runtime)
            .build()?;
        let job = LaneJob::future(async |_| {
            jobtree_runtime::future::sleep(Duration::from_secs(10)).await?;
            Ok("late")
        });
        let handle = manager.schedule(job);
        let limit = Duration::from_secs(4);
        assert!(handle.wait_timeout(limit).is_none());
        assert_eq!(sim::elapsed(), Some(limit));
        assert!(handle.wait_timeout(limit).is_none());
        assert!(matches!(handle.wait_timeout(limit), Some(Ok(()))));
        assert_eq!(sim::elapsed(), Some(Duration::from_secs(10)));
        assert_eq!(handle.join()?, "late", "waiting does not take the value");
        manager.shutdown(FAR)?;
        Ok(())
    });
    report.outcome.unwrap();
}

#[test]
fn a_handle_can_be_awaited_anywhere() {
    let _watchdog = watch();
    let world = World::new(1);
    let handle = world.manager.schedule(LaneJob::action(|| Ok(5)));
    assert_eq!(block_on(handle).unwrap().unwrap(), 5);
    world.end();
}

#[test]
fn a_job_without_a_handle_runs_all_the_same() {
    let _watchdog = watch();
    let world = World::new(1);
    let (sender, receiver) = mpsc::channel();
    drop(
        world
            .manager
            .schedule(LaneJob::action(move || Ok(sender.send(1)?))),
    );
    assert_eq!(receiver.recv(), Ok(1));
    world.end();
}

#[test]
fn callbacks_of_a_job_are_called_once_each_whenever_they_were_added() {
    let _watchdog = watch();
    let by_hand = ByHand::new(|builder| builder);
    let (said, heard) = mpsc::channel();
    let say = |what: &'static str| {
        let said = said.clone();
        move || said.send(what).unwrap()
    };
    let steps = || LaneJob::steps([Step::progress(0.5)]);
    let job = steps().on_completed(say("before")).on_completed(say("too"));
    let handle = by_hand.manager.schedule(job);
    handle.on_completed(say("scheduled"));
    handle.on_canceled(say("never"));
    assert!(heard.try_recv().is_err());
    by_hand.manager.process();
    assert_eq!(
        Vec::from_iter(heard.try_iter()),
        ["before", "too", "scheduled"]
    );
    handle.on_completed(say("ended"));
    handle.on_faulted(|_| unreachable!("it has completed"));
    assert_eq!(Vec::from_iter(heard.try_iter()), ["ended"]);

    let fails = by_hand.manager.schedule(LaneJob::steps([Step::fail("no")]));
    let waits = by_hand
        .manager
        .schedule(LaneJob::steps([Step::wait(std::future::pending())]));
    waits.on_canceled(say("canceled"));
    let faulted = say("faulted");
    fails.on_faulted(move |error| {
        assert!(error.to_string().contains("no"));
        faulted();
    });
    waits.cancel("enough");
    by_hand.manager.process();
    let mut ends = Vec::from_iter(heard.try_iter());
    ends.sort();
    assert_eq!(ends, ["canceled", "faulted"]);
    by_hand.end();
}

#[test]
fn a_callback_that_is_added_while_the_job_ends_is_called_once() {
    let _watchdog = watch();
    let world = World::new(2);
    for _ in 0..if cfg!(miri) { 20 } else { 2000 } {
        let (said, heard) = mpsc::channel();
        let handle = world.manager.schedule(LaneJob::action(|| Ok(())));
        handle.on_completed(move || said.send(()).unwrap());
        handle.join().unwrap();
        assert_eq!(heard.iter().count(), 1);
    }
    world.end();
}
