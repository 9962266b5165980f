//! The classic deadlock: a thread that waits while it holds a lock runs a task that wants the lock.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use jobtree_pool::{OnceLatch, Pool, isolate, join, scope};

const ROUNDS: usize = if cfg!(miri) { 2 } else { 1000 };
const TASKS: usize = 8;

/// Tasks that each hold the same lock while they wait for forks and tasks of their own.
fn rounds_of_locked_waiting(rounds: usize, isolated: bool) -> usize {
    let pool = Pool::builder().workers(4).build().unwrap();
    let total = Mutex::new(0);
    for _ in 0..rounds {
        pool.scope(|s| {
            for _ in 0..TASKS {
                s.spawn(|_| {
                    let mut total = total.lock().unwrap();
                    let waits_inside = || {
                        let inside = AtomicUsize::new(0);
                        scope(|s| {
                            for _ in 0..2 {
                                s.spawn(|_| {
                                    let (a, b) = join(|| 1, || 1);
                                    inside.fetch_add(a + b, Ordering::Relaxed);
                                });
                            }
                        });
                        inside.into_inner()
                    };
                    *total += if isolated {
                        isolate(waits_inside)
                    } else {
                        waits_inside()
                    };
                });
            }
        });
    }
    total.into_inner().unwrap()
}

#[test]
fn with_isolate_it_never_hangs() {
    assert_eq!(rounds_of_locked_waiting(ROUNDS, true), ROUNDS * TASKS * 4);
}

/// A thief that takes tasks from within along with one from without is blocked by that one, and those within are waited for.
#[test]
fn tasks_inside_are_not_taken_along_by_who_is_blocked_outside() {
    let pool = Pool::builder().workers(2).build().unwrap();
    let [keeps_busy, may_steal, is_blocked, released] =
        &std::array::from_fn(|_| AtomicBool::new(false));
    let until = |flag: &AtomicBool| {
        while !flag.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    };
    let ran = AtomicUsize::new(0);
    pool.scope(|s| {
        s.spawn(|_| {
            keeps_busy.store(true, Ordering::Release);
            until(may_steal);
        });
        until(keeps_busy);
        // The other worker takes the first of these, which blocks its thread, and half of the rest.
        s.spawn(|_| {
            is_blocked.store(true, Ordering::Release);
            until(released);
        });
        s.spawn(|_| {});
        isolate(|| {
            scope(|s| {
                for _ in 0..3 {
                    s.spawn(|_| {
                        ran.fetch_add(1, Ordering::Relaxed);
                    });
                }
                may_steal.store(true, Ordering::Release);
                until(is_blocked);
            });
            released.store(true, Ordering::Release);
        });
    });
    assert_eq!(ran.into_inner(), 3);
}

/// Set in a child process of this test.
const CHILD: &str = "JOBTREE_TEST_HANGING_CHILD";

#[test]
#[cfg_attr(miri, ignore = "starts a child process")]
fn without_isolate_it_hangs() {
    if std::env::var_os(CHILD).is_some() {
        rounds_of_locked_waiting(usize::MAX, false);
        return;
    }
    // The child goes on for ever unless it hangs; a hang is a process that uses no more processor time.
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "without_isolate_it_hangs"])
        .env(CHILD, "1")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    let mut before = None;
    let hung = loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = processor_time(child.id());
        if now.is_some() && now == before {
            break true;
        }
        before = now;
        if began.elapsed() > Duration::from_secs(60) || child.try_wait().unwrap().is_some() {
            break false;
        }
    };
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        hung,
        "the deadlock that `isolate` is for does not come about"
    );
}

/// Ticks of processor time that a process has used.
fn processor_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.rsplit(')').next()?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let (user, system): (u64, u64) = (fields[11].parse().ok()?, fields[12].parse().ok()?);
    Some(user + system)
}

#[test]
fn inside_isolate_a_waiting_worker_runs_only_what_was_made_inside() {
    let pool = Pool::builder().workers(1).build().unwrap();
    pool.install(|| {
        let order = Mutex::new(Vec::new());
        scope(|outside| {
            outside.spawn(|_| order.lock().unwrap().push("outside"));
            isolate(|| {
                scope(|inside| {
                    inside.spawn(|_| order.lock().unwrap().push("inside"));
                });
                order.lock().unwrap().push("end of isolate");
            });
        });
        assert_eq!(
            order.into_inner().unwrap(),
            ["inside", "end of isolate", "outside"]
        );
    });
}

