//! The ways in which a scheduler loses tasks, each by name: none of ours is lost in any of them.
//!
//! A task that is lost shows as a nursery that does not end, or as a count that is not reached. For cancellation between
//! dequeue and run see `cancelled_on_the_way.rs`.

mod support;

use std::collections::HashSet;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use jobtree_pool::{CountLatch, OnceLatch, yield_now};
use jobtree_runtime::budget::Budget;
use jobtree_runtime::channel::{bounded, rendezvous};
use jobtree_runtime::sync::{self, Semaphore};
use jobtree_runtime::{
    BoxError, Dispatcher, Job, JobHandle, JobState, Nursery, Profile, Runtime, block_on, future,
    nursery, select, sleep, supervisor, tick,
};
use support::{Census, FAR, end, for_ever, rounds, runtime, until, until_it_waits, watch};

/// So many that a queue of a fixed size would be full.
const VERY_MANY: usize = if cfg!(miri) { 100 } else { 100_000 };

/// A little work that the compiler does not see through.
fn spin(turns: usize) {
    for _ in 0..turns {
        std::hint::spin_loop();
    }
}

// Submitting onto another worker's deque.

/// Whoever submits, it is a deque of their own or a shared queue that they write to: the owner's end of a deque is its
/// owner's alone.
#[test]
fn jobs_submitted_by_outside_threads_other_pools_and_blocking_threads_run_once_each() {
    let _watch = watch();
    let (here, elsewhere) = (runtime(2), runtime(2));
    let each = if cfg!(miri) { 5 } else { rounds(1_000) };
    let submitters = 8;
    let ran: Vec<AtomicUsize> = (0..submitters * each)
        .map(|_| AtomicUsize::new(0))
        .collect();
    let ran = &ran;
    // Half of them with pauses, so that the workers fall asleep in between.
    fn submit<'scope>(
        n: &'scope Nursery<'scope, '_>,
        who: usize,
        ran: &'scope [AtomicUsize],
    ) -> Result<(), BoxError> {
        for (number, ran) in ran.iter().enumerate() {
            n.launch(move || {
                ran.fetch_add(1, Ordering::Relaxed);
                Ok(())
            });
            if who.is_multiple_of(2) && number.is_multiple_of(8) {
                std::thread::yield_now();
            }
        }
        Ok(())
    }
    let part = |who: usize| &ran[who * each..][..each];
    here.nursery(|n| {
        std::thread::scope(|threads| {
            for who in 0..2 {
                let part = part(who);
                threads.spawn(move || submit(n, who, part).unwrap());
            }
            elsewhere.nursery(|other| {
                for who in 2..4 {
                    other.launch(move || submit(n, who, part(who)));
                }
                Ok(())
            })
        })?;
        for who in 4..6 {
            let blocking = n.job_options().on(&Dispatcher::io());
            blocking.launch(move || submit(n, who, part(who)));
        }
        for who in 6..8 {
            n.launch(move || submit(n, who, part(who)));
        }
        Ok(())
    })
    .unwrap();
    assert!(ran.iter().all(|ran| ran.load(Ordering::Relaxed) == 1));
    end(&here);
    end(&elsewhere);
}

/// A wake is a submission, too. A parked stack goes back to its own worker, a future to the pool.
#[test]
fn wakes_from_outside_threads_other_pools_and_timers_all_arrive() {
    let _watch = watch();
    let (here, elsewhere) = (runtime(2), runtime(2));
    let rounds = if cfg!(miri) { 2 } else { rounds(200) };
    let sleepers = 8;
    for round in 0..rounds {
        let (arrived, gate) = (CountLatch::new(2 * sleepers), sync::Semaphore::new(0));
        let (arrived, gate) = (&arrived, &gate);
        here.nursery(|n| {
            for _ in 0..sleepers {
                n.launch(move || {
                    arrived.count_down();
                    gate.acquire(1)?.forget();
                    Ok(())
                });
                drop(n.spawn_future::<_, ()>(async move {
                    arrived.count_down();
                    gate.acquire_async(1).await?.forget();
                    Ok(())
                }));
            }
            if round.is_multiple_of(2) {
                arrived.wait();
            }
            std::thread::scope(|threads| {
                threads.spawn(|| (0..sleepers).for_each(|_| gate.add_permits(1)));
                elsewhere.nursery(|other| {
                    for _ in 0..sleepers / 2 {
                        other.launch(|| {
                            gate.add_permits(1);
                            sleep(Duration::from_micros(1))?;
                            gate.add_permits(1);
                            Ok(())
                        });
                    }
                    Ok(())
                })
            })?;
            Ok(())
        })
        .unwrap();
        assert_eq!((gate.available(), gate.waiting()), (0, 0));
    }
    end(&here);
    end(&elsewhere);
}

