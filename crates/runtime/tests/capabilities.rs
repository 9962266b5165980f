//! Capabilities and profiles: what is allowed where, and that each refusal says so.

mod support;

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use jobtree_runtime::budget::{
    self, Budget, CapBudget, CapChannel, CapExecutor, CapSpawn, Capabilities, ChannelRefused,
    Executor, Refusal, SpawnRefused, may_create_channel, may_use_executor,
};
use jobtree_runtime::{Job, JobError, Profile, Runtime, channel, nursery, supervisor};
use support::{end, runtime_of, until, watch};

/// The refusal that a job failed with.
fn refusal_in(error: &JobError) -> &Refusal {
    let mut source: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(refusal) = error.downcast_ref() {
            return refusal;
        }
        source = error.source();
    }
    panic!("no refusal in {error:?}");
}

#[test]
fn the_profiles_are_these() {
    const MEGABYTE: u64 = 1024 * 1024;
    // ops, memory, spawns, channel ops, syscalls
    let budgets = [
        ("child", Budget::CHILD, [10_000, MEGABYTE, 0, 100, 10]),
        (
            "service",
            Profile::Service.budget(),
            [100_000, 10 * MEGABYTE, 100, 1_000, 100],
        ),
        (
            "cluster",
            Profile::Cluster.budget(),
            [1_000_000, 100 * MEGABYTE, 1_000, 10_000, 1_000],
        ),
        ("core", Profile::Core.budget(), [0; 5]),
        ("sovereign", Profile::Sovereign.budget(), [0; 5]),
        (
            "open",
            Profile::Open.budget(),
            [100_000, u64::MAX, u64::MAX, u64::MAX, u64::MAX],
        ),
    ];
    for (name, budget, [ops, memory, spawns, channel_ops, syscalls]) in budgets {
        let expected = Budget {
            ops,
            memory,
            spawns,
            channel_ops,
            syscalls,
        };
        assert_eq!(budget, expected, "{name}");
    }
    // tasks, channels, buffer
    for (profile, [max_tasks, max_channels, max_buffer]) in [
        (Profile::Service, [100, 1_000, 10_000]),
        (Profile::Cluster, [10_000, 10_000, 100_000]),
    ] {
        let capabilities = profile.capabilities();
        let spawn = CapSpawn {
            max_tasks,
            task_budget: Budget::CHILD,
        };
        let channel = CapChannel {
            max_buffer,
            max_channels,
        };
        assert_eq!(capabilities.spawn, Some(spawn), "{profile}");
        assert_eq!(capabilities.channel, Some(channel), "{profile}");
        assert_eq!(capabilities.executors, CapExecutor::ALL, "{profile}");
    }
    for profile in [Profile::Core, Profile::Sovereign] {
        assert_eq!(profile.capabilities(), Capabilities::NONE, "{profile}");
    }
    assert_eq!(Profile::Open.capabilities(), Capabilities::ALL);
}

#[test]
fn profiles_are_known_by_name() {
    for profile in Profile::ALL {
        assert_eq!(profile.name().parse(), Ok(profile));
    }
    let error = "anarchy".parse::<Profile>().unwrap_err();
    assert!(error.to_string().contains("service"), "{error}");
    assert_eq!(Profile::default(), Profile::Open);
    assert_eq!(runtime_of(Profile::Cluster, 1).profile(), Profile::Cluster);
}

#[test]
fn nothing_is_scheduled_in_the_core_profile() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Core, 1);
    let error = runtime.spawn(|| Ok(())).join().unwrap_err();
    assert!(matches!(refusal_in(&error), Refusal::CoreProfile));
    let outcome = runtime.nursery(|n| {
        let refused = n.try_spawn(|| Ok(())).unwrap_err();
        assert!(matches!(refused.reason(), Refusal::CoreProfile));
        n.launch(|| unreachable!("it is refused"));
        Ok(())
    });
    let error = outcome.unwrap_err();
    assert!(matches!(refusal_in(&error), Refusal::CoreProfile));
    assert_eq!(runtime.statistics().refusals, 3);
    end(&runtime);
}