#[test]
fn isolation_reaches_through_forks_that_were_stolen() {
    let pool = Pool::builder().workers(4).build().unwrap();
    let lock = Mutex::new(());
    pool.scope(|s| {
        for _ in 0..if cfg!(miri) { 4 } else { 64 } {
            s.spawn(|_| {
                let _held = lock.lock().unwrap();
                isolate(|| {
                    join(
                        || join(|| std::hint::black_box(1), || 2),
                        || join(|| 3, || std::hint::black_box(4)),
                    )
                });
            });
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "starts a child process")]
fn a_wait_for_something_outside_is_reported_in_debug_builds() {
    if !cfg!(debug_assertions) {
        return;
    }
    let report = report_of(
        "a_wait_for_something_outside_is_reported_in_debug_builds",
        || {
            let pool = Pool::builder().workers(1).build().unwrap();
            pool.spawn(|| {
                let never = OnceLatch::new();
                isolate(|| never.wait());
            });
            until_reported(1)
        },
    );
    assert!(report.contains("inside `isolate`"), "{report}");
    assert!(!report.contains("each other"), "{report}");
}

/// Runs `program` in a process of its own, with a short patience; returns what it wrote to standard error.
fn report_of(test: &str, program: fn()) -> String {
    const WATCHED: &str = "JOBTREE_TEST_WATCHED_CHILD";
    if std::env::var_os(WATCHED).is_some() {
        program();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(WATCHED, "1")
        .env("JOBTREE_ISOLATE_WATCHDOG_MS", "20")
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Far more than fit on a stack: each waits on top of the one before.
#[test]
#[cfg_attr(miri, ignore = "starts a process")]
#[cfg_attr(
    not(any(miri, jobtree_stacks)),
    ignore = "the stacks of threads have no known end, so waits on them have no bound"
)]
fn tasks_that_wait_inside_leave_room_on_the_stack() {
    const TASKS: usize = 20_000;
    let report = report_of("tasks_that_wait_inside_leave_room_on_the_stack", || {
        let pool = Pool::builder().workers(1).build().unwrap();
        let (gate, passed) = (Arc::new(OnceLatch::new()), AtomicUsize::new(0));
        let opened = gate.clone();
        // When the worker takes no more of them.
        std::thread::spawn(move || {
            while jobtree_pool::stuck_isolated_waits() == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened.set();
        });
        let wait = |yields: bool| {
            pool.install(|| {
                isolate(|| {
                    scope(|s| {
                        for _ in 0..TASKS {
                            s.spawn(|_| {
                                if yields {
                                    jobtree_pool::yield_now();
                                } else {
                                    gate.wait();
                                }
                                passed.fetch_add(1, Ordering::Relaxed);
                            });
                        }
                    });
                });
            });
        };
        wait(false);
        wait(true);
        eprintln!("{} passed", passed.load(Ordering::Relaxed));
        std::process::exit(0);
    });
    assert!(report.contains("40000 passed"), "{report}");
    assert!(report.contains("half of its stack"), "{report}");
}

/// Ends the process when so many waits were reported; without them, after a time, by a failure.
fn until_reported(waits: u64) {
    for _ in 0..4000 {
        std::thread::sleep(Duration::from_millis(5));
        if jobtree_pool::stuck_isolated_waits() >= waits {
            std::process::exit(0);
        }
    }
    eprintln!("only {} reports", jobtree_pool::stuck_isolated_waits());
    std::process::exit(1);
}

/// Has both workers of a pool enter an isolation, and then each call `body`.
fn in_two_isolations(body: fn(&'static Pool)) {
    let pool = Pool::builder().workers(2).build().unwrap();
    let pool: &'static Pool = Box::leak(Box::new(pool));
    let both: &'static Barrier = Box::leak(Box::new(Barrier::new(2)));
    for _ in 0..2 {
        pool.spawn(move || {
            isolate(|| {
                both.wait();
                body(pool);
            });
        });
    }
    until_reported(2);
}

#[test]
#[cfg_attr(miri, ignore = "starts a child process")]
fn isolated_broadcasts_that_wait_for_each_other_are_named_in_debug_builds() {
    if !cfg!(debug_assertions) {
        return;
    }
    let report = report_of(
        "isolated_broadcasts_that_wait_for_each_other_are_named_in_debug_builds",
        || {
            in_two_isolations(|pool| {
                pool.broadcast(|_| ());
            });
        },
    );
    let named = report.contains("worker 0 waits inside `isolate`, too")
        || report.contains("worker 1 waits inside `isolate`, too");
    assert!(named, "{report}");
    assert!(report.contains("wait for each other"), "{report}");
}

#[test]
#[cfg_attr(miri, ignore = "starts a child process")]
#[cfg_attr(
    not(any(miri, jobtree_stacks)),
    ignore = "without stacks nothing is parked: a wait helps in place, below the isolation"
)]
fn isolated_waits_for_each_others_parked_work_are_named_in_debug_builds() {
    if !cfg!(debug_assertions) {
        return;
    }
    let report = report_of(
        "isolated_waits_for_each_others_parked_work_are_named_in_debug_builds",
        || {
            let pool = Pool::builder().workers(2).build().unwrap();
            let pool: &'static Pool = Box::leak(Box::new(pool));
            let latches = || Arc::new([OnceLatch::new(), OnceLatch::new()]);
            // On each worker a stack is parked until `go`. Then it would set the latch that the isolation on the other
            // worker waits for.
            let (parked, go, isolated, done) = (latches(), latches(), latches(), latches());
            let (park, resume, finish) = (parked.clone(), go.clone(), done.clone());
            pool.spawn_broadcast(move |broadcast| {
                let own = broadcast.index();
                park[own].set();
                resume[own].wait();
                finish[own].set();
            });
            parked.iter().for_each(OnceLatch::wait);
            let enter = isolated.clone();
            pool.spawn_broadcast(move |broadcast| {
                let own = broadcast.index();
                isolate(|| {
                    enter[own].set();
                    done[1 - own].wait();
                });
            });
            isolated.iter().for_each(OnceLatch::wait);
            go.iter().for_each(OnceLatch::set);
            until_reported(2);
        },
    );
    assert!(report.contains("wait for each other"), "{report}");
}