// Cancelling a blocked child without telling its nursery.

/// What a child can be blocked on, each with nobody who would ever end it.
fn blocked_children<'scope>(
    n: &'scope Nursery<'scope, '_>,
    locked: &'scope sync::Mutex<()>,
) -> Vec<(&'static str, JobHandle<()>)> {
    let (sender, receiver) = rendezvous::<u8>();
    let (full, full_end) = bounded::<u8>(1);
    full.try_send(0).unwrap();
    let none = Arc::new(Semaphore::new(0));
    let (to_itself, from_itself) = rendezvous::<u8>();
    let (for_future, from_nobody) = rendezvous::<u8>();
    vec![
        ("recv", {
            let sender = sender.clone();
            n.spawn(move || {
                let _kept = sender;
                receiver.recv()?;
                Ok(())
            })
        }),
        (
            "send",
            n.spawn(move || {
                let _kept = full_end;
                Ok(full.send(1)?)
            }),
        ),
        (
            "lock",
            n.spawn(|| {
                drop(locked.lock()?);
                Ok(())
            }),
        ),
        (
            "permit",
            n.spawn(move || {
                drop(none.acquire(1)?);
                Ok(())
            }),
        ),
        ("timer", n.spawn(for_ever)),
        ("join", {
            let other = n.spawn(for_ever::<()>);
            n.spawn(move || Ok(other.join()?))
        }),
        (
            "nursery",
            n.spawn(|| {
                nursery(|inner| {
                    inner.launch(for_ever);
                    Ok(())
                })?;
                Ok(())
            }),
        ),
        (
            "future",
            n.spawn(|| Ok(block_on(std::future::pending::<()>())?)),
        ),
        (
            "select",
            n.spawn(move || {
                select! {
                    recv(from_itself) -> _ => (),
                    send(to_itself, 1) -> _ => (),
                    after(FAR) => (),
                }?;
                Ok(())
            }),
        ),
        (
            "await",
            n.spawn_future(async move {
                let _kept = for_future;
                from_nobody.recv_async().await?;
                Ok(())
            }),
        ),
        ("awaited timer", {
            n.spawn_future(async { Ok(future::sleep(FAR).await?) })
        }),
    ]
}

/// The nursery waits for its children alone: if it is not told of the end of one, it does not end.
fn cancel_each_blocked_child() -> Result<(), BoxError> {
    let locked = sync::Mutex::new(());
    let held = locked.lock()?;
    let names = Mutex::new(Vec::new());
    let ended = &names;
    supervisor(|n| {
        let children = blocked_children(n, &locked);
        for (what, child) in children {
            // A job in a queue is cancelled in another way, and futures have no stack that a dump could tell of.
            match what {
                "await" | "awaited timer" => until(|| child.job().state() == JobState::Active),
                "nursery" => until(|| !child.job().children().is_empty()),
                _ => until_it_waits(child.job()),
            }
            let job = child.job().clone();
            n.launch(move || {
                assert!(job.cancel("while it is blocked"));
                block_on(job.ended())?;
                assert_eq!(job.state(), JobState::Cancelled, "{what}");
                ended.lock().unwrap().push(what);
                Ok(())
            });
        }
        // The one that was only joined; from a child, so that the body can end before.
        n.launch(move || {
            until(|| n.state() == jobtree_runtime::NurseryState::Closing);
            until(|| ended.lock().unwrap().len() == 11);
            let others = n.job().children();
            let own = Job::current();
            for other in others.iter().filter(|other| Some(*other) != own.as_ref()) {
                other.cancel("too");
            }
            Ok(())
        });
        Ok(())
    })?;
    drop(held);
    let distinct: HashSet<_> = names.into_inner().unwrap().into_iter().collect();
    assert_eq!(distinct.len(), 11);
    Ok(())
}

