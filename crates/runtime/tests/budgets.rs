//! Budgets: what is charged to whom, what happens when it is used up, and where the rest goes.

mod support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use jobtree_pool::{OnceLatch, join, yield_now};
use jobtree_runtime::budget::{
    self, Budget, Counter, Decision, charge, charge_channel_op, charge_syscall, remaining,
};
use jobtree_runtime::{
    Job, JobError, JobState, Profile, WaitingFor, block_on, channel, checkpoint, nursery, tick,
    tick_async,
};
use support::{budget_of, end, ops, runtime, runtime_of, ticking, ticks, until, watch};

#[test]
fn a_turn_ends_in_every_profile_and_others_run() {
    let _watch = watch();
    for profile in [Profile::Open, Profile::Service] {
        let runtime = runtime_of(profile, 1);
        let (began, ended) = (&AtomicBool::new(false), &AtomicBool::new(false));
        runtime
            .nursery(|n| {
                let busy = n.spawn(|| {
                    began.store(true, Ordering::Release);
                    // On one worker this ends only if the other one gets it in between.
                    while !ended.load(Ordering::Acquire) {
                        tick();
                    }
                    Ok(())
                });
                until(|| began.load(Ordering::Acquire));
                let busy_job = busy.job().clone();
                n.spawn(move || {
                    assert_eq!(busy_job.waiting_for(), Some(WaitingFor::Budget));
                    assert_eq!(busy_job.state(), JobState::Active);
                    ended.store(true, Ordering::Release);
                    Ok(())
                })
                .join()?;
                Ok(busy.join()?)
            })
            .unwrap();
        assert!(runtime.statistics().exhaustions >= 1, "{profile}");
        end(&runtime);
    }
}

#[test]
fn two_that_never_give_way_do_not_keep_fresh_jobs_from_a_worker() {
    let _watch = watch();
    let runtime = runtime(1);
    let done = &AtomicUsize::new(0);
    let began = &AtomicUsize::new(0);
    runtime
        .nursery(|n| {
            n.spawn(move || {
                // All are in the deque of the one worker: the two busy ones are started first, as its newest.
                nursery(|inner| {
                    for _ in 0..10 {
                        inner.launch(|| {
                            done.fetch_add(1, Ordering::Relaxed);
                            Ok(())
                        });
                    }
                    for _ in 0..2 {
                        inner.launch(|| {
                            began.fetch_add(1, Ordering::Relaxed);
                            while done.load(Ordering::Relaxed) < 10 {
                                tick();
                            }
                            Ok(())
                        });
                    }
                    Ok(())
                })?;
                Ok(())
            })
            .join()?;
            assert_eq!(began.load(Ordering::Relaxed), 2);
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn a_voluntary_yield_is_free_and_begins_a_new_turn() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Service, 1);
    let (other_is_queued, other_ran) = &(OnceLatch::new(), AtomicBool::new(false));
    runtime
        .nursery(|n| {
            let yielding = n.spawn(move || {
                // A job that uses most of its turns, or yields to nobody for long, may be over its share, and then it begins
                // no new turn.
                other_is_queued.wait();
                charge(1_000);
                assert_eq!(remaining().ops, 9_000);
                yield_now();
                while !other_ran.load(Ordering::Acquire) {
                    yield_now();
                }
                assert_eq!(remaining().ops, 10_000);
                Ok(())
            });
            let job = yielding.job().clone();
            n.launch(|| {
                other_ran.store(true, Ordering::Release);
                Ok(())
            });
            other_is_queued.set();
            yielding.join()?;
            assert_eq!(budget_of(&job).exhaustions, 0);
            Ok(())
        })
        .unwrap();
    assert_eq!(runtime.statistics().exhaustions, 0);
    end(&runtime);
}

#[test]
fn a_job_gives_way_when_any_rate_is_out() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Service, 1);
    type Charge = fn();
    let kinds: [(Charge, usize, u64); 3] = [
        (tick, 10_000, 0),
        (charge_channel_op, 100, 1),
        (charge_syscall, 10, 1),
    ];
    for (charge, in_a_turn, extra) in kinds {
        runtime
            .nursery(|n| {
                let handle = n.spawn(move || {
                    let own = || budget_of(&Job::current().unwrap());
                    for _ in 0..in_a_turn {
                        charge();
                    }
                    let before = own();
                    charge();
                    Ok((before, own(), remaining()))
                });
                let (before, after, left) = handle.join()?;
                assert_eq!(before.exhaustions, 0);
                assert_eq!(after.exhaustions, 1);
                // A whole new turn, less what was paid out of it.
                assert_eq!(left.ops, Budget::CHILD.ops - 1);
                let all = Budget::CHILD.channel_ops + Budget::CHILD.syscalls;
                assert_eq!(left.channel_ops + left.syscalls, all - extra);
                Ok(())
            })
            .unwrap();
    }
    end(&runtime);
}

