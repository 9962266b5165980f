//! What the table of profiles does not show: who pays, what is given back, and what handles to scopes are good for.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use jobtree_pool::{OnceLatch, Pool};
use jobtree_runtime::budget::{self, Budget, CapExecutor, Capabilities, Executor, Refusal};
use jobtree_runtime::{BoxError, Dispatcher, Job, JobError, Profile, Runtime, nursery};
use support::{budget_of, end, runtime, runtime_of, until, watch};

/// The refusal that a job failed with.
fn refusal_in(error: &JobError) -> &Refusal {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(refusal) = error.downcast_ref() {
            return refusal;
        }
        source = error.source();
    }
    panic!("no refusal in {error:?}");
}

/// The message of the panic that `body` must end with.
fn panic_of(body: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(body)).expect_err("it panics");
    payload
        .downcast_ref::<String>()
        .cloned()
        .unwrap_or_default()
}

/// Sets a latch on every way out.
struct SetOnDrop<'a>(&'a OnceLatch);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.set();
    }
}

fn spawns() -> u64 {
    budget::remaining().spawns
}

#[test]
fn tasks_of_the_pool_are_a_quota_that_is_given_back() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Service, 1);
    runtime
        .nursery(|_| {
            assert_eq!(spawns(), 100);
            for _ in 0..150 {
                jobtree_pool::scope(|s| s.spawn(|_| assert_eq!(spawns(), 99)));
            }
            let body_has_ended = OnceLatch::new();
            let message = panic_of(|| {
                jobtree_pool::scope(|s| {
                    // None of them ends before the body has.
                    let _open = SetOnDrop(&body_has_ended);
                    (0..101).for_each(|_| s.spawn(|_| body_has_ended.wait()));
                });
            });
            assert!(message.contains("no more are allowed"), "{message}");
            assert_eq!(spawns(), 100, "also by those that were there already");
            Ok(())
        })
        .unwrap();
    assert_eq!(runtime.statistics().refusals, 1);
    end(&runtime);
}

