//! A budget that is used up: waiting for more, who may give it, and what becomes of those that get none.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use jobtree_pool::OnceLatch;
use jobtree_runtime::budget::{Budget, Counter, Decision, RechargeError};
use jobtree_runtime::user_code::caught_panics;
use jobtree_runtime::{Job, JobError, JobState, Nursery, Profile, Runtime, WaitingFor, nursery};
use support::{budget_of, end, ops, rounds, runtime_of, ticking, ticks, until, watch};

/// Returns when `job` waits for its supervisor.
fn until_exhausted(job: &Job) {
    until(|| budget_of(job).exhausted.is_some());
}

#[test]
fn an_exhausted_job_waits_until_it_is_recharged_and_only_then() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Cluster, 1);
    let finished = &AtomicBool::new(false);
    runtime
        .nursery(|n| {
            let busy = n.spawn(|| {
                ticks(10_500);
                finished.store(true, Ordering::Release);
                Ok(())
            });
            until_exhausted(busy.job());
            assert_eq!(busy.job().state(), JobState::Active);
            let listed = n.exhausted();
            assert_eq!(listed.len(), 1);
            assert_eq!(listed[0].job(), busy.job());
            assert_eq!(listed[0].lacking(), Counter::Ops);
            until(|| busy.job().waiting_for() == Some(WaitingFor::Budget));
            // Others have the worker meanwhile.
            n.spawn(|| Ok(())).join()?;
            assert!(!finished.load(Ordering::Acquire));
            // What it does not lack does not help it.
            let useless = Budget {
                spawns: 1,
                ..Budget::NONE
            };
            let empty = RechargeError::PoolEmpty {
                lacking: Counter::Ops,
            };
            assert_eq!(n.recharge(busy.job(), useless), Err(empty));
            assert_eq!(n.recharge(busy.job(), ops(600)), Ok(ops(600)));
            let job = busy.job().clone();
            busy.join()?;
            assert_eq!(
                n.recharge(&job, ops(1)),
                Err(RechargeError::NotExhausted),
                "it is not"
            );
            assert!(n.exhausted().is_empty());
            assert_eq!(budget_of(&job).recharges, 1);
            assert_eq!(budget_of(&job).exhaustions, 1);
            Ok(())
        })
        .unwrap();
    let statistics = runtime.statistics();
    assert_eq!((statistics.exhaustions, statistics.recharges), (1, 1));
    end(&runtime);
}

#[test]
fn who_is_not_exhausted_or_not_ones_own_is_not_recharged() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Cluster, 1);
    let go = &AtomicBool::new(false);
    runtime
        .nursery(|n| {
            let waiting = n.spawn(move || {
                until(|| go.load(Ordering::Acquire));
                Ok(())
            });
            let not_exhausted = Err(RechargeError::NotExhausted);
            assert_eq!(n.recharge(waiting.job(), ops(1)), not_exhausted);
            let not_supervised = Err(RechargeError::NotSupervised);
            assert_eq!(n.recharge(n.job(), ops(1)), not_supervised);
            nursery(|other| {
                assert_eq!(other.recharge(waiting.job(), ops(1)), not_supervised);
                Ok(())
            })?;
            go.store(true, Ordering::Release);
            Ok(waiting.join()?)
        })
        .unwrap();
    nursery(|n| {
        let not_supervised = Err(RechargeError::NotSupervised);
        assert_eq!(n.recharge(n.job(), ops(1)), not_supervised);
        assert!(n.exhausted().is_empty());
        Ok(())
    })
    .unwrap();
    end(&runtime);
}

