//! A scope that ends early with a value, and races: who loses is cancelled, and has ended when the caller goes on.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jobtree_runtime::{
    BoxError, JobError, NurseryState, channel, future, nursery, race, sim, sleep,
};
use support::{FAR, end, for_ever, runtime, until, watch};

/// Counts when it is dropped.
struct Ends(Arc<AtomicUsize>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

fn count() -> (Arc<AtomicUsize>, impl Fn() -> Ends) {
    let count = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&count);
    (count, move || Ends(Arc::clone(&counts)))
}

#[test]
fn finish_ends_the_others_before_the_caller_has_the_value() {
    let _watchdog = watch();
    let runtime = runtime(2);
    let (ended, ends) = count();
    let text = String::from("borrowed");
    let mut scope = None;
    let value = runtime.nursery(|n| {
        for _ in 0..3 {
            let ends = ends();
            n.launch(move || {
                let _ends = ends;
                for_ever()
            });
        }
        scope = Some(n.job().clone());
        n.finish(&text[..])
    });
    assert_eq!(value.unwrap(), "borrowed");
    assert_eq!(ended.load(Ordering::Acquire), 3);
    let state = NurseryState::from(scope.unwrap().state());
    assert_eq!(state, NurseryState::Cancelled);
    end(&runtime);
}

#[test]
fn what_fails_after_finish_does_not_reach_the_caller() {
    let _watchdog = watch();
    let runtime = runtime(2);
    for panics in [false, true] {
        let value = runtime.nursery(|n| {
            let (sender, begun) = channel::rendezvous();
            n.launch(move || {
                sender.send(())?;
                let _: Result<(), _> = for_ever();
                match panics {
                    true => panic!("a loser that panics"),
                    false => Err("a loser that fails".into()),
                }
            });
            begun.recv()?;
            n.finish(7)
        });
        assert_eq!(value.unwrap(), 7);
    }
    end(&runtime);
}

#[test]
fn what_failed_before_finish_is_the_outcome() {
    let _watchdog = watch();
    let runtime = runtime(2);
    let outcome = runtime.nursery(|n| {
        let failed = n.spawn(|| -> Result<(), BoxError> { Err("first".into()) });
        until(|| n.state() == NurseryState::Cancelling);
        drop(failed);
        n.finish(1)
    });
    assert!(matches!(outcome, Err(JobError::Failed(_))), "{outcome:?}");
    end(&runtime);
}

#[test]
fn a_scope_that_was_cancelled_before_cannot_finish() {
    let _watchdog = watch();
    let runtime = runtime(1);
    let outcome = runtime.nursery(|n| {
        n.cancel("too late");
        n.finish(1)
    });
    assert!(outcome.unwrap_err().is_cancelled());
    end(&runtime);
}

#[test]
fn nothing_begins_in_a_scope_that_has_finished() {
    let _watchdog = watch();
    let runtime = runtime(2);
    let count = AtomicUsize::new(0);
    let began = &count;
    let value = runtime.nursery(|n| {
        let (sender, begun) = channel::rendezvous();
        n.launch(move || {
            sender.send(())?;
            let _: Result<(), _> = for_ever();
            n.launch(move || {
                began.fetch_add(1, Ordering::Relaxed);
                Ok(())
            });
            Ok(())
        });
        begun.recv()?;
        n.finish(())
    });
    assert!(value.is_ok());
    assert_eq!(count.into_inner(), 0);
    end(&runtime);
}

#[test]
fn a_job_may_finish_its_scope_and_the_body_gives_the_value() {
    let _watchdog = watch();
    let runtime = runtime(2);
    let value = runtime.nursery(|n| {
        n.launch(|| n.finish(()));
        Ok(sleep(FAR).map_or(3, |()| 4))
    });
    assert_eq!(value.unwrap(), 3);
    end(&runtime);
}

#[test]
fn async_scopes_finish_as_well() {
    let _watchdog = watch();
    let runtime = runtime(2);
    let (ended, ends) = count();
    let value = runtime.block_on(future::nursery(async |n| {
        for _ in 0..3 {
            let ends = ends();
            drop(n.spawn_future::<_, ()>(async move {
                let _ends = ends;
                std::future::pending().await
            }));
        }
        n.finish("value")
    }));
    assert_eq!(value.unwrap().unwrap(), "value");
    assert_eq!(ended.load(Ordering::Acquire), 3);
    let cancelled = runtime.block_on(future::nursery(async |n| {
        n.cancel("too late");
        n.finish(1)
    }));
    assert!(cancelled.unwrap().unwrap_err().is_cancelled());
    end(&runtime);
}

#[test]
fn a_race_gives_the_first_value_and_its_losers_have_ended() {
    let _watchdog = watch();
    let runtime = runtime(2);
    let (ended, ends) = count();
    let outcome = runtime.spawn(move || {
        Ok(race((0..5).map(|number| {
            let ends = ends();
            move || {
                let _ends = ends;
                match number {
                    3 => Ok(number),
                    1 => Err("out of the race".into()),
                    _ => for_ever(),
                }
            }
        }))?)
    });
    assert_eq!(outcome.join().unwrap(), 3);
    assert_eq!(ended.load(Ordering::Acquire), 5);

    let (ended, ends) = count();
    let outcome = runtime.block_on(future::race((0..5).map(|number| {
        let ends = ends();
        async move {
            let _ends = ends;
            match number {
                3 => Ok(number),
                1 => Err("out of the race".into()),
                _ => std::future::pending().await,
            }
        }
    })));
    assert_eq!(outcome.unwrap().unwrap(), 3);
    assert_eq!(ended.load(Ordering::Acquire), 5);
    end(&runtime);
}

#[test]
fn a_race_that_nobody_wins_is_an_error() {
    let _watchdog = watch();
    let all_fail = race([0, 1].map(|_| || -> Result<(), BoxError> { Err("lost".into()) }));
    assert!(matches!(all_fail, Err(JobError::Failed(_))), "{all_fail:?}");
    let nobody = race(Vec::<fn() -> Result<(), BoxError>>::new());
    assert!(nobody.unwrap_err().to_string().contains("without jobs"));
    let cancelled = nursery(|n| {
        n.cancel("before it begins");
        Ok(race([for_ever::<()>])?)
    });
    assert!(cancelled.unwrap_err().is_cancelled());
}

#[test]
fn a_race_is_won_once_in_every_order() {
    sim::check(0..200, |_| {
        let (ended, ends) = count();
        let winner = race((0..4).map(|number| {
            let ends = ends();
            move || {
                let _ends = ends;
                sleep(std::time::Duration::from_millis(number % 2))?;
                Ok(number)
            }
        }))?;
        assert!(winner < 4);
        assert_eq!(ended.load(Ordering::Acquire), 4);
        Ok(())
    });
}
