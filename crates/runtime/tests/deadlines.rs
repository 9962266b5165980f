//! Limits on time: they come or do not come, and belong to the one who set them.
//!
//! All tests of this program use the global runtime, so that one of them can count the threads that keep deadlines.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jobtree_runtime::{
    Job, JobError, JobHandle, JobState, Outcome, checkpoint, nursery, shield, sleep, supervisor,
    with_timeout,
};
use support::{FAR, for_ever, rounds, until_it_waits, watch};

const TINY: Duration = Duration::from_millis(1);

#[test]
fn a_limit_that_does_not_come_changes_nothing() {
    let _watch = watch();
    assert_eq!(with_timeout(FAR, || Ok(42)).unwrap(), 42);
    let outcome = with_timeout(FAR, || Err::<(), _>("a failure of its own".into()));
    assert!(matches!(outcome, Err(JobError::Failed(_))));
    let value = with_timeout(FAR, || Ok(nursery(|n| Ok(n.spawn(|| Ok(1)).join()?))?));
    assert_eq!(value.unwrap(), 1);
}

#[test]
fn a_limit_that_comes_ends_what_is_inside() {
    let _watch = watch();
    let began = Instant::now();
    let mut below = None;
    let outcome = with_timeout(TINY, || {
        nursery(|n| {
            below = Some(n.spawn(for_ever::<()>));
            for_ever::<()>()
        })?;
        Ok(())
    });
    assert!(outcome.unwrap_err().is_timed_out());
    assert!(began.elapsed() >= TINY, "a limit never comes early");
    // Unless the time was over before the scope could be opened.
    assert!(below.is_none_or(|below| below.job().state() == JobState::Cancelled));
}

/// The thread that keeps deadlines may be late, the limit is not: what took longer has timed out, even with a value.
#[test]
fn a_value_that_comes_after_the_limit_is_too_late() {
    let _watch = watch();
    for _ in 0..rounds(10) {
        let outcome = with_timeout(TINY, || {
            let deadline = Job::current().unwrap().deadline().unwrap();
            while Instant::now() <= deadline {
                std::hint::spin_loop();
            }
            Ok("late")
        });
        assert!(outcome.unwrap_err().is_timed_out());
    }
}

