//! Simulations of programs that borrow: `run` returns only after everything has ended that may use what was borrowed.
//!
//! Each body runs in a child process with a time limit: on a failure it crashes or hangs.
#![cfg(all(unix, not(miri)))]
#![allow(clippy::unit_arg, reason = "a body of one call is a line")]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use jobtree_pool::{CountLatch, OnceLatch, Pool, join, yield_now};
use jobtree_runtime::channel::{bounded, rendezvous};
use jobtree_runtime::sim::{self, Report, SimError};
use jobtree_runtime::sync::{Mutex, Semaphore};
use jobtree_runtime::{
    BoxError, Dispatcher, JobError, Runtime, block_on, checkpoint, nursery, sleep,
};
use support::child::{Ended, run_in_child};

const SECOND: Duration = Duration::from_secs(1);

/// What a child gets at most. Only a hang takes that long.
const LIMIT: Duration = Duration::from_secs(60);

/// How long another thread keeps on using what it borrowed.
const A_WHILE: Duration = Duration::from_millis(200);

fn in_child(body: impl FnOnce()) -> Ended {
    run_in_child(0, LIMIT, body)
}

/// Uses `borrowed` for a while, and then says so.
fn use_for_a_while(borrowed: &[u64], used: &AtomicBool) {
    let began = std::time::Instant::now();
    while began.elapsed() < A_WHILE {
        assert!(borrowed.iter().all(|number| *number == 7));
    }
    used.store(true, Ordering::SeqCst);
}

/// Runs `program` with numbers that it may borrow, and which are gone when this returns.
fn with_numbers<T: Send>(
    program: impl FnOnce(&Runtime, &[u64]) -> Result<T, BoxError> + Send,
) -> Report<T> {
    let mut numbers = vec![7; 100_000];
    let report = sim::Runtime::new(1).run(|rt| program(rt, &numbers));
    // What still uses them fails, even if the memory stays.
    numbers.fill(0);
    report
}

#[track_caller]
fn assert_stuck<T>(report: Report<T>) {
    match report.outcome {
        Err(SimError::Stuck { .. }) => {}
        Err(error) => panic!("not stuck, but: {error}"),
        Ok(_) => panic!("not stuck"),
    }
}

#[track_caller]
fn assert_refused<T>(report: Report<T>, message: &str) {
    match report.outcome {
        Err(error) => assert!(error.to_string().contains(message), "{error}"),
        Ok(_) => panic!("not refused"),
    }
}

#[test]
fn a_stuck_program_joins_its_scoped_threads() {
    let ended = in_child(|| {
        let used = Arc::new(AtomicBool::new(false));
        let report = with_numbers(|_, numbers| {
            std::thread::scope(|scope| {
                scope.spawn(|| use_for_a_while(numbers, &used));
                OnceLatch::new().wait();
            });
            Ok(())
        });
        assert!(used.load(Ordering::SeqCst), "the thread has not ended");
        assert_stuck(report);
    });
    ended.assert_success();
}

#[test]
fn a_program_without_an_end_joins_its_scoped_threads() {
    for endless in 0..7 {
        let ended = run_in_child(endless, LIMIT, || {
            let used = Arc::new(AtomicBool::new(false));
            let mut numbers = vec![7; 100_000];
            let (_sender, receiver) = bounded::<u8>(1);
            let simulation = sim::Runtime::builder(1).max_steps(1000).build();
            let report = simulation.run(|_| -> Result<(), BoxError> {
                std::thread::scope(|scope| {
                    scope.spawn(|| use_for_a_while(&numbers, &used));
                    loop {
                        match endless {
                            0 => drop(checkpoint()),
                            1 => drop(yield_now()),
                            2 => drop(sleep(SECOND)),
                            3 => drop(nursery(|n| Ok(n.launch(|| Ok(()))))),
                            4 => drop(receiver.try_recv()),
                            5 => drop(join(|| (), || ())),
                            _ => drop(block_on(std::future::pending::<()>())),
                        }
                    }
                })
            });
            assert!(used.load(Ordering::SeqCst), "the thread has not ended");
            numbers.fill(0);
            assert!(report.outcome.is_err());
        });
        ended.assert_success();
    }
}

