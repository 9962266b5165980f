//! What code inside of a job knows of it: the job itself and the values that it inherits, on whatever thread.

mod support;

use std::sync::Barrier;
use std::sync::mpsc::channel;

use jobtree_pool::{current_worker_index, join, scope};
use jobtree_runtime::{
    Job, JobId, JobLocal, nursery, shield, supervisor, with_local, with_timeout,
};
use support::{FAR, end, rounds, runtime, watch};

static REQUEST: JobLocal<u64> = JobLocal::new();
static USER: JobLocal<String> = JobLocal::new();

fn request() -> Option<u64> {
    REQUEST.get().map(|value| *value)
}

fn current() -> JobId {
    Job::current().expect("inside of a job").id()
}

#[test]
fn a_forks_two_sides_on_two_workers_are_the_same_job() {
    let _watch = watch();
    let runtime = runtime(2);
    for _ in 0..rounds(20) {
        let job = runtime.spawn(|| {
            let both = Barrier::new(2);
            // Neither returns before the other has begun, and a barrier blocks its thread: so there are two.
            let side = || {
                both.wait();
                (current(), current_worker_index())
            };
            Ok((current(), join(side, side)))
        });
        let id = job.job().id();
        let (inside, (left, right)) = job.join().unwrap();
        assert_eq!([inside, left.0, right.0], [id; 3]);
        assert_ne!(left.1, right.1);
    }
    end(&runtime);
}

#[test]
fn the_tasks_of_a_scope_belong_to_the_job() {
    let _watch = watch();
    let runtime = runtime(2);
    let job = runtime.spawn(|| {
        let (sender, seen) = channel();
        scope(|s| {
            for _ in 0..10 {
                let sender = sender.clone();
                s.spawn(move |s| {
                    sender.send(current()).unwrap();
                    s.spawn(move |_| sender.send(current()).unwrap());
                });
            }
        });
        drop(sender);
        Ok(seen.iter().collect::<Vec<_>>())
    });
    let id = job.job().id();
    assert_eq!(job.join().unwrap(), vec![id; 20]);
    end(&runtime);
}

/// A task that nobody waits for may outlive the job, so it is in none.
#[test]
fn a_pools_own_task_is_in_no_job() {
    let _watch = watch();
    let runtime = runtime(2);
    let job = runtime.spawn(|| {
        let (sender, seen) = channel();
        jobtree_pool::spawn(move || sender.send(Job::current()).unwrap());
        Ok(seen.recv()?)
    });
    assert_eq!(job.join().unwrap(), None);
    end(&runtime);
}

#[test]
fn each_kind_of_scope_is_a_job_below_the_one_around_it() {
    let _watch = watch();
    let job_above = || Job::current().unwrap().parent().unwrap().id();
    nursery(|n| {
        assert_eq!(current(), n.job().id());
        let outer = current();
        supervisor(|_| {
            assert_eq!(job_above(), outer);
            Ok(())
        })?;
        with_timeout(FAR, || {
            assert_eq!(job_above(), outer);
            Ok(())
        })?;
        shield(FAR, || {
            assert_eq!(job_above(), outer);
            Ok(())
        })?;
        with_local(&REQUEST, 1, || {
            assert_eq!(job_above(), outer);
            Ok(())
        })?;
        n.spawn(move || {
            assert_eq!(job_above(), outer);
            Ok(())
        })
        .join()?;
        // And all of them are over.
        assert_eq!(current(), outer);
        Ok(())
    })
    .unwrap();
    assert_eq!(Job::current(), None);
}

#[test]
fn children_and_forks_inherit_values_and_nearer_ones_hide_farther_ones() {
    let _watch = watch();
    let runtime = runtime(2);
    assert_eq!(request(), None);
    with_local(&REQUEST, 1, || {
        with_local(&USER, "ann".to_owned(), || {
            let (in_child, below, in_fork) = nursery(|n| {
                let child = n.spawn(|| {
                    let below = nursery(|n| Ok(n.spawn(|| Ok(request())).join()?))?;
                    Ok((request(), below))
                });
                let (in_child, below) = child.join()?;
                let both = Barrier::new(1);
                let (fork, other) = join(
                    || {
                        both.wait();
                        (request(), USER.get().map(|user| user.to_string()))
                    },
                    request,
                );
                assert_eq!(other, fork.0);
                Ok((in_child, below, fork))
            })?;
            assert_eq!((in_child, below), (Some(1), Some(1)));
            assert_eq!(in_fork, (Some(1), Some("ann".to_owned())));
            let hidden = with_local(&REQUEST, 2, || Ok(request()))?;
            assert_eq!((hidden, request()), (Some(2), Some(1)));
            // A detached job belongs to the root, which has no values.
            assert_eq!(runtime.spawn(|| Ok(request())).join()?, None);
            Ok(())
        })?;
        Ok(())
    })
    .unwrap();
    assert_eq!(request(), None);
    end(&runtime);
}

/// A worker that waits does other work; that must not see the waiting job's context.
#[test]
fn work_that_a_waiting_worker_does_is_in_its_own_job() {
    let _watch = watch();
    let runtime = runtime(1);
    for _ in 0..rounds(20) {
        runtime
            .nursery(|n| {
                let handles: Vec<_> = (0..8_u64)
                    .map(|value| {
                        n.spawn(move || {
                            with_local(&REQUEST, value, || {
                                let own = current();
                                // Parks this stack, and the worker goes on with another of these jobs.
                                let below = nursery(|n| Ok(n.spawn(|| Ok(request())).join()?))?;
                                assert_eq!((current(), below), (own, Some(value)));
                                Ok(())
                            })?;
                            assert_eq!(request(), None);
                            Ok(())
                        })
                    })
                    .collect();
                for handle in handles {
                    handle.join()?;
                }
                Ok(())
            })
            .unwrap();
    }
    end(&runtime);
}
