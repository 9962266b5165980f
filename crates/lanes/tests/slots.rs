//! Slots: taken once, given back once, whatever becomes of the job.

mod support;

use std::sync::mpsc;
use std::time::Duration;

use jobtree_lanes::{JobManager, LaneJob, Next, Step, WhyRefused};
use jobtree_runtime::{JobError, Runtime, block_on, nursery, sim, sleep};
use support::{ByHand, FAR, World, for_ever, until, watch};

fn in_use(manager: &JobManager) -> usize {
    manager.slots().in_use
}

#[test]
fn a_slot_is_held_from_scheduling_to_the_end() {
    let _watchdog = watch();
    let by_hand = ByHand::new(|builder| builder.queue_limit(3));
    let manager = &by_hand.manager;
    let first = manager.schedule(LaneJob::action(|| Ok(())));
    let slots = manager.slots();
    assert_eq!((slots.in_use, slots.available), (1, Some(2)));
    assert_eq!(slots.capacity, Some(3));
    let second = manager.schedule(LaneJob::steps([Step::NextDispatch, Step::NextDispatch]));
    assert_eq!(in_use(manager), 2);
    assert_eq!(manager.process().ended, 1);
    first.join().unwrap();
    assert_eq!(in_use(manager), 1, "the other one comes back");
    manager.process();
    manager.process();
    assert_eq!(in_use(manager), 0);
    second.join().unwrap();
    by_hand.end();
}

#[test]
fn a_requeue_takes_no_slot() {
    let _watchdog = watch();
    let world = World::with(1, |builder| builder.workers(1).queue_limit(1));
    let mut steps = 0;
    let job = LaneJob::coroutine(move |_| {
        steps += 1;
        Ok(match steps {
            1000 => Next::Done(steps),
            _ => Next::NextDispatch,
        })
    });
    assert_eq!(world.manager.schedule(job).join().unwrap(), 1000);
    assert_eq!(in_use(&world.manager), 0);
    world.end();
}

#[test]
fn a_job_that_was_joined_has_given_its_slot_back() {
    let _watchdog = watch();
    let world = World::with(2, |builder| builder.workers(2).queue_limit(1));
    for _ in 0..2000 {
        let handle = world.manager.try_schedule(LaneJob::action(|| Ok(())));
        handle.unwrap().join().unwrap();
    }
    world.end();
}

#[test]
fn a_job_that_fails_panics_or_is_cancelled_gives_its_slot_back() {
    let _watchdog = watch();
    let world = World::with(2, |builder| builder.workers(2).queue_limit(4));
    let manager = &world.manager;
    let fails = manager.schedule(LaneJob::<()>::steps([Step::fail("with intent")]));
    let panics = manager.schedule(LaneJob::action(|| -> Result<(), _> {
        std::panic::resume_unwind(Box::new("with intent"))
    }));
    let waits = manager.schedule(LaneJob::<()>::steps([Step::wait(std::future::pending())]));
    let computes = manager.schedule(LaneJob::action(for_ever::<()>));
    assert!(matches!(fails.join(), Err(JobError::Failed(_))));
    assert!(matches!(panics.join(), Err(JobError::Panicked(_))));
    assert_eq!(in_use(manager), 2);
    waits.cancel("enough");
    computes.cancel("enough");
    assert!(matches!(waits.join(), Err(JobError::Cancelled(_))));
    assert!(matches!(computes.join(), Err(JobError::Cancelled(_))));
    assert_eq!(in_use(manager), 0);
    world.end();
}

#[test]
fn try_schedule_gives_the_job_back_when_all_slots_are_taken() {
    let _watchdog = watch();
    let by_hand = ByHand::new(|builder| builder.queue_limit(1));
    let manager = &by_hand.manager;
    let first = manager.try_schedule(LaneJob::action(|| Ok(1))).unwrap();
    let refused = manager.try_schedule(LaneJob::action(|| Ok(2))).unwrap_err();
    assert_eq!(refused.why(), WhyRefused::QueueFull);
    assert!(refused.to_string().contains("queue_limit"));
    manager.process();
    assert_eq!(first.join().unwrap(), 1);
    let second = manager.try_schedule(refused.into_job()).unwrap();
    manager.process();
    assert_eq!(second.join().unwrap(), 2);
    by_hand.end();
}

#[test]
fn schedule_waits_until_a_slot_is_free() {
    let _watchdog = watch();
    let by_hand = ByHand::new(|builder| builder.queue_limit(1));
    let manager = &by_hand.manager;
    let first = manager.schedule(LaneJob::action(|| Ok(1)));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| manager.schedule(LaneJob::action(|| Ok(2))));
        let waits_async = scope.spawn(|| {
            let scheduled = block_on(manager.schedule_async(LaneJob::action(|| Ok(3))));
            scheduled.unwrap()
        });
        assert_eq!(manager.queued(&jobtree_lanes::Lane::Any), 1);
        until(|| {
            manager.process();
            waits.is_finished() && waits_async.is_finished()
        });
        manager.process();
        let values = [waits, waits_async].map(|waits| waits.join().unwrap().join().unwrap());
        assert_eq!(values, [2, 3]);
    });
    first.join().unwrap();
    assert_eq!(in_use(manager), 0);
    by_hand.end();
}

