//! How things end that end badly: each in a defined way.
#![cfg(not(miri))]

mod support;

use std::future::pending;
use std::panic::{self, AssertUnwindSafe};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jobtree_pool::{OnceLatch, join};
use jobtree_runtime::channel::{bounded, rendezvous};
use jobtree_runtime::{
    BoxError, Dispatcher, Job, JobError, JobHandle, JobState, Outcome, Runtime, checkpoint, future,
    nursery, select, sleep, supervisor, sync, user_code,
};
use support::{Census, FAR, end, for_ever, runtime, until, until_it_waits, watch};

/// Set in a process that is to come to its end.
const CHILD: &str = "JOBTREE_TEST_ENDING_CHILD";

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs the calling test again, in a process of its own.
fn in_a_process_of_its_own() -> Output {
    let thread = std::thread::current();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", thread.name().unwrap(), "--nocapture"])
        .env(CHILD, "1")
        .env_remove("RUST_BACKTRACE")
        .output()
        .unwrap()
}

/// Panics when it is dropped, and counts that.
struct Bomb(Arc<AtomicUsize>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("in a destructor, on purpose");
    }
}

#[track_caller]
fn panicked_with(outcome: Outcome<()>, message: &str) {
    match outcome {
        Err(JobError::Panicked(panic)) => assert_eq!(panic.message(), message),
        other => panic!("expected a panic with {message:?}: {other:?}"),
    }
}

/// The runtime works as before.
#[track_caller]
fn assert_usable(runtime: &Runtime) {
    let both = runtime.nursery(|n| {
        let task = n.spawn(|| Ok(join(|| 1, || 2)));
        let future = n.spawn_future(async {
            future::yield_now().await;
            Ok(())
        });
        future.join()?;
        Ok(task.join()?)
    });
    assert_eq!(both.unwrap(), (1, 2));
}

// Stack overflow: the process ends, and the report names the task.

#[cfg(target_os = "linux")]
mod overflow {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    const SIGABRT: i32 = 6;

    #[expect(unconditional_recursion, reason = "the end of the stack is the point")]
    fn recurse_for_ever(depth: u64) -> u64 {
        let frame = std::hint::black_box([depth; 64]);
        recurse_for_ever(depth + 1) + frame[(depth % 64) as usize]
    }

    fn a_task_without_an_end() -> Result<(), BoxError> {
        std::hint::black_box(recurse_for_ever(0));
        Ok(())
    }

    async fn a_future_without_an_end() -> Result<(), BoxError> {
        future::yield_now().await;
        a_task_without_an_end()
    }

    #[track_caller]
    fn assert_reported(output: &Output, parts: &[&str]) {
        let report = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(SIGABRT), "{report}");
        for part in ["stack overflow"].iter().chain(parts) {
            assert!(report.contains(part), "`{part}` is not in: {report}");
        }
    }

    #[test]
    fn on_a_default_stack() {
        if is_child() {
            let _ = runtime(1).spawn(a_task_without_an_end).join();
            return;
        }
        assert_reported(
            &in_a_process_of_its_own(),
            &["a_task_without_an_end", "stack_size"],
        );
    }

    #[test]
    fn on_a_small_stack() {
        if is_child() {
            let small = Runtime::builder().workers(1).small_stacks().build();
            let _ = small.unwrap().spawn(a_task_without_an_end).join();
            return;
        }
        assert_reported(
            &in_a_process_of_its_own(),
            &["a_task_without_an_end", "64 KiB"],
        );
    }

    /// A stack that has waited is the same stack afterwards, and its task has the same name.
    #[test]
    fn after_it_has_waited() {
        fn sleeps_and_recurses() -> Result<(), BoxError> {
            sleep(Duration::from_millis(1))?;
            a_task_without_an_end()
        }
        if is_child() {
            let runtime = runtime(1);
            let other = runtime.spawn(for_ever::<()>);
            let _ = runtime.spawn(sleeps_and_recurses).join();
            drop(other);
            return;
        }
        assert_reported(&in_a_process_of_its_own(), &["sleeps_and_recurses"]);
    }

    #[test]
    fn in_a_future() {
        if is_child() {
            let _ = runtime(1).spawn_future(a_future_without_an_end()).join();
            return;
        }
        assert_reported(&in_a_process_of_its_own(), &["a_future_without_an_end"]);
    }
}

// A panic is the job's end, and nobody else's.

