//! Programs depend on `jobtree` alone: each name that others build on is there, with the form that they use.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::time::Duration;

use jobtree::{
    BoxError, Cancelled, Job, JobError, JobHandle, JobState, NurseryState, Outcome, Pool, Profile,
    Runtime, channel,
};
use watchdog::Watchdog;

const FAR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(1);

fn watch() -> Watchdog {
    Watchdog::watching(std::thread::current().name().unwrap_or("main"))
}

#[test]
fn forks_and_scopes() {
    let _watch = watch();
    assert_eq!(jobtree::join(|| 1, || 2), (1, 2));
    assert_eq!(jobtree::join!(|| 1, || 2, || 3), (1, 2, 3));
    assert_eq!(
        jobtree::with_worker(|w| w.join(|_| 'a', |_| 'b')),
        ('a', 'b')
    );
    let mut written = 0;
    jobtree::scope(|s| s.spawn(|_| written = 7));
    assert_eq!(written, 7);
    assert_eq!(jobtree::isolate(|| 5), 5);
}

#[test]
fn pools() -> Result<(), BoxError> {
    let _watch = watch();
    let pool = Pool::builder().workers(2).build()?;
    assert_eq!(pool.install(jobtree::current_workers), 2);
    assert_eq!(pool.stats().workers.len(), 2);
    assert!(Pool::global().workers() > 0);
    Ok(())
}

#[test]
fn runtimes() -> Result<(), BoxError> {
    let _watch = watch();
    let runtime = Runtime::builder()
        .workers(1)
        .profile(Profile::Service)
        .build()?;
    assert_eq!(runtime.spawn(|| Ok(1)).join()?, 1);
    assert_eq!(runtime.block_on(async { 2 })?, 2);
    runtime.shutdown(FAR)?;
    // Its pool is the global one.
    let workers = Runtime::global()
        .spawn(|| Ok(jobtree::current_workers()))
        .join()?;
    assert_eq!(workers, Pool::global().workers());
    Ok(())
}

#[test]
fn nurseries_and_handles() {
    let _watch = watch();
    let lent = [1, 2];
    let outcome: Outcome<i32> = jobtree::nursery(|n| {
        assert_eq!(n.state(), NurseryState::Open);
        let thread: JobHandle<i32> = n.spawn(|| Ok(lent[0]));
        let awaited: JobHandle<i32> = n.spawn_future(async { Ok(lent[1]) });
        assert!(thread.job().id() != awaited.job().id());
        let tried = n
            .try_spawn(|| Ok(3))
            .map_err(jobtree::budget::SpawnRefused::into_reason)?;
        let sum = n.spawn_future(async { Ok(thread.await? + awaited.await?) });
        Ok(sum.join()? + tried.join()?)
    });
    assert_eq!(outcome.unwrap(), 6);
    let alone = jobtree::supervisor(|n| {
        let failed = n.spawn(|| Err::<(), _>("alone".into()));
        Ok(matches!(failed.join(), Err(JobError::Failed(_))))
    });
    assert!(alone.unwrap());
    let cancelled = jobtree::nursery(|n| {
        n.cancel("enough");
        let told: Result<(), Cancelled> = jobtree::checkpoint();
        Ok(told?)
    });
    assert!(matches!(cancelled, Err(JobError::Cancelled(_))));
}

/// The function and the macro have one name, and one `use` brings both.
#[test]
fn a_nursery_as_a_block() {
    use jobtree::nursery;
    let _watch = watch();
    fn twice(number: u32) -> u32 {
        2 * number
    }
    let as_block = nursery! {
        spawn twice(1);
        let doubled = async twice(21);
        doubled.join()?
    };
    let as_function = nursery(|n| Ok(n.spawn(|| Ok(twice(21))).join()?));
    assert_eq!((as_block.unwrap(), as_function.unwrap()), (42, 42));
}

