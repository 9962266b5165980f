//! The last handle of a runtime goes while one of its own jobs has it.
#![cfg(not(miri))]

#[path = "../../pool/tests/support/mod.rs"]
mod child;

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use jobtree_pool::{Pool, current_worker_index, join};
use jobtree_runtime::{Runtime, nursery, sleep};

use child::ends_well;

/// A runtime of whose pool the calling thread is a worker.
fn on_this_thread(workers: usize) -> Runtime {
    let pool = Pool::builder().workers(workers).use_current_thread();
    Runtime::builder().pool(pool).build().unwrap()
}

/// Sends when it is dropped, which is after what it has.
struct Last(Option<Runtime>, Sender<()>);

impl Drop for Last {
    fn drop(&mut self) {
        self.0 = None;
        self.1.send(()).unwrap();
    }
}

/// What a job does whose runtime has gone: it is cancelled, so it may unwind here.
fn work_goes_on() {
    assert_eq!(join(|| 1, || 2), (1, 2));
    let slept = nursery(|n| {
        let _job = n.spawn(|| Ok(sleep(Duration::from_millis(1))?));
        Ok(())
    });
    drop(slept);
}

#[test]
fn a_runtime_of_this_thread_in_its_own_job() {
    ends_well("a_runtime_of_this_thread_in_its_own_job", || {
        for workers in [1, 2] {
            for _ in 0..20 {
                let runtime = on_this_thread(workers);
                let clone = runtime.clone();
                let job = clone.spawn(move || {
                    drop(runtime);
                    work_goes_on();
                    Ok(())
                });
                drop(clone);
                let _ = job.join();
                // Some call of the thread's sees that the pool is to end.
                while current_worker_index().is_some() {
                    std::thread::yield_now();
                }
            }
        }
    });
}

#[test]
fn a_runtime_of_this_thread_in_its_own_fork() {
    ends_well("a_runtime_of_this_thread_in_its_own_fork", || {
        for workers in [1, 2] {
            let runtime = on_this_thread(workers);
            join(
                move || {
                    drop(runtime);
                    work_goes_on();
                },
                work_goes_on,
            );
            assert_eq!(current_worker_index(), None);
        }
    });
}

#[test]
fn a_runtime_in_its_own_job_and_its_value() {
    ends_well("a_runtime_in_its_own_job_and_its_value", || {
        for workers in [1, 2] {
            let (sender, done) = channel();
            let runtime = Runtime::builder().workers(workers).build().unwrap();
            let (clone, sent) = (runtime.clone(), sender.clone());
            drop(clone.spawn(move || {
                let _sends = Last(None, sent);
                drop(runtime);
                work_goes_on();
                Ok(())
            }));
            drop(clone);
            done.recv().unwrap();
            // The job's value, which nobody takes, has the last handle.
            let runtime = Runtime::builder().workers(workers).build().unwrap();
            let (clone, sent) = (runtime.clone(), sender.clone());
            drop(clone.spawn(move || Ok(Last(Some(runtime), sent))));
            drop(clone);
            done.recv().unwrap();
        }
    });
}
