//! Refusals of a budget while the code that waits for them unwinds: a second panic would end the process, so there is none, also
//! where another thread asks.
#![cfg(not(miri))]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use jobtree_pool::{Pool, join};
use jobtree_runtime::{BoxError, Profile, channel, shield};
use support::child::run_in_child;
use support::{end, runtime_of};

const LIMIT: Duration = Duration::from_secs(60);

/// Calls `code` in a destructor that runs because of a panic.
fn while_unwinding(code: impl FnOnce()) {
    struct OnDrop<F: FnOnce()>(Option<F>);
    impl<F: FnOnce()> Drop for OnDrop<F> {
        fn drop(&mut self) {
            (self.0.take().expect("dropped once"))();
        }
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let _calls = OnDrop(Some(code));
        panic!("planned panic");
    }));
    let payload = outcome.expect_err("it panics");
    assert_eq!(payload.downcast_ref(), Some(&"planned panic"));
}

/// Runs `code` in a job that may spawn nothing, and returns how often it was refused something.
fn refused(workers: usize, code: impl FnOnce() -> Result<(), BoxError> + Send) -> u64 {
    let runtime = runtime_of(Profile::Core, 1);
    // Forks and waits are those of these workers.
    let pool = Pool::builder().workers(workers).build().unwrap();
    pool.install(|| runtime.nursery(|_| code())).unwrap();
    let refusals = runtime.statistics().refusals;
    end(&runtime);
    refusals
}

/// Spawns a task that must not run, and one of a scope that must.
fn spawn_both(ran: &AtomicUsize) {
    jobtree_pool::spawn(|| panic!("it was refused"));
    jobtree_pool::scope(|s| {
        s.spawn(|_| {
            ran.fetch_add(1, Ordering::Relaxed);
        });
    });
}

#[test]
fn what_is_installed_on_another_pool_is_refused_nothing_by_a_panic() {
    run_in_child(0, LIMIT, || {
        let other = Pool::builder().workers(1).build().unwrap();
        let ran = AtomicUsize::new(0);
        let count = refused(1, || {
            while_unwinding(|| {
                other.install(|| spawn_both(&ran));
                other.scope(|s| s.spawn(|_| spawn_both(&ran)));
                // A task of a scope that was opened here, on a worker of the other pool.
                other.in_place_scope(|s| s.spawn(|_| spawn_both(&ran)));
            });
            Ok(())
        });
        assert_eq!(ran.into_inner(), 3);
        assert_eq!(count, 8, "they count all the same");
    })
    .assert_success();
}

#[test]
fn a_fork_that_another_worker_takes_is_refused_nothing_by_a_panic() {
    run_in_child(0, LIMIT, || {
        let ran = AtomicUsize::new(0);
        let forked = || {
            while_unwinding(|| {
                let is_taken = AtomicBool::new(false);
                join(
                    || {
                        while !is_taken.load(Ordering::Acquire) {
                            std::thread::yield_now();
                        }
                    },
                    || {
                        is_taken.store(true, Ordering::Release);
                        spawn_both(&ran);
                    },
                );
            });
        };
        let count = refused(2, || {
            forked();
            // Where nothing can be stopped, forks have less to look at.
            shield(LIMIT, || {
                forked();
                Ok(())
            })?;
            Ok(())
        });
        assert_eq!(ran.load(Ordering::Relaxed), 2);
        assert_eq!(count, 4);
    })
    .assert_success();
}

#[test]
fn a_channel_is_made_without_a_permit_while_its_job_unwinds() {
    run_in_child(0, LIMIT, || {
        let other = Pool::builder().workers(1).build().unwrap();
        let count = refused(1, || {
            let use_one = || {
                let (sender, receiver) = channel::unbounded();
                sender.send(1).unwrap();
                assert_eq!(receiver.recv().unwrap(), 1);
            };
            while_unwinding(use_one);
            while_unwinding(|| other.install(use_one));
            Ok(())
        });
        assert_eq!(count, 2);
    })
    .assert_success();
}

#[test]
fn a_refusal_is_a_panic_again_when_the_unwinding_is_over() {
    let other = Pool::builder().workers(1).build().unwrap();
    let is_refused = |code: &(dyn Fn() + Sync)| catch_unwind(AssertUnwindSafe(code)).is_err();
    let spawn = || jobtree_pool::spawn(|| ());
    refused(1, || {
        while_unwinding(|| other.install(|| ()));
        assert!(is_refused(&spawn));
        assert!(is_refused(&|| other.install(spawn)));
        Ok(())
    });
}
