//! The manager in a simulation: orders that no thread would show, hours in milliseconds.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jobtree_lanes::{
    JobManager, Lane, LaneHandle, LaneJob, Next, Notice, Priority, PumpLimit, Step,
};
use jobtree_runtime::{BoxError, JobError, Runtime, checkpoint, future, nursery, sim, sleep};
use support::{FAR, Random, watch};

const MS: Duration = Duration::from_millis(1);

/// A job of any kind, that counts that its code ended, however it did.
fn any_job(random: &mut Random, ended: &Arc<AtomicUsize>) -> LaneJob<()> {
    struct Counts(Arc<AtomicUsize>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let counts = Counts(Arc::clone(ended));
    let (millis, steps) = (random.below(5) as u32, random.below(200));
    let fails = random.below(6) == 0;
    let end = move || -> Result<(), BoxError> {
        match fails {
            true => Err("with intent".into()),
            false => Ok(()),
        }
    };
    let job = match random.below(6) {
        0 => LaneJob::action(move || {
            let _counts = counts;
            end()
        })
        .boxed(),
        1 => LaneJob::task(move |context| {
            let _counts = counts;
            for _ in 0..millis {
                sleep(MS)?;
                context.next_dispatch().wait()?;
            }
            end()
        })
        .boxed(),
        2 => LaneJob::future(async move |context| {
            let _counts = counts;
            for step in 0..steps {
                context.progress(step as f32 / steps as f32).await?;
            }
            future::sleep(millis * MS).await?;
            context.run_on(Lane::Main, || ()).await?;
            end()
        })
        .boxed(),
        3 => {
            let mut left = steps;
            LaneJob::coroutine(move |_| {
                let _counts = &counts;
                left = left.saturating_sub(1);
                match left {
                    0 => end().map(Next::Done),
                    _ if left % 7 == 0 => Ok(Next::NextDispatch),
                    _ => Ok(Next::Again),
                }
            })
            .boxed()
        }
        4 => LaneJob::steps_with(move || {
            let mut counts = Some(counts);
            (0..steps).map(move |step| match step % 5 {
                0 => Step::progress(step as f32),
                1 => Step::wait_with(async move || Ok(future::sleep(millis * MS / 4).await?)),
                2 => Step::routine([Step::NextDispatch, Step::payload(step)]),
                3 if step + 5 > steps => {
                    drop(counts.take());
                    Step::action(end)
                }
                _ => Step::action(|| Ok(())),
            })
        })
        .boxed(),
        _ => LaneJob::task(move |_| {
            let _counts = counts;
            nursery(|n| {
                n.launch(|| Ok(sleep(MS)?));
                n.launch(|| Ok(checkpoint()?));
                Ok(())
            })?;
            end()
        })
        .boxed(),
    };
    let lane = match random.below(4) {
        0 => Lane::Main,
        1 => Lane::frame("swap"),
        _ => Lane::Any,
    };
    job.priority(Priority::ALL[random.below(5) as usize])
        .lane(lane)
}

fn random_jobs(runtime: &Runtime, seed: u64) -> Result<(), BoxError> {
    let mut random = Random(seed);
    let limit = 1 + random.below(8) as usize;
    let manager = JobManager::builder()
        .runtime(runtime)
        .workers(1 + random.below(3) as usize)
        .queue_limit(limit)
        .aging(3 * MS)
        .steps_per_dispatch(1 + random.below(64) as usize)
        .build()?;
    let ended = Arc::new(AtomicUsize::new(0));
    let pumper = {
        let manager = manager.clone();
        runtime.spawn(move || {
            while !manager.is_shut_down() {
                for lane in [Lane::Main, Lane::frame("swap")] {
                    manager.pump(&lane, PumpLimit::jobs(3))?;
                }
                sleep(MS)?;
            }
            Ok(())
        })
    };
    let count = 6 + random.below(10) as usize;
    let mut handles: Vec<LaneHandle<()>> = Vec::new();
    for _ in 0..count {
        let mut job = any_job(&mut random, &ended);
        if let (0, Some(earlier)) = (random.below(4), handles.last()) {
            job = job.after([&earlier.dependency()]);
        }
        let handle = manager.schedule(job);
        assert!(manager.slots().in_use <= limit);
        match random.below(8) {
            0 => drop(handle.cancel("by the test")),
            1 => sleep(MS)?,
            _ => {}
        }
        handles.push(handle);
    }
    if random.below(3) == 0 {
        manager.shutdown(FAR)?;
    }
    for handle in handles {
        match handle.wait() {
            Ok(()) => assert_eq!(handle.progress(), 1.0),
            Err(JobError::Failed(_)) => assert!(handle.is_faulted()),
            Err(error) => assert!(handle.is_canceled(), "{error}"),
        }
    }
    assert_eq!(manager.slots().in_use, 0);
    assert_eq!(
        ended.load(Ordering::Relaxed),
        count,
        "no job's code is left"
    );
    manager.shutdown(FAR)?;
    pumper.join()?;
    let stats = manager.stats();
    let sum = |of: fn(&jobtree_lanes::PriorityStats) -> u64| -> u64 {
        let lanes = stats.lanes.iter();
        lanes.flat_map(|lane| lane.priorities.iter().map(of)).sum()
    };
    assert_eq!(sum(|bucket| bucket.scheduled), count as u64);
    let ends = sum(|bucket| bucket.completed + bucket.canceled + bucket.faulted);
    assert_eq!(ends, count as u64);
    Ok(())
}

#[test]
fn no_job_is_lost_and_slots_balance_in_a_thousand_random_runs() {
    let _watchdog = watch();
    let next = AtomicUsize::new(0);
    sim::check(0..1000, |runtime| {
        // Each run has other jobs, too.
        random_jobs(runtime, next.fetch_add(1, Ordering::Relaxed) as u64)
    });
}

/// The bound that the order of turns promises: `aging`, and then `2 (O + 1)` turns, where `O` counts those who came first
/// and still wait.
#[test]
fn under_a_flood_of_urgent_jobs_the_lowest_have_their_turns_within_the_bound() {
    let _watchdog = watch();
    const LOWEST: u32 = 5;
    const TURNS_A_FRAME: u32 = 2;
    sim::check(0..40, |runtime: &Runtime| {
        let aging = 50 * MS;
        let builder = JobManager::builder().runtime(runtime).queue_limit(0);
        let manager = builder.aging(aging).build()?;
        let turns = Arc::new(Mutex::new(Vec::new()));
        let began = sim::elapsed().unwrap();
        let schedule = |priority| {
            let turns = Arc::clone(&turns);
            let job = LaneJob::action(move || {
                let when = sim::elapsed().unwrap() - began;
                turns.lock().unwrap().push((priority, when));
                Ok(())
            });
            drop(manager.schedule(job.priority(priority).lane(Lane::Main)));
        };
        for _ in 0..LOWEST {
            schedule(Priority::Lowest);
        }
        for _ in 0..200 {
            // Twice as many as there are turns.
            for _ in 0..2 * TURNS_A_FRAME {
                schedule(Priority::High);
            }
            manager.pump(&Lane::Main, PumpLimit::jobs(TURNS_A_FRAME as usize))?;
            sleep(MS)?;
        }
        let turns = turns.lock().unwrap();
        let lowest: Vec<Duration> = turns
            .iter()
            .filter(|(priority, _)| *priority == Priority::Lowest)
            .map(|(_, when)| *when)
            .collect();
        assert_eq!(lowest.len(), LOWEST as usize);
        for (first, when) in (0..).zip(lowest) {
            let bound = aging + 2 * (first + 1) * MS / TURNS_A_FRAME;
            assert!(when >= aging && when <= bound, "{first}: {when:?}");
        }
        manager.shutdown(FAR)?;
        Ok(())
    });
}

#[test]
fn a_job_that_starves_is_told_of_once() {
    let _watchdog = watch();
    let report = sim::Runtime::new(11).run(|runtime: &Runtime| {
        let notices = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&notices);
        let manager = JobManager::builder()
            .runtime(runtime)
            .on_notice(move |notice| heard.lock().unwrap().push(notice.to_string()))
            .build()?;
        let job = LaneJob::coroutine(|_| Ok(Next::<()>::NextDispatch));
        drop(manager.schedule(job.label("patient").lane(Lane::Main)));
        for _ in 0..3 {
            sleep(Duration::from_secs(20))?;
            manager.pump(&Lane::Main, PumpLimit::unlimited())?;
        }
        let notices = notices.lock().unwrap();
        assert_eq!(notices.len(), 1, "{notices:?}");
        assert!(notices[0].contains("patient") && notices[0].contains("20s"));
        Ok(())
    });
    report.outcome.unwrap();
}

#[test]
fn who_waits_for_a_slot_is_told_of_once_a_second() {
    let _watchdog = watch();
    let report = sim::Runtime::new(12).run(|runtime: &Runtime| {
        let notices = Arc::new(Mutex::new(0));
        let heard = Arc::clone(&notices);
        let manager = JobManager::builder()
            .runtime(runtime)
            .queue_limit(1)
            .on_notice(move |notice| {
                if let Notice::Backpressure { capacity: 1, .. } = notice {
                    *heard.lock().unwrap() += 1;
                }
            })
            .build()?;
        let sleeps = LaneJob::future(async |_| Ok(future::sleep(10 * 1001 * MS).await?));
        drop(manager.schedule(sleeps));
        manager.schedule(LaneJob::action(|| Ok(()))).join()?;
        assert_eq!(*notices.lock().unwrap(), 10);
        Ok(())
    });
    report.outcome.unwrap();
}
