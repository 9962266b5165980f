//! Threads that cannot be started: jobs go on, and the runtime says with what it lacks. Thread starts fail for the whole
//! process, so the tests take turns; one test meets a limit of the system instead.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jobtree_pool::OnceLatch;
use jobtree_pool::raw::{PoolRef, fail_service_threads};
use jobtree_runtime::{
    BoxError, Dispatcher, EventKind, JobError, Lacking, Runtime, nursery, pool_stats, sleep,
    with_timeout,
};
use support::child::run_in_child;
use support::{FAR, end, runtime, until, watch};

/// Thread starts fail until this is dropped.
struct Failing {
    _turn: MutexGuard<'static, ()>,
}

fn failing(prefix: &'static str) -> Failing {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    fail_service_threads(Some(prefix));
    Failing { _turn: turn }
}

impl Drop for Failing {
    fn drop(&mut self) {
        fail_service_threads(None);
    }
}

fn events(runtime: &Runtime, expected: Lacking) -> usize {
    let is_it = |kind| matches!(kind, EventKind::Degraded { lacking } if lacking == expected);
    let recorded = runtime.take_events();
    recorded
        .events
        .iter()
        .filter(|event| is_it(event.kind))
        .count()
}

#[test]
fn without_a_thread_for_deadlines_workers_keep_them_and_the_runtime_says_so() {
    let _watch = watch();
    let failing = failing("jobtree-timers");
    for workers in [1, 2] {
        let runtime = runtime(workers);
        runtime.record_events(1000);
        runtime
            .nursery(|n| {
                let began = Instant::now();
                // On workers, on this thread, as a limit, and as a future.
                let jobs: Vec<_> = (1..20)
                    .map(|millis| n.spawn(move || Ok(sleep(Duration::from_millis(millis))?)))
                    .collect();
                sleep(Duration::from_millis(5))?;
                let dump = runtime.dump_tree();
                assert!(
                    dump.to_string()
                        .contains("! the thread that keeps deadlines"),
                    "{dump}"
                );
                assert!(dump.to_json().contains(r#""notes":["the thread"#));
                let limited = n.spawn(|| {
                    let outcome = with_timeout(Duration::from_millis(5), || {
                        sleep(Duration::from_secs(3600))?;
                        Ok(())
                    });
                    assert!(matches!(outcome, Err(JobError::TimedOut(_))));
                    Ok(())
                });
                let future = n.spawn_future(async {
                    Ok(jobtree_runtime::future::sleep(Duration::from_millis(5)).await?)
                });
                limited.join()?;
                future.join()?;
                for job in jobs {
                    job.join()?;
                }
                assert!(began.elapsed() >= Duration::from_millis(19));
                Ok(())
            })
            .unwrap();
        assert!(runtime.statistics().timer_thread_failures >= 1);
        assert!(events(&runtime, Lacking::TimerThread) >= 1);
        // The task that stood in does not keep the pool from ending.
        end(&runtime);
    }
    drop(failing);
}

#[test]
fn the_thread_for_deadlines_is_tried_again() {
    let _watch = watch();
    let failing = failing("jobtree-timers");
    let runtime = runtime(1);
    let sleeper = runtime.spawn(|| Ok(sleep(Duration::from_secs(3600))?));
    until(|| runtime.statistics().timer_thread_failures >= 3);
    let is_degraded = || {
        runtime
            .dump_tree()
            .to_string()
            .contains("workers keep deadlines")
    };
    assert!(is_degraded());
    drop(failing);
    until(|| !is_degraded());
    runtime
        .spawn(|| Ok(sleep(Duration::from_millis(2))?))
        .join()
        .unwrap();
    assert!(runtime.dump_tree().to_string().contains("it runs now"));
    sleeper.job().cancel("enough");
    end(&runtime);
}

#[test]
fn busy_workers_look_at_deadlines_between_their_tasks() {
    let _watch = watch();
    let failing = failing("jobtree-timers");
    let runtime = runtime(1);
    runtime
        .nursery(|n| {
            let outcome = n
                .job_options()
                .timeout(Duration::from_millis(20))
                .spawn(|| -> Result<(), _> {
                    loop {
                        jobtree_runtime::tick();
                    }
                })
                .join();
            assert!(matches!(outcome, Err(JobError::TimedOut(_))));
            Ok(())
        })
        .unwrap_err();
    end(&runtime);
    drop(failing);
}

#[test]
fn without_stacks_waits_run_other_work_on_top_and_the_runtime_says_so_once() {
    let _watch = watch();
    let runtime = runtime(1);
    runtime.record_events(10_000);
    assert_eq!(runtime.statistics().stack_failures, 0);
    let pool = runtime.spawn(|| Ok((PoolRef::current(), pool_stats())));
    let (pool, stats) = pool.join().unwrap();
    let Some(pool) = pool.filter(|_| stats.stacks.can_park) else {
        return;
    };
    pool.refuse_stacks(true);
    for _ in 0..2 {
        // More than the worker has stacks at hand for wait, one on top of another; the last one lets them go.
        let (count, gate) = (40, OnceLatch::new());
        let left = AtomicUsize::new(count);
        let waited = runtime.nursery(|n| {
            for _ in 0..count {
                n.launch(|| {
                    if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                        gate.set();
                    }
                    gate.wait();
                    Ok(())
                });
            }
            Ok(())
        });
        waited.unwrap();
    }
    assert!(runtime.statistics().stack_failures > 0);
    let dump = runtime.dump_tree().to_string();
    assert!(dump.contains("! out of stacks"), "{dump}");
    // A task tells of it.
    let mut told = 0;
    until(|| {
        told += events(&runtime, Lacking::Stack);
        told > 0
    });
    pool.refuse_stacks(false);
    runtime
        .spawn(|| Ok(sleep(Duration::from_millis(1))?))
        .join()
        .unwrap();
    told += events(&runtime, Lacking::Stack);
    assert_eq!(told, 1);
    end(&runtime);
}

#[test]
fn without_a_thread_a_blocking_job_runs_on_a_worker_and_the_runtime_says_so() {
    let _watch = watch();
    let failing = failing("jobtree-io");
    let runtime = runtime(2);
    runtime.record_events(1000);
    let name = runtime
        .nursery(|_| {
            let here = || Ok(std::thread::current().name().unwrap_or_default().to_owned());
            Ok(Dispatcher::io().run(here)?)
        })
        .unwrap();
    assert!(
        name.starts_with("jobtree-") && !name.contains("io"),
        "{name}"
    );
    assert_eq!(runtime.statistics().blocking_thread_failures, 1);
    assert_eq!(events(&runtime, Lacking::BlockingThread), 1);
    let dump = runtime.dump_tree().to_string();
    assert!(dump.contains("! threads for jobs that block"), "{dump}");
    drop(failing);
    // Threads are tried again with the next job.
    runtime
        .nursery(|_| {
            let here = || Ok(std::thread::current().name().unwrap_or_default().to_owned());
            assert!(Dispatcher::io().run(here)?.starts_with("jobtree-io"));
            Ok(())
        })
        .unwrap();
    assert_eq!(runtime.statistics().blocking_thread_failures, 1);
    end(&runtime);
}

#[test]
fn a_blocking_job_waits_for_the_threads_that_are_there_and_the_runtime_says_so() {
    let _watch = watch();
    let failing = failing("none yet");
    let runtime = runtime(1);
    let (open, opened) = std::sync::mpsc::channel::<()>();
    let opened = Mutex::new(opened);
    runtime
        .nursery(|n| {
            let (began, begun) = std::sync::mpsc::channel();
            let opened = &opened;
            let first = n.job_options().on(&Dispatcher::io()).spawn(move || {
                let _ = began.send(());
                let _ = opened.lock().unwrap().recv();
                Ok(())
            });
            begun.recv()?;
            fail_service_threads(Some("jobtree-io"));
            let second = n.job_options().on(&Dispatcher::io()).spawn(|| Ok(()));
            assert_eq!(runtime.statistics().blocking_thread_failures, 1);
            drop(open);
            first.join()?;
            second.join()?;
            Ok(())
        })
        .unwrap();
    end(&runtime);
    drop(failing);
}

#[test]
fn without_a_thread_a_shutdown_calls_callbacks_itself_and_the_runtime_says_so() {
    let _watch = watch();
    let failing = failing("jobtree-shutdown");
    let runtime = runtime(2);
    runtime.record_events(1000);
    let job = runtime.spawn(|| Ok(sleep(Duration::MAX)?));
    let (told, called_on) = std::sync::mpsc::channel();
    let _callback = job.job().on_cancel(move |_| {
        let _ = told.send(std::thread::current().id());
    });
    runtime.shutdown(FAR).unwrap();
    assert_eq!(called_on.recv().unwrap(), std::thread::current().id());
    assert_eq!(runtime.statistics().shutdown_thread_failures, 1);
    assert_eq!(events(&runtime, Lacking::ShutdownThread), 1);
    let dump = runtime.dump_tree().to_string();
    assert!(dump.contains("callbacks for a shutdown"), "{dump}");
    // The tree is closed: another shutdown needs no thread.
    runtime.shutdown(FAR).unwrap();
    assert_eq!(runtime.statistics().shutdown_thread_failures, 1);
    drop(failing);
}

/// Makes a runtime when it is dropped.
struct MakesRuntime<'a>(&'a mut Option<Runtime>);

