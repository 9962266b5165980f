//! Jobs on dispatchers: on which threads, how many at once, and that they are jobs like all others.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, channel};
use std::time::Duration;

use jobtree_pool::{CountLatch, OnceLatch, current_worker_index};
use jobtree_runtime::{
    Dispatcher, DispatcherError, DrainError, Job, JobError, JobLocal, JobState, Runtime,
    checkpoint, nursery, shield, supervisor, with_local,
};
use support::{Census, FAR, end, for_ever, rounds, runtime, until, watch};

const TINY: Duration = Duration::from_millis(1);

/// Counts how many are inside at once.
#[derive(Default)]
struct Crowd {
    inside: AtomicUsize,
    most: AtomicUsize,
}

impl Crowd {
    fn visit<R>(&self, body: impl FnOnce() -> R) -> R {
        let now = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let result = body();
        self.inside.fetch_sub(1, Ordering::SeqCst);
        result
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

/// A dispatcher of one thread, which is busy until the sender is dropped.
fn busy_dispatcher(runtime: &Runtime) -> (Dispatcher, mpsc::Sender<()>) {
    let dispatcher = Dispatcher::new(1).unwrap();
    let (open, gate) = channel::<()>();
    let begun = Arc::new(OnceLatch::new());
    let (begins, on) = (begun.clone(), dispatcher.clone());
    drop(runtime.spawn(move || {
        on.run(move || {
            begins.set();
            let _ = gate.recv();
            Ok(())
        })?;
        Ok(())
    }));
    begun.wait();
    (dispatcher, open)
}

#[test]
fn blocking_jobs_run_on_threads_that_are_no_workers_and_are_jobs_all_the_same() {
    let _watch = watch();
    let runtime = runtime(2);
    runtime
        .nursery(|n| {
            let own = Dispatcher::new(1)?;
            for (dispatcher, prefix) in [(&own, "jobtree-own-"), (&Dispatcher::io(), "jobtree-io-")]
            {
                let handle = n.job_options().on(dispatcher).label("read").spawn(move || {
                    assert_eq!(current_worker_index(), None);
                    let name = std::thread::current().name().unwrap_or_default().to_owned();
                    assert!(name.starts_with(prefix), "{name}");
                    let job = Job::current().unwrap();
                    Ok((job.label(), job.parent()))
                });
                assert_eq!(handle.join()?, ("read".to_owned(), Some(n.job().clone())));
            }
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn the_default_dispatcher_is_the_workers() {
    let _watch = watch();
    let runtime = runtime(2);
    runtime
        .nursery(|n| {
            let on_worker = || Ok(current_worker_index().is_some());
            assert!(
                n.job_options()
                    .on(&Dispatcher::default())
                    .spawn(on_worker)
                    .join()?
            );
            assert!(Dispatcher::default().run(on_worker)?);
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn more_jobs_than_threads_wait_their_turn_in_order() {
    let _watch = watch();
    let runtime = runtime(2);
    let dispatcher = Dispatcher::new(1).unwrap();
    let (told, heard) = channel();
    runtime
        .nursery(|n| {
            for number in 0..100 {
                let told = told.clone();
                n.job_options()
                    .on(&dispatcher)
                    .launch(move || Ok(told.send(number)?));
            }
            Ok(())
        })
        .unwrap();
    drop(told);
    assert_eq!(
        heard.iter().collect::<Vec<_>>(),
        (0..100).collect::<Vec<_>>()
    );
    end(&runtime);
}

#[test]
fn as_many_threads_as_allowed_and_not_one_more() {
    let _watch = watch();
    let runtime = Runtime::builder()
        .workers(2)
        .blocking_threads(3)
        .build()
        .unwrap();
    let own = Dispatcher::new(3).unwrap();
    for dispatcher in [Dispatcher::io(), own] {
        let crowd = Crowd::default();
        // The first three have to be inside together, or nobody gets out.
        let together = CountLatch::new(3);
        runtime
            .nursery(|n| {
                for number in 0..30 {
                    let (crowd, together) = (&crowd, &together);
                    n.job_options().on(&dispatcher).launch(move || {
                        crowd.visit(|| {
                            if number < 3 {
                                together.count_down();
                                together.wait();
                            }
                            std::thread::yield_now();
                        });
                        Ok(())
                    });
                }
                Ok(())
            })
            .unwrap();
        assert_eq!(crowd.most(), 3);
    }
    end(&runtime);
}

#[test]
fn a_runtime_without_threads_of_its_own_runs_them_on_its_workers_as_many_at_once() {
    let _watch = watch();
    let builder = Runtime::builder().workers(4).blocking_threads(2);
    let runtime = builder.blocking_on_workers().build().unwrap();
    let crowd = Crowd::default();
    runtime
        .nursery(|n| {
            let own = n.spawn(|| Ok(Dispatcher::new(2)?)).join()?;
            for number in 0..60 {
                // One after the other, so that each has the bound to itself.
                let dispatcher = if number < 30 {
                    Dispatcher::io()
                } else {
                    own.clone()
                };
                if number == 30 {
                    Dispatcher::io().drain(FAR)?;
                }
                n.job_options().on(&dispatcher).launch(|| {
                    assert!(current_worker_index().is_some());
                    crowd.visit(jobtree_pool::yield_now);
                    Ok(())
                });
            }
            Ok(())
        })
        .unwrap();
    assert!((1..=2).contains(&crowd.most()), "{}", crowd.most());
    end(&runtime);
}

#[test]
fn a_panic_is_the_outcome_and_the_thread_goes_on() {
    let _watch = watch();
    let runtime = runtime(1);
    let dispatcher = Dispatcher::new(1).unwrap();
    runtime
        .supervisor(|n| {
            let panics = n
                .job_options()
                .on(&dispatcher)
                .spawn::<_, ()>(|| panic!("expected"));
            match panics.join() {
                Err(JobError::Panicked(panic)) => {
                    assert_eq!(panic.message(), "expected");
                    assert!(
                        panic
                            .location()
                            .is_some_and(|at| at.contains("dispatchers.rs"))
                    );
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(dispatcher.run(|| Ok(42))?, 42);
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn a_failure_cancels_the_siblings() {
    let _watch = watch();
    let outcome = nursery(|n| {
        n.launch(for_ever);
        n.job_options().on(&Dispatcher::io()).launch(for_ever);
        n.job_options()
            .on(&Dispatcher::io())
            .launch(|| Err("no such disk".into()));
        Ok(())
    });
    assert!(matches!(outcome, Err(JobError::Failed(f)) if f.error().to_string() == "no such disk"));
}

#[test]
fn a_job_cancelled_in_the_queue_never_runs_and_needs_no_thread_to_end() {
    let _watch = watch();
    let runtime = runtime(2);
    let (dispatcher, open) = busy_dispatcher(&runtime);
    let census = Census::default();
    let has_run = AtomicBool::new(false);
    runtime
        .nursery(|n| {
            let value = census.value();
            let queued = n.job_options().on(&dispatcher).spawn(|| {
                has_run.store(true, Ordering::SeqCst);
                Ok(value)
            });
            assert_eq!(queued.job().state(), JobState::Pending);
            queued.cancel("not needed");
            let job = queued.job().clone();
            // The only thread is still busy.
            assert!(matches!(queued.join(), Err(JobError::Cancelled(_))));
            assert_eq!(job.state(), JobState::Cancelled);
            census.assert_all_gone(1);
            Ok(())
        })
        .unwrap();
    drop(open);
    dispatcher.drain(FAR).unwrap();
    assert!(!has_run.load(Ordering::SeqCst));
    end(&runtime);
}

#[test]
fn thousands_that_wait_are_cancelled_at_once() {
    let _watch = watch();
    let runtime = runtime(2);
    let (dispatcher, open) = busy_dispatcher(&runtime);
    let outcome = runtime.nursery(|n| {
        for _ in 0..10_000 {
            n.job_options()
                .on(&dispatcher)
                .launch(|| panic!("it never runs"));
        }
        n.cancel("enough");
        checkpoint()?;
        Ok(())
    });
    assert!(matches!(outcome, Err(JobError::Cancelled(_))));
    drop(open);
    end(&runtime);
}

#[test]
fn cancelling_races_with_starting_and_each_job_ends_once() {
    let _watch = watch();
    let runtime = runtime(2);
    let dispatcher = Dispatcher::new(2).unwrap();
    let census = Census::default();
    let jobs = rounds(2000);
    let ran = AtomicUsize::new(0);
    runtime
        .supervisor(|n| {
            let mut ended = [0, 0];
            for _ in 0..jobs {
                let value = census.value();
                let handle = n.job_options().on(&dispatcher).spawn(|| {
                    ran.fetch_add(1, Ordering::SeqCst);
                    Ok(value)
                });
                handle.cancel("perhaps in time");
                ended[usize::from(handle.join().is_ok())] += 1;
            }
            assert_eq!(ended[0] + ended[1], jobs);
            assert!(ended[1] <= ran.load(Ordering::SeqCst));
            Ok(())
        })
        .unwrap();
    census.assert_all_gone(jobs);
    dispatcher.drain(FAR).unwrap();
    end(&runtime);
}

#[test]
fn run_waits_for_its_body_even_if_the_caller_is_cancelled() {
    let _watch = watch();
    let runtime = runtime(2);
    let (begun, put_in_order) = (OnceLatch::new(), AtomicBool::new(false));
    let outcome = runtime.nursery(|n| {
        let caller = n.spawn(|| {
            let outcome = Dispatcher::io().run(|| {
                begun.set();
                let ended = for_ever::<()>();
                shield(FAR, || {
                    put_in_order.store(true, Ordering::SeqCst);
                    Ok(())
                })?;
                ended
            });
            assert!(put_in_order.load(Ordering::SeqCst));
            assert!(matches!(outcome, Err(JobError::Cancelled(_))));
            Ok(outcome?)
        });
        begun.wait();
        caller.cancel("enough");
        let job = caller.job().clone();
        assert!(caller.join().is_err());
        assert_eq!(job.state(), JobState::Cancelled);
        Ok(())
    });
    outcome.unwrap();
    end(&runtime);
}

#[test]
fn run_lends_borrows_and_returns_values_and_errors() {
    let _watch = watch();
    let mut numbers = vec![3, 1, 2];
    Dispatcher::io()
        .run(|| {
            numbers.sort();
            Ok(())
        })
        .unwrap();
    assert_eq!(numbers, [1, 2, 3]);
    let failed = Dispatcher::io().run::<_, ()>(|| Err("broken".into()));
    assert!(matches!(failed, Err(JobError::Failed(f)) if f.error().to_string() == "broken"));
}

#[test]
fn a_blocking_job_opens_scopes_keeps_deadlines_and_inherits_values() {
    static REQUEST: JobLocal<u64> = JobLocal::new();
    let _watch = watch();
    let runtime = runtime(2);
    let seen = runtime
        .nursery(|_| {
            let seen = with_local(&REQUEST, 7, || {
                let inside = || {
                    let sum = nursery(|n| {
                        let halves = [n.spawn(|| Ok(REQUEST.get())), n.spawn(|| Ok(REQUEST.get()))];
                        let mut sum = 0;
                        for half in halves {
                            sum += half.join()?.as_deref().copied().unwrap_or(0);
                        }
                        Ok(sum)
                    })?;
                    Ok(sum)
                };
                Ok(Dispatcher::io().run(inside)?)
            })?;
            Ok(seen)
        })
        .unwrap();
    assert_eq!(seen, 14);
    let timed = runtime.supervisor(|n| {
        let options = n.job_options().on(&Dispatcher::io()).timeout(TINY);
        let outcome = options.spawn(for_ever::<()>).join();
        assert!(matches!(outcome, Err(JobError::TimedOut(_))));
        Ok(())
    });
    timed.unwrap();
    end(&runtime);
}

#[test]
fn a_deadline_counts_the_time_in_the_queue() {
    let _watch = watch();
    let runtime = runtime(2);
    let (dispatcher, open) = busy_dispatcher(&runtime);
    let outcome = runtime.supervisor(|n| {
        let queued = n
            .job_options()
            .on(&dispatcher)
            .timeout(TINY)
            .spawn(|| Ok("has run"));
        Ok(queued.join())
    });
    assert!(matches!(outcome, Ok(Err(JobError::TimedOut(_)))));
    drop(open);
    end(&runtime);
}

#[test]
fn drain_waits_for_what_waits_and_what_runs() {
    let _watch = watch();
    let runtime = runtime(2);
    runtime
        .nursery(|n| {
            for dispatcher in [Dispatcher::default(), Dispatcher::io(), Dispatcher::new(1)?] {
                let done = AtomicUsize::new(0);
                let outcome = nursery(|inner| {
                    for _ in 0..20 {
                        inner.job_options().on(&dispatcher).launch(|| {
                            std::thread::yield_now();
                            done.fetch_add(1, Ordering::SeqCst);
                            Ok(())
                        });
                    }
                    dispatcher.drain(FAR)?;
                    assert_eq!(done.load(Ordering::SeqCst), 20);
                    Ok(())
                });
                outcome?;
                // Nothing is there: it does not wait.
                dispatcher.drain(Duration::ZERO)?;
            }
            n.cancel("all was seen");
            Ok(())
        })
        .unwrap_err();
    end(&runtime);
}

#[test]
fn drain_names_what_is_left_when_its_time_is_over() {
    let _watch = watch();
    let runtime = runtime(2);
    let dispatcher = Dispatcher::new(1).unwrap();
    let (open, gate) = (OnceLatch::new(), OnceLatch::new());
    runtime
        .nursery(|n| {
            n.job_options().on(&dispatcher).label("first").launch(|| {
                gate.set();
                open.wait();
                Ok(())
            });
            n.job_options()
                .on(&dispatcher)
                .label("second")
                .launch(|| Ok(()));
            gate.wait();
            let error = dispatcher.drain(TINY).unwrap_err();
            let left = error.left();
            assert!(left.len() == 2 && left[0].ends_with("first") && left[1].ends_with("second"));
            assert!(error.to_string().contains("first"));
            open.set();
            dispatcher.drain(FAR)?;
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn a_cancelled_job_does_not_wait_for_a_drain() {
    let _watch = watch();
    let runtime = runtime(2);
    let (dispatcher, open) = busy_dispatcher(&runtime);
    let outcome = runtime.nursery(|n| {
        let waiter = n.spawn(|| Ok(dispatcher.drain(FAR)?));
        until(|| waiter.job().waiting_for().is_some());
        waiter.cancel("enough");
        let job = waiter.job().clone();
        assert!(waiter.join().is_err());
        // The error counts as the job's own cancellation.
        assert_eq!(job.state(), JobState::Cancelled);
        n.cancel("now");
        assert!(matches!(
            dispatcher.drain(FAR),
            Err(DrainError::Cancelled(_))
        ));
        Ok(())
    });
    assert!(outcome.is_err());
    drop(open);
    end(&runtime);
}

#[test]
fn shutdown_cancels_what_waits_and_names_what_still_runs() {
    let _watch = watch();
    let runtime = Runtime::builder()
        .workers(1)
        .blocking_threads(1)
        .build()
        .unwrap();
    let (open, gate) = channel::<()>();
    let begun = Arc::new(OnceLatch::new());
    let has_run = Arc::new(AtomicBool::new(false));
    let (begins, runs) = (begun.clone(), has_run.clone());
    let keeper = runtime.spawn(move || {
        nursery(|n| {
            n.job_options()
                .label("stuck")
                .on(&Dispatcher::io())
                .launch(move || {
                    begins.set();
                    let _ = gate.recv();
                    Ok(())
                });
            n.job_options()
                .label("queued")
                .on(&Dispatcher::io())
                .launch(move || {
                    runs.store(true, Ordering::SeqCst);
                    Ok(())
                });
            Ok(())
        })?;
        Ok(())
    });
    begun.wait();
    let error = runtime.shutdown(Duration::from_millis(20)).unwrap_err();
    assert_eq!(error.stragglers().len(), 1, "{error}");
    assert!(error.stragglers()[0].ends_with("/stuck"), "{error}");
    drop(open);
    end(&runtime);
    assert!(keeper.join().is_err());
    assert!(!has_run.load(Ordering::SeqCst));
}

#[test]
fn shutdown_asks_a_blocking_job_to_end() {
    let _watch = watch();
    let runtime = runtime(1);
    let begun = Arc::new(OnceLatch::new());
    let begins = begun.clone();
    let keeper = runtime.spawn(move || {
        Dispatcher::io().run(move || {
            begins.set();
            while checkpoint().is_ok() {
                std::thread::yield_now();
            }
            checkpoint()?;
            Ok(())
        })?;
        Ok(())
    });
    begun.wait();
    end(&runtime);
    assert!(matches!(keeper.join(), Err(JobError::Cancelled(_))));
}

#[test]
fn a_blocking_job_finds_workers_even_if_its_runtime_was_dropped() {
    let _watch = watch();
    for _ in 0..rounds(50) {
        let runtime = runtime(1);
        let (begun, dropped) = (Arc::new(OnceLatch::new()), Arc::new(OnceLatch::new()));
        let (begins, is_dropped) = (begun.clone(), dropped.clone());
        let (tell, told) = channel();
        drop(runtime.spawn(move || {
            Dispatcher::io().run(move || {
                begins.set();
                is_dropped.wait();
                let answer = shield(FAR, || Ok(nursery(|n| Ok(n.spawn(|| Ok(42)).join()?))?));
                tell.send(answer.unwrap())?;
                Ok(())
            })?;
            Ok(())
        }));
        begun.wait();
        drop(runtime);
        dropped.set();
        assert_eq!(told.recv().unwrap(), 42);
    }
}

#[test]
fn a_dropped_dispatcher_still_runs_what_was_given_to_it() {
    let _watch = watch();
    let done = AtomicUsize::new(0);
    supervisor(|n| {
        let dispatcher = Dispatcher::new(1)?;
        for _ in 0..20 {
            n.job_options().on(&dispatcher).launch(|| {
                done.fetch_add(1, Ordering::SeqCst);
                Ok(())
            });
        }
        drop(dispatcher);
        Ok(())
    })
    .unwrap();
    assert_eq!(done.load(Ordering::SeqCst), 20);
}

#[test]
fn a_dispatcher_needs_threads() {
    let error = Dispatcher::new(0).unwrap_err();
    assert!(matches!(error, DispatcherError::NoThreads));
    assert!(error.to_string().contains("at least one thread"));
    let error = Dispatcher::new(usize::MAX).unwrap_err();
    assert!(matches!(error, DispatcherError::TooManyThreads));
    assert!(error.to_string().contains("ask for fewer"));
}

#[test]
fn jobs_in_a_cancelled_scope_are_born_cancelled() {
    let _watch = watch();
    let census = Census::default();
    let outcome = nursery(|n| {
        n.cancel("before it began");
        let value = census.value();
        let handle = n
            .job_options()
            .on(&Dispatcher::io())
            .spawn(move || Ok(value));
        assert!(handle.is_finished());
        assert!(handle.join().is_err());
        Ok(())
    });
    assert!(outcome.is_err());
    census.assert_all_gone(1);
}