#[test]
fn shutdown_frees_those_who_wait_for_a_slot() {
    let _watchdog = watch();
    sim::check(0..50, |runtime: &Runtime| {
        let builder = JobManager::builder().runtime(runtime).workers(1);
        let manager = builder.queue_limit(1).build()?;
        let first = manager.schedule(LaneJob::steps([Step::wait(std::future::pending())]));
        nursery(|n| {
            let waits = n.spawn(|| Ok(manager.schedule(LaneJob::action(|| Ok(())))));
            let waits_async = n.spawn_future(async {
                let job = LaneJob::action(|| Ok(()));
                Ok(manager.schedule_async(job).await)
            });
            // The clock goes on when all wait.
            sleep(Duration::from_millis(1))?;
            manager.shutdown(FAR)?;
            for waits in [waits, waits_async] {
                let handle = waits.join()?;
                assert!(handle.is_canceled());
            }
            Ok(())
        })?;
        assert!(first.is_canceled());
        assert_eq!(in_use(&manager), 0);
        Ok(())
    });
}

#[test]
fn a_caller_that_is_cancelled_while_it_waits_gets_a_cancelled_job() {
    let _watchdog = watch();
    let world = World::with(2, |builder| builder.workers(1).queue_limit(1));
    let keeps = world
        .manager
        .schedule(LaneJob::<()>::steps([Step::wait(std::future::pending())]));
    let manager = world.manager.clone();
    let (sender, receiver) = mpsc::channel();
    let caller = world.runtime.spawn(move || {
        let handle = manager.schedule(LaneJob::action(|| Ok(())));
        sender.send(handle.is_canceled())?;
        Ok(())
    });
    caller.cancel("no more");
    assert!(receiver.recv().unwrap_or(true), "or it never began");
    let _ = caller.join();
    assert_eq!(in_use(&world.manager), 1);
    keeps.cancel("enough");
    let _ = keeps.join();
    assert_eq!(in_use(&world.manager), 0);
    world.end();
}

#[test]
fn without_a_limit_any_number_is_scheduled() {
    let _watchdog = watch();
    let by_hand = ByHand::new(|builder| builder.queue_limit(0));
    let manager = &by_hand.manager;
    let handles: Vec<_> = (0..10_000)
        .map(|number| {
            let job = LaneJob::action(move || Ok(number));
            manager.try_schedule(job).unwrap()
        })
        .collect();
    let slots = manager.slots();
    assert_eq!((slots.in_use, slots.available), (10_000, None));
    assert_eq!(slots.capacity, None);
    assert_eq!(manager.process().ran, 10_000);
    for (number, handle) in handles.into_iter().enumerate() {
        assert_eq!(handle.join().unwrap(), number);
    }
    assert_eq!(in_use(manager), 0);
    by_hand.end();
}

#[test]
fn what_a_job_has_done_on_other_lanes_takes_no_slot() {
    let _watchdog = watch();
    let world = World::with(2, |builder| builder.workers(2).queue_limit(1));
    let handle = world.manager.schedule(LaneJob::future(async |context| {
        let mut sum = 0;
        for number in 0..100 {
            sum += context
                .run_on(jobtree_lanes::Lane::Any, move || number)
                .await?;
        }
        Ok(sum)
    }));
    assert_eq!(handle.join().unwrap(), 4950);
    assert_eq!(in_use(&world.manager), 0);
    world.end();
}

#[test]
fn slots_balance_in_every_order() {
    let _watchdog = watch();
    sim::check(0..150, |runtime: &Runtime| {
        let manager = JobManager::builder()
            .runtime(runtime)
            .workers(2)
            .queue_limit(3)
            .build()?;
        let mut handles = Vec::new();
        for number in 0..12u64 {
            let job = LaneJob::task(move |context| {
                if number % 3 == 0 {
                    context.next_dispatch().wait()?;
                }
                sleep(Duration::from_millis(number % 4))?;
                match number % 5 {
                    4 => Err("with intent".into()),
                    _ => Ok(number),
                }
            });
            let handle = manager.schedule(job);
            assert!(in_use(&manager) <= 3);
            if number % 4 == 1 {
                handle.cancel("by the test");
            }
            handles.push(handle);
        }
        for handle in handles {
            let _ = handle.join();
        }
        assert_eq!(in_use(&manager), 0);
        manager.shutdown(FAR)?;
        Ok(())
    });
}