#[test]
fn a_child_that_is_cancelled_while_it_is_blocked_tells_its_nursery() {
    let _watch = watch();
    // On a thread of the program's own the nursery waits by a futex, in a job by parking.
    cancel_each_blocked_child().unwrap();
    let runtime = runtime(1);
    runtime.spawn(cancel_each_blocked_child).join().unwrap();
    end(&runtime);
}

// Recharge without requeue.

/// Two supervisors recharge whatever is exhausted, and now and then the same job at once.
#[test]
fn a_thousand_exhausted_jobs_are_requeued_by_racing_recharges() {
    let _watch = watch();
    let runtime = Runtime::builder()
        .workers(2)
        .profile(Profile::Cluster)
        .build()
        .unwrap();
    const JOBS: usize = if cfg!(miri) { 10 } else { 1_000 };
    let one = Budget {
        ops: 1,
        ..Budget::NONE
    };
    let done = AtomicUsize::new(0);
    runtime
        .nursery(|n| {
            for _ in 0..JOBS {
                n.job_options().budget(one).launch(|| {
                    (0..4).for_each(|_| tick());
                    done.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                });
            }
            std::thread::scope(|threads| {
                for _ in 0..2 {
                    threads.spawn(|| {
                        while done.load(Ordering::Relaxed) < JOBS {
                            for exhausted in n.exhausted() {
                                // An error if the other one was faster.
                                let _ = exhausted.recharge(one);
                            }
                        }
                    });
                }
            });
            Ok(())
        })
        .unwrap();
    assert_eq!(done.into_inner(), JOBS);
    let statistics = runtime.statistics();
    assert!(statistics.recharges >= 3 * JOBS as u64, "{statistics:?}");
    end(&runtime);
}

// A full deque dropping a requeued task.

/// One worker makes all of them, and has them all in its deque before it runs the first.
#[test]
fn a_deque_that_grows_drops_nothing() {
    let _watch = watch();
    for workers in [1, 3] {
        let runtime = runtime(workers);
        let ran = AtomicUsize::new(0);
        runtime
            .nursery(|n| {
                let ran = &ran;
                n.launch(move || {
                    for _ in 0..VERY_MANY {
                        n.launch(move || {
                            ran.fetch_add(1, Ordering::Relaxed);
                            Ok(())
                        });
                    }
                    Ok(())
                });
                Ok(())
            })
            .unwrap();
        assert_eq!(ran.into_inner(), VERY_MANY);
        end(&runtime);
    }
}