impl Drop for MakesRuntime<'_> {
    fn drop(&mut self) {
        let runtime = runtime(1);
        assert_eq!(runtime.spawn(|| Ok(1)).join().unwrap(), 1);
        *self.0 = Some(runtime);
    }
}

fn place_of_panic(runtime: &Runtime) -> Option<String> {
    let panics = || -> Result<(), BoxError> { panic!("the test panics") };
    match runtime.spawn(panics).join() {
        Err(JobError::Panicked(panic)) => panic.location().map(str::to_owned),
        other => panic!("{other:?}"),
    }
}

/// In a process of its own, since a process has one hook.
#[test]
fn without_a_thread_places_of_panics_are_unknown_until_a_later_attempt_and_the_runtime_says_so() {
    let in_child = || {
        fail_service_threads(Some("jobtree-hook"));
        let mut made = None;
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _makes_one = MakesRuntime(&mut made);
            panic!("the first use of a runtime is in a destructor");
        }));
        assert!(caught.is_err());
        let runtime = made.unwrap();
        assert_eq!(runtime.statistics().hook_thread_failures, 1);
        let dump = runtime.dump_tree().to_string();
        assert!(dump.contains("! the thread that sets the panic"), "{dump}");
        assert!(dump.contains("tries again"), "{dump}");
        // A job that panics tries again, as often as that fails.
        for _ in 0..2 {
            assert_eq!(place_of_panic(&runtime), None);
        }
        fail_service_threads(None);
        until(|| place_of_panic(&runtime).is_some_and(|place| place.contains("degraded.rs")));
        let dump = runtime.dump_tree().to_string();
        assert!(dump.contains("it is known now"), "{dump}");
        end(&runtime);
    };
    run_in_child(1, Duration::from_secs(60), in_child).assert_success();
}