#[test]
fn operations_of_broadcast_watch_and_oneshot_are_charged() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Service, 1);
    let charged = |name: &str, operation: &mut dyn FnMut()| {
        let before = remaining().channel_ops;
        operation();
        assert_eq!(before - remaining().channel_ops, 1, "{name}");
    };
    let charges_all = move || {
        let (news, mut listener) = channel::broadcast(8);
        charged("broadcast send", &mut || assert_eq!(news.send(1), 1));
        (2..=4).for_each(|number| assert_eq!(news.send(number), 1));
        charged("try_recv", &mut || drop(listener.try_recv()));
        charged("recv", &mut || drop(listener.recv().unwrap()));
        charged("recv_async", &mut || {
            drop(block_on(listener.recv_async()).unwrap().unwrap())
        });

        let (settings, mut watched) = channel::watch(1);
        charged("watch send", &mut || settings.send(2));
        charged("get of the sender", &mut || drop(settings.get()));
        charged("changed", &mut || drop(watched.changed().unwrap()));
        settings.send(3);
        charged("changed_async", &mut || {
            drop(block_on(watched.changed_async()).unwrap().unwrap())
        });
        charged("get", &mut || drop(watched.get()));

        let (answer, answered) = channel::oneshot();
        let mut answer = Some(answer);
        charged("oneshot send", &mut || {
            answer.take().unwrap().send(1).unwrap()
        });
        charged("oneshot try_recv", &mut || {
            assert_eq!(answered.try_recv(), Ok(1))
        });
        Ok(())
    };
    runtime
        .nursery(|n| Ok(n.spawn(charges_all).join()?))
        .unwrap();
    end(&runtime);
}