#[test]
fn work_for_another_pool_is_refused_before_it_is_handed_over() {
    let ended = in_child(|| {
        let pool = Pool::builder().workers(2).build().unwrap();
        let refused = "threads of another pool";
        type Attempt = fn(&Pool, &[u64], &AtomicBool);
        let attempts: [Attempt; 6] = [
            |pool, numbers, used| pool.install(|| use_for_a_while(numbers, used)),
            |pool, numbers, used| {
                pool.join(|| use_for_a_while(numbers, used), || ());
            },
            |pool, numbers, used| {
                pool.scope(|s| s.spawn(|_| use_for_a_while(numbers, used)));
            },
            |pool, numbers, used| {
                pool.in_place_scope(|s| s.spawn(|_| use_for_a_while(numbers, used)));
            },
            |pool, numbers, used| {
                pool.in_place_scope_fifo(|s| s.spawn_fifo(|_| use_for_a_while(numbers, used)));
            },
            |pool, numbers, used| {
                pool.broadcast(|_| use_for_a_while(numbers, used));
            },
        ];
        for attempt in attempts {
            let used = AtomicBool::new(false);
            let report = with_numbers(|_, numbers| {
                attempt(&pool, numbers, &used);
                Ok(())
            });
            assert_refused(report, refused);
            assert!(!used.load(Ordering::SeqCst));
        }
    });
    ended.assert_success();
}

#[test]
fn scopes_of_another_runtime_are_refused_before_a_job_starts() {
    let ended = in_child(|| {
        let real = support::runtime(2);
        let refused = "in a simulation";
        let used = AtomicBool::new(false);
        let report = with_numbers(|_, numbers| {
            real.nursery(|n| Ok(n.launch(|| Ok(use_for_a_while(numbers, &used)))))?;
            Ok(())
        });
        assert_refused(report, refused);
        let report = with_numbers(|_, numbers| {
            real.supervisor(|n| Ok(n.launch(|| Ok(use_for_a_while(numbers, &used)))))?;
            Ok(())
        });
        assert_refused(report, refused);
        let report = with_numbers(|_, _| Ok(real.block_on(std::future::pending::<()>())?));
        assert_refused(report, refused);
        assert!(!used.load(Ordering::SeqCst));
        support::end(&real);
    });
    ended.assert_success();
}

#[test]
fn a_dispatcher_with_real_threads_is_refused_before_a_job_starts() {
    let ended = in_child(|| {
        let dispatcher = Dispatcher::new(1).unwrap();
        let used = AtomicBool::new(false);
        let report =
            with_numbers(|_, numbers| Ok(dispatcher.run(|| Ok(use_for_a_while(numbers, &used)))?));
        assert_refused(report, "made outside of the simulation");
        let report = with_numbers(|_, numbers| {
            nursery(|n| {
                let on = n.job_options().on(&dispatcher);
                on.launch(|| Ok(use_for_a_while(numbers, &used)));
                Ok(())
            })?;
            Ok(())
        });
        assert_refused(report, "made outside of the simulation");
        assert!(!used.load(Ordering::SeqCst));
        // One that is made inside, by a job or by a task that is none, has no threads.
        let report = with_numbers(|_, numbers| {
            Dispatcher::new(1)?.run(|| Ok(assert_eq!(numbers[0], 7)))?;
            let (made, done) = (Arc::new(OnceLatch::new()), Arc::new(OnceLatch::new()));
            let (set_made, set_done) = (made.clone(), done.clone());
            jobtree_pool::spawn(move || {
                let inside = Dispatcher::new(1).unwrap();
                set_made.set();
                let name = || Ok(std::thread::current().name().map(str::to_owned));
                let name = inside.run(name).unwrap();
                assert_eq!(name.as_deref(), Some("jobtree-sim-1"));
                set_done.set();
            });
            made.wait();
            done.wait();
            Ok(())
        });
        report.outcome.unwrap();
    });
    ended.assert_success();
}