#[test]
fn a_panic_in_a_task_a_future_or_a_blocking_job_is_its_outcome() {
    let _watch = watch();
    let runtime = runtime(1);
    runtime
        .supervisor(|n| {
            let jobs: [JobHandle<()>; 4] = [
                n.spawn(|| panic!("on purpose")),
                n.spawn(|| {
                    sleep(Duration::from_millis(1))?;
                    panic!("on purpose")
                }),
                n.spawn_future(async {
                    future::yield_now().await;
                    panic!("on purpose")
                }),
                n.job_options()
                    .on(&Dispatcher::io())
                    .spawn(|| panic!("on purpose")),
            ];
            for job in jobs {
                panicked_with(job.join(), "on purpose");
            }
            Ok(())
        })
        .unwrap();
    assert_usable(&runtime);
    end(&runtime);
}

/// A panic is a failure: its siblings are cancelled, and it is the nursery's outcome.
#[test]
fn a_panic_in_a_child_ends_its_nursery() {
    let _watch = watch();
    let runtime = runtime(2);
    let outcome = runtime.nursery(|n| {
        n.launch(for_ever);
        drop(n.spawn_future(async {
            pending::<()>().await;
            Ok(())
        }));
        n.launch(|| panic!("on purpose"));
        for_ever()
    });
    panicked_with(outcome, "on purpose");
    assert_usable(&runtime);
    end(&runtime);
}

// A panic while cancelling: a failure beats a cancellation.

#[test]
fn a_panic_while_cancelling_is_the_outcome() {
    let _watch = watch();
    let runtime = runtime(2);
    let outcome = runtime.nursery(|n| {
        let begun = Arc::new(OnceLatch::new());
        let (is_begun, other) = (begun.clone(), n.spawn(for_ever::<()>));
        n.launch(move || {
            is_begun.set();
            if sleep(FAR).is_err() {
                panic!("while tidying up");
            }
            Ok(())
        });
        begun.wait();
        n.cancel("enough");
        assert!(other.join().unwrap_err().is_cancelled());
        Ok(())
    });
    panicked_with(outcome, "while tidying up");
    let outcome = runtime.nursery(|n| {
        let child = n.spawn_future(async {
            if future::sleep(FAR).await.is_err() {
                panic!("while tidying up");
            }
            Ok(())
        });
        until(|| child.job().state() == JobState::Active);
        n.cancel("enough");
        Ok(())
    });
    panicked_with(outcome, "while tidying up");
    assert_usable(&runtime);
    end(&runtime);
}

/// Two levels up it is an error like any other: the middle is cancelled, too, and passes on what came from below.
#[test]
fn a_panic_while_cancelling_goes_up_through_scopes() {
    let _watch = watch();
    let runtime = runtime(2);
    let begun = Arc::new(OnceLatch::new());
    let is_begun = begun.clone();
    let top = runtime.spawn(move || {
        nursery(|n| {
            let middle = n.spawn(move || {
                nursery(|n| {
                    n.launch(move || {
                        is_begun.set();
                        let _ = sleep(FAR);
                        panic!("at the bottom")
                    });
                    Ok(())
                })?;
                Ok(())
            });
            Ok(middle.join()?)
        })?;
        Ok(())
    });
    begun.wait();
    top.cancel("enough");
    let error = top.join().unwrap_err();
    assert!(!error.is_cancelled(), "{error}");
    assert!(error.to_string().contains("at the bottom"), "{error}");
    end(&runtime);
}

/// The forks of a cancelled job unwind. A destructor that panics on that way is a panic during a panic, which ends the
/// process in any Rust program.
#[cfg(target_os = "linux")]
#[test]
fn a_panic_in_a_destructor_during_the_unwinding_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;
    if is_child() {
        let runtime = runtime(1);
        let job = runtime.spawn(|| {
            let _bomb = Bomb(Arc::default());
            loop {
                join(|| (), || ());
            }
            #[expect(unreachable_code, reason = "gives the closure its type")]
            Ok(())
        });
        until(|| job.job().state() == JobState::Active);
        job.cancel("enough");
        let _ = job.join();
        return;
    }
    let output = in_a_process_of_its_own();
    let report = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(6), "{report}");
    assert!(report.contains("panic in a destructor"), "{report}");
}

// A panic in a destructor: the job ends, and the worker goes on.