#[test]
fn a_hundred_thousand_futures_that_requeue_themselves_all_come_back() {
    let _watch = watch();
    let runtime = runtime(2);
    let turns = AtomicUsize::new(0);
    runtime
        .nursery(|n| {
            let turns = &turns;
            for _ in 0..VERY_MANY {
                drop(n.spawn_future(async move {
                    future::yield_now().await;
                    turns.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                }));
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(turns.into_inner(), VERY_MANY);
    end(&runtime);
}

#[test]
fn a_hundred_thousand_yields_of_a_few_tasks_all_come_back() {
    let _watch = watch();
    let runtime = runtime(2);
    const TASKS: usize = 16;
    let turns = AtomicUsize::new(0);
    runtime
        .nursery(|n| {
            for _ in 0..TASKS {
                n.launch(|| {
                    for _ in 0..VERY_MANY / TASKS {
                        yield_now();
                        turns.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                });
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(turns.into_inner(), VERY_MANY / TASKS * TASKS);
    end(&runtime);
}

/// All of them are woken by one worker in one go, which fills its own deque far beyond its first size.
#[test]
fn a_hundred_thousand_wakes_in_one_go_all_arrive() {
    let _watch = watch();
    let runtime = runtime(2);
    let wakers: Mutex<Vec<Waker>> = Mutex::default();
    let (is_open, woken) = (AtomicBool::new(false), AtomicUsize::new(0));
    runtime
        .nursery(|n| {
            let (wakers, is_open, woken) = (&wakers, &is_open, &woken);
            for _ in 0..VERY_MANY {
                drop(n.spawn_future(async move {
                    let mut has_waited = false;
                    poll_fn(|context| {
                        if is_open.load(Ordering::Acquire) {
                            return Poll::Ready(());
                        }
                        assert!(!has_waited, "nobody has woken it");
                        has_waited = true;
                        wakers.lock().unwrap().push(context.waker().clone());
                        Poll::Pending
                    })
                    .await;
                    woken.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                }));
            }
            n.launch(move || {
                until(|| wakers.lock().unwrap().len() == VERY_MANY);
                is_open.store(true, Ordering::Release);
                let wakers = std::mem::take(&mut *wakers.lock().unwrap());
                wakers.into_iter().for_each(Waker::wake);
                Ok(())
            });
            Ok(())
        })
        .unwrap();
    assert_eq!(woken.into_inner(), VERY_MANY);
    end(&runtime);
}

// A running task's Cancelled overwritten on return.

/// It was told to end, so its value is nobody's: whatever the body returns, short of a failure.
#[test]
fn a_body_that_returns_a_value_after_its_cancellation_stays_cancelled() {
    let _watch = watch();
    let runtime = runtime(2);
    let census = Census::default();
    let (begun, go) = (CountLatch::new(3), OnceLatch::new());
    let (begun, go, census) = (&begun, &go, &census);
    let scope_job = Mutex::new(None);
    runtime
        .supervisor(|n| {
            let task = n.spawn(move || {
                begun.count_down();
                go.wait();
                Ok(census.value())
            });
            let future = n.spawn_future(async move {
                begun.count_down();
                go.wait();
                Ok(census.value())
            });
            let scope_job = &scope_job;
            let around_scope = n.spawn(move || {
                let outcome = nursery(|inner| {
                    *scope_job.lock().unwrap() = Some(inner.job().clone());
                    begun.count_down();
                    go.wait();
                    Ok(census.value())
                });
                assert!(outcome.unwrap_err().is_cancelled());
                // Of the one around it the same is true.
                Ok(census.value())
            });
            begun.wait();
            for handle in [&task, &future, &around_scope] {
                assert!(handle.cancel("in the middle"));
                assert_eq!(handle.job().state(), JobState::Cancelling);
            }
            go.set();
            for handle in [task, future, around_scope] {
                let job = handle.job().clone();
                assert!(handle.join().unwrap_err().is_cancelled());
                assert_eq!(job.state(), JobState::Cancelled);
            }
            let scope_job = scope_job.lock().unwrap().take().unwrap();
            assert_eq!(scope_job.state(), JobState::Cancelled);
            Ok(())
        })
        .unwrap();
    census.assert_all_gone(4);
    assert_eq!(runtime.counters().cancelled, 4);
    end(&runtime);
}

// The await wake racing with marking Blocked.

/// A child that ends at about the moment in which its parent begins to wait for it.
fn end_against_wait(round: usize, n: &Nursery<'_, '_>) -> Result<(), BoxError> {
    assert_eq!(n.job().state(), JobState::Active);
    let (child_spins, parent_spins) = (round % 13 * 20, round % 7 * 40);
    supervisor(|n| {
        let child = n.spawn(move || {
            spin(child_spins);
            Ok(round)
        });
        spin(parent_spins);
        assert_eq!(child.join()?, round, "task waits for task");
        let child = n.spawn_future(async move {
            spin(child_spins);
            Ok(round)
        });
        spin(parent_spins);
        assert_eq!(child.join()?, round, "task waits for future");
        let (of_task, of_future) = (
            n.spawn(move || {
                spin(child_spins);
                Ok(round)
            }),
            n.spawn_future(async move {
                spin(child_spins);
                Ok(round)
            }),
        );
        let awaiting = n.spawn_future(async move {
            spin(parent_spins);
            Ok(of_task.await? + of_future.await?)
        });
        assert_eq!(awaiting.join()?, 2 * round, "future waits for both");
        // The end of the scope waits for this one, with nothing in between.
        n.launch(move || {
            spin(child_spins);
            Ok(())
        });
        Ok(())
    })?;
    Ok(())
}

#[test]
fn no_end_of_a_child_is_lost_between_the_look_and_the_wait() {
    let _watch = watch();
    let runtime = runtime(2);
    for round in 0..if cfg!(miri) { 5 } else { rounds(2_000) } {
        // In a job, and on a thread that is no worker.
        let inside = runtime.spawn(move || Ok(nursery(|n| end_against_wait(round, n))?));
        runtime.nursery(|n| end_against_wait(round, n)).unwrap();
        inside.join().unwrap();
    }
    end(&runtime);
}

/// The same by seeds, which reach orders that threads hardly ever do.
#[cfg(all(unix, not(miri)))]
#[test]
fn no_end_of_a_child_is_lost_under_any_seed() {
    let _watch = watch();
    jobtree_runtime::sim::check(0..300, |rt| {
        rt.nursery(|n| end_against_wait(1, n))?;
        Ok(())
    });
}

// Awaiting from the main thread by polling.

/// How often this thread was taken off a processor of its own will, and how long it was on one.
#[cfg(all(target_os = "linux", not(miri)))]
fn switches_and_nanoseconds() -> (u64, u64) {
    let read = |name| std::fs::read_to_string(format!("/proc/thread-self/{name}")).unwrap();
    let status = read("status");
    let switches = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
        .unwrap();
    let schedstat = read("schedstat");
    let time = schedstat.split(' ').next().unwrap();
    (
        switches.trim().parse().unwrap(),
        time.trim().parse().unwrap(),
    )
}

/// A thread that polled every 100 µs would wake up a thousand times in 100 ms; one that spins has a processor all the time.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn a_thread_that_waits_for_a_job_sleeps_until_it_is_told() {
    let _watch = watch();
    let pause = Duration::from_millis(100);
    let runtime = runtime(2);
    type Wait = fn(&Runtime, Arc<OnceLatch>);
    let waits: [(&str, Wait); 5] = [
        ("join", |runtime, latch| {
            runtime
                .spawn(move || {
                    latch.wait();
                    Ok(())
                })
                .join()
                .unwrap();
        }),
        ("block_on", |runtime, latch| {
            let job = runtime.spawn(move || {
                latch.wait();
                Ok(())
            });
            runtime.block_on(job).unwrap().unwrap();
        }),
        ("nursery", |runtime, latch| {
            let scope = runtime.nursery(|n| {
                n.launch(move || {
                    latch.wait();
                    Ok(())
                });
                Ok(())
            });
            scope.unwrap();
        }),
        ("recv", |runtime, latch| {
            let (sender, receiver) = rendezvous();
            let job = runtime.spawn(move || {
                latch.wait();
                Ok(sender.send(())?)
            });
            receiver.recv().unwrap();
            job.join().unwrap();
        }),
        ("lock", |runtime, latch| {
            let lock = Arc::new(sync::Mutex::new(()));
            let held = Arc::new(OnceLatch::new());
            let (inside, is_held) = (lock.clone(), held.clone());
            let job = runtime.spawn(move || {
                let _guard = inside.lock()?;
                is_held.set();
                latch.wait();
                Ok(())
            });
            held.wait();
            drop(lock.lock().unwrap());
            job.join().unwrap();
        }),
    ];
    for (what, wait) in waits {
        let latch = Arc::new(OnceLatch::new());
        let opens = latch.clone();
        let opener = std::thread::spawn(move || {
            std::thread::sleep(pause);
            opens.set();
        });
        let before = switches_and_nanoseconds();
        wait(&runtime, latch);
        let after = switches_and_nanoseconds();
        opener.join().unwrap();
        let (switches, nanoseconds) = (after.0 - before.0, after.1 - before.1);
        assert!(switches < 50, "{what}: {switches} switches");
        let most = pause.as_nanos() as u64 / 2;
        assert!(nanoseconds < most, "{what}: busy for {nanoseconds} ns");
    }
    end(&runtime);
}
