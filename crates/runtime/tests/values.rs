//! Values and bodies are dropped exactly once, whoever is the last to know of them.

mod support;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::Context;
use std::time::Duration;

use jobtree_pool::OnceLatch;
use jobtree_runtime::channel::{self, BroadcastRecvError};
use jobtree_runtime::{JobError, JobHandle, JobState, nursery};
use support::{Bell, Census, Counted, end, rounds, runtime, until, watch};

#[test]
fn the_value_of_a_handle_that_is_dropped_is_dropped_with_the_end_or_with_the_handle() {
    let _watch = watch();
    let runtime = runtime(2);
    let census = Census::default();
    runtime
        .nursery(|n| {
            let go = Arc::new(OnceLatch::new());
            let spawn = || {
                let (go, census) = (go.clone(), census.clone());
                n.spawn(move || {
                    go.wait();
                    Ok(census.value())
                })
            };
            let (early, late) = (spawn(), spawn());
            let early_job = early.job().clone();
            drop(early);
            go.set();
            until(|| early_job.is_ended() && late.is_finished());
            // The one that nobody wants is gone before the end is visible, the other one waits.
            assert_eq!((census.made(), census.dropped()), (2, 1));
            drop(late);
            census.assert_all_gone(2);
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn a_handle_that_is_dropped_while_the_job_ends_loses_nothing() {
    let _watch = watch();
    let runtime = runtime(2);
    let census = Census::default();
    let start = Barrier::new(2);
    let start = &start;
    let total = rounds(300);
    for round in 0..total {
        let census = &census;
        runtime
            .nursery(|n| {
                let handle = n.spawn(move || {
                    let value = census.value();
                    start.wait();
                    for _ in 0..round % 8 * 30 {
                        std::hint::spin_loop();
                    }
                    Ok(value)
                });
                start.wait();
                for _ in 0..round % 5 * 40 {
                    std::hint::spin_loop();
                }
                drop(handle);
                Ok(())
            })
            .unwrap();
        census.assert_all_gone(round + 1);
    }
    end(&runtime);
}

#[test]
fn a_handle_that_is_dropped_while_its_job_is_cancelled_and_ends_loses_nothing() {
    let _watch = watch();
    let runtime = runtime(2);
    let census = Census::default();
    for round in 0..rounds(300) {
        let body = census.value();
        let made = census.clone();
        let job = runtime.spawn(move || {
            drop(body);
            Ok(made.value())
        });
        let known = job.job().clone();
        std::thread::scope(|threads| {
            threads.spawn(|| job.job().cancel("race"));
            if round % 2 == 0 {
                until(|| job.job().is_cancelled() || job.is_finished());
            }
        });
        if round % 3 == 0 {
            drop(job.join());
        } else {
            drop(job);
        }
        until(|| known.is_ended());
        drop(known);
        until(|| census.made() == census.dropped());
    }
    end(&runtime);
}

#[test]
fn the_value_of_a_job_that_did_not_complete_is_dropped() {
    let _watch = watch();
    let census = Census::default();
    let outcome = nursery(|n| {
        n.cancel("after all");
        Ok(census.value())
    });
    assert!(outcome.unwrap_err().is_cancelled());
    census.assert_all_gone(1);
    let outcome = nursery(|n| {
        n.launch(|| Err("a child".into()));
        Ok(census.value())
    });
    assert!(matches!(outcome, Err(JobError::Failed(_))));
    census.assert_all_gone(2);
    let outcome = jobtree_runtime::with_timeout(Duration::ZERO, || Ok(census.value()));
    assert!(outcome.unwrap_err().is_timed_out());
    census.assert_all_gone(3);
    nursery(|n| {
        let census = &census;
        let child = n.spawn(move || {
            let own = jobtree_runtime::Job::current();
            own.unwrap().cancel("of its own");
            Ok(census.value())
        });
        until(|| child.is_finished());
        census.assert_all_gone(4);
        assert_eq!(child.job().state(), JobState::Cancelled);
        Ok(())
    })
    .unwrap();
}

#[test]
fn values_are_moved_out_once_by_join_and_by_await() {
    let _watch = watch();
    let census = Census::default();
    nursery(|n| {
        let census = &census;
        let joined: Counted = n.spawn(move || Ok(census.value())).join()?;
        let awaited = jobtree_runtime::block_on(n.spawn(move || Ok(census.value())))??;
        assert_eq!((census.made(), census.dropped()), (2, 0));
        drop((joined, awaited));
        census.assert_all_gone(2);
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_future_that_was_polled_and_given_up_loses_nothing() {
    let _watch = watch();
    let census = Census::default();
    nursery(|n| {
        let go = OnceLatch::new();
        let go = Arc::new(go);
        let (wait, census_inside) = (go.clone(), census.clone());
        let mut handle: JobHandle<Counted> = n.spawn(move || {
            wait.wait();
            Ok(census_inside.value())
        });
        let bell: Arc<Bell> = Arc::default();
        let waker = bell.waker();
        let polled = Pin::new(&mut handle).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        drop(handle);
        go.set();
        until(|| census.dropped() == 1);
        assert_eq!(bell.rings(), 0);
        Ok(())
    })
    .unwrap();
    census.assert_all_gone(1);
}

#[test]
fn a_handle_may_outlive_its_scope_and_still_has_the_value() {
    let _watch = watch();
    let census = Census::default();
    let inside = census.clone();
    let handle = nursery(|n| {
        let inside = inside.clone();
        Ok(n.spawn(move || Ok(inside.value())))
    });
    let handle = handle.unwrap();
    assert!(handle.is_finished());
    assert_eq!(census.dropped(), 0);
    drop(handle.join().unwrap());
    census.assert_all_gone(1);
}

/// A destructor that panics is the program's mistake; it must not take the worker or the job with it.
#[test]
fn a_value_whose_destructor_panics_ends_its_job_all_the_same() {
    struct Bomb(Arc<AtomicUsize>);
    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            panic!("in a destructor, on purpose");
        }
    }
    let _watch = watch();
    let runtime = runtime(1);
    let dropped = Arc::new(AtomicUsize::new(0));
    let bomb = || Bomb(dropped.clone());
    runtime
        .supervisor(|n| {
            let (unwanted, cancelled) = (bomb(), bomb());
            let go = Arc::new(OnceLatch::new());
            let wait = go.clone();
            // Nobody wants its value when it ends, so it is dropped there and not here.
            drop(n.spawn(move || {
                wait.wait();
                Ok(unwanted)
            }));
            let wait = go.clone();
            let handle = n.spawn(move || {
                wait.wait();
                Ok(cancelled)
            });
            handle.cancel("not needed");
            go.set();
            assert!(handle.join().is_err());
            Ok(())
        })
        .unwrap();
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
    // The worker is still there.
    assert_eq!(runtime.spawn(|| Ok(42)).join().unwrap(), 42);
    end(&runtime);
}

/// Who drops a value that no code takes depends on timing, so what becomes of its panic must not.
#[test]
fn a_panic_of_a_value_that_is_not_taken_is_recorded_whoever_drops_it() {
    struct Bomb(&'static str);
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("{}", self.0);
        }
    }
    let is_recorded = |text: &str| {
        let recent = jobtree_runtime::user_code::recent_panics();
        let is_it = |panic: &jobtree_runtime::user_code::CaughtPanic| {
            panic.message.as_deref() == Some(text)
        };
        recent.iter().any(is_it)
    };
    let _watch = watch();
    let runtime = runtime(2);
    // The job drops it.
    let (go, wait) = (Arc::new(OnceLatch::new()), Arc::new(OnceLatch::new()));
    let (told, waiting) = (go.clone(), wait.clone());
    let handle = runtime.spawn(move || {
        waiting.set();
        told.wait();
        Ok(Bomb("dropped by the job"))
    });
    wait.wait();
    let job = handle.job().clone();
    drop(handle);
    go.set();
    until(|| job.is_ended());
    assert!(is_recorded("dropped by the job"));
    // The handle drops it: of a function, of a future, and of one that cancels.
    let of_function = runtime.spawn(|| Ok(Bomb("dropped by a handle")));
    let of_future = runtime.spawn_future(async { Ok(Bomb("dropped by a future's handle")) });
    let cancels = runtime.spawn(|| Ok(Bomb("dropped by a handle that cancels")));
    until(|| of_function.is_finished() && of_future.is_finished() && cancels.is_finished());
    drop(of_function);
    drop(of_future);
    drop(cancels.cancel_on_drop());
    assert!(is_recorded("dropped by a handle"));
    assert!(is_recorded("dropped by a future's handle"));
    assert!(is_recorded("dropped by a handle that cancels"));
    // While another panic is under way, too.
    let handle = runtime.spawn(|| Ok(Bomb("dropped while unwinding")));
    until(|| handle.is_finished());
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _handle = handle;
        panic!("the first panic");
    }));
    assert!(unwound.is_err() && is_recorded("dropped while unwinding"));
    end(&runtime);
}

