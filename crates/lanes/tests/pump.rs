//! Lanes that threads of the program empty: limits, whose they are, and what is reported.

mod support;

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use jobtree_lanes::{FrameLane, JobManager, Lane, LaneJob, Next, PumpError, PumpLimit};
use jobtree_runtime::{sim, sleep};
use support::{FAR, Log, World, note, until, watch};

const SWAP: Lane = Lane::Frame(FrameLane::COLLECT_VISIBLE_SWAP);

/// Sleeps that long in the job, by the clock of the simulation.
fn takes(limit: Duration) -> LaneJob<(), impl jobtree_lanes::JobBody<()>> {
    LaneJob::action(move || Ok(sleep(limit)?))
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn jobs_of_a_lane_run_on_the_thread_that_pumps_it_and_nowhere_else() {
    let _watchdog = watch();
    let world = World::new(2);
    for lane in [Lane::Main, SWAP, Lane::frame("physics")] {
        let job = LaneJob::action(|| Ok(thread::current().id())).lane(lane.clone());
        let handle = world.manager.schedule(job);
        assert_eq!(world.manager.queued(&lane), 1);
        let report = world.manager.pump(&lane, PumpLimit::default()).unwrap();
        assert_eq!((report.ran, report.ended, report.left), (1, 1, 0));
        assert_eq!(handle.lane(), lane);
        assert_eq!(handle.join().unwrap(), thread::current().id());
    }
    world.end();
}

#[test]
fn a_pump_ends_after_its_number_of_jobs() {
    let _watchdog = watch();
    let world = World::new(1);
    let log = Log::new();
    for number in 0..10 {
        drop(world.manager.schedule(note(&log, number).lane(Lane::Main)));
    }
    let report = world.manager.pump(&Lane::Main, PumpLimit::jobs(3)).unwrap();
    assert_eq!((report.ran, report.left), (3, 7));
    let report = world.manager.pump(&Lane::Main, PumpLimit::unlimited());
    assert_eq!(report.unwrap().ran, 7);
    assert_eq!(log.all(), (0..10).collect::<Vec<_>>());
    let report = world.manager.pump(&Lane::Main, PumpLimit::jobs(0)).unwrap();
    assert_eq!(report.ran, 0);
    world.end();
}

#[test]
fn a_pump_ends_when_its_time_is_over_4_ms_by_default() {
    let _watchdog = watch();
    let report = sim::Runtime::new(3).run(|runtime| {
        let manager = JobManager::builder().runtime(runtime).build()?;
        for _ in 0..10 {
            drop(manager.schedule(takes(MS).lane(Lane::Main)));
        }
        let report = manager.pump(&Lane::Main, PumpLimit::default())?;
        assert_eq!((report.ran, report.left, report.took), (4, 6, 4 * MS));
        let report = manager.pump(&Lane::Main, PumpLimit::time(2 * MS))?;
        assert_eq!((report.ran, report.left), (2, 4));
        let both = PumpLimit::time(FAR).and_jobs(1);
        assert_eq!(manager.pump(&Lane::Main, both)?.ran, 1);
        assert_eq!(manager.pump(&Lane::Main, PumpLimit::unlimited())?.ran, 3);
        manager.shutdown(FAR)?;
        Ok(())
    });
    report.outcome.unwrap();
}

#[test]
fn a_pump_runs_what_was_queued_when_it_began_and_each_job_once() {
    let _watchdog = watch();
    let world = World::new(1);
    let manager = &world.manager;
    let log = Log::new();
    let (first, again) = (log.clone(), manager.clone());
    let job = LaneJob::coroutine(move |_| {
        first.note("first");
        drop(again.schedule(note(&first, "new").lane(Lane::Main)));
        Ok(Next::<()>::NextDispatch)
    });
    let first = manager.schedule(job.lane(Lane::Main));
    let ran = |manager: &JobManager| {
        let report = manager.pump(&Lane::Main, PumpLimit::unlimited()).unwrap();
        (report.ran, report.left)
    };
    assert_eq!(ran(manager), (1, 2));
    assert_eq!(ran(manager), (2, 2));
    assert_eq!(log.all(), ["first", "new", "first"]);
    first.cancel("enough");
    assert_eq!(ran(manager), (2, 0));
    world.end();
}

#[test]
fn slow_jobs_are_reported_from_1_ms_on_and_as_stalled_from_250_ms_on() {
    let _watchdog = watch();
    let report = sim::Runtime::new(5).run(|runtime| {
        let said = Arc::new(Mutex::new(0));
        let heard = Arc::clone(&said);
        let builder = JobManager::builder().runtime(runtime);
        let manager = builder
            .on_notice(move |_| *heard.lock().unwrap() += 1)
            .build()?;
        let job = |label, millis| takes(millis * MS).label(label).kind("test").lane(SWAP);
        drop(manager.schedule(job("slow", 1)));
        drop(manager.schedule(job("still slow", 249)));
        drop(manager.schedule(job("stalled", 250)));
        drop(manager.schedule(LaneJob::action(|| Ok(())).lane(SWAP)));
        let report = manager.pump(&SWAP, PumpLimit::unlimited())?;
        let slow: Vec<_> = report
            .slow
            .iter()
            .map(|slow| (&*slow.label, &*slow.kind, slow.took, slow.stalled))
            .collect();
        let expected = [
            ("slow", "test", MS, false),
            ("still slow", "test", 249 * MS, false),
            ("stalled", "test", 250 * MS, true),
        ];
        assert_eq!(slow, expected);
        assert_eq!(*said.lock().unwrap(), 3);
        Ok(())
    });
    report.outcome.unwrap();
}

#[test]
fn a_lane_is_pumped_by_one_thread_for_ever() {
    let _watchdog = watch();
    let world = World::new(1);
    let manager = &world.manager;
    manager.pump(&SWAP, PumpLimit::default()).unwrap();
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let error = manager.pump(&SWAP, PumpLimit::default()).unwrap_err();
            assert!(matches!(error, PumpError::WrongThread { .. }));
            assert!(error.to_string().contains("CollectVisibleSwap"), "{error}");
            manager.bind_lane(&Lane::Main).unwrap();
            manager.pump(&Lane::Main, PumpLimit::default()).unwrap();
        });
        other.join().unwrap();
    });
    let error = manager.bind_lane(&Lane::Main).unwrap_err();
    assert!(matches!(error, PumpError::WrongThread { .. }));
    assert!(manager.pump(&Lane::Main, PumpLimit::default()).is_err());
    assert!(matches!(
        manager.bind_lane(&Lane::Any),
        Err(PumpError::NotPumped(Lane::Any))
    ));
    world.end();
}