#[test]
fn loops_of_operations_of_broadcast_and_watch_let_others_run() {
    let _watch = watch();
    let (news, listener) = channel::broadcast(1);
    let other_listener = Mutex::new(news.subscribe());
    let listener = Mutex::new(listener);
    let (settings, watched) = channel::watch(0);
    let watched = Mutex::new(watched);
    let operations: [(&str, &(dyn Fn() + Sync)); 7] = [
        ("broadcast send", &|| assert_eq!(news.send(1), 2)),
        ("try_recv", &|| drop(listener.lock().unwrap().try_recv())),
        ("recv", &|| {
            news.send(1);
            // Both come in turn: one value, or that some were missed.
            let _ = other_listener.lock().unwrap().recv();
        }),
        ("watch send", &|| settings.send(1)),
        ("get of the sender", &|| drop(settings.get())),
        ("get", &|| drop(watched.lock().unwrap().get())),
        ("changed", &|| {
            settings.send(1);
            drop(watched.lock().unwrap().changed().unwrap());
        }),
    ];
    for profile in [Profile::Open, Profile::Service] {
        let runtime = runtime_of(profile, 1);
        for (name, operation) in operations {
            let (began, ended) = (&AtomicBool::new(false), &AtomicBool::new(false));
            runtime
                .nursery(|n| {
                    let busy = n.spawn(|| {
                        began.store(true, Ordering::Release);
                        // On one worker this ends only if the other one gets it in between.
                        while !ended.load(Ordering::Acquire) {
                            operation();
                        }
                        Ok(())
                    });
                    until(|| began.load(Ordering::Acquire));
                    n.launch(|| {
                        ended.store(true, Ordering::Release);
                        Ok(())
                    });
                    Ok(busy.join()?)
                })
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        end(&runtime);
    }
}

#[test]
fn a_charge_is_all_or_nothing_and_one_that_never_fits_takes_a_turn() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Service, 1);
    let job = runtime.nursery(|n| {
        let handle = n.spawn(|| {
            charge(9_000);
            assert_eq!(remaining().ops, 1_000);
            // The rest of the turn is lost, and this comes out of the next one.
            charge(2_000);
            assert_eq!(remaining().ops, 8_000);
            charge(1_000_000);
            assert_eq!(remaining().ops, 0);
            Ok(budget_of(&Job::current().unwrap()).exhaustions)
        });
        Ok(handle.join()?)
    });
    assert_eq!(job.unwrap(), 2);
    end(&runtime);
    let runtime = runtime_of(Profile::Cluster, 1);
    runtime
        .nursery(|n| {
            n.supervise_budgets(|exhausted| {
                assert_eq!(exhausted.lacking(), Counter::Ops);
                assert_eq!(exhausted.budget().remaining.ops, 500, "nothing was taken");
                Decision::Recharge(ops(1_500))
            });
            let job = n.job_options().budget(Budget {
                ops: 1_000,
                ..Budget::CHILD
            });
            let left = job.spawn(|| {
                charge(500);
                charge(2_000);
                Ok(remaining().ops)
            });
            assert_eq!(left.join()?, 0);
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn a_childs_budget_comes_out_of_its_scopes_and_the_rest_goes_back() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Cluster, 1);
    let go = &AtomicBool::new(false);
    runtime
        .nursery(|n| {
            let pool = || budget_of(n.job()).remaining;
            assert_eq!(pool(), Budget::CLUSTER);
            let wanted = Budget {
                ops: 40_000,
                memory: 5,
                spawns: 7,
                channel_ops: 300,
                syscalls: 20,
            };
            let child = n.job_options().budget(wanted).spawn(|| {
                until(|| go.load(Ordering::Acquire));
                ticks(1_234);
                charge_channel_op();
                charge_syscall();
                assert_eq!(remaining().ops, 40_000 - 1_236);
                Ok(())
            });
            assert_eq!(budget_of(child.job()).granted, wanted);
            let taken = Budget {
                memory: 0,
                spawns: 8,
                ..wanted
            };
            let mut left = Budget::CLUSTER;
            left.try_take(taken).unwrap();
            assert_eq!(pool(), left);
            assert_eq!(budget_of(n.job()).tasks, 1);
            go.store(true, Ordering::Release);
            child.join()?;
            let used = Budget {
                ops: 1_236,
                channel_ops: 1,
                syscalls: 1,
                ..Budget::NONE
            };
            let mut left = Budget::CLUSTER;
            left.try_take(used).unwrap();
            assert_eq!(pool(), left);
            assert_eq!(budget_of(n.job()).tasks, 0);
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn where_rates_are_refilled_only_quotas_are_set_aside() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Service, 1);
    let go = &AtomicBool::new(false);
    runtime
        .nursery(|n| {
            let request = Budget {
                spawns: 9,
                ..Budget::SERVICE
            };
            let child = n.job_options().budget(request).spawn(move || {
                until(|| go.load(Ordering::Acquire));
                Ok(())
            });
            let left = budget_of(n.job()).remaining;
            assert_eq!(
                left,
                Budget {
                    spawns: 90,
                    ..Budget::SERVICE
                }
            );
            go.store(true, Ordering::Release);
            child.join()?;
            assert_eq!(budget_of(n.job()).remaining, Budget::SERVICE);
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn a_request_is_clamped_to_what_is_there() {
    let _watch = watch();
    for profile in [Profile::Service, Profile::Cluster] {
        let runtime = runtime_of(profile, 1);
        runtime
            .nursery(|n| {
                let greedy = n
                    .job_options()
                    .budget(Budget::UNLIMITED)
                    .spawn(|| Ok(budget_of(&Job::current().unwrap()).granted));
                let mut most = profile.budget();
                most.spawns -= 1;
                assert_eq!(greedy.join()?, most, "{profile}");
                Ok(())
            })
            .unwrap();
        end(&runtime);
    }
}

#[test]
fn what_a_cancelled_job_never_used_goes_back() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Cluster, 1);
    let (began, go) = (&AtomicBool::new(false), &AtomicBool::new(false));
    runtime
        .nursery(|n| {
            let blocker = n.spawn(|| {
                began.store(true, Ordering::Release);
                // Not a tick, nor a wait of ours: the one worker is kept.
                while !go.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                Ok(())
            });
            until(|| began.load(Ordering::Acquire));
            let never_run = n.spawn(|| -> Result<(), _> { unreachable!("it was cancelled first") });
            never_run.cancel("not needed");
            go.store(true, Ordering::Release);
            blocker.join()?;
            assert!(matches!(never_run.join(), Err(JobError::Cancelled(_))));
            assert_eq!(budget_of(n.job()).remaining, Budget::CLUSTER);
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn nobody_burns_anothers_fuel_on_the_same_stack() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Cluster, 1);
    runtime
        .nursery(|n| {
            let request = Budget {
                ops: 50_000,
                spawns: 2,
                ..Budget::CHILD
            };
            let parent = n.job_options().budget(request).spawn(|| {
                let before = remaining().ops;
                nursery(|inner| {
                    // The scope's end helps with these, right on top of the frame that waits.
                    for _ in 0..2 {
                        inner.launch(|| ticking(5_000));
                    }
                    Ok(())
                })?;
                Ok(before - remaining().ops)
            });
            // Two spawns, and what the children used of what they had from it.
            assert_eq!(parent.join()?, 2 + 10_000);
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn forks_are_charged_to_their_job_on_whatever_worker() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Cluster, 2);
    runtime
        .nursery(|n| {
            let both = std::sync::Barrier::new(2);
            let job = n.spawn(move || {
                // Two stacks, since each waits for the other.
                let side = || {
                    both.wait();
                    ticks(2_000);
                };
                join(side, side);
                Ok(remaining().ops)
            });
            let left = job.join()?;
            assert!(left <= 6_000, "{left} of 10 000 less 4 000");
            // The rest of what a stolen fork drew may be lost, but no more.
            assert!(left >= 5_000, "{left}");
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn a_busy_loop_that_only_ticks_can_be_cancelled() {
    let _watch = watch();
    for profile in [Profile::Open, Profile::Service] {
        let runtime = runtime_of(profile, 1);
        let busy = runtime.spawn(|| -> Result<(), _> {
            loop {
                tick();
            }
        });
        until(|| busy.job().state() == JobState::Active);
        busy.cancel("it would never end");
        assert!(matches!(busy.join(), Err(JobError::Cancelled(_))));
        end(&runtime);
    }
}

#[test]
fn a_checkpoint_costs_an_operation_and_is_an_error_when_cancelled() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Service, 1);
    let job = runtime.spawn(|| {
        let before = remaining().ops;
        checkpoint()?;
        assert_eq!(before - remaining().ops, 1);
        loop {
            checkpoint()?;
        }
        #[expect(unreachable_code, reason = "names the type")]
        Ok(())
    });
    until(|| budget_of(job.job()).exhaustions > 0);
    job.cancel("enough");
    assert!(matches!(job.join(), Err(JobError::Cancelled(_))));
    end(&runtime);
}

#[test]
fn the_awaiting_form_pays_and_gives_way_as_well() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Service, 1);
    let job = runtime.spawn(|| {
        let polls = AtomicUsize::new(0);
        let busy = async {
            for _ in 0..250_000 {
                tick_async().await;
            }
        };
        let counted = std::future::poll_fn({
            let mut busy = Box::pin(busy);
            let polls = &polls;
            move |context| {
                polls.fetch_add(1, Ordering::Relaxed);
                busy.as_mut().poll(context)
            }
        });
        jobtree_runtime::block_on(counted)?;
        assert_eq!(
            polls.into_inner(),
            3,
            "left once after each turn of 100 000"
        );
        Ok(budget_of(&Job::current().unwrap()).exhaustions)
    });
    assert_eq!(job.join().unwrap(), 2);
    end(&runtime);
}

#[test]
fn destructors_that_run_while_panicking_are_not_stopped() {
    struct Ticks;
    impl Drop for Ticks {
        fn drop(&mut self) {
            ticks(300_000);
        }
    }
    let _watch = watch();
    for profile in [Profile::Service, Profile::Cluster] {
        let runtime = runtime_of(profile, 1);
        let job = runtime.spawn(|| -> Result<(), _> {
            let _ticks = Ticks;
            let _more = Ticks;
            ticks(900_000);
            panic!("on purpose");
        });
        assert!(matches!(job.join(), Err(JobError::Panicked(_))));
        end(&runtime);
    }
}

#[test]
fn outside_of_jobs_nothing_is_charged() {
    ticks(1_000_000);
    charge(u32::MAX);
    charge_syscall();
    assert_eq!(remaining(), Budget::UNLIMITED);
}

#[test]
fn a_budget_of_its_own_in_an_open_runtime_goes_down_the_tree() {
    let _watch = watch();
    let runtime = runtime(1);
    runtime
        .nursery(|n| {
            let request = Budget {
                ops: 777,
                spawns: 3,
                ..Budget::OPEN
            };
            let limited = n.job_options().budget(request).spawn(|| {
                let granted = nursery(|inner| {
                    let child = inner.spawn(|| Ok(budget_of(&Job::current().unwrap()).granted));
                    Ok(child.join()?)
                })?;
                Ok(granted)
            });
            let child = limited.join()?;
            assert_eq!((child.ops, child.spawns), (777, 0));
            assert_eq!(budget::of(n.job()), None);
            Ok(())
        })
        .unwrap();
    end(&runtime);
}