#[test]
fn without_the_capability_nothing_is_spawned() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Service, 1);
    let outcome = runtime.nursery(|n| {
        let restricted = n
            .job_options()
            .budget(Budget::SERVICE)
            .restrict(Capabilities {
                spawn: None,
                ..Capabilities::ALL
            });
        restricted
            .spawn(|| {
                nursery(|inner| {
                    let refused = inner.try_spawn(|| Ok(1)).unwrap_err();
                    assert!(matches!(refused.reason(), Refusal::NoSpawnCapability));
                    // The body comes back and can be run here.
                    assert_eq!(refused.into_body()()?, 1);
                    Ok(inner.spawn(|| Ok(1)).join()?)
                })?;
                Ok(())
            })
            .join()?;
        Ok(())
    });
    let error = outcome.unwrap_err();
    assert!(matches!(refusal_in(&error), Refusal::NoSpawnCapability));
    end(&runtime);
}

#[test]
fn there_are_as_many_jobs_as_allowed_and_no_more() {
    let _watch = watch();
    let runtime = Runtime::builder()
        .workers(1)
        .profile(Profile::Service)
        .root_budget(Budget {
            spawns: 1_000,
            ..Budget::SERVICE
        })
        .build()
        .unwrap();
    let go = &AtomicBool::new(false);
    runtime
        .nursery(|n| {
            let wait = || {
                until(|| go.load(Ordering::Acquire));
                Ok(())
            };
            let jobs: Vec<_> = (0..100).map(|_| n.spawn(wait)).collect();
            let refused = n.try_spawn(wait).unwrap_err();
            let Refusal::TaskLimitExceeded { limit } = refused.reason() else {
                panic!("{refused}");
            };
            assert_eq!(*limit, 100);
            go.store(true, Ordering::Release);
            for job in jobs {
                job.join()?;
            }
            // They have ended, so there is room again.
            n.try_spawn(wait)
                .map_err(SpawnRefused::into_reason)?
                .join()?;
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn spawns_are_a_quota() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Service, 1);
    runtime
        .nursery(|n| {
            // By default a child has none.
            let nested = n.spawn(|| {
                nursery(|inner| {
                    let refused = inner.try_spawn(|| Ok(())).unwrap_err();
                    assert!(matches!(refused.reason(), Refusal::SpawnQuotaExceeded));
                    Ok(())
                })?;
                Ok(())
            });
            nested.join()?;
            let two = Budget {
                spawns: 2,
                ..Budget::CHILD
            };
            let go = AtomicBool::new(false);
            let parent = n.job_options().budget(two).spawn(move || {
                nursery(|inner| {
                    let wait = || {
                        until(|| go.load(Ordering::Acquire));
                        Ok(())
                    };
                    let first = inner.spawn(wait);
                    let second = inner.spawn(wait);
                    let refused = inner.try_spawn(wait).unwrap_err();
                    assert!(matches!(refused.reason(), Refusal::SpawnQuotaExceeded));
                    go.store(true, Ordering::Release);
                    first.join()?;
                    second.join()?;
                    inner
                        .try_spawn(wait)
                        .map_err(SpawnRefused::into_reason)?
                        .join()?;
                    Ok(())
                })?;
                Ok(())
            });
            Ok(parent.join()?)
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn a_refused_job_fails_and_cancels_its_scope_unless_supervised() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Service, 1);
    let outcome = runtime.nursery(|n| {
        n.launch(|| {
            let outcome: Result<(), JobError> = nursery(|inner| {
                inner.launch(|| Ok(()));
                support::for_ever()
            });
            assert!(matches!(
                refusal_in(&outcome.unwrap_err()),
                Refusal::SpawnQuotaExceeded
            ));
            supervisor(|inner| {
                let refused = inner.spawn(|| Ok(()));
                assert!(refused.join().is_err());
                Ok(())
            })?;
            Ok(())
        });
        Ok(())
    });
    outcome.unwrap();
    end(&runtime);
}

#[test]
fn a_scope_that_is_cancelled_refuses() {
    let _watch = watch();
    let ran = AtomicUsize::new(0);
    let outcome: Result<(), _> = nursery(|n| {
        n.cancel("it is late");
        let body = || {
            ran.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let refused = n.try_spawn(body).unwrap_err();
        assert!(matches!(refused.reason(), Refusal::ScopeCancelled(_)));
        assert!(refused.to_string().contains("it is late"), "{refused}");
        Ok(())
    });
    assert!(outcome.is_err());
    assert_eq!(ran.into_inner(), 0);
}

#[test]
fn an_executor_that_is_not_named_is_not_used() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Cluster, 1);
    runtime
        .nursery(|n| {
            let only_evented = CapExecutor {
                evented: true,
                ..CapExecutor::NONE
            };
            let restricted = n
                .job_options()
                .budget(Budget::SERVICE)
                .restrict(Capabilities {
                    executors: only_evented,
                    ..Capabilities::ALL
                });
            let job = restricted.spawn(|| {
                assert_eq!(may_use_executor(Executor::Evented), Ok(()));
                for executor in [Executor::Blocking, Executor::Threaded] {
                    let refused = may_use_executor(executor).unwrap_err();
                    assert_eq!(refused.executor, executor);
                }
                nursery(|inner| {
                    let refused = inner.try_spawn(|| Ok(())).unwrap_err();
                    let Refusal::ExecutorNotAllowed { executor } = refused.reason() else {
                        panic!("{refused}");
                    };
                    assert_eq!(*executor, Executor::Cooperative);
                    Ok(())
                })?;
                Ok(())
            });
            job.join()?;
            assert_eq!(may_use_executor(Executor::Threaded), Ok(()));
            Ok(())
        })
        .unwrap();
    assert_eq!(may_use_executor(Executor::Blocking), Ok(()));
    end(&runtime);
}

#[test]
fn channels_are_limited_in_number_and_size() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Service, 1);
    runtime
        .nursery(|n| {
            let three = CapChannel {
                max_buffer: 50_000,
                max_channels: 3,
            };
            let restricted = n.job_options().restrict(Capabilities {
                channel: Some(three),
                ..Capabilities::ALL
            });
            let job = restricted.spawn(|| {
                for wanted in [Some(10_001), None] {
                    let refused = may_create_channel(wanted).unwrap_err();
                    let too_large = ChannelRefused::BufferTooLarge {
                        wanted: wanted.map(|wanted| wanted as u64),
                        limit: 10_000,
                    };
                    assert_eq!(refused, too_large);
                }
                let mut permits: Vec<_> = (0..3)
                    .map(|_| may_create_channel(Some(10_000)).unwrap())
                    .collect();
                let own = budget::of(&Job::current().unwrap()).unwrap();
                assert_eq!(own.channels, 3);
                let refused = may_create_channel(Some(0)).unwrap_err();
                assert_eq!(refused, ChannelRefused::ChannelLimitExceeded { limit: 3 });
                permits.pop();
                permits.push(may_create_channel(Some(0)).unwrap());
                // Every kind of channel asks.
                let made: [(&str, fn()); 3] = [
                    ("broadcast", || drop(channel::broadcast::<u8>(1))),
                    ("watch", || drop(channel::watch(1))),
                    ("oneshot", || drop(channel::oneshot::<u8>())),
                ];
                for (kind, make) in made {
                    assert!(std::panic::catch_unwind(make).is_err(), "{kind}");
                }
                permits.pop();
                for (kind, make) in made {
                    assert!(std::panic::catch_unwind(make).is_ok(), "{kind}");
                }
                permits.push(may_create_channel(Some(0)).unwrap());
                Ok(permits)
            });
            // A channel may outlive the job that made it.
            let job_budget = job.job().clone();
            drop(job.join()?);
            assert_eq!(budget::of(&job_budget).unwrap().channels, 0);
            let none = n.job_options().restrict(Capabilities {
                channel: None,
                ..Capabilities::ALL
            });
            let refused = none.spawn(|| Ok(may_create_channel(Some(0)).unwrap_err()));
            assert_eq!(refused.join()?, ChannelRefused::NoChannelCapability);
            Ok(())
        })
        .unwrap();
    assert!(may_create_channel(None).is_ok(), "outside of jobs");
    end(&runtime);
}

