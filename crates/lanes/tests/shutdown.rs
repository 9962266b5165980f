//! The end of a manager, from wherever it comes.

mod support;

use std::future::pending;
use std::sync::mpsc;
use std::time::Duration;

use jobtree_lanes::{JobManager, Lane, LaneJob, Next, PumpLimit, Step, WhyRefused};
use jobtree_runtime::{BoxError, JobError, Runtime, future, sim, sleep};
use support::{FAR, World, for_ever, watch};

const LONG: Duration = Duration::from_secs(60);

/// Jobs in all states that a job can be in.
fn all_sorts(manager: &JobManager) -> Vec<jobtree_lanes::LaneHandle<()>> {
    let waits = || LaneJob::steps([Step::wait(pending())]);
    let first = manager.schedule(waits());
    vec![
        manager.schedule(LaneJob::action(for_ever)),
        manager.schedule(LaneJob::action(|| Ok(sleep(FAR)?))),
        manager.schedule(waits().lane(Lane::Main)),
        manager.schedule(waits().lane(Lane::frame("swap"))),
        manager.schedule(LaneJob::action(|| Ok(())).after([&first.dependency()])),
        manager.schedule(LaneJob::coroutine(|_| Ok(Next::NextDispatch))),
        manager.schedule(LaneJob::future(async |context| {
            context.run_on(Lane::Main, || ()).await?;
            Ok(())
        })),
        first,
    ]
}

fn assert_all_cancelled(manager: &JobManager, handles: Vec<jobtree_lanes::LaneHandle<()>>) {
    for handle in handles {
        assert!(matches!(handle.join(), Err(JobError::Cancelled(_))));
    }
    assert_eq!(manager.slots().in_use, 0);
}

#[test]
fn shutdown_cancels_everything_on_every_lane() {
    let _watchdog = watch();
    let world = World::new(2);
    let handles = all_sorts(&world.manager);
    world
        .manager
        .pump(&Lane::Main, PumpLimit::default())
        .unwrap();
    world.manager.shutdown(LONG).unwrap();
    assert_all_cancelled(&world.manager, handles);
    world.end();
}

#[test]
fn a_job_scheduled_after_the_shutdown_is_cancelled() {
    let _watchdog = watch();
    let world = World::new(1);
    let manager = &world.manager;
    let ended = manager.schedule(LaneJob::action(|| Ok(())));
    ended.wait().unwrap();
    manager.shutdown(LONG).unwrap();
    manager.shutdown(LONG).unwrap();
    let never = || LaneJob::action(|| -> Result<(), BoxError> { unreachable!("it was shut down") });
    for lane in [Lane::Any, Lane::Main, Lane::frame("new")] {
        let handle = manager.schedule(never().lane(lane));
        assert!(handle.is_canceled());
    }
    let handle = jobtree_runtime::block_on(manager.schedule_async(never())).unwrap();
    assert!(handle.is_canceled());
    assert!(ended.then(jobtree_lanes::On::Always, never()).is_canceled());
    let refused = manager.try_schedule(never()).unwrap_err();
    assert_eq!(refused.why(), WhyRefused::ShutDown);
    assert_eq!(
        manager.pump(&Lane::Main, PumpLimit::default()).unwrap().ran,
        0
    );
    world.end();
}

#[test]
fn a_job_that_does_not_end_is_named_and_not_waited_for() {
    let _watchdog = watch();
    let world = World::new(2);
    let (release, released) = mpsc::channel::<()>();
    let (began, has_begun) = mpsc::channel();
    let deaf = LaneJob::action(move || {
        began.send(())?;
        let _ = released.recv();
        Ok(())
    });
    let handle = world.manager.schedule(deaf.label("deaf"));
    has_begun.recv().unwrap();
    let error = world
        .manager
        .shutdown(Duration::from_millis(5))
        .unwrap_err();
    assert_eq!(error.stragglers(), ["job manager/deaf"]);
    assert!(error.to_string().contains("job manager/deaf"));
    drop(release);
    world.manager.shutdown(LONG).unwrap();
    assert!(handle.is_finished());
    world.end();
}