/// Runs `count` jobs that each call `pump` on the testing thread, and returns how deep they were nested at most.
fn depth_of(count: usize, pump: impl Fn(&JobManager) + Clone + Send + Sync + 'static) -> usize {
    let world = World::new(1);
    let manager = &world.manager;
    // The only worker is busy.
    let (release, released) = std::sync::mpsc::channel::<()>();
    let busy = manager.schedule(LaneJob::action(move || Ok(released.recv()?)));
    until(|| manager.queued(&Lane::Any) == 0);
    let depth = Arc::new(Mutex::new((0, 0)));
    let handles: Vec<_> = (0..count)
        .map(|_| {
            let (manager, pump, depth) = (manager.clone(), pump.clone(), Arc::clone(&depth));
            manager.clone().schedule(LaneJob::action(move || {
                {
                    let (now, most) = &mut *depth.lock().unwrap();
                    *now += 1;
                    *most = (*most).max(*now);
                }
                let outcome =
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pump(&manager)));
                depth.lock().unwrap().0 -= 1;
                outcome.map_err(|_| "pumping panicked".into())
            }))
        })
        .collect();
    while manager.queued(&Lane::Any) > 0 {
        pump(manager);
    }
    release.send(()).unwrap();
    busy.join().unwrap();
    handles.into_iter().for_each(|handle| drop(handle.join()));
    world.end();
    let (_, most) = *depth.lock().unwrap();
    most
}

#[test]
fn pumps_of_the_workers_lane_nest_to_a_bounded_depth() {
    let _watchdog = watch();
    // The job on top of sixteen pumps is told so.
    assert_eq!(depth_of(200, |manager| drop(manager.process())), 16);
    let refused = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&refused);
    let depth = depth_of(200, move |manager| {
        if let Err(error) = manager.pump(&Lane::Any, PumpLimit::unlimited()) {
            *noted.lock().unwrap() = Some(error);
        }
    });
    assert_eq!(depth, 16);
    let refused = refused.lock().unwrap().take();
    assert_eq!(refused, Some(PumpError::TooDeep { pumps: 16 }));
}

#[test]
fn a_job_that_a_pump_runs_cannot_pump() {
    let _watchdog = watch();
    let world = World::new(1);
    let manager = &world.manager;
    for inner in [Lane::Main, SWAP] {
        let again = manager.clone();
        let pumps = inner.clone();
        let job = LaneJob::action(move || {
            assert_eq!(
                again.pump(&pumps, PumpLimit::default()),
                Err(PumpError::Nested)
            );
            Ok(())
        });
        let handle = manager.schedule(job.lane(Lane::Main));
        manager.pump(&Lane::Main, PumpLimit::default()).unwrap();
        handle.join().unwrap();
    }
    // Afterwards it works as before.
    manager.pump(&SWAP, PumpLimit::default()).unwrap();
    world.end();
}

#[test]
fn a_panic_in_a_pumped_job_is_the_jobs_own() {
    let _watchdog = watch();
    let world = World::new(1);
    let job = LaneJob::action(|| -> Result<(), _> { std::panic::resume_unwind(Box::new(1)) });
    let panics = world.manager.schedule(job.lane(Lane::Main));
    let log = Log::new();
    drop(world.manager.schedule(note(&log, 1).lane(Lane::Main)));
    let report = world.manager.pump(&Lane::Main, PumpLimit::unlimited());
    assert_eq!(report.unwrap().ran, 2);
    assert!(panics.is_faulted());
    assert_eq!(log.all(), [1]);
    world.end();
}
