//! A child that nobody has begun when it is joined runs where it is joined: in the order in which it is asked for, on the
//! same stack, and with everything that a job on a stack of its own has.

mod support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use jobtree_pool::OnceLatch;
use jobtree_runtime::{
    BoxError, Job, JobError, JobHandle, JobLocal, Outcome, Runtime, checkpoint, nursery, with_local,
};
use support::{end, runtime, watch};

/// Deeper than any stack could be if each level ran on top of the one before.
const DEEP: usize = if cfg!(miri) { 20 } else { 20_000 };

/// Runs it in a task of a runtime with one worker, so that nobody else begins anything.
fn alone<T: Send + 'static>(body: impl FnOnce() -> Result<T, BoxError> + Send + 'static) -> T {
    let runtime: Runtime = runtime(1);
    let value = runtime.spawn(body).join().expect("nothing fails");
    end(&runtime);
    value
}

#[test]
fn children_run_in_the_order_in_which_they_are_asked_for() {
    let _watchdog = watch();
    let ran = alone(|| {
        let ran = Mutex::new(Vec::new());
        nursery(|n| {
            let handles: Vec<JobHandle<()>> = (0..100)
                .map(|number| {
                    let ran = &ran;
                    n.spawn(move || {
                        ran.lock().unwrap().push(number);
                        Ok(())
                    })
                })
                .collect();
            for handle in handles {
                handle.join()?;
            }
            Ok(())
        })?;
        Ok(ran.into_inner()?)
    });
    assert!(ran.is_sorted(), "{ran:?}");
}

#[test]
fn however_deep_they_ask_for_each_other_no_stack_overflows() {
    let _watchdog = watch();
    fn descend(levels: usize) -> Outcome<usize> {
        nursery(|n| {
            if levels == 0 {
                return Ok(0);
            }
            let below = n.spawn(move || Ok(descend(levels - 1)?)).join()?;
            Ok(below + 1)
        })
    }
    assert_eq!(alone(|| Ok(descend(DEEP)?)), DEEP);
}

#[test]
fn a_child_that_waits_lets_its_siblings_run() {
    let _watchdog = watch();
    let sum = alone(|| {
        let (open, begun) = &(OnceLatch::new(), AtomicUsize::new(0));
        let sum = nursery(|n| {
            let waits = n.spawn(|| {
                begun.fetch_add(1, Ordering::Relaxed);
                open.wait();
                Ok(1)
            });
            // Younger, and nobody joins it before the other: it must come to run all the same.
            let opens = n.spawn(|| {
                assert_eq!(begun.load(Ordering::Relaxed), 1);
                open.set();
                Ok(2)
            });
            Ok(waits.join()? + opens.join()?)
        })?;
        Ok(sum)
    });
    assert_eq!(sum, 3);
}

#[test]
fn it_is_a_job_of_its_own() {
    static NAME: JobLocal<&str> = JobLocal::new();
    let _watchdog = watch();
    alone(|| {
        let outer = Job::current().expect("a job").id();
        with_local(&NAME, "child's", || {
            nursery(|n| {
                let parent = Job::current().expect("the nursery").id();
                let inner = n.spawn(move || {
                    let job = Job::current().expect("a job");
                    assert_eq!(NAME.get().as_deref(), Some(&"child's"));
                    Ok((job.id(), job.parent().map(|parent| parent.id())))
                });
                let (id, its_parent) = inner.join()?;
                assert_eq!(its_parent, Some(parent));
                assert!(id != parent && id != outer);
                assert_eq!(Job::current().map(|job| job.id()), Some(parent));
                Ok(())
            })?;
            Ok(())
        })?;
        assert_eq!(Job::current().map(|job| job.id()), Some(outer));
        Ok(())
    });
}

#[test]
fn its_panic_and_its_failure_are_its_own() {
    let _watchdog = watch();
    alone(|| {
        let outcome: Outcome<()> = nursery(|n| {
            let panics = n.spawn(|| -> Result<(), BoxError> { panic!("on purpose") });
            let error = panics.join().expect_err("it panics");
            assert!(matches!(error, JobError::Panicked(_)), "{error}");
            Err(error.into())
        });
        assert!(outcome.is_err());
        Ok(())
    });
}

#[test]
fn a_cancellation_from_above_ends_it_and_the_wait_for_it() {
    let _watchdog = watch();
    let (runtime, begun) = (runtime(2), std::sync::Arc::new(AtomicBool::new(false)));
    let told = std::sync::Arc::clone(&begun);
    let job = runtime.spawn(move || {
        let outcome: Outcome<()> = nursery(|n| {
            let child = n.spawn(|| -> Result<(), BoxError> {
                told.store(true, Ordering::Release);
                loop {
                    checkpoint()?;
                    jobtree_pool::yield_now();
                }
            });
            Ok(child.join()?)
        });
        Ok(outcome?)
    });
    while !begun.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    job.cancel("enough");
    let error = job.join().expect_err("it was cancelled");
    assert!(matches!(error, JobError::Cancelled(_)), "{error}");
    end(&runtime);
}

#[test]
fn whoever_can_run_nowhere_else_comes_first() {
    let _watchdog = watch();
    let order = alone(|| {
        let (open, order) = &(OnceLatch::new(), Mutex::new(Vec::new()));
        let begun = &AtomicBool::new(false);
        nursery(|n| {
            let waits = n.spawn(|| {
                begun.store(true, Ordering::Relaxed);
                open.wait();
                order.lock().unwrap().push("waited");
                Ok(())
            });
            // There is one worker: when this goes on, the other waits.
            while !begun.load(Ordering::Relaxed) {
                jobtree_pool::yield_now();
            }
            let children: Vec<_> = (0..10)
                .map(|_| {
                    n.spawn(|| {
                        open.set();
                        order.lock().unwrap().push("child");
                        Ok(())
                    })
                })
                .collect();
            for child in children {
                child.join()?;
            }
            Ok(waits.join()?)
        })?;
        Ok(order.lock().unwrap().clone())
    });
    assert_ne!(order.last(), Some(&"waited"), "{order:?}");
}

#[test]
fn the_callers_own_cancellation_is_what_it_hears() {
    let _watchdog = watch();
    alone(|| {
        let outcome: Outcome<()> = nursery(|n| {
            let child = n.spawn(|| Ok(()));
            n.cancel("enough");
            let error = child.join().expect_err("the caller is cancelled");
            assert!(error.to_string().contains("enough"), "{error}");
            let child = n.spawn(|| Ok(()));
            let error = child.join().expect_err("it was born cancelled");
            assert!(error.to_string().contains("enough"), "{error}");
            Ok(())
        });
        assert!(outcome.is_err());
        let outcome: Outcome<()> = nursery(|n| {
            let child = n.spawn(|| -> Result<(), BoxError> {
                n.cancel("from below");
                checkpoint()?;
                unreachable!("it is cancelled with its parent");
            });
            let error = child.join().expect_err("the caller is cancelled");
            assert!(error.to_string().contains("from below"), "{error}");
            Ok(())
        });
        assert!(outcome.is_err());
        Ok(())
    });
}