/// What a channel keeps may be dropped by an end that goes, or while the program unwinds.
#[test]
fn values_of_broadcast_and_watch_may_panic_in_their_destructors() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in a destructor, on purpose");
        }
    }
    struct SendsWhenDropped<F: FnMut()>(F);
    impl<F: FnMut()> Drop for SendsWhenDropped<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    fn while_unwinding(code: impl FnMut()) {
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _last = SendsWhenDropped(code);
            std::panic::resume_unwind(Box::new("the first panic"));
        }));
        let payload = unwound.unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"the first panic"));
    }
    let before = jobtree_runtime::user_code::caught_panics();
    // Several at once, by the last receiver.
    let (sender, receiver) = channel::broadcast(4);
    (0..4).for_each(|_| assert_eq!(sender.send(Bomb), 1));
    drop(receiver);
    // By a sender that has no receiver, or no room.
    assert_eq!(sender.send(Bomb), 0);
    while_unwinding(|| {
        sender.send(Bomb);
    });
    let (full, mut receiver) = channel::broadcast(1);
    full.send(Bomb);
    while_unwinding(|| {
        full.send(Bomb);
    });
    assert!(matches!(
        receiver.try_recv(),
        Some(Err(BroadcastRecvError::Lagged(1)))
    ));
    let mut last = Some((full, receiver));
    while_unwinding(|| drop(last.take()));
    // By a sender of newer ones, and by the last end.
    let (sender, receiver) = channel::watch(Bomb);
    sender.send(Bomb);
    while_unwinding(|| sender.send(Bomb));
    let mut last = Some((sender, receiver));
    while_unwinding(|| drop(last.take()));
    assert!(jobtree_runtime::user_code::caught_panics() >= before + 11);
}
