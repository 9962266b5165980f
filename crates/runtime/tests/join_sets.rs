//! Sets of jobs whose outcomes are taken in the order in which they end: every rule by name.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};

use jobtree_runtime::channel::{Sender, rendezvous};
use jobtree_runtime::{JobError, JoinSet, WaitingFor, block_on, nursery, sim, sleep, supervisor};
use support::{Census, FAR, end, for_ever, rounds, runtime, until, until_it_waits, watch};

#[test]
fn outcomes_come_in_the_order_in_which_jobs_end() {
    let _watch = watch();
    let runtime = runtime(2);
    runtime
        .nursery(|n| {
            let mut set = JoinSet::new();
            let doors: Vec<Sender<()>> = (0..20)
                .map(|number| {
                    let (open, opened) = rendezvous();
                    set.insert(n.spawn(move || {
                        opened.recv()?;
                        Ok(number)
                    }));
                    open
                })
                .collect();
            assert!(set.try_join_next().is_none(), "none has ended");
            for number in [7, 0, 19, 3] {
                doors[number].send(())?;
                assert_eq!(set.join_next().unwrap()?, number);
            }
            assert_eq!(set.len(), 16);
            drop(doors);
            set.cancel_all("the others are not wanted");
            let mut cancelled = 0;
            while let Some(outcome) = set.join_next() {
                cancelled += usize::from(outcome.is_err());
            }
            assert_eq!((cancelled, set.is_empty()), (16, true));
            Ok(())
        })
        .unwrap_err();
    end(&runtime);
}

#[test]
fn in_a_supervisor_each_outcome_stands_alone() {
    let _watch = watch();
    let (mut values, mut failures, mut panics) = (0, 0, 0);
    supervisor(|n| {
        let mut set: JoinSet<u32> = (0..30)
            .map(|number| {
                n.spawn(move || match number % 3 {
                    0 => Ok(number),
                    1 => Err("on purpose".into()),
                    _ => std::panic::resume_unwind(Box::new("on purpose")),
                })
            })
            .collect();
        while let Some(outcome) = set.join_next() {
            match outcome {
                Ok(_) => values += 1,
                Err(JobError::Panicked(_)) => panics += 1,
                Err(_) => failures += 1,
            }
        }
        Ok(())
    })
    .unwrap();
    assert_eq!((values, failures, panics), (10, 10, 10));
}

#[test]
fn a_loop_over_all_outcomes_ends_even_if_its_own_job_is_cancelled() {
    let _watch = watch();
    let runtime = runtime(2);
    let errors = AtomicUsize::new(0);
    // Not below the job that waits, so that they do not end with it.
    let mut set: JoinSet<()> = (0..3).map(|_| runtime.spawn(for_ever)).collect();
    let outcome = runtime.nursery(|n| {
        let errors = &errors;
        let waiting = n.spawn(move || {
            while let Some(outcome) = set.join_next() {
                assert!(outcome.unwrap_err().is_cancelled());
                errors.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        });
        until_it_waits(waiting.job());
        assert_eq!(waiting.job().waiting_for(), Some(WaitingFor::Notification));
        n.cancel("enough");
        Ok(())
    });
    assert!(outcome.unwrap_err().is_cancelled());
    assert_eq!(errors.into_inner(), 3);
    end(&runtime);
}

#[test]
fn values_that_nobody_takes_are_dropped_with_the_set() {
    let _watch = watch();
    let runtime = runtime(2);
    let census = Census::default();
    runtime
        .nursery(|n| {
            let mut set = JoinSet::default();
            for _ in 0..5 {
                let census = census.clone();
                set.insert(n.spawn(move || Ok(census.value())));
            }
            drop(set.join_next());
            until(|| census.made() == 5);
            drop(set);
            Ok(())
        })
        .unwrap();
    census.assert_all_gone(5);
    end(&runtime);
}

#[test]
fn jobs_can_be_added_while_others_are_waited_for_in_async_code() {
    let _watch = watch();
    let sum = nursery(|n| {
        let mut set = JoinSet::new();
        set.insert(n.spawn(|| Ok(1)));
        Ok(block_on(async {
            let mut sum = 0;
            while let Some(outcome) = set.join_next_async().await {
                let number: u32 = outcome?;
                sum += number;
                if number < 100 {
                    set.insert(n.spawn_future(async move { Ok(number + 1) }));
                }
            }
            Ok::<u32, JobError>(sum)
        })??)
    });
    assert_eq!(sum.unwrap(), 5050);
}

/// The first of several wins, the others are cancelled, in very many orders.
#[test]
fn no_end_is_missed_in_any_order() {
    sim::check(0..rounds(200) as u64, |_| {
        let winner = supervisor(|n| {
            let mut set: JoinSet<u64> = (0..5)
                .map(|number| {
                    n.spawn(move || {
                        for _ in 0..number {
                            jobtree_pool::yield_now();
                        }
                        if number % 2 == 0 {
                            sleep(FAR)?;
                        }
                        Ok(number)
                    })
                })
                .collect();
            let first = set.join_next().expect("there are jobs")?;
            set.cancel_all("found");
            let mut rest = 0;
            while set.join_next().is_some() {
                rest += 1;
            }
            assert_eq!(rest, 4);
            Ok(first)
        })?;
        assert!(winner % 2 == 1);
        Ok(())
    });
}

#[test]
fn in_a_cancelled_job_only_jobs_that_have_ended_are_taken() {
    let _watch = watch();
    let runtime = runtime(2);
    let runs = runtime.spawn(for_ever);
    let ended = runtime.spawn(|| Ok(()));
    until(|| ended.is_finished());
    let running = runs.job().clone();
    let outcome = runtime.nursery(|n| {
        n.cancel("no longer needed");
        let mut set = JoinSet::from_iter([runs, ended]);
        assert!(set.try_join_next().expect("one has ended").is_ok());
        assert!(set.try_join_next().is_none(), "the other one runs");
        assert_eq!(set.len(), 1);
        let given_up = set.join_next().expect("it is given up");
        assert!(matches!(given_up, Err(JobError::Cancelled(_))));
        assert!(set.is_empty() && set.join_next().is_none());
        Ok(())
    });
    assert!(
        matches!(outcome, Err(JobError::Cancelled(_))),
        "{outcome:?}"
    );
    running.cancel("the test is over");
    end(&runtime);
}