#[test]
fn a_sovereign_runtime_allows_what_was_given_explicitly() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Sovereign, 1);
    runtime
        .nursery(|n| {
            let refused = n.try_spawn(|| Ok(())).unwrap_err();
            assert!(matches!(refused.reason(), Refusal::NoSpawnCapability));
            let refused = may_create_channel(Some(1)).unwrap_err();
            assert_eq!(refused, ChannelRefused::NoChannelCapability);
            Ok(())
        })
        .unwrap();
    let error = runtime.spawn(|| Ok(())).join().unwrap_err();
    assert!(matches!(refusal_in(&error), Refusal::NoSpawnCapability));
    end(&runtime);

    let given = Capabilities {
        spawn: Some(CapSpawn {
            max_tasks: 1,
            task_budget: Budget::CHILD,
        }),
        executors: CapExecutor {
            cooperative: true,
            ..CapExecutor::NONE
        },
        ..Capabilities::NONE
    };
    let runtime = Runtime::builder()
        .workers(1)
        .profile(Profile::Sovereign)
        .root_budget(Budget::SERVICE)
        .root_capabilities(given)
        .build()
        .unwrap();
    runtime
        .nursery(|n| {
            // Without the right to ask for a budget, one gets at most the usual one.
            let greedy = n.job_options().budget(Budget::UNLIMITED);
            let granted =
                greedy.spawn(|| Ok(budget::of(&Job::current().unwrap()).unwrap().granted));
            assert_eq!(granted.join()?, Budget::CHILD);
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn a_budget_request_is_clamped_to_the_capability() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Service, 1);
    runtime
        .nursery(|n| {
            let small = Budget {
                ops: 3,
                memory: 4,
                spawns: 5,
                channel_ops: 6,
                syscalls: 7,
            };
            let parent = n
                .job_options()
                .budget(Budget {
                    spawns: 50,
                    ..Budget::SERVICE
                })
                .restrict(Capabilities {
                    budget: Some(CapBudget::up_to(small)),
                    ..Capabilities::ALL
                });
            let granted = parent.spawn(|| {
                let granted = nursery(|inner| {
                    let child = inner.job_options().budget(Budget::UNLIMITED);
                    let own = || Ok(budget::of(&Job::current().unwrap()).unwrap().granted);
                    Ok(child.spawn(own).join()?)
                })?;
                Ok(granted)
            });
            assert_eq!(granted.join()?, small);
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

/// Some capabilities, from everything to nothing.
fn samples() -> Vec<Capabilities> {
    let mut samples: Vec<Capabilities> = Profile::ALL
        .iter()
        .map(|profile| profile.capabilities())
        .collect();
    for bits in 0..16_u8 {
        let has = |bit: u8| bits & (1 << bit) != 0;
        samples.push(Capabilities {
            spawn: has(0).then_some(CapSpawn {
                max_tasks: 7 * u64::from(bits),
                task_budget: Budget {
                    ops: 1_000_000 / (u64::from(bits) + 1),
                    ..Budget::SERVICE
                },
            }),
            budget: has(1).then_some(CapBudget::up_to(Budget::CHILD)),
            channel: has(2).then_some(CapChannel {
                max_buffer: 3 * u64::from(bits),
                max_channels: 100 / (u64::from(bits) + 1),
            }),
            executors: CapExecutor {
                blocking: has(3),
                threaded: has(0),
                cooperative: has(1),
                evented: has(2),
            },
        });
    }
    samples
}

/// Whether `one` allows nothing that `other` does not.
fn is_within(one: Capabilities, other: Capabilities) -> bool {
    one.restricted_to(other) == one
}

#[test]
fn a_restriction_never_widens() {
    for parent in samples() {
        for wanted in samples() {
            let child = parent.restricted_to(wanted);
            assert!(is_within(child, parent) && is_within(child, wanted));
            assert_eq!(child, wanted.restricted_to(parent));
            assert!(is_within(parent, wanted) == (child == parent));
        }
        assert_eq!(parent.restricted_to(Capabilities::NONE), Capabilities::NONE);
    }
}

#[test]
fn capabilities_are_inherited_and_only_shrink_on_the_way_down() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Cluster, 1);
    runtime
        .nursery(|n| {
            let own = || budget::of(&Job::current().unwrap()).unwrap().capabilities;
            let some = Capabilities {
                channel: None,
                ..Profile::Service.capabilities()
            };
            let parent = n.job_options().budget(Budget::SERVICE).restrict(some);
            let job = parent.spawn(move || {
                let mine = own();
                nursery(|inner| {
                    let child = inner.spawn(move || Ok(own())).join()?;
                    assert_eq!(child, mine);
                    // Asking for everything gives nothing more.
                    let greedy = inner.job_options().restrict(Capabilities::ALL);
                    assert_eq!(greedy.spawn(move || Ok(own())).join()?, mine);
                    Ok(())
                })?;
                Ok(mine)
            });
            let expected = Profile::Cluster.capabilities().restricted_to(some);
            assert_eq!(job.join()?, expected);
            Ok(())
        })
        .unwrap();
    end(&runtime);
}
