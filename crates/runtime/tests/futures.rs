//! Futures as jobs: the same tree, the same ends, stealable, and none is lost.

mod support;

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::time::Duration;

use jobtree_pool::OnceLatch;
use jobtree_runtime::{
    BoxError, Cause, Job, JobError, JobState, Runtime, block_on, checkpoint, future, nursery, sleep,
};
use support::{FAR, end, rounds, runtime, until, watch};

/// Sets its flag when it is dropped.
struct Flag(Arc<AtomicBool>);

impl Flag {
    fn new() -> (Flag, Arc<AtomicBool>) {
        let is_dropped = Arc::new(AtomicBool::new(false));
        (Flag(Arc::clone(&is_dropped)), is_dropped)
    }
}

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A future that is ready when its waker has been woken from outside, which gets it from the channel.
async fn until_woken(to_test: mpsc::Sender<Waker>) {
    let mut is_sent = false;
    poll_fn(move |context| {
        if is_sent {
            return Poll::Ready(());
        }
        is_sent = true;
        to_test.send(context.waker().clone()).unwrap();
        Poll::Pending
    })
    .await;
}

#[test]
fn a_future_may_borrow_and_gives_its_value() {
    let _watch = watch();
    let words = ["one".to_owned(), "three".to_owned()];
    let lengths = nursery(|n| {
        let handles: Vec<_> = words
            .iter()
            .map(|word| {
                n.spawn_future(async move {
                    future::yield_now().await;
                    Ok(word.len())
                })
            })
            .collect();
        handles
            .into_iter()
            .map(|handle| Ok(handle.join()?))
            .collect::<Result<Vec<_>, BoxError>>()
    });
    assert_eq!(lengths.unwrap(), [3, 5]);
}

#[test]
fn a_future_awaits_a_task_and_a_task_awaits_a_future() {
    let _watch = watch();
    let runtime = runtime(2);
    let outcome = runtime.nursery(|n| {
        let inner = n.spawn(|| {
            sleep(Duration::from_millis(1))?;
            Ok(20)
        });
        let middle = n.spawn_future(async move { Ok(inner.await? + 1) });
        let outer = n.spawn(move || Ok(block_on(middle)?? * 2));
        Ok(outer.join()?)
    });
    assert_eq!(outcome.unwrap(), 42);
    end(&runtime);
}

#[test]
fn the_job_is_the_current_one_in_every_poll_and_in_the_destructor() {
    let _watch = watch();
    struct Ask(mpsc::Sender<Option<Job>>);
    impl Drop for Ask {
        fn drop(&mut self) {
            self.0.send(Job::current()).unwrap();
        }
    }
    let (say, heard) = mpsc::channel();
    let runtime = runtime(2);
    let handle = runtime.spawn_future(async move {
        let asks = Ask(say.clone());
        say.send(Job::current()).unwrap();
        future::yield_now().await;
        say.send(Job::current()).unwrap();
        pending::<()>().await;
        drop(asks);
        Ok(())
    });
    let job = handle.job().clone();
    assert_eq!(heard.recv().unwrap().as_ref(), Some(&job));
    assert_eq!(heard.recv().unwrap().as_ref(), Some(&job));
    job.cancel(Cause::Explicit);
    assert_eq!(heard.recv().unwrap().as_ref(), Some(&job));
    assert!(matches!(handle.join(), Err(JobError::Cancelled(_))));
    end(&runtime);
}

