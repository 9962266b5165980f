//! Callbacks and destructors that wait for a job while a job ends or is cancelled: a wait that could never end is refused,
//! every other one ends.
//!
//! Each test is a program in a process of its own, since it would hang a library that is not careful.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jobtree_pool::OnceLatch;
use jobtree_runtime::{Job, Runtime, block_on, nursery, sleep};
use support::child::run_in_child;
use support::{end, runtime, until};

/// Runs `program` with one worker and with two, each time in a process of its own, which must end with success.
#[track_caller]
fn goes_on(program: fn(&Runtime)) {
    for workers in [1, 2] {
        let ended = run_in_child(workers, Duration::from_secs(20), || {
            let runtime = runtime(workers);
            program(&runtime);
            let slept = runtime.spawn(|| Ok(sleep(Duration::from_millis(1))?));
            slept.join().unwrap();
            end(&runtime);
        });
        ended.assert_success();
    }
}

/// Waits for the end of `job`; returns the message of the panic by which the library refused that, if it did.
fn wait_for(job: &Job) -> Option<String> {
    let waited = catch_unwind(AssertUnwindSafe(|| block_on(job.ended())));
    let payload = waited.err()?;
    Some(payload.downcast_ref::<String>().unwrap().clone())
}

/// What a wait in user code came to: nothing yet, or what [`wait_for`] returned.
type Waited = Arc<Mutex<Option<Option<String>>>>;

#[track_caller]
fn assert_refused(waited: &Waited) {
    let message = waited.lock().unwrap().take().expect("the code waited");
    let message = message.expect("the wait was refused");
    assert!(message.contains("waits for its own end"), "{message}");
}

#[track_caller]
fn assert_ended(waited: &Waited) {
    let refusal = waited.lock().unwrap().take().expect("the code waited");
    assert_eq!(refusal, None);
}

/// The job that the callback of a nursery waits for when a child of the nursery fails.
enum Awaited {
    FailingChild,
    Nursery,
    JobAbove,
    Sibling,
}

/// Has the callback of a nursery wait while a child fails, on the stack of that child.
fn wait_when_child_fails(runtime: &Runtime, awaited: Awaited) -> Waited {
    let waited = Waited::default();
    let result = Arc::clone(&waited);
    let job = runtime.spawn(move || {
        let outcome = nursery(|n| {
            let go = Arc::new(OnceLatch::new());
            let failing = n.spawn({
                let go = Arc::clone(&go);
                move || {
                    go.wait();
                    Err::<(), _>("the first failure".into())
                }
            });
            let parked = Arc::new(OnceLatch::new());
            let sibling = n.spawn({
                let parked = Arc::clone(&parked);
                move || {
                    parked.set();
                    Ok(sleep(Duration::MAX)?)
                }
            });
            parked.wait();
            let job = match awaited {
                Awaited::FailingChild => failing.job().clone(),
                Awaited::Nursery => n.job().clone(),
                Awaited::JobAbove => n.job().parent().expect("the job of the body"),
                Awaited::Sibling => sibling.job().clone(),
            };
            let callback = n.job().on_cancel(move |_| {
                *result.lock().unwrap() = Some(wait_for(&job));
            });
            go.set();
            let slept = sleep(Duration::MAX);
            until(|| callback_has_run(&failing, &sibling));
            drop(callback);
            Ok(slept?)
        });
        assert!(outcome.is_err());
        Ok(())
    });
    job.join().unwrap();
    waited
}

fn callback_has_run<A, B>(
    failing: &jobtree_runtime::JobHandle<A>,
    sibling: &jobtree_runtime::JobHandle<B>,
) -> bool {
    failing.job().is_ended() && sibling.job().is_ended()
}

#[test]
fn a_callback_that_joins_the_child_whose_failure_calls_it_is_refused() {
    goes_on(|runtime| {
        assert_refused(&wait_when_child_fails(runtime, Awaited::FailingChild));
    });
}

#[test]
fn a_callback_that_joins_a_parent_of_the_child_whose_failure_calls_it_is_refused() {
    goes_on(|runtime| {
        assert_refused(&wait_when_child_fails(runtime, Awaited::Nursery));
        assert_refused(&wait_when_child_fails(runtime, Awaited::JobAbove));
    });
}

#[test]
fn a_callback_may_join_a_sibling_of_the_child_whose_failure_calls_it() {
    goes_on(|runtime| {
        assert_ended(&wait_when_child_fails(runtime, Awaited::Sibling));
    });
}

#[test]
fn a_callback_may_join_the_jobs_below_the_one_that_is_cancelled() {
    goes_on(|runtime| {
        let waited = Waited::default();
        let result = Arc::clone(&waited);
        let below = Arc::new(Mutex::new(Vec::new()));
        let jobs = Arc::clone(&below);
        let handle = runtime.spawn(move || {
            let outcome = nursery(|n| {
                let child = n.spawn(move || {
                    let outcome = nursery(|n| {
                        let grandchild = n.spawn(|| Ok(sleep(Duration::MAX)?));
                        let job = grandchild.job().clone();
                        jobs.lock().unwrap().push(job);
                        Ok(sleep(Duration::MAX)?)
                    });
                    Ok(outcome?)
                });
                Ok(child.join()?)
            });
            Ok(outcome?)
        });
        until(|| !below.lock().unwrap().is_empty());
        let grandchild = below.lock().unwrap().pop().expect("one was pushed");
        let callback = handle.job().on_cancel(move |_| {
            *result.lock().unwrap() = Some(wait_for(&grandchild));
        });
        handle.cancel("stop");
        assert!(handle.join().is_err());
        drop(callback);
        assert_ended(&waited);
    });
}

#[test]
fn a_destructor_of_an_unwanted_value_that_joins_a_job_above_is_refused() {
    struct WaitsOnDrop(Job, Waited);
    impl Drop for WaitsOnDrop {
        fn drop(&mut self) {
            *self.1.lock().unwrap() = Some(wait_for(&self.0));
        }
    }
    goes_on(|runtime| {
        let waited = Waited::default();
        let result = Arc::clone(&waited);
        let handle = runtime.spawn(move || {
            let own = Job::current().expect("the job of this body");
            nursery(|n| {
                let go = Arc::new(OnceLatch::new());
                let unwanted = n.spawn({
                    let go = Arc::clone(&go);
                    move || {
                        go.wait();
                        Ok(WaitsOnDrop(own, result))
                    }
                });
                drop(unwanted);
                go.set();
                Ok(())
            })?;
            Ok(())
        });
        handle.join().unwrap();
        assert_refused(&waited);
    });
}