#[test]
fn a_healthy_runtime_has_nothing_to_say() {
    let _watch = watch();
    let failing = failing("no such thread");
    let runtime = runtime(1);
    runtime
        .nursery(|_| nursery(|_| Ok(sleep(Duration::from_millis(1))?)).map_err(Into::into))
        .unwrap();
    assert!(runtime.dump_tree().notes().is_empty());
    assert_eq!(runtime.statistics().timer_thread_failures, 0);
    end(&runtime);
    drop(failing);
}

/// What the system itself refuses, without any injection: in a process of its own, which gives up the right to more
/// threads after its workers have started.
#[cfg(all(target_os = "linux", not(miri)))]
mod at_the_limit {
    use std::process::{Command, Stdio};

    use super::*;

    const CHILD: &str = "JOBTREE_TEST_AT_THE_LIMIT";
    const NAME: &str = "at_the_limit::a_process_that_may_have_no_more_threads_goes_on";

    /// From now on no thread can be started.
    fn allow_no_more_threads() {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the limit is a valid value that outlives the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &none) }, 0);
        // The limit does not hold for root, so root becomes somebody else.
        // SAFETY: neither call takes pointers.
        if unsafe { libc::geteuid() } == 0 {
            // SAFETY: as above.
            assert_eq!(unsafe { libc::setuid(65_534) }, 0);
        }
        let refused = std::thread::Builder::new().spawn(|| ());
        assert!(refused.is_err(), "the limit holds");
    }

    #[test]
    fn a_process_that_may_have_no_more_threads_goes_on() {
        if std::env::var_os(CHILD).is_some() {
            return in_child();
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(CHILD, "1")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if began.elapsed() > Duration::from_secs(60) {
                child.kill().unwrap();
                panic!("a process without further threads hangs");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(status.success(), "{status}");
    }

    fn in_child() {
        let runtime = runtime(1);
        runtime.spawn(|| Ok(())).join().unwrap();
        allow_no_more_threads();
        let outcome = runtime.nursery(|n| {
            let on_worker = n.spawn(|| Ok(sleep(Duration::from_millis(3))?));
            sleep(Duration::from_millis(5))?;
            on_worker.join()?;
            Ok(Dispatcher::io().run(|| Ok(42))?)
        });
        assert_eq!(outcome.unwrap(), 42);
        let statistics = runtime.statistics();
        assert!(statistics.timer_thread_failures > 0);
        assert_eq!(statistics.blocking_thread_failures, 1);
        assert_eq!(runtime.dump_tree().notes().len(), 2);
        end(&runtime);
    }
}