#[test]
fn a_cancelled_future_that_waits_for_somebody_else_is_dropped() {
    let _watch = watch();
    let (flag, is_dropped) = Flag::new();
    let outcome = nursery(|n| {
        let handle = n.spawn_future(async {
            let _flag = flag;
            pending::<()>().await;
            Ok(())
        });
        handle.cancel("enough");
        let outcome = handle.join();
        assert!(
            matches!(outcome, Err(JobError::Cancelled(_))),
            "{outcome:?}"
        );
        assert!(is_dropped.load(Ordering::SeqCst));
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn a_cancelled_future_sees_it_at_every_wait_of_ours_and_may_tidy_up() {
    let _watch = watch();
    let runtime = runtime(1);
    let (say, heard) = mpsc::channel();
    let handle = runtime.spawn_future::<_, ()>(async move {
        say.send("waits")?;
        let first = future::sleep(FAR).await;
        let second = future::sleep(FAR).await;
        assert!(first.is_err() && second.is_err() && checkpoint().is_err());
        future::shield(FAR, async {
            future::sleep(Duration::from_millis(1)).await?;
            Ok(())
        })
        .await?;
        say.send("tidied up")?;
        second?;
        unreachable!()
    });
    assert_eq!(heard.recv().unwrap(), "waits");
    handle.cancel("enough");
    assert_eq!(heard.recv().unwrap(), "tidied up");
    assert!(matches!(handle.join(), Err(JobError::Cancelled(_))));
    end(&runtime);
}

#[test]
fn a_shield_inside_of_a_scope_inside_of_a_cancelled_future_holds() {
    let _watch = watch();
    let runtime = runtime(2);
    let release = Arc::new(OnceLatch::new());
    let (say, heard) = mpsc::channel();
    let handle = {
        let release = Arc::clone(&release);
        runtime.spawn_future(async move {
            future::nursery(async |n| {
                future::shield(FAR, async {
                    say.send(())?;
                    let waits = n.spawn(move || {
                        future_free_wait(&release);
                        Ok(())
                    });
                    // The child is cancelled, the shield is not: only the child's end ends this wait.
                    let ended = waits.job().clone();
                    ended.ended().await;
                    say.send(())?;
                    Ok(())
                })
                .await?;
                Ok(())
            })
            .await?;
            Ok(())
        })
    };
    heard.recv().unwrap();
    handle.cancel("enough");
    until(|| handle.job().state() == JobState::Cancelling);
    release.set();
    heard.recv().unwrap();
    assert!(matches!(handle.join(), Err(JobError::Cancelled(_))));
    end(&runtime);
}

/// Waits for a latch, whatever the job's state.
fn future_free_wait(latch: &OnceLatch) {
    latch.wait();
}

#[test]
fn cancelling_from_above_reaches_a_future_through_three_levels() {
    let _watch = watch();
    let runtime = runtime(2);
    let (say, heard) = mpsc::channel();
    let (flag, is_dropped) = Flag::new();
    let handle = runtime.spawn_future(async move {
        future::nursery(async |n| {
            let middle = n.spawn_future(async move {
                future::nursery(async |n| {
                    n.spawn_future(async move {
                        let _flag = flag;
                        say.send(())?;
                        future::sleep(FAR).await?;
                        Ok(())
                    })
                    .await?;
                    Ok(())
                })
                .await?;
                Ok(())
            });
            middle.await?;
            Ok(())
        })
        .await?;
        Ok(())
    });
    heard.recv().unwrap();
    handle.cancel("from the top");
    assert!(matches!(handle.join(), Err(JobError::Cancelled(_))));
    assert!(is_dropped.load(Ordering::SeqCst));
    end(&runtime);
}

#[test]
fn a_scope_that_is_dropped_cancels_its_children_and_its_job_waits_for_them() {
    let _watch = watch();
    let runtime = runtime(2);
    let child_has_ended = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&child_has_ended);
    let handle = runtime.spawn_future(async move {
        let (say, heard) = mpsc::channel();
        let mut scope = Box::pin(future::nursery(async |n| {
            n.launch(move || {
                say.send(())?;
                let outcome = sleep(FAR);
                ended.store(true, Ordering::SeqCst);
                outcome?;
                Ok(())
            });
            pending::<()>().await;
            Ok(())
        }));
        poll_fn(|context| {
            assert!(scope.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        // The pool's other worker runs the child.
        heard.recv()?;
        drop(scope);
        Ok(())
    });
    handle.join().unwrap();
    assert!(child_has_ended.load(Ordering::SeqCst));
    end(&runtime);
}

#[test]
fn a_failed_child_cancels_the_awaiting_scope() {
    let _watch = watch();
    let outcome = Runtime::global().block_on(future::nursery(async |n| {
        n.launch(|| Err("broken".into()));
        future::sleep(FAR).await?;
        Ok(())
    }));
    match outcome.unwrap() {
        Err(JobError::Failed(failure)) => assert_eq!(failure.error().to_string(), "broken"),
        other => panic!("{other:?}"),
    }
    let survivor = Runtime::global().block_on(future::supervisor(async |n| {
        let broken = n.spawn_future::<_, ()>(async { Err("broken".into()) });
        assert!(broken.await.is_err());
        Ok(n.spawn(|| Ok(1)).await?)
    }));
    assert_eq!(survivor.unwrap().unwrap(), 1);
}

#[test]
fn a_future_whose_time_is_over_has_timed_out() {
    let _watch = watch();
    let outcome = nursery(|n| {
        let options = n
            .job_options()
            .label("slow")
            .timeout(Duration::from_millis(2));
        Ok(options
            .spawn_future(async { pending::<Result<(), BoxError>>().await })
            .join()?)
    });
    assert!(
        matches!(outcome, Err(JobError::Failed(_) | JobError::TimedOut(_))),
        "{outcome:?}"
    );
    let scope = future::with_timeout(Duration::from_millis(2), async {
        pending::<()>().await;
        Ok(())
    });
    assert!(matches!(
        block_on(scope).unwrap(),
        Err(JobError::TimedOut(_))
    ));
    let in_time = future::with_timeout(FAR, async { Ok(7) });
    assert_eq!(block_on(in_time).unwrap().unwrap(), 7);
}

#[test]
fn a_panic_in_a_future_is_its_error_and_a_panic_in_its_destructor_is_not_heard() {
    let _watch = watch();
    struct Loud;
    impl Drop for Loud {
        fn drop(&mut self) {
            panic!("in the destructor");
        }
    }
    let runtime = runtime(2);
    let handle = runtime.spawn_future::<_, ()>(async {
        future::yield_now().await;
        panic!("in a poll")
    });
    match handle.join() {
        Err(JobError::Panicked(panic)) => assert_eq!(panic.message(), "in a poll"),
        other => panic!("{other:?}"),
    }
    let handle = runtime.spawn_future::<_, ()>(async {
        let _loud = Loud;
        pending().await
    });
    until(|| handle.job().state() == JobState::Active);
    handle.cancel("enough");
    assert!(matches!(handle.join(), Err(JobError::Cancelled(_))));
    end(&runtime);
}

#[test]
fn no_wake_is_lost_between_poll_and_rest() {
    let _watch = watch();
    let runtime = runtime(2);
    for _ in 0..rounds(2000) {
        let (to_test, wakers) = mpsc::channel();
        let handle = runtime.spawn_future(async move {
            until_woken(to_test.clone()).await;
            until_woken(to_test).await;
            Ok(())
        });
        wakers.recv().unwrap().wake();
        let second = wakers.recv().unwrap();
        second.wake_by_ref();
        second.wake_by_ref();
        handle.join().unwrap();
        // Long after the end.
        second.wake();
    }
    end(&runtime);
}

#[test]
fn a_runtime_waits_for_futures_that_are_in_no_queue() {
    let _watch = watch();
    let runtime = runtime(2);
    let (to_test, wakers) = mpsc::channel();
    let handle = runtime.spawn_future(async move {
        until_woken(to_test).await;
        Ok(5)
    });
    let waker = wakers.recv().unwrap();
    // Dropping the runtime cancels the job; the future is polled once more and dropped on its pool, which therefore
    // has not ended.
    drop(runtime);
    assert!(matches!(handle.join(), Err(JobError::Cancelled(_)) | Ok(5)));
    waker.wake();
}

#[test]
fn futures_that_yield_take_turns() {
    let _watch = watch();
    let runtime = runtime(1);
    let log = Arc::new(std::sync::Mutex::new(Vec::new()));
    let outcome = runtime.nursery(|n| {
        let both = n.spawn(|| {
            let turns = |name: char| {
                let log = &log;
                n.spawn_future(async move {
                    for _ in 0..3 {
                        log.lock().unwrap().push(name);
                        future::yield_now().await;
                    }
                    Ok(())
                })
            };
            let (a, b) = (turns('a'), turns('b'));
            a.join()?;
            b.join()?;
            Ok(())
        });
        Ok(both.join()?)
    });
    outcome.unwrap();
    let log: String = log.lock().unwrap().iter().collect();
    assert!(log == "ababab" || log == "bababa", "{log}");
    end(&runtime);
}

#[test]
fn a_future_moves_to_another_worker_while_its_own_is_busy() {
    let _watch = watch();
    let runtime = runtime(2);
    let ran = AtomicUsize::new(0);
    let outcome = runtime.nursery(|n| {
        let busy = n.spawn(|| {
            // All of them are queued here, and this worker does nothing else until they have run elsewhere.
            for _ in 0..20 {
                drop(n.spawn_future(async {
                    future::yield_now().await;
                    ran.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                }));
            }
            while ran.load(Ordering::SeqCst) < 20 {
                std::hint::spin_loop();
            }
            Ok(())
        });
        Ok(busy.join()?)
    });
    outcome.unwrap();
    end(&runtime);
}

#[test]
fn a_hundred_thousand_futures_wait_and_end() {
    let _watch = watch();
    let count = if cfg!(miri) { 20 } else { 100_000 };
    let runtime = runtime(2);
    let gate = future::nursery(async |n| {
        let handles: Vec<_> = (0..count)
            .map(|index| {
                n.spawn_future(async move {
                    if index % 2 == 0 {
                        future::sleep(FAR).await?;
                    } else {
                        pending::<()>().await;
                    }
                    Ok(())
                })
            })
            .collect();
        n.cancel("all of you");
        for handle in handles {
            assert!(handle.job().is_cancelled());
            handle.job().ended().await;
        }
        Ok(())
    });
    assert!(matches!(
        runtime.block_on(gate).unwrap(),
        Err(JobError::Cancelled(_)) | Ok(())
    ));
    end(&runtime);
}