#[test]
fn of_nested_limits_an_outer_one_that_comes_belongs_to_the_outer_call() {
    let _watch = watch();
    let mut inner = None;
    let outer = with_timeout(TINY, || {
        inner = Some(with_timeout(FAR, for_ever::<()>));
        Ok(())
    });
    assert!(outer.unwrap_err().is_timed_out());
    match inner.unwrap() {
        Err(JobError::Cancelled(cancelled)) => assert_ne!(cancelled.job(), cancelled.origin()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn of_nested_limits_an_inner_one_that_comes_leaves_the_outer_call_alone() {
    let _watch = watch();
    let outer = with_timeout(FAR, || {
        let inner = with_timeout(TINY, for_ever::<()>);
        assert!(inner.unwrap_err().is_timed_out());
        checkpoint()?;
        Ok(nursery(|n| Ok(n.spawn(|| Ok(42)).join()?))?)
    });
    assert_eq!(outer.unwrap(), 42);
}

/// The error of the inner limit is a failure like any other, if the body does nothing about it.
#[test]
fn an_inner_timeout_that_the_body_returns_fails_the_outer_call() {
    let _watch = watch();
    let outer = with_timeout(FAR, || Ok(with_timeout(TINY, for_ever::<()>)?));
    let error = outer.unwrap_err();
    assert!(!error.is_cancelled());
    assert!(
        error.report().to_string().contains("ran out of time"),
        "{error:?}"
    );
}

#[test]
fn three_limits_and_the_middle_one_comes() {
    let _watch = watch();
    let mut innermost: Option<Outcome<()>> = None;
    let outermost = with_timeout(FAR, || {
        let middle = with_timeout(TINY, || {
            innermost = Some(with_timeout(FAR, for_ever));
            Ok(())
        });
        assert!(middle.unwrap_err().is_timed_out());
        Ok(())
    });
    outermost.unwrap();
    assert!(innermost.unwrap().unwrap_err().is_cancelled());
}

/// The limit around the shield is nearer but does not reach through it; the one inside must come by itself.
#[test]
fn a_limit_inside_of_a_shield_comes_although_a_nearer_one_is_outside() {
    let _watch = watch();
    let mut inner = None;
    let outer = with_timeout(TINY, || {
        // Not for ever, so that the test ends if the inner limit should be forgotten.
        shield(Duration::from_secs(2), || {
            inner = Some(with_timeout(2 * TINY, for_ever::<()>));
            Ok(())
        })?;
        Ok(())
    });
    assert!(outer.unwrap_err().is_timed_out());
    assert!(inner.unwrap().unwrap_err().is_timed_out());
}

#[test]
fn a_spawned_child_whose_limit_comes_fails_its_nursery() {
    let _watch = watch();
    let mut sibling = None;
    let outcome = nursery(|n| {
        sibling = Some(n.spawn(for_ever::<()>));
        let limited = n.job_options().label("limited").timeout(TINY);
        limited.launch(for_ever);
        for_ever::<()>()
    });
    match outcome {
        Err(JobError::TimedOut(timed_out)) => assert!(timed_out.path().ends_with("/limited")),
        other => panic!("{other:?}"),
    }
    assert_eq!(sibling.unwrap().job().state(), JobState::Cancelled);
}

#[test]
fn a_spawned_child_whose_limit_comes_fails_alone_under_a_supervisor() {
    let _watch = watch();
    let outcome = supervisor(|n| {
        let limited = n.job_options().timeout(TINY).spawn(for_ever::<()>);
        let job = limited.job().clone();
        assert!(limited.join().unwrap_err().is_timed_out());
        assert_eq!(job.state(), JobState::TimedOut);
        Ok(n.job_options().timeout(FAR).spawn(|| Ok(42)).join()?)
    });
    assert_eq!(outcome.unwrap(), 42);
}

#[test]
fn the_limit_of_a_child_counts_for_everything_below_it() {
    let _watch = watch();
    let outcome = supervisor(|n| {
        let limited = n.job_options().timeout(TINY).spawn(|| {
            let below = nursery(|n| Ok(n.spawn(for_ever::<()>).join()?));
            assert!(below.as_ref().is_err_and(JobError::is_cancelled));
            Ok(below?)
        });
        assert!(limited.join().unwrap_err().is_timed_out());
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn the_longest_limits_never_come_and_none_at_all_comes_at_once() {
    let _watch = watch();
    for limit in [
        Duration::MAX,
        Duration::from_secs(u64::MAX / 2),
        Duration::from_secs(u64::MAX / 4),
        Duration::from_secs(1 << 60),
        Duration::from_millis(u64::MAX),
        Duration::from_secs(1 << 40),
    ] {
        assert_eq!(with_timeout(limit, || Ok(1)).unwrap(), 1);
        let spawned = nursery(|n| {
            // One that waits, so that the driver has to look at it.
            let sleeper = n.spawn(move || Ok(sleep(limit)?));
            until_it_waits(sleeper.job());
            sleep(TINY)?;
            assert!(!sleeper.is_finished(), "{limit:?} is over");
            sleeper.cancel("seen enough");
            Ok(n.job_options().timeout(limit).spawn(|| Ok(2)).join()?)
        });
        assert_eq!(spawned.unwrap(), 2);
    }
    let outcome = with_timeout(Duration::ZERO, || Ok(()));
    assert!(outcome.unwrap_err().is_timed_out());
    let outcome = nursery(|n| {
        let none = n.job_options().timeout(Duration::ZERO);
        none.launch(for_ever);
        Ok(())
    });
    assert!(outcome.unwrap_err().is_timed_out());
    sleep(Duration::ZERO).unwrap();
}

#[test]
fn a_cancellation_ends_a_sleep() {
    let _watch = watch();
    nursery(|n| {
        let sleeper = n.spawn(|| Ok(sleep(FAR)?));
        until_it_waits(sleeper.job());
        sleeper.cancel("wake up");
        assert!(sleeper.join().unwrap_err().is_cancelled());
        Ok(())
    })
    .unwrap();
}

#[test]
fn sleeps_end_in_the_order_of_their_times_and_never_early() {
    let _watch = watch();
    nursery(|n| {
        let sleepers: Vec<JobHandle<()>> = (0..50_u64)
            .map(|number| {
                n.spawn(move || {
                    let time = Duration::from_micros(number * 7 % 50 * 200);
                    let began = Instant::now();
                    sleep(time)?;
                    assert!(began.elapsed() >= time);
                    Ok(())
                })
            })
            .collect();
        for sleeper in sleepers {
            sleeper.join()?;
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn deadlines_are_visible_to_what_they_bound() {
    let _watch = watch();
    let deadline = || Job::current().unwrap().deadline();
    with_timeout(FAR, || {
        let outer = deadline().unwrap();
        with_timeout(2 * FAR, || {
            assert_eq!(deadline(), Some(outer));
            Ok(())
        })?;
        with_timeout(FAR / 2, || {
            assert!(deadline() < Some(outer));
            Ok(())
        })?;
        nursery(|n| {
            Ok(n.spawn(move || {
                assert_eq!(deadline(), Some(outer));
                Ok(())
            })
            .join()?)
        })?;
        Ok(())
    })
    .unwrap();
}

#[cfg(target_os = "linux")]
fn threads_that_keep_deadlines() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names
        .filter(|name| name.trim_end() == "jobtree-timers")
        .count()
}

#[cfg(target_os = "linux")]
#[test]
fn thousands_of_limits_use_one_thread() {
    let _watch = watch();
    let in_time = AtomicUsize::new(0);
    let in_time = &in_time;
    supervisor(|n| {
        for number in 0..3000_u64 {
            // Some come, some do not, some sleep.
            let limit = if number % 3 == 0 { TINY } else { FAR };
            n.job_options().timeout(limit).launch(move || {
                if number % 3 == 0 {
                    return for_ever();
                }
                sleep(Duration::from_micros(number))?;
                in_time.fetch_add(1, Ordering::Relaxed);
                Ok(())
            });
        }
        assert_eq!(threads_that_keep_deadlines(), 1);
        Ok(())
    })
    .unwrap();
    assert_eq!(in_time.load(Ordering::Relaxed), 2000);
    assert_eq!(threads_that_keep_deadlines(), 1);
}

/// A time that is over just when the job ends: one of both, and nothing is lost.
#[test]
fn a_limit_races_with_the_end() {
    let _watch = watch();
    supervisor(|n| {
        for _ in 0..rounds(30) {
            let limited = n.job_options().timeout(TINY).spawn(|| Ok(sleep(TINY)?));
            let job = limited.job().clone();
            match limited.join() {
                Ok(()) => assert_eq!(job.state(), JobState::Completed),
                Err(JobError::TimedOut(_)) => assert_eq!(job.state(), JobState::TimedOut),
                Err(other) => panic!("{other:?}"),
            }
        }
        Ok(())
    })
    .unwrap();
}

#[cfg(not(miri))]
#[test]
fn an_interval_keeps_its_times_and_skips_those_that_were_missed() {
    use jobtree_runtime::{interval, sim, sleep};
    const SECOND: Duration = Duration::from_secs(1);
    sim::check(0..20, |_| {
        let mut each = interval(10 * SECOND);
        let mut ticks = Vec::new();
        for pause in [0, 3, 0, 35, 0, 0] {
            each.wait()?;
            ticks.push(sim::elapsed().unwrap().as_secs());
            sleep(pause * SECOND)?;
        }
        // What takes three seconds delays nothing. After the 35 s one tick is late, and the next one is at its time.
        assert_eq!(ticks, [0, 10, 20, 30, 65, 70]);
        jobtree_runtime::block_on(async {
            each.wait_async().await?;
            each.wait_async().await
        })??;
        assert_eq!(sim::elapsed().unwrap().as_secs(), 90);
        Ok(())
    });
}

#[cfg(not(miri))]
#[test]
fn a_join_with_a_limit_gives_the_handle_back() {
    use jobtree_runtime::{nursery, sim, sleep};
    const SECOND: Duration = Duration::from_secs(1);
    sim::check(0..20, |_| {
        nursery(|n| {
            let slow = n.spawn(|| {
                sleep(10 * SECOND)?;
                Ok(42)
            });
            let slow = slow.join_timeout(SECOND).unwrap_err();
            assert_eq!(sim::elapsed(), Some(SECOND));
            let outcome = slow.join_timeout(3600 * SECOND).expect("it ends in time");
            assert_eq!(outcome?, 42);
            assert_eq!(sim::elapsed(), Some(10 * SECOND));
            let quick = n.spawn(|| Ok(1));
            sleep(SECOND)?;
            assert_eq!(
                quick.join_timeout(Duration::ZERO).expect("it has ended")?,
                1
            );
            Ok(())
        })?;
        Ok(())
    });
}