#[test]
fn the_current_job() {
    let _watch = watch();
    assert!(Job::current().is_none());
    let outcome = jobtree::nursery(|n| {
        let handle = n.spawn(|| {
            jobtree::yield_now();
            jobtree::tick();
            jobtree::checkpoint()?;
            jobtree::sleep(SOON)?;
            let job = Job::current().expect("this is one");
            assert_eq!(job.state(), JobState::Active);
            job.cancel("by itself");
            Ok(jobtree::checkpoint()?)
        });
        Ok(handle.join())
    });
    assert!(matches!(outcome, Ok(Err(JobError::Cancelled(_)))));
}

#[test]
fn limits() {
    let _watch = watch();
    let limited = jobtree::with_timeout(SOON, || Ok(jobtree::sleep(FAR)?));
    assert!(matches!(limited, Err(JobError::TimedOut(_))));
    let mut inside = None;
    let cancelled = jobtree::nursery(|n| {
        n.cancel("enough");
        let shielded = jobtree::shield(FAR, || Ok(jobtree::checkpoint()?));
        inside = Some(shielded.is_ok());
        Ok(())
    });
    assert_eq!(inside, Some(true));
    assert!(matches!(cancelled, Err(JobError::Cancelled(_))));
}

#[test]
fn awaiting_forms() -> Result<(), BoxError> {
    use jobtree::future;
    let _watch = watch();
    let value = jobtree::block_on(future::nursery(async |n| {
        let child = n.spawn_future(async {
            future::yield_now().await;
            jobtree::tick_async().await;
            future::sleep(SOON).await?;
            Ok(1)
        });
        let limited = future::with_timeout(FAR, async { Ok(2) });
        Ok(child.await? + limited.await?)
    }))??;
    assert_eq!(value, 3);
    Ok(())
}

#[test]
fn channels_and_select() -> Result<(), BoxError> {
    let _watch = watch();
    let (latest, shown) = channel::conflated();
    latest.send(1)?;
    latest.send(2)?;
    let (queue, queued) = channel::bounded(1);
    let (_never, nothing) = channel::rendezvous::<u32>();
    let (any, all) = channel::unbounded();
    let first = jobtree::select! {
        recv(nothing) -> value => value?,
        recv(shown) -> value => value?,
    }?;
    queue.send(first)?;
    let second = jobtree::block_on(async {
        jobtree::select_async! {
            recv(queued) -> value => value,
            after(FAR) => Ok(0),
        }
    });
    any.send(second???)?;
    assert_eq!(all.recv()?, 2);
    let lock = jobtree::sync::Mutex::new(1);
    *lock.lock()? += 1;
    assert_eq!(*lock.lock()?, 2);
    assert!(jobtree::sync::Semaphore::new(0).try_acquire(1).is_err());
    Ok(())
}

#[test]
fn actors_producers_and_dispatchers() -> Result<(), BoxError> {
    use jobtree::actor::{ActorOptions, Reply, from_fn};
    use jobtree::supervision::{RestartPolicy, Strategy, Supervisor};
    let _watch = watch();
    let answer = jobtree::nursery(|n| {
        let (numbers, _) = n.produce(1, |producer: &jobtree::Producer<u32>| {
            for number in 1..=3 {
                producer.send(number)?;
            }
            Ok(())
        });
        let sum: u32 = numbers.iter().sum();
        let echo = from_fn(move |reply: Reply<u32>, _| {
            reply.send(sum);
            Ok(())
        });
        Ok(n.actor(ActorOptions::new(), echo).ask(|reply| reply)?)
    })?;
    assert_eq!(answer, 6);
    let mut supervisor = Supervisor::new(Strategy::OneForOne);
    supervisor.job("once", RestartPolicy::Never, || Ok(()));
    supervisor.run()?;
    let dispatcher = jobtree::Dispatcher::new(1)?;
    assert_eq!(
        dispatcher.run(|| Ok(jobtree::current_worker_index()))?,
        None
    );
    dispatcher.drain(FAR)?;
    Ok(())
}