#[test]
fn a_broadcast_takes_a_spawn_for_each_worker_or_none() {
    let _watch = watch();
    let pool = Pool::builder().workers(3).build().unwrap();
    let runtime = runtime_of(Profile::Service, 1);
    runtime
        .nursery(|n| {
            let budget = |spawns| Budget {
                spawns,
                ..Budget::CHILD
            };
            let pool = &pool;
            let enough = n.job_options().budget(budget(3)).spawn(|| {
                pool.broadcast(|_| assert_eq!(spawns(), 0));
                Ok(spawns())
            });
            assert_eq!(enough.join()?, 3);
            let too_few = n.job_options().budget(budget(2)).spawn(|| {
                let message = panic_of(|| drop(pool.broadcast(|_| unreachable!("refused"))));
                assert!(message.contains("no spawns left"), "{message}");
                Ok(spawns())
            });
            assert_eq!(too_few.join()?, 2);
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn a_detached_task_has_a_budget_out_of_its_spawners_until_it_ends() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Service, 2);
    runtime
        .nursery(|n| {
            let (open, opened) = mpsc::channel::<()>();
            let job = n.job().clone();
            jobtree_pool::spawn(move || {
                assert_eq!(spawns(), 0, "as every child");
                let message = panic_of(|| jobtree_pool::spawn(|| unreachable!("refused")));
                assert!(message.contains("no spawns left"), "{message}");
                let _ = opened.recv();
            });
            assert_eq!((spawns(), budget_of(&job).tasks), (99, 1));
            drop(open);
            until(|| budget_of(&job).tasks == 0);
            assert_eq!(spawns(), 100);
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn a_job_that_another_runtime_runs_comes_out_of_its_spawners_budget() {
    let _watch = watch();
    let (service, open) = (runtime_of(Profile::Service, 1), runtime(1));
    service
        .nursery(|_| {
            let own = budget::of(&Job::current().unwrap()).unwrap();
            let other = open.spawn(|| Ok(budget::of(&Job::current().unwrap()).unwrap()));
            let other = other.join()?;
            assert_eq!((other.profile, other.granted), (own.profile, Budget::CHILD));
            // The same runtime is no source of fresh budgets, either.
            let nested = service.nursery(|n| {
                assert_eq!(spawns(), 100);
                Ok(n.spawn(|| Ok(spawns())).join()?)
            })?;
            assert_eq!((nested, spawns()), (0, 100));
            Ok(())
        })
        .unwrap();
    end(&service);
    end(&open);
}

#[test]
fn what_runs_in_another_runtime_with_limits_has_the_limits_of_both() {
    let _watch = watch();
    let (service, core) = (
        runtime_of(Profile::Service, 1),
        runtime_of(Profile::Core, 1),
    );
    let narrow = Runtime::builder()
        .workers(1)
        .profile(Profile::Sovereign)
        .root_budget(Budget::CHILD)
        .root_capabilities(Capabilities {
            channel: None,
            ..Capabilities::ALL
        })
        .build()
        .unwrap();
    service
        .nursery(|_| {
            let refused = core.spawn(|| Ok(())).join().unwrap_err();
            assert!(matches!(refusal_in(&refused), Refusal::CoreProfile));
            let refused = core.nursery(|_| Ok(())).unwrap_err();
            assert!(matches!(refusal_in(&refused), Refusal::CoreProfile));
            let capabilities = || Ok(budget::of(&Job::current().unwrap()).unwrap().capabilities);
            let both = narrow.spawn(capabilities).join()?;
            assert_eq!((both.channel, both.spawn.unwrap().max_tasks), (None, 100));
            let both = narrow.nursery(|_| capabilities())?;
            assert_eq!((both.channel, both.spawn.unwrap().max_tasks), (None, 100));
            Ok(())
        })
        .unwrap();
    for runtime in [service, core, narrow] {
        end(&runtime);
    }
}

#[test]
fn a_handle_to_a_scope_gives_no_more_capabilities_than_its_user_has() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Service, 1);
    runtime
        .nursery(|n| {
            let no_channels = Capabilities {
                channel: None,
                ..Capabilities::ALL
            };
            let job = n.job_options().restrict(no_channels).spawn(move || {
                let sibling = n.spawn(|| Ok(budget_of(&Job::current().unwrap()).capabilities));
                Ok(sibling.join()?)
            });
            assert_eq!(job.join()?.channel, None);
            let no_spawns = Capabilities {
                spawn: None,
                ..Capabilities::ALL
            };
            let job = n.job_options().restrict(no_spawns).spawn(move || {
                let refused = n.try_spawn(|| Ok(())).unwrap_err();
                assert!(matches!(refused.reason(), Refusal::NoSpawnCapability));
                Ok(())
            });
            Ok(job.join()?)
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn in_a_scope_without_limits_a_limited_job_pays_for_what_it_spawns() {
    let _watch = watch();
    nursery(|n| {
        let one = Budget {
            spawns: 1,
            ..Budget::CHILD
        };
        let job = n.job_options().budget(one).spawn(move || {
            let child = n.spawn(|| Ok(budget_of(&Job::current().unwrap()).granted));
            let granted = child.join()?;
            assert_eq!((granted.ops, granted.spawns), (one.ops, 0));
            Ok(())
        });
        job.join()?;
        let job = n.job_options().budget(Budget::CHILD).spawn(move || {
            let refused = n.try_spawn(|| Ok(())).unwrap_err();
            assert!(matches!(refused.reason(), Refusal::SpawnQuotaExceeded));
            Ok(())
        });
        Ok(job.join()?)
    })
    .unwrap();
}

#[test]
fn a_scope_of_the_pool_around_a_limited_job_is_no_way_out() {
    let _watch = watch();
    let core = &runtime_of(Profile::Core, 1);
    jobtree_pool::in_place_scope(|s| {
        core.nursery(|_| {
            let message = panic_of(|| s.spawn(|_| unreachable!("refused")));
            assert!(message.contains("profile `core`"), "{message}");
            Ok(())
        })
        .unwrap();
    });
    let service = &runtime_of(Profile::Service, 1);
    jobtree_pool::in_place_scope(|s| {
        service
            .nursery(|_| {
                s.spawn(|_| assert_eq!(spawns(), 0));
                Ok(())
            })
            .unwrap();
    });
    end(core);
    end(service);
}

#[test]
fn each_executor_is_asked_for_by_what_runs_on_it() {
    let _watch = watch();
    let runtime = runtime(1);
    let none = CapExecutor::NONE;
    let cases = [
        (
            Executor::Cooperative,
            CapExecutor {
                cooperative: true,
                ..none
            },
        ),
        (
            Executor::Evented,
            CapExecutor {
                evented: true,
                ..none
            },
        ),
        (
            Executor::Blocking,
            CapExecutor {
                blocking: true,
                ..none
            },
        ),
        (
            Executor::Threaded,
            CapExecutor {
                threaded: true,
                ..none
            },
        ),
    ];
    /// Starts something on each executor; returns which ones refused.
    fn refused() -> Result<Vec<Executor>, BoxError> {
        let mut refused = Vec::new();
        let outcomes = jobtree_runtime::supervisor(|n| {
            let io = n.job_options().on(&Dispatcher::io());
            let outcomes = [
                n.spawn(|| Ok(())).join(),
                n.spawn_future(async { Ok(()) }).join(),
                io.spawn(|| Ok(())).join(),
            ];
            Ok(outcomes)
        })?;
        for error in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
            match refusal_in(error) {
                Refusal::ExecutorNotAllowed { executor } => refused.push(*executor),
                other => panic!("{other}"),
            }
        }
        let threads = [
            Dispatcher::new(1)
                .map(drop)
                .map_err(|error| error.to_string()),
            Pool::builder()
                .workers(1)
                .build()
                .map(drop)
                .map_err(|error| error.to_string()),
            Runtime::builder()
                .workers(1)
                .build()
                .map(drop)
                .map_err(|error| error.to_string()),
        ];
        let messages: Vec<_> = threads.into_iter().filter_map(Result::err).collect();
        if !messages.is_empty() {
            assert_eq!(messages.len(), 3, "{messages:?}");
            assert!(
                messages
                    .iter()
                    .all(|message| message.contains("threaded executor"))
            );
            refused.push(Executor::Threaded);
        }
        Ok(refused)
    }
    runtime
        .nursery(|n| {
            for (allowed, executors) in cases {
                let restricted = n.job_options().restrict(Capabilities {
                    executors,
                    ..Capabilities::ALL
                });
                let mut expected: Vec<_> = cases.iter().map(|(executor, _)| *executor).collect();
                expected.retain(|executor| *executor != allowed);
                assert_eq!(restricted.spawn(refused).join()?, expected, "{allowed}");
            }
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

/// Starts tasks when it is dropped.
struct SpawnsWhenDropped;

impl Drop for SpawnsWhenDropped {
    fn drop(&mut self) {
        jobtree_pool::spawn(|| unreachable!("it is dropped"));
        jobtree_pool::in_place_scope(|s| s.spawn(|_| ()));
        assert_eq!(jobtree_pool::broadcast(|_| 1)[0], 1);
    }
}

#[test]
fn a_refusal_while_the_thread_panics_does_not_end_the_process() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Core, 1);
    let outcome: Result<(), _> = runtime.nursery(|_| {
        let _spawns = SpawnsWhenDropped;
        panic!("expected");
    });
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("expected"), "{error}");
    assert_eq!(runtime.statistics().refusals, 3);
    end(&runtime);
}
