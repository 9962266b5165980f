//! Jobs on every lane: tasks that block, hops from lane to lane, callbacks where they were asked for.

mod support;

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use jobtree_lanes::{
    Call, Callbacks, Context, ContextError, JobManager, Lane, LaneJob, PumpLimit, Step,
};
use jobtree_runtime::{
    BoxError, Job, JobError, channel, checkpoint, future, nursery, sim, sleep, sync,
};
use support::{ByHand, FAR, Log, World, watch};

/// Pumps `lane` until `handle` has ended.
fn pump_until<T>(manager: &JobManager, lane: &Lane, handle: &jobtree_lanes::LaneHandle<T>) {
    while !handle.is_finished() {
        manager.pump(lane, PumpLimit::default()).unwrap();
        thread::yield_now();
    }
}

fn this_thread() -> ThreadId {
    thread::current().id()
}

#[test]
fn a_job_is_in_the_tree_by_its_label_with_all_below_it() {
    let _watchdog = watch();
    let world = World::new(2);
    let (sender, began) = mpsc::channel();
    let job = LaneJob::task(move |context| {
        assert_eq!(Job::current().as_ref(), Some(context.job()));
        nursery(|n| {
            n.launch(|| {
                sender.send(())?;
                Ok(sleep(FAR)?)
            });
            Ok(())
        })?;
        Ok(())
    });
    let handle = world.manager.schedule(job.label("load"));
    began.recv().unwrap();
    assert_eq!(handle.job().path(), "root/job manager/load");
    let dump = world.runtime.dump_tree().to_string();
    assert!(
        dump.contains("job manager") && dump.contains("load"),
        "{dump}"
    );
    assert!(world.manager.job().children().contains(handle.job()));
    handle.cancel("with all below it");
    assert!(matches!(handle.join(), Err(JobError::Cancelled(_))));
    world.end();
}

#[test]
fn with_a_share_of_one_jobs_wait_for_each_other() {
    let _watchdog = watch();
    let world = World::with(2, |builder| builder.workers(1));
    let (sender, receiver) = channel::rendezvous::<u32>();
    let waits = world
        .manager
        .schedule(LaneJob::task(move |_| Ok(receiver.recv()? + 1)));
    let sends = world
        .manager
        .schedule(LaneJob::task(move |_| Ok(sender.send(41)?)));
    assert_eq!(waits.join().unwrap(), 42);
    sends.join().unwrap();
    let inner = world.manager.clone();
    let nested = world.manager.schedule(LaneJob::action(move || {
        Ok(inner.schedule(LaneJob::action(|| Ok(7))).join()?)
    }));
    assert_eq!(nested.join().unwrap(), 7);
    world.end();
}

#[test]
fn no_more_jobs_run_at_a_time_than_the_share_except_for_those_that_wait() {
    let _watchdog = watch();
    sim::check(0..60, |runtime| {
        let manager = JobManager::builder().runtime(runtime).workers(2).build()?;
        let running = Arc::new(Mutex::new((0, 0)));
        let handles: Vec<_> = (0..10)
            .map(|_| {
                let running = Arc::clone(&running);
                manager.schedule(LaneJob::task(move |_| {
                    let mut count = running.lock().unwrap();
                    count.0 += 1;
                    count.1 = count.0.max(count.1);
                    drop(count);
                    // A place where others may act, but none where it waits.
                    checkpoint()?;
                    running.lock().unwrap().0 -= 1;
                    Ok(())
                }))
            })
            .collect();
        for handle in handles {
            handle.join()?;
        }
        assert!(running.lock().unwrap().1 <= 2);
        manager.shutdown(FAR)?;
        Ok(())
    });
}

#[test]
fn a_task_runs_on_every_lane_and_reports_from_there() {
    let _watchdog = watch();
    let world = World::new(2);
    for lane in [Lane::Any, Lane::Main, Lane::frame("audio")] {
        let job = LaneJob::task(|context: &Context| {
            context.progress_with(0.5, "half").wait()?;
            // Blocks the thread that pumps, or parks the stack of a worker.
            sleep(Duration::from_millis(1))?;
            Ok(this_thread())
        });
        let handle = world.manager.schedule(job.lane(lane.clone()));
        if lane == Lane::Any {
            handle.wait().unwrap();
        } else {
            pump_until(&world.manager, &lane, &handle);
        }
        assert_eq!(handle.payload().unwrap().downcast_ref(), Some(&"half"));
        let is_here = handle.join().unwrap() == this_thread();
        assert_eq!(is_here, lane != Lane::Any);
    }
    world.end();
}