#[test]
fn shutdown_is_legal_inside_a_job() {
    let _watchdog = watch();
    for lane in [Lane::Any, Lane::Main] {
        let world = World::with(2, |builder| builder.workers(1));
        let manager = world.manager.clone();
        let (said, heard) = mpsc::channel();
        let ends = LaneJob::action(move || {
            said.send(manager.shutdown(LONG))?;
            Ok(())
        });
        let ends = world.manager.schedule(ends.lane(lane.clone()));
        let others = all_sorts(&world.manager);
        while !ends.is_finished() {
            let _ = world.manager.pump(&Lane::Main, PumpLimit::jobs(1));
        }
        assert_eq!(heard.recv().unwrap(), Ok(()));
        drop(ends);
        assert_all_cancelled(&world.manager, others);
        world.end();
    }
}

#[test]
fn a_manager_ends_with_its_last_handle() {
    let _watchdog = watch();
    let World { manager, runtime } = World::new(2);
    let handles = all_sorts(&manager);
    let other = manager.clone();
    drop(manager);
    assert!(handles.iter().all(|handle| !handle.job().is_cancelled()));
    drop(other);
    for handle in handles {
        assert!(matches!(handle.join(), Err(JobError::Cancelled(_))));
    }
    runtime.shutdown(LONG).unwrap();
}

#[test]
fn a_manager_keeps_its_runtime_and_ends_it() {
    let _watchdog = watch();
    for _ in 0..20 {
        let World { manager, runtime } = World::new(2);
        drop(runtime);
        manager.schedule(LaneJob::action(|| Ok(()))).join().unwrap();
        let handles = all_sorts(&manager);
        drop(manager);
        for handle in handles {
            assert!(matches!(handle.join(), Err(JobError::Cancelled(_))));
        }
    }
}

#[test]
fn a_manager_ends_with_its_runtime() {
    let _watchdog = watch();
    let World { manager, runtime } = World::new(2);
    let handles = all_sorts(&manager);
    runtime.shutdown(LONG).unwrap();
    assert!(manager.is_shut_down());
    assert_all_cancelled(&manager, handles);
    manager.shutdown(LONG).unwrap();
    assert!(JobManager::builder().runtime(&runtime).build().is_err());
}

#[test]
fn shutdown_ends_in_every_order() {
    let _watchdog = watch();
    sim::check(0..150, |runtime: &Runtime| {
        let manager = JobManager::builder()
            .runtime(runtime)
            .workers(2)
            .queue_limit(5)
            .build()?;
        let handles: Vec<_> = (0..5)
            .map(|number| {
                manager.schedule(LaneJob::future(async move |context| {
                    for _ in 0..number {
                        context.next_dispatch().await?;
                        future::sleep(Duration::from_millis(number)).await?;
                    }
                    context.run_on(Lane::Any, move || number).await?;
                    Ok(())
                }))
            })
            .collect();
        let closer = manager.clone();
        let closes = runtime.spawn(move || {
            sleep(Duration::from_millis(3))?;
            closer.shutdown(FAR)?;
            Ok(())
        });
        let late = manager.schedule(LaneJob::action(|| Ok(())));
        closes.join()?;
        for handle in &handles {
            assert!(handle.is_finished());
        }
        assert!(late.is_finished());
        assert_eq!(manager.slots().in_use, 0);
        Ok(())
    });
}

#[test]
fn a_shutdown_in_a_simulation_takes_no_longer_than_its_limit() {
    let _watchdog = watch();
    let report = sim::Runtime::new(1).run(|runtime: &Runtime| {
        let manager = JobManager::builder().runtime(runtime).build()?;
        let job = LaneJob::future(async |_| {
            let stubborn = future::shield(FAR, async {
                future::sleep(Duration::from_secs(60)).await?;
                Ok(())
            });
            Ok(stubborn.await?)
        });
        let handle = manager.schedule(job.label("stubborn"));
        sleep(Duration::from_millis(1))?;
        let error = manager.shutdown(Duration::from_secs(10)).unwrap_err();
        let elapsed = sim::elapsed().unwrap();
        assert_eq!(elapsed.as_secs(), 10);
        assert!(error.to_string().contains("stubborn"), "{error}");
        manager.shutdown(FAR)?;
        assert_eq!(sim::elapsed().unwrap().as_secs(), 60);
        assert!(handle.is_finished());
        Ok(())
    });
    report.outcome.unwrap();
}