#[test]
fn a_recharge_comes_out_of_the_supervisors_pool_and_is_clamped_to_it() {
    let _watch = watch();
    let runtime = Runtime::builder()
        .workers(1)
        .profile(Profile::Cluster)
        .root_budget(Budget {
            ops: 11_000,
            ..Budget::CLUSTER
        })
        .build()
        .unwrap();
    runtime
        .nursery(|n| {
            let busy = n.spawn(|| ticking(12_000));
            until_exhausted(busy.job());
            let pool = || budget_of(n.job()).remaining.ops;
            assert_eq!(pool(), 1_000);
            assert_eq!(n.recharge(busy.job(), ops(5_000)), Ok(ops(1_000)));
            assert_eq!(pool(), 0);
            until_exhausted(busy.job());
            let empty = RechargeError::PoolEmpty {
                lacking: Counter::Ops,
            };
            assert_eq!(n.recharge(busy.job(), ops(5_000)), Err(empty));
            assert!(!busy.is_finished());
            busy.cancel("there is nothing to give");
            assert!(matches!(busy.join(), Err(JobError::Cancelled(_))));
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

/// A recharge may come at any moment of a job's way into its wait.
#[test]
fn a_recharge_is_never_lost() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Cluster, 2);
    runtime
        .nursery(|n| {
            for _ in 0..rounds(300) {
                let request = Budget {
                    ops: 1,
                    ..Budget::CHILD
                };
                let busy = n.job_options().budget(request).spawn(|| ticking(3));
                // Each time for one operation more.
                for _ in 0..2 {
                    while n.recharge(busy.job(), ops(1)).is_err() {
                        std::hint::spin_loop();
                    }
                }
                busy.join()?;
            }
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

/// So may a cancellation; and whoever comes second does nothing.
#[test]
fn a_cancellation_races_with_a_recharge() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Cluster, 2);
    runtime
        .nursery(|n| {
            for round in 0..rounds(200) {
                let request = Budget {
                    ops: 1,
                    ..Budget::CHILD
                };
                let busy = n.job_options().budget(request).spawn(|| ticking(1_000));
                if round % 2 == 0 {
                    until_exhausted(busy.job());
                }
                std::thread::scope(|s| {
                    s.spawn(|| busy.cancel("enough"));
                    let _ = n.recharge(busy.job(), ops(10));
                });
                assert!(matches!(busy.join(), Err(JobError::Cancelled(_))));
            }
            assert!(n.exhausted().is_empty());
            assert_eq!(budget_of(n.job()).tasks, 0);
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn the_supervisor_recharges_cancels_or_ignores() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Cluster, 1);
    runtime
        .supervisor(|n| {
            let asked = Arc::new(AtomicUsize::new(0));
            let seen = Arc::clone(&asked);
            n.supervise_budgets(move |exhausted| {
                seen.fetch_add(1, Ordering::Relaxed);
                match &*exhausted.job().label() {
                    "worthy" => Decision::Recharge(ops(10_000)),
                    "hopeless" => Decision::Cancel,
                    _ => Decision::Ignore,
                }
            });
            let busy = |label: &'static str| {
                let spawner = n.job_options().label(label);
                spawner.spawn(|| ticking(25_000))
            };
            busy("worthy").join()?;
            assert_eq!(asked.load(Ordering::Relaxed), 2);
            let error = busy("hopeless").join().unwrap_err();
            assert!(
                error.to_string().contains("its budget is used up"),
                "{error}"
            );
            let ignored = busy("ignored");
            until_exhausted(ignored.job());
            until(|| ignored.job().waiting_for() == Some(WaitingFor::Budget));
            assert_eq!(asked.load(Ordering::Relaxed), 4);
            n.exhausted()[0].recharge(ops(100_000)).unwrap();
            ignored.join()?;
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn a_handler_that_comes_late_decides_about_those_that_wait() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Cluster, 1);
    runtime
        .nursery(|n| {
            let busy = n.spawn(|| ticking(10_100));
            until_exhausted(busy.job());
            n.supervise_budgets(|_| Decision::Recharge(ops(100)));
            Ok(busy.join()?)
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn the_runtime_supervises_what_is_under_its_root() {
    let _watch = watch();
    let runtime = Runtime::builder()
        .workers(1)
        .profile(Profile::Cluster)
        .supervise_budgets(|_| Decision::Recharge(ops(500_000)))
        .build()
        .unwrap();
    let busy = runtime.spawn(|| ticking(1_200_000));
    busy.join().unwrap();
    assert_eq!(runtime.statistics().recharges, 1);
    end(&runtime);
}

#[test]
fn a_cancelled_scope_ends_with_exhausted_jobs_in_it() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Cluster, 1);
    let outcome: Result<(), _> = runtime.nursery(|n: &Nursery<'_, '_>| {
        let jobs: Vec<_> = (0..5).map(|_| n.spawn(|| ticking(20_000))).collect();
        for job in &jobs {
            until_exhausted(job.job());
        }
        n.cancel("nobody recharges them");
        Ok(())
    });
    assert!(matches!(outcome, Err(JobError::Cancelled(_))));
    end(&runtime);
}

/// The job that asks the handler may be the last to let go of it, and must not get the panic of its destructor.
#[test]
fn a_handler_that_is_replaced_while_it_decides_may_panic_in_its_destructor() {
    struct PanicsOnDrop;
    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            panic!("in the destructor of what a handler captured");
        }
    }

    let _watch = watch();
    let runtime = runtime_of(Profile::Cluster, 2);
    let decides = Arc::new(OnceLatch::new());
    let is_replaced = Arc::new(OnceLatch::new());
    let caught_before = caught_panics();
    runtime
        .nursery(|n| {
            let (begun, replaced) = (Arc::clone(&decides), Arc::clone(&is_replaced));
            let captured = PanicsOnDrop;
            n.supervise_budgets(move |_| {
                let _ = &captured;
                begun.set();
                replaced.wait();
                Decision::Recharge(ops(5_000))
            });
            let busy = n.spawn(|| ticking(12_000));
            decides.wait();
            n.supervise_budgets(|_| Decision::Recharge(ops(5_000)));
            is_replaced.set();
            Ok(busy.join()?)
        })
        .unwrap();
    assert!(caught_panics() > caught_before);
    end(&runtime);
}