#[test]
fn a_panic_in_the_destructor_of_what_a_body_holds() {
    let _watch = watch();
    let runtime = runtime(1);
    let dropped = Arc::new(AtomicUsize::new(0));
    let bomb = || Bomb(dropped.clone());
    let in_order = |expected: usize| assert_eq!(dropped.load(Ordering::SeqCst), expected);
    runtime
        .supervisor(|n| {
            // While the body runs, it is a panic of the body.
            let kept = bomb();
            let job = n.spawn(move || {
                let _kept = kept;
                Ok(())
            });
            panicked_with(job.join(), "in a destructor, on purpose");
            in_order(1);
            let kept = bomb();
            let job = n.spawn_future(async move {
                let _kept = kept;
                future::yield_now().await;
                Ok(())
            });
            panicked_with(job.join(), "in a destructor, on purpose");
            in_order(2);
            // A body that never runs is dropped by nobody who could be blamed.
            let (begun, release) = (Arc::new(OnceLatch::new()), Arc::new(OnceLatch::new()));
            let (is_begun, wait) = (begun.clone(), release.clone());
            n.launch(move || {
                is_begun.set();
                while !wait.is_set() {
                    std::thread::yield_now();
                }
                Ok(())
            });
            begun.wait();
            let (of_task, of_future) = (bomb(), bomb());
            let waiting: [JobHandle<()>; 2] = [
                n.spawn(move || {
                    drop(of_task);
                    Ok(())
                }),
                n.spawn_future(async move {
                    drop(of_future);
                    Ok(())
                }),
            ];
            for job in &waiting {
                job.cancel("before it runs");
            }
            release.set();
            for job in waiting {
                assert!(job.join().unwrap_err().is_cancelled());
            }
            in_order(4);
            // Nor one that is born cancelled.
            nursery(|inner| {
                inner.cancel("closed");
                let (of_task, of_future) = (bomb(), bomb());
                inner.launch(move || {
                    drop(of_task);
                    Ok(())
                });
                drop(inner.spawn_future(async move {
                    drop(of_future);
                    Ok(())
                }));
                Ok(())
            })
            .unwrap_err();
            in_order(6);
            Ok(())
        })
        .unwrap();
    assert_usable(&runtime);
    end(&runtime);
}

/// Code that has taken the value has its destructor, too. A value that no code takes is the library's to drop.
#[test]
fn a_panic_in_the_destructor_of_a_value() {
    let _watch = watch();
    let runtime = runtime(1);
    let dropped = Arc::new(AtomicUsize::new(0));
    let spawn = || {
        let bomb = Bomb(dropped.clone());
        runtime.spawn(move || Ok(bomb))
    };
    // Nobody wants it when the job has ended: the panic is recorded.
    let unwanted = spawn();
    let job = unwanted.job().clone();
    until(|| job.is_ended());
    drop(unwanted);
    assert_eq!(job.state(), JobState::Completed);
    let value = spawn().join().unwrap();
    let by_the_owner = panic::catch_unwind(AssertUnwindSafe(|| drop(value)));
    assert!(by_the_owner.is_err());
    assert_eq!(dropped.load(Ordering::SeqCst), 2);
    assert_usable(&runtime);
    end(&runtime);
}

#[test]
fn a_panic_in_the_destructor_of_a_future_that_is_dropped() {
    let _watch = watch();
    let runtime = runtime(1);
    let dropped = Arc::new(AtomicUsize::new(0));
    let bomb = Bomb(dropped.clone());
    let waiting = runtime.spawn_future(async move {
        let _bomb = bomb;
        pending::<()>().await;
        Ok(())
    });
    until(|| waiting.job().state() == JobState::Active);
    let before = user_code::caught_panics();
    waiting.cancel("enough");
    assert!(waiting.join().unwrap_err().is_cancelled());
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    assert!(user_code::caught_panics() > before, "it is recorded");
    assert_usable(&runtime);
    end(&runtime);
}

// The end of a runtime in which everybody waits.

/// Dropping a runtime is cancelling everything in it: what is parked is run to its end, and nothing is left.
#[test]
fn a_runtime_that_is_dropped_ends_what_is_parked() {
    let _watch = watch();
    for shuts_down in [false, true] {
        let census = Census::default();
        let runtime = runtime(2);
        let (sender, receiver) = rendezvous::<u8>();
        let (full, _full_end) = bounded::<u8>(1);
        full.send(0).unwrap();
        let lock = Arc::new(sync::Mutex::new(()));
        let held = lock.lock().unwrap();
        let spawn = |body: Box<dyn FnOnce() -> Result<(), BoxError> + Send>| {
            let value = census.value();
            runtime.spawn(move || {
                let _kept = value;
                body()
            })
        };
        let (from, to, wants) = (receiver.clone(), full.clone(), lock.clone());
        let selects = receiver.clone();
        let mut parked = vec![
            spawn(Box::new(for_ever)),
            spawn(Box::new(move || {
                from.recv()?;
                Ok(())
            })),
            spawn(Box::new(move || Ok(to.send(1)?))),
            spawn(Box::new(move || {
                drop(wants.lock()?);
                Ok(())
            })),
            spawn(Box::new(|| {
                Ok(nursery(|n| Ok(n.spawn(for_ever::<()>).join()?))?)
            })),
            spawn(Box::new(move || {
                Ok(select! { recv(selects) -> _ => (), after(FAR) => () }?)
            })),
        ];
        let other = runtime.spawn(for_ever::<()>);
        let other_job = other.job().clone();
        parked.push(spawn(Box::new(move || Ok(other.join()?))));
        for handle in &parked {
            until(|| handle.job().waiting_for().is_some() || !handle.job().children().is_empty());
        }
        let value = census.value();
        let from = receiver.clone();
        let awaiting = runtime.spawn_future(async move {
            let _kept = value;
            from.recv_async().await?;
            Ok(())
        });
        let value = census.value();
        let deaf = runtime.spawn_future(async move {
            let _kept = value;
            pending::<()>().await;
            Ok(())
        });
        until(|| sender.stats().receivers_waiting == 3);
        until(|| deaf.job().state() == JobState::Active);
        parked.extend([awaiting, deaf]);
        let jobs: Vec<Job> = parked.iter().map(|handle| handle.job().clone()).collect();
        if shuts_down {
            runtime.shutdown(FAR).unwrap();
            census.assert_all_gone(9);
        }
        drop(runtime);
        until(|| census.dropped() == 9);
        until(|| other_job.is_ended() && jobs.iter().all(Job::is_ended));
        for handle in parked {
            assert!(handle.join().unwrap_err().is_cancelled());
        }
        assert_eq!(sender.stats().receivers_waiting, 0);
        assert_eq!(full.stats().senders_waiting, 0);
        drop(held);
        assert!(lock.try_lock().is_some());
    }
}