#[test]
fn a_dispatcher_of_a_simulation_is_refused_elsewhere() {
    let ended = in_child(|| {
        let report = sim::Runtime::new(1).run(|_| Ok(Dispatcher::new(1)?));
        let dispatcher = report.outcome.unwrap();
        let error = dispatcher.run(|| Ok(())).unwrap_err();
        assert!(error.to_string().contains("simulation"), "{error}");
    });
    ended.assert_success();
}

#[test]
fn owned_work_for_another_pool_is_allowed() {
    let ended = in_child(|| {
        let pool = Pool::builder().workers(1).build().unwrap();
        let real = support::runtime(1);
        let (ran, count) = (Arc::new(CountLatch::new(2)), Arc::new(AtomicUsize::new(0)));
        let report = with_numbers(|_, _| {
            let (spawned, started) = (ran.clone(), ran.clone());
            pool.spawn(move || spawned.count_down());
            drop(real.spawn(move || Ok(started.count_down())));
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        report.outcome.unwrap();
        ran.wait();
        support::end(&real);
    });
    ended.assert_success();
}

/// Counts when it is dropped.
struct Counts<'a>(&'a AtomicUsize);

impl Drop for Counts<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn waits_that_no_cancellation_ends_are_unwound() {
    let ended = in_child(|| {
        for seed in 0..50 {
            let dropped = AtomicUsize::new(0);
            let workers = 1 + seed as usize % 4;
            let simulation = sim::Runtime::builder(seed).workers(workers).build();
            let report = simulation.run(|rt| {
                rt.nursery(|n| {
                    n.launch(|| {
                        let _counts = Counts(&dropped);
                        Ok(OnceLatch::new().wait())
                    });
                    n.launch(|| {
                        let _counts = Counts(&dropped);
                        Ok(CountLatch::new(3).wait())
                    });
                    n.launch(|| {
                        let _counts = Counts(&dropped);
                        join(
                            || {
                                let _counts = Counts(&dropped);
                                OnceLatch::new().wait()
                            },
                            || {
                                let _counts = Counts(&dropped);
                                OnceLatch::new().wait()
                            },
                        );
                        Ok(())
                    });
                    n.launch(|| {
                        jobtree_pool::scope(|s| {
                            s.spawn(|_| {
                                let _counts = Counts(&dropped);
                                jobtree_pool::isolate(|| OnceLatch::new().wait());
                            });
                        });
                        Ok(())
                    });
                    Ok(())
                })?;
                Ok(())
            });
            assert_stuck(report);
            // The second closure of the fork may not have begun; and an isolated wait keeps its worker, perhaps the only
            // one, from beginning anything else.
            let (dropped, least) = (dropped.into_inner(), if workers == 1 { 1 } else { 5 });
            assert!((least..=6).contains(&dropped), "{dropped} of seed {seed}");
        }
    });
    ended.assert_success();
}

#[test]
fn tasks_that_are_no_jobs_are_unwound_whatever_they_wait_for() {
    let ended = in_child(|| {
        let dropped: &'static AtomicUsize = Box::leak(Box::default());
        let simulation = sim::Runtime::builder(1).max_steps(10_000).build();
        let report = simulation.run(|_| {
            jobtree_pool::spawn(move || {
                let _counts = Counts(dropped);
                let (_sender, receiver) = bounded::<u8>(1);
                let _ = receiver.recv();
            });
            jobtree_pool::spawn(move || {
                let _counts = Counts(dropped);
                let _ = block_on(std::future::pending::<()>());
            });
            jobtree_pool::spawn(move || {
                let _counts = Counts(dropped);
                let (sender, _receiver) = rendezvous::<u8>();
                let _ = sender.send(1);
            });
            jobtree_pool::spawn(move || {
                let _counts = Counts(dropped);
                let semaphore = Semaphore::new(0);
                let _ = semaphore.acquire(1);
            });
            jobtree_pool::spawn(move || {
                let _counts = Counts(dropped);
                let mutex = Mutex::new(0);
                let _first = mutex.lock();
                let _second = mutex.lock();
            });
            jobtree_pool::spawn(move || {
                let _counts = Counts(dropped);
                loop {
                    yield_now();
                }
            });
            Ok(sleep(SECOND)?)
        });
        let error = report.outcome.unwrap_err();
        assert!(
            matches!(error, SimError::NoEnd { .. } | SimError::LeftOver { .. }),
            "{error}"
        );
        assert_eq!(dropped.load(Ordering::SeqCst), 6);
    });
    ended.assert_success();
}

#[test]
fn a_destructor_may_wait_for_another_one_while_both_are_unwound() {
    struct Waits(Arc<OnceLatch>);
    impl Drop for Waits {
        fn drop(&mut self) {
            self.0.wait();
        }
    }
    struct Sets(Arc<OnceLatch>);
    impl Drop for Sets {
        fn drop(&mut self) {
            self.0.set();
        }
    }
    let ended = in_child(|| {
        for seed in 0..50 {
            let report = sim::Runtime::new(seed).run(|rt| {
                let latch = Arc::new(OnceLatch::new());
                rt.nursery(|n| {
                    let (waits, sets) = (Waits(latch.clone()), Sets(latch));
                    n.launch(move || {
                        let _waits = waits;
                        Ok(OnceLatch::new().wait())
                    });
                    n.launch(move || {
                        let _sets = sets;
                        Ok(OnceLatch::new().wait())
                    });
                    Ok(())
                })?;
                Ok(())
            });
            assert_stuck(report);
        }
    });
    ended.assert_success();
}

#[test]
fn a_program_may_catch_the_unwinding_and_wait_or_panic_again() {
    let ended = in_child(|| {
        for seed in 0..20 {
            let dropped = AtomicUsize::new(0);
            let report = sim::Runtime::new(seed).run(|rt| {
                rt.supervisor(|n| {
                    n.launch(|| {
                        let _counts = Counts(&dropped);
                        for _ in 0..10 {
                            let _ = catch_unwind(|| OnceLatch::new().wait());
                        }
                        panic!("a panic of its own");
                    });
                    n.launch(|| {
                        let _counts = Counts(&dropped);
                        let result = catch_unwind(|| OnceLatch::new().wait());
                        std::panic::resume_unwind(result.unwrap_err());
                    });
                    Ok(())
                })?;
                Ok(())
            });
            assert_stuck(report);
            assert_eq!(dropped.into_inner(), 2);
        }
    });
    ended.assert_success();
}

#[test]
fn thousands_of_stuck_jobs_are_unwound() {
    let ended = in_child(|| {
        let dropped = AtomicUsize::new(0);
        let simulation = sim::Runtime::builder(1).stack_size(1 << 16).build();
        let report = simulation.run(|rt| {
            rt.nursery(|n| {
                for _ in 0..3000 {
                    n.launch(|| {
                        let _counts = Counts(&dropped);
                        Ok(OnceLatch::new().wait())
                    });
                }
                Ok(())
            })?;
            Ok(())
        });
        assert_stuck(report);
        assert_eq!(dropped.into_inner(), 3000);
    });
    ended.assert_success();
}

#[test]
fn a_destructor_that_waits_for_ever_aborts_with_a_message() {
    struct Waits;
    impl Drop for Waits {
        fn drop(&mut self) {
            OnceLatch::new().wait();
        }
    }
    let ended = in_child(|| {
        sim::Runtime::new(11).run(|rt| {
            rt.nursery(|n| {
                n.job_options().label("waits in a destructor").launch(|| {
                    let _waits = Waits;
                    Ok(OnceLatch::new().wait())
                });
                Ok(())
            })?;
            Ok(())
        });
    });
    ended.assert_aborted_with(&["seed 11", "waits in a destructor", "cannot end"]);
}

#[test]
fn a_run_that_ends_by_its_limit_reports_it_whatever_the_limit_is() {
    let ended = in_child(|| {
        for workers in [1, 4, 16] {
            for steps in (0..10).chain([50, 200, 300, 400, 500, 600, 700, 800, 1000, 3000]) {
                let simulation = sim::Runtime::builder(1).workers(workers).max_steps(steps);
                // A hundred jobs, each of which has to be unwound.
                let report = simulation.clone().build().run(|_| {
                    let never = OnceLatch::new();
                    Ok(nursery(|n| {
                        for _ in 0..100 {
                            n.launch(|| Ok(never.wait()));
                        }
                        Ok(())
                    })?)
                });
                let error = report.outcome.expect_err("the jobs wait for ever");
                let is_right = matches!(error, SimError::NoEnd { .. } | SimError::Stuck { .. });
                assert!(is_right, "{workers} workers, {steps} steps: {error}");
                match simulation.build().run(|_| Ok(1)).outcome {
                    Ok(value) => assert_eq!(value, 1),
                    Err(SimError::NoEnd { .. }) => assert!(steps < 50),
                    Err(error) => panic!("{workers} workers, {steps} steps: {error}"),
                }
            }
        }
    });
    ended.assert_success();
}

#[test]
fn a_program_that_catches_the_unwinding_for_ever_aborts_with_a_message() {
    let ended = in_child(|| {
        sim::Runtime::new(12).run(|rt| {
            rt.nursery(|n| {
                n.job_options().label("stubborn").launch(|| {
                    loop {
                        let _ = catch_unwind(|| OnceLatch::new().wait());
                    }
                });
                Ok(())
            })?;
            Ok(())
        });
    });
    ended.assert_aborted_with(&["seed 12", "stubborn", "cannot end"]);
    let ended = run_in_child(1, LIMIT, || {
        let simulation = sim::Runtime::builder(13).max_steps(10_000).build();
        simulation.run(|_| -> Result<(), BoxError> {
            loop {
                let _ = catch_unwind(yield_now);
            }
        });
    });
    ended.assert_aborted_with(&["seed 13", "main", "cannot end"]);
}

#[test]
fn a_panic_of_a_callback_does_not_leave_stacks_behind() {
    let ended = in_child(|| {
        let used = Arc::new(AtomicBool::new(false));
        let run = AssertUnwindSafe(|| {
            with_numbers(|_, numbers| {
                std::thread::scope(|scope| {
                    scope.spawn(|| use_for_a_while(numbers, &used));
                    let job = jobtree_runtime::Job::current().unwrap();
                    let _callback = job.on_cancel(|_| panic!("in a callback"));
                    Ok(sleep(Duration::MAX)?)
                })
            })
        });
        let _ = catch_unwind(run);
        assert!(used.load(Ordering::SeqCst), "the thread has not ended");
    });
    ended.assert_success();
}

#[test]
fn what_escapes_from_a_simulation_is_dead() {
    let ended = in_child(|| {
        let report = sim::Runtime::new(1).run(|rt| {
            let never = rt.spawn(|| Ok(sleep(Duration::MAX)?));
            Ok((rt.clone(), never))
        });
        let (runtime, never) = report.outcome.unwrap();
        assert!(never.join().unwrap_err().is_cancelled());
        assert!(runtime.spawn(|| Ok(1)).join().unwrap_err().is_cancelled());
        let number = 1;
        let outcome = runtime.nursery(|n| Ok(n.spawn(|| Ok(number)).join()?));
        assert!(outcome.is_err());
        assert!(runtime.block_on(async { 1 }).is_err());
        runtime.shutdown(SECOND).unwrap();
    });
    ended.assert_success();
}

/// What a callback of the clock may try, and what comes of it.
type Try = fn();

fn by_the_clock(attempt: Try) -> Report<()> {
    sim::Runtime::new(3).run(|_| {
        let outcome = jobtree_runtime::with_timeout(SECOND, || {
            let job = jobtree_runtime::Job::current().unwrap();
            let _callback = job.on_cancel(move |_| attempt());
            Ok(sleep(Duration::MAX)?)
        });
        assert!(matches!(outcome, Err(JobError::TimedOut(_))), "{outcome:?}");
        Ok(())
    })
}

#[test]
fn forks_and_waits_in_callbacks_of_the_clock_are_refused_before_anything_is_published() {
    let attempts: [Try; 8] = [
        || assert_eq!(join(|| 1, || 2), (1, 2)),
        || jobtree_pool::scope(|s| s.spawn(|_| ())),
        || jobtree_pool::in_place_scope(|s| s.spawn(|_| ())),
        || drop(jobtree_pool::broadcast(|_| ())),
        || Pool::builder().workers(1).build().unwrap().install(|| ()),
        || OnceLatch::new().wait(),
        || CountLatch::new(1).wait(),
        || nursery(|n| Ok(n.launch(|| Ok(())))).unwrap_or_else(|error| panic!("{error}")),
    ];
    for (part, attempt) in attempts.into_iter().enumerate() {
        let ended = run_in_child(part, LIMIT, || {
            let error = by_the_clock(attempt).outcome.unwrap_err();
            let text = error.to_string();
            assert!(text.contains("callback"), "{text}");
            assert!(text.contains("spawn a job"), "{text}");
        });
        ended.assert_success();
    }
}

#[test]
fn a_latch_survives_a_callback_that_tried_to_wait_for_it() {
    let ended = in_child(|| {
        static LATCH: LazyLock<OnceLatch> = LazyLock::new(OnceLatch::new);
        let _ = catch_unwind(|| by_the_clock(|| LATCH.wait()));
        // Whoever is entered there would be woken now.
        LATCH.set();
    });
    ended.assert_success();
}

#[test]
fn a_waker_of_the_programs_own_is_a_callback_of_the_clock() {
    struct Forks;
    impl std::task::Wake for Forks {
        fn wake(self: Arc<Self>) {
            join(|| (), || ());
        }
    }
    let ended = in_child(|| {
        let report = sim::Runtime::new(3).run(|rt| {
            let waker = std::task::Waker::from(Arc::new(Forks));
            let mut context = std::task::Context::from_waker(&waker);
            let mut asleep = Box::pin(rt.clock().sleep(SECOND));
            assert!(asleep.as_mut().poll(&mut context).is_pending());
            Ok(sleep(2 * SECOND)?)
        });
        assert_refused(report, "spawn a job");
    });
    ended.assert_success();
}

#[test]
fn a_stack_that_blocks_the_thread_while_it_is_unwound_is_told_of() {
    let ended = in_child(|| {
        let report = sim::Runtime::new(1).run(|_| {
            std::thread::scope(|scope| {
                scope.spawn(|| std::thread::sleep(Duration::from_secs(4)));
                OnceLatch::new().wait();
            });
            Ok(())
        });
        assert_stuck(report);
        eprintln!("returned");
    });
    ended.assert_success();
    let told = ended.stderr.contains("The simulation waits for it");
    assert!(
        told && ended.stderr.contains("returned"),
        "{}",
        ended.stderr
    );
}

#[test]
fn callbacks_of_the_clock_may_spawn_and_send() {
    let ended = in_child(|| {
        static RAN: AtomicUsize = AtomicUsize::new(0);
        fn count() {
            RAN.fetch_add(1, Ordering::SeqCst);
        }
        by_the_clock(|| {
            jobtree_pool::spawn(count);
        })
        .outcome
        .unwrap();
        let report = sim::Runtime::new(3).run(|rt| {
            let (sender, receiver) = bounded(1);
            let rt = rt.clone();
            let _ = jobtree_runtime::with_timeout(SECOND, move || {
                let job = jobtree_runtime::Job::current().unwrap();
                let _callback = job.on_cancel(move |_| {
                    sender.send(7).unwrap();
                    drop(rt.spawn(|| Ok(count())));
                });
                Ok(sleep(Duration::MAX)?)
            });
            Ok(receiver.recv()?)
        });
        assert_eq!(report.outcome.unwrap(), 7);
        // The clock's thread is none of the simulation, so one of them runs on the global pool.
        support::until(|| RAN.load(Ordering::SeqCst) == 2);
    });
    ended.assert_success();
}

#[test]
fn a_pool_on_the_thread_of_a_simulation_is_refused() {
    let ended = in_child(|| {
        let build = || Pool::builder().workers(1).use_current_thread().build();
        let report = sim::Runtime::new(1).run(|_| Ok(build().is_err()));
        assert!(report.outcome.unwrap());
        by_the_clock(|| {
            let pool = Pool::builder().workers(1).use_current_thread().build();
            assert!(pool.is_err());
        })
        .outcome
        .unwrap();
    });
    ended.assert_success();
}