#[test]
fn a_task_waits_for_its_next_dispatch_on_the_workers_and_others_go_first() {
    let _watchdog = watch();
    let world = World::with(1, |builder| builder.workers(1));
    let log = Log::new();
    let (noted, manager) = (log.clone(), world.manager.clone());
    let task = LaneJob::task(move |context| {
        let other = noted.clone();
        let handle = manager.schedule(LaneJob::action(move || {
            other.note("other");
            Ok(())
        }));
        noted.note("before");
        context.next_dispatch().wait()?;
        noted.note("after");
        handle.join()?;
        Ok(())
    });
    world.manager.schedule(task).join().unwrap();
    assert_eq!(log.all(), ["before", "other", "after"]);
    world.end();
}

#[test]
fn a_task_cannot_wait_for_the_pump_that_it_blocks() {
    let _watchdog = watch();
    let world = World::new(1);
    let job = LaneJob::task(|context| {
        let error = context.next_dispatch().wait().unwrap_err();
        assert!(matches!(error, ContextError::OnPumpedLane));
        assert!(error.to_string().contains("run_on"));
        // What is to be done on this very lane is done at once.
        let here = context.run_on(Lane::Main, this_thread).wait()?;
        assert_eq!(here, this_thread());
        Ok(())
    });
    let handle = world.manager.schedule(job.lane(Lane::Main));
    world
        .manager
        .pump(&Lane::Main, PumpLimit::default())
        .unwrap();
    handle.join().unwrap();
    world.end();
}

#[test]
fn a_job_hops_from_lane_to_lane() {
    let _watchdog = watch();
    let world = World::new(2);
    let frame = Lane::frame("upload");
    let to = frame.clone();
    let hops = world
        .manager
        .schedule(LaneJob::future(async move |context| {
            let start = this_thread();
            let main = context.run_on(Lane::Main, this_thread).await?;
            let upload = context.run_on(to, this_thread).await?;
            let back = context.run_on(Lane::Any, this_thread).await?;
            Ok((start, main, upload, back))
        }));
    let blocks = world.manager.schedule(LaneJob::task(|context| {
        Ok(context.run_on(Lane::Main, this_thread).wait()?)
    }));
    let uploader = thread::scope(|scope| {
        let uploader = scope.spawn(|| {
            pump_until(&world.manager, &frame, &hops);
            this_thread()
        });
        pump_until(&world.manager, &Lane::Main, &hops);
        pump_until(&world.manager, &Lane::Main, &blocks);
        uploader.join().unwrap()
    });
    let (start, main, upload, back) = hops.join().unwrap();
    assert_eq!((main, upload), (this_thread(), uploader));
    assert!(![this_thread(), uploader].contains(&start));
    assert!(![this_thread(), uploader].contains(&back));
    assert_eq!(blocks.join().unwrap(), this_thread());
    world.end();
}

#[test]
fn a_panic_on_the_other_lane_is_told_and_a_cancellation_reaches_it() {
    let _watchdog = watch();
    let world = World::new(1);
    let manager = &world.manager;
    let panics = manager.schedule(LaneJob::future(async |context| {
        let hop = context.run_on(Lane::Main, || -> () {
            std::panic::resume_unwind(Box::new("there"));
        });
        Ok(matches!(hop.await, Err(JobError::Panicked(_))))
    }));
    pump_until(manager, &Lane::Main, &panics);
    assert!(panics.join().unwrap());

    let (ran, has_run) = mpsc::channel::<()>();
    let waits = manager.schedule(LaneJob::future(async move |context| {
        context.run_on(Lane::Main, move || ran.send(())).await??;
        Ok(())
    }));
    support::until(|| manager.queued(&Lane::Main) == 1);
    waits.cancel("nobody pumps");
    manager.pump(&Lane::Main, PumpLimit::default()).unwrap();
    assert!(matches!(waits.join(), Err(JobError::Cancelled(_))));
    assert!(
        has_run.try_recv().is_err(),
        "what was cancelled did not run"
    );
    world.end();
}

#[test]
fn what_nobody_waits_for_on_the_other_lane_is_cancelled() {
    let _watchdog = watch();
    let world = World::new(1);
    let (ran, has_run) = mpsc::channel::<()>();
    let (dropped, is_dropped) = mpsc::channel();
    let handle = world
        .manager
        .schedule(LaneJob::future(async move |context| {
            let mut hop = Box::pin(context.run_on(Lane::Main, move || ran.send(())));
            let polled =
                std::future::poll_fn(|task| std::task::Poll::Ready(hop.as_mut().poll(task)));
            let is_pending = polled.await.is_pending();
            drop(hop);
            dropped.send(())?;
            Ok(is_pending)
        }));
    // Nobody pumps while somebody may still wait for it.
    is_dropped.recv().unwrap();
    pump_until(&world.manager, &Lane::Main, &handle);
    assert!(handle.join().unwrap());
    assert!(has_run.try_recv().is_err());
    world.end();
}