#[test]
fn job_managers() -> Result<(), BoxError> {
    use jobtree::lanes::{
        Callbacks, Context, FrameLane, JobManagerBuilder, Lane, LaneHandle, LaneJob, Next, Notice,
        On, Priority, Progress, PumpError, PumpLimit, ScheduleRefused, ShutdownError, Step,
        TrackedState, Tracker, WhyRefused, remote,
    };
    let _watch = watch();
    let runtime = Runtime::builder().workers(2).build()?;
    let builder: JobManagerBuilder = jobtree::JobManager::builder().runtime(&runtime);
    let manager: jobtree::lanes::JobManager = builder
        .queue_limit(8)
        .frame_lane("physics")
        .on_notice(|notice: &Notice| println!("{notice}"))
        .build()?;
    let tracker: Tracker = manager.tracker();
    let steps = LaneJob::steps([Step::progress(0.5), Step::NextDispatch]);
    let steps: LaneHandle<()> = manager.schedule(steps.priority(Priority::High));
    let task = LaneJob::task(|context: &Context| Ok(context.next_dispatch().wait()?));
    let after = steps.then(On::Success, task.callbacks_on(Callbacks::Inline));
    after.join()?;
    let swap = Lane::Frame(FrameLane::COLLECT_VISIBLE_SWAP);
    let coroutine = LaneJob::coroutine(|_| Ok(Next::Done(7))).lane(swap.clone());
    let seven = manager.schedule(coroutine);
    let pumped: Result<_, PumpError> = manager.pump(&swap, PumpLimit::default());
    assert_eq!(pumped?.ran, 1);
    assert_eq!(seven.join()?, 7);
    let shown = tracker.view().jobs;
    assert!(shown.iter().all(|job| job.state == TrackedState::Completed));
    assert_eq!(Progress::from_range(1, 2).fraction(), 0.5);
    let remote: LaneHandle<remote::RemoteResponse> =
        manager.schedule_remote(remote::RemoteRequest::new("nobody carries it"));
    assert!(remote.join().is_err());
    let ended: Result<(), ShutdownError> = manager.shutdown(FAR);
    ended?;
    let refused: ScheduleRefused<_, _> = manager
        .try_schedule(LaneJob::action(|| Ok(())))
        .unwrap_err();
    assert_eq!(refused.why(), WhyRefused::ShutDown);
    Ok(())
}

#[jobtree::budgeted]
fn counts_down(mut number: u32) -> u32 {
    let mut rounds = 0;
    while number > 0 {
        number -= 1;
        rounds += 1;
    }
    rounds
}

#[test]
fn budgets() -> Result<(), BoxError> {
    let _watch = watch();
    let runtime = Runtime::builder().workers(1).build()?;
    let burnt = runtime.nursery(|_| {
        let before = jobtree::budget::remaining().ops;
        assert_eq!(counts_down(10), 10);
        Ok(before - jobtree::budget::remaining().ops)
    })?;
    // Outside of a worker there is nobody to give way to, so nothing is charged.
    assert_eq!(burnt, 0);
    let burnt = runtime.spawn(|| {
        let before = jobtree::budget::remaining().ops;
        counts_down(10);
        Ok(before - jobtree::budget::remaining().ops)
    });
    assert_eq!(burnt.join()?, 11, "at the head, and in each round");
    Ok(())
}

/// Simulations switch stacks.
#[cfg(all(unix, not(miri)))]
#[test]
fn simulations() {
    let _watch = watch();
    let report = jobtree::sim::Runtime::new(1).run(|rt| Ok(rt.spawn(|| Ok(7)).join()?));
    assert_eq!(report.outcome.unwrap(), 7);
    jobtree::sim::check(0..3, |_| {
        jobtree::sleep(FAR)?;
        Ok(())
    });
}

#[cfg(feature = "durable")]
#[test]
fn durable_queues() -> Result<(), BoxError> {
    use jobtree::durable::{NewJob, Queue};

    let _watch = watch();
    let queue = Queue::in_memory();
    let worker = queue
        .worker()
        .handle("greet", |name: String, _| Ok(format!("Hello, {name}")))
        .start()?;
    let job = queue.submit(NewJob::new("greet", "you")).wait()?.job_id;
    assert_eq!(queue.result_of::<String>(job).wait()?, "Hello, you");
    worker.drain(FAR)?;
    Ok(())
}
