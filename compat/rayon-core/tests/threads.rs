//! How threads are counted, named and started, as far as upstream's own tests leave it open.

use std::io;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use rayon_core::{ThreadBuilder, ThreadPoolBuilder};

#[test]
fn a_spawn_handler_may_borrow_and_sees_every_thread() {
    let seen = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let pool = ThreadPoolBuilder::new()
            .num_threads(3)
            .stack_size(1 << 20)
            .thread_name(|index| format!("borrowed-{index}"))
            .spawn_handler(|thread: ThreadBuilder| {
                let name = thread.name().map(str::to_owned);
                seen.lock()
                    .unwrap()
                    .push((thread.index(), name, thread.stack_size()));
                scope.spawn(|| thread.run());
                Ok(())
            })
            .build()
            .unwrap();
        assert_eq!(pool.broadcast(|context| context.index()), [0, 1, 2]);
    });
    let expected: Vec<_> = (0..3)
        .map(|index| (index, Some(format!("borrowed-{index}")), Some(1 << 20)))
        .collect();
    assert_eq!(seen.into_inner().unwrap(), expected);
}

#[test]
fn threads_have_no_name_and_no_stack_size_unless_asked_for() {
    let mut threads = Vec::new();
    let pool = ThreadPoolBuilder::new()
        .num_threads(1)
        .spawn_handler(|thread| {
            assert_eq!((thread.name(), thread.stack_size()), (None, None));
            threads.push(thread::spawn(|| thread.run()));
            Ok(())
        })
        .build()
        .unwrap();
    drop(pool);
    threads.pop().unwrap().join().unwrap();

    let pool = ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(
        pool.install(|| thread::current().name().map(str::to_owned)),
        None
    );
}

#[test]
fn if_one_thread_cannot_be_started_the_others_end() {
    let mut threads = Vec::new();
    let error = ThreadPoolBuilder::new()
        .num_threads(4)
        .spawn_handler(|thread| {
            if thread.index() == 2 {
                return Err(io::Error::other("two is enough"));
            }
            threads.push(thread::spawn(|| thread.run()));
            Ok(())
        })
        .build()
        .unwrap_err();
    assert_eq!(error.to_string(), "two is enough");
    assert_eq!(threads.len(), 2);
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn a_thread_belongs_to_one_pool_at_a_time() {
    let pool = ThreadPoolBuilder::new()
        .num_threads(1)
        .use_current_thread()
        .build()
        .unwrap();
    let error = ThreadPoolBuilder::new()
        .num_threads(1)
        .use_current_thread()
        .build()
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "The current thread is already part of another thread pool."
    );
    assert_eq!(pool.join(|| 1, || 2), (1, 2));
    drop(pool);
    ThreadPoolBuilder::new()
        .num_threads(1)
        .use_current_thread()
        .build()
        .unwrap();
}

/// Runs the ignored test of that name in a process of its own, with these variables.
fn run_alone(test: &str, variables: &[(&str, &str)]) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", test])
        .env_remove("RAYON_NUM_THREADS")
        .env_remove("RAYON_RS_NUM_CPUS")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{test}: {said}"
    );
}

#[test]
fn the_variable_sets_the_number_of_global_threads() {
    run_alone(
        "global_pool_has_three_threads",
        &[("RAYON_NUM_THREADS", "3")],
    );
    run_alone(
        "global_pool_has_three_threads",
        &[("RAYON_RS_NUM_CPUS", "3")],
    );
}

#[test]
fn jobtrees_global_pool_is_rayons() {
    run_alone(
        "rayon_finds_the_global_pool_of_jobtree",
        &[("RAYON_NUM_THREADS", "3")],
    );
}

#[test]
fn a_global_pool_that_could_not_be_made_may_be_made_again() {
    run_alone("global_pool_is_made_at_the_second_try", &[]);
}

#[test]
#[ignore = "run in a process of its own by the test above that names it"]
fn global_pool_has_three_threads() {
    assert_eq!(rayon_core::current_num_threads(), 3);
    assert_eq!(jobtree_pool::Pool::global().workers(), 3);
}

#[test]
#[ignore = "run in a process of its own by the test above that names it"]
fn rayon_finds_the_global_pool_of_jobtree() {
    jobtree_pool::Pool::builder()
        .workers(2)
        .build_global()
        .unwrap();
    assert_eq!(rayon_core::current_num_threads(), 2);
    assert!(ThreadPoolBuilder::new().build_global().is_err());
}

#[test]
#[ignore = "run in a process of its own by the test above that names it"]
fn global_pool_is_made_at_the_second_try() {
    let refuse = |_: ThreadBuilder| Err(io::Error::other("not yet"));
    let error = ThreadPoolBuilder::new()
        .spawn_handler(refuse)
        .build_global()
        .unwrap_err();
    assert_eq!(error.to_string(), "not yet");
    ThreadPoolBuilder::new()
        .num_threads(2)
        .build_global()
        .unwrap();
    assert_eq!(rayon_core::current_num_threads(), 2);
}