// A shutdown with something that never ends.

/// One job, named `deaf`, that never ends whatever it is told.
fn start_deaf(runtime: &Runtime, body: fn()) {
    let begun = Arc::new(OnceLatch::new());
    let is_begun = begun.clone();
    let parent = runtime.spawn(move || {
        supervisor(|n| {
            n.job_options().label("deaf").launch(move || {
                is_begun.set();
                body();
                Ok(())
            });
            Ok(())
        })?;
        Ok(())
    });
    drop(parent);
    begun.wait();
}

/// Whoever never ends is told by path; everybody else has ended; and the process can end all the same.
fn reports_and_exits(body: fn()) {
    if is_child() {
        let runtime = runtime(2);
        start_deaf(&runtime, body);
        let good = runtime.spawn(for_ever::<()>);
        until_it_waits(good.job());
        let error = runtime.shutdown(Duration::from_millis(50)).unwrap_err();
        assert!(good.is_finished());
        println!("stragglers: {:?}", error.stragglers());
        drop(runtime);
        // The end of the process, with the worker still at it.
        std::process::exit(7);
    }
    let _watch = watch();
    let output = in_a_process_of_its_own();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let line = text
        .lines()
        .find_map(|line| line.split_once("stragglers: "))
        .unwrap_or_else(|| panic!("{text}"));
    assert!(line.1.starts_with("[\"root/"), "{text}");
    assert!(line.1.ends_with("/deaf\"]"), "{text}");
}

#[test]
fn a_shutdown_names_a_task_that_computes_for_ever() {
    reports_and_exits(|| {
        loop {
            std::thread::yield_now();
        }
    });
}

#[test]
fn a_shutdown_names_a_task_that_waits_for_ever() {
    reports_and_exits(|| OnceLatch::new().wait());
}

#[test]
fn a_shutdown_names_a_task_that_ignores_its_cancellation() {
    reports_and_exits(|| {
        loop {
            // It is told each time, and does not listen.
            let _ = checkpoint();
            std::thread::yield_now();
        }
    });
}

/// The main function may simply return: nothing waits for threads that are at work.
#[test]
fn a_program_may_return_from_main_while_a_task_never_ends() {
    if is_child() {
        let runtime = runtime(1);
        start_deaf(&runtime, || {
            loop {
                std::thread::yield_now();
            }
        });
        assert!(runtime.shutdown(Duration::from_millis(1)).is_err());
        return;
    }
    let _watch = watch();
    let output = in_a_process_of_its_own();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// All at once: many threads race to end a runtime while its jobs panic, fail and are cancelled.
#[test]
fn a_shutdown_races_with_panics_and_cancellations() {
    let _watch = watch();
    for round in 0..support::rounds(20) {
        let runtime = runtime(2);
        let census = Census::default();
        let jobs: Vec<_> = (0..30)
            .map(|number| {
                let value = census.value();
                runtime.spawn(move || {
                    let _kept = value;
                    match number % 3 {
                        0 => panic::resume_unwind(Box::new("on purpose")),
                        1 => Err("on purpose".into()),
                        _ => for_ever::<()>(),
                    }
                })
            })
            .collect();
        std::thread::scope(|threads| {
            threads.spawn(|| runtime.shutdown(FAR).unwrap());
            for job in &jobs[round % 30..] {
                job.cancel("race");
            }
        });
        assert!(jobs.iter().all(JobHandle::is_finished));
        assert!(jobs.into_iter().all(|job| job.join().is_err()));
        census.assert_all_gone(30);
    }
}