/// A job of each ending, with callbacks that note what was called on which thread.
fn with_callbacks(
    manager: &JobManager,
    place: &Callbacks,
    log: &Log<(&'static str, ThreadId)>,
) -> Vec<jobtree_lanes::LaneHandle<()>> {
    let noting = |what: &'static str| {
        let log = log.clone();
        move || log.note((what, this_thread()))
    };
    let describe = |steps: Vec<Step>| {
        let (faulted, progress) = (noting("faulted"), noting("progress"));
        let job = LaneJob::steps(steps)
            .on_completed(noting("completed"))
            .on_canceled(noting("canceled"))
            .on_faulted(move |_| faulted())
            .on_progress(move |_| progress())
            .callbacks_on(place.clone());
        manager.schedule(job)
    };
    let completes = describe(vec![Step::progress(0.5)]);
    let fails = describe(vec![Step::fail("no")]);
    let waits = describe(vec![Step::wait(std::future::pending())]);
    waits.cancel("enough");
    vec![completes, fails, waits]
}

const CALLED: [&str; 5] = ["canceled", "completed", "faulted", "progress", "progress"];

fn names(log: &Log<(&'static str, ThreadId)>) -> Vec<&'static str> {
    let mut names: Vec<_> = log.all().into_iter().map(|(name, _)| name).collect();
    names.sort();
    names
}

#[test]
fn callbacks_are_called_by_whoever_ends_the_job() {
    let _watchdog = watch();
    let by_hand = ByHand::new(|builder| builder);
    let log = Log::new();
    let handles = with_callbacks(&by_hand.manager, &Callbacks::Inline, &log);
    while handles.iter().any(|handle| !handle.is_finished()) {
        by_hand.manager.process();
    }
    assert_eq!(names(&log), CALLED);
    assert!(log.all().iter().all(|(_, thread)| *thread == this_thread()));
    by_hand.end();
}

#[test]
fn callbacks_are_called_on_the_lane_that_was_asked_for() {
    let _watchdog = watch();
    let world = World::new(2);
    let log = Log::new();
    let handles = with_callbacks(&world.manager, &Callbacks::Lane(Lane::Main), &log);
    for handle in &handles {
        let _ = handle.wait();
    }
    assert_eq!(log.all(), [], "nobody has pumped");
    while log.all().len() < CALLED.len() {
        world
            .manager
            .pump(&Lane::Main, PumpLimit::default())
            .unwrap();
    }
    assert_eq!(names(&log), CALLED);
    assert!(log.all().iter().all(|(_, thread)| *thread == this_thread()));
    world.end();
}

#[test]
fn callbacks_on_a_lane_come_in_order_and_before_its_jobs() {
    let _watchdog = watch();
    let world = World::new(2);
    let manager = &world.manager;
    let log = Log::new();
    let waiting = support::note(&log, "a job of the lane".to_owned()).lane(Lane::Main);
    drop(manager.schedule(waiting));
    let noting = || {
        let log = log.clone();
        move |what: String| log.note(what)
    };
    let (progress, completed) = (noting(), noting());
    let steps = (1..=9).map(|tenths| Step::progress(tenths as f32 / 10.0));
    let job = LaneJob::steps(steps)
        .on_progress(move |now| progress(format!("{:.1}", now.fraction())))
        .on_completed(move || completed("completed".to_owned()))
        .callbacks_on(Callbacks::Lane(Lane::Main));
    manager.schedule(job).join().unwrap();
    // Nine, the last one, which is forced, and the end; and the job that came first.
    support::until(|| manager.queued(&Lane::Main) == 12);
    manager.pump(&Lane::Main, PumpLimit::unlimited()).unwrap();
    let mut expected: Vec<_> = (1..=10)
        .map(|t| format!("{:.1}", t as f32 / 10.0))
        .collect();
    expected.extend(["completed", "a job of the lane"].map(str::to_owned));
    assert_eq!(log.all(), expected);
    world.end();
}

#[test]
fn reports_that_wait_for_a_lane_are_bounded_and_the_newest_is_told() {
    let _watchdog = watch();
    let world = World::new(2);
    let manager = &world.manager;
    let log = Log::new();
    let noted = log.clone();
    let steps = (1..=1000).map(|thousandths| Step::progress(thousandths as f32 / 1000.0));
    let job = LaneJob::steps(steps)
        .on_progress(move |now| noted.note(now.fraction()))
        .callbacks_on(Callbacks::Lane(Lane::Main));
    manager.schedule(job).join().unwrap();
    manager.pump(&Lane::Main, PumpLimit::unlimited()).unwrap();
    let told = log.all();
    assert!(told.len() <= 64, "{} reports waited", told.len());
    assert!(told.is_sorted(), "{told:?}");
    assert_eq!(told.last(), Some(&1.0));
    world.end();
}

#[test]
fn callbacks_are_given_to_the_executor_that_was_asked_for() {
    let _watchdog = watch();
    let world = World::new(2);
    let log = Log::new();
    let (calls, to_call) = mpsc::channel::<Call>();
    let place = Callbacks::Executor(Arc::new(move |call| calls.send(call).unwrap()));
    drop(with_callbacks(&world.manager, &place, &log));
    for _ in CALLED {
        to_call.recv().unwrap()();
    }
    assert_eq!(names(&log), CALLED);
    assert!(log.all().iter().all(|(_, thread)| *thread == this_thread()));
    world.end();
}

#[test]
fn callbacks_for_a_lane_that_nobody_pumps_any_more_are_called_at_shutdown() {
    let _watchdog = watch();
    let world = World::new(1);
    let log = Log::new();
    let handles = with_callbacks(&world.manager, &Callbacks::Lane(Lane::Main), &log);
    for handle in &handles {
        let _ = handle.wait();
    }
    let manager = world.manager.clone();
    world.end();
    support::until(|| log.all().len() == CALLED.len());
    assert_eq!(names(&log), CALLED);
    drop(manager);
}

#[test]
fn a_callback_that_panics_harms_nobody() {
    let _watchdog = watch();
    let by_hand = ByHand::new(|builder| builder);
    let panic = || std::panic::resume_unwind(Box::new("with intent"));
    let job = LaneJob::steps([Step::progress(0.5)])
        .on_progress(move |_| panic())
        .on_completed(panic);
    let handle = by_hand.manager.schedule(job);
    by_hand.manager.process();
    handle.join().unwrap();
    assert_eq!(by_hand.manager.slots().in_use, 0);
    by_hand.end();
}

#[test]
fn a_job_cancelled_before_it_is_scheduled_never_runs() {
    let _watchdog = watch();
    let world = World::new(1);
    let log = Log::new();
    let noted = log.clone();
    let mut job = LaneJob::action(|| -> Result<(), BoxError> { unreachable!("it was cancelled") })
        .on_canceled(move || noted.note("canceled"));
    job.cancel_token().cancel("never mind");
    let handle = world.manager.schedule(job);
    assert!(handle.is_canceled());
    assert_eq!(log.all(), ["canceled"]);
    assert_eq!(world.manager.slots().in_use, 0);
    let error = handle.join().unwrap_err();
    assert!(error.to_string().contains("never mind"), "{error}");
    world.end();
}

#[test]
fn an_external_token_cancels_a_job_that_waits_or_computes() {
    let _watchdog = watch();
    let world = World::new(2);
    let token = jobtree_runtime::CancelToken::new();
    let waits = LaneJob::future(async |_| {
        future::sleep(FAR).await?;
        Ok(())
    });
    let waits = world.manager.schedule(waits.token(token.clone()));
    let computes = LaneJob::action(support::for_ever::<()>).token(token.clone());
    let computes = world.manager.schedule(computes);
    let other = world.manager.schedule(LaneJob::action(|| Ok(1)));
    token.cancel("the user closed the window");
    for handle in [waits, computes] {
        let error = handle.join().unwrap_err();
        assert!(error.to_string().contains("closed the window"), "{error}");
    }
    assert_eq!(other.join().unwrap(), 1);
    world.end();
}

#[test]
fn locks_and_timers_park_tasks_of_a_share_of_one() {
    let _watchdog = watch();
    sim::check(0..60, |runtime| {
        let manager = JobManager::builder().runtime(runtime).workers(1).build()?;
        let mutex = Arc::new(sync::Mutex::new(0));
        let handles: Vec<_> = (0..6)
            .map(|_| {
                let mutex = Arc::clone(&mutex);
                manager.schedule(LaneJob::task(move |context| {
                    let mut value = mutex.lock()?;
                    let before = *value;
                    sleep(Duration::from_millis(3))?;
                    context.next_dispatch().wait()?;
                    *value = before + 1;
                    Ok(())
                }))
            })
            .collect();
        for handle in handles {
            handle.join()?;
        }
        assert_eq!(*mutex.lock()?, 6);
        manager.shutdown(FAR)?;
        Ok(())
    });
}
