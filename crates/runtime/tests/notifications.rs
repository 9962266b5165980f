//! Notifications and barriers: every rule by name.

mod support;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use jobtree_runtime::sync::{Barrier, Notify};
use jobtree_runtime::{WaitingFor, nursery, sim};
use support::{Bell, end, rounds, runtime, until, until_it_waits, watch};

#[test]
fn a_notification_is_kept_for_the_next_one_and_several_count_as_one() {
    let _watch = watch();
    let notify = Notify::new();
    notify.notify_one();
    notify.notify_one();
    notify.wait().unwrap();
    let bell = Arc::<Bell>::default();
    let waker = bell.waker();
    let mut wait = pin!(notify.notified());
    assert!(
        wait.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    assert_eq!((bell.rings(), notify.waiting()), (0, 1));
}

#[test]
fn one_is_notified_in_the_order_of_arrival_and_passes_it_on_if_it_gives_up() {
    let _watch = watch();
    let notify = Notify::new();
    let bells: [Arc<Bell>; 3] = Default::default();
    let wakers = bells.each_ref().map(Bell::waker);
    let mut contexts = wakers.each_ref().map(Context::from_waker);
    let rings = || bells.each_ref().map(|bell| bell.rings());
    let mut first = Box::pin(notify.notified());
    let mut second = Box::pin(notify.notified());
    let mut third = pin!(notify.notified());
    assert!(first.as_mut().poll(&mut contexts[0]).is_pending());
    assert!(second.as_mut().poll(&mut contexts[1]).is_pending());
    assert!(third.as_mut().poll(&mut contexts[2]).is_pending());
    notify.notify_one();
    assert_eq!(rings(), [1, 0, 0]);
    assert!(first.as_mut().poll(&mut contexts[0]).is_ready());
    drop(first);
    assert_eq!(rings(), [1, 0, 0], "it has used its notification");
    notify.notify_one();
    drop(second);
    assert_eq!(rings(), [1, 1, 1]);
    assert!(third.as_mut().poll(&mut contexts[2]).is_ready());
    assert_eq!(notify.waiting(), 0);
}

#[test]
fn all_are_those_whose_wait_has_begun_and_nothing_is_kept() {
    let _watch = watch();
    let notify = Notify::new();
    let bell = Arc::<Bell>::default();
    let waker = bell.waker();
    let mut context = Context::from_waker(&waker);
    let mut polled = Box::pin(notify.notified());
    assert!(polled.as_mut().poll(&mut context).is_pending());
    let mut begun = pin!(notify.notified());
    let mut gives_up = Box::pin(notify.notified());
    assert!(gives_up.as_mut().poll(&mut context).is_pending());
    notify.notify_all();
    let mut late = pin!(notify.notified());
    assert!(polled.as_mut().poll(&mut context).is_ready());
    assert!(begun.as_mut().poll(&mut context).is_ready());
    // What is for all goes to nobody else.
    drop(gives_up);
    assert!(late.as_mut().poll(&mut context).is_pending());
    notify.notify_one();
    assert!(late.as_mut().poll(&mut context).is_ready());
}

#[test]
fn many_more_wait_than_are_woken_at_once() {
    let _watch = watch();
    let runtime = runtime(2);
    let (notify, is_open, passed) = (Notify::new(), AtomicBool::new(false), AtomicUsize::new(0));
    runtime
        .nursery(|n| {
            for _ in 0..100 {
                n.launch(|| {
                    let wait = notify.notified();
                    if !is_open.load(Ordering::SeqCst) {
                        wait.wait()?;
                    }
                    passed.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                });
            }
            until(|| notify.waiting() == 100);
            is_open.store(true, Ordering::SeqCst);
            notify.notify_all();
            Ok(())
        })
        .unwrap();
    assert_eq!(passed.into_inner(), 100);
    end(&runtime);
}

#[test]
fn a_cancelled_job_waits_for_no_notification_and_takes_none() {
    let _watch = watch();
    let runtime = runtime(1);
    let notify = Arc::new(Notify::new());
    let waiting = runtime.spawn({
        let notify = Arc::clone(&notify);
        move || Ok(notify.wait()?)
    });
    until_it_waits(waiting.job());
    assert_eq!(waiting.job().waiting_for(), Some(WaitingFor::Notification));
    waiting.cancel("enough");
    assert!(waiting.join().unwrap_err().is_cancelled());
    assert_eq!(notify.waiting(), 0);
    notify.notify_one();
    let outcome = nursery(|n| {
        n.cancel("enough");
        assert!(notify.wait().is_err(), "even if there is one");
        Ok(())
    });
    assert!(outcome.unwrap_err().is_cancelled());
    notify.wait().unwrap();
    end(&runtime);
}

/// Values are handed over through a place that only a notification tells of, in very many orders.
#[test]
fn no_notification_is_lost_in_any_order() {
    sim::check(0..rounds(300) as u64, |_| {
        let (left, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let notify = Notify::new();
        nursery(|n| {
            for _ in 0..2 {
                n.launch(|| {
                    for _ in 0..3 {
                        left.fetch_add(1, Ordering::SeqCst);
                        notify.notify_one();
                        jobtree_pool::yield_now();
                    }
                    Ok(())
                });
            }
            while taken.load(Ordering::SeqCst) < 6 {
                let found = left.swap(0, Ordering::SeqCst);
                taken.fetch_add(found, Ordering::SeqCst);
                if found == 0 {
                    notify.wait()?;
                }
            }
            Ok(())
        })?;
        assert_eq!(taken.into_inner(), 6);
        Ok(())
    });
}

#[test]
fn all_pass_a_barrier_together_again_and_again_with_one_leader() {
    let _watch = watch();
    const JOBS: usize = 5;
    let runtime = runtime(2);
    let (barrier, arrived, leaders) =
        (Barrier::new(JOBS), AtomicUsize::new(0), AtomicUsize::new(0));
    let turns = rounds(50);
    runtime
        .nursery(|n| {
            for _ in 0..JOBS {
                n.launch(|| {
                    for turn in 1..=turns {
                        arrived.fetch_add(1, Ordering::SeqCst);
                        if barrier.wait()?.is_leader() {
                            leaders.fetch_add(1, Ordering::SeqCst);
                        }
                        assert!(arrived.load(Ordering::SeqCst) >= turn * JOBS);
                        barrier.wait()?;
                    }
                    Ok(())
                });
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(leaders.into_inner(), turns);
    assert_eq!(format!("{barrier:?}"), "Barrier { parties: 5, arrived: 0 }");
    end(&runtime);
}

#[test]
fn a_job_that_is_cancelled_at_a_barrier_has_not_arrived() {
    let _watch = watch();
    let runtime = runtime(1);
    let barrier = Arc::new(Barrier::new(2));
    let arrive = || {
        let barrier = Arc::clone(&barrier);
        runtime.spawn(move || Ok(barrier.wait()?.is_leader()))
    };
    let cancelled = arrive();
    until_it_waits(cancelled.job());
    cancelled.cancel("enough");
    assert!(cancelled.join().unwrap_err().is_cancelled());
    let waiting = arrive();
    until_it_waits(waiting.job());
    assert!(arrive().join().unwrap());
    assert!(!waiting.join().unwrap());
    end(&runtime);
}

#[test]
fn a_future_that_is_dropped_at_a_barrier_has_not_arrived_unless_all_have() {
    let _watch = watch();
    let barrier = Barrier::new(2);
    let bell = Arc::<Bell>::default();
    let waker = bell.waker();
    let mut context = Context::from_waker(&waker);
    let mut first = Box::pin(barrier.wait_async());
    assert!(first.as_mut().poll(&mut context).is_pending());
    drop(first);
    let mut second = Box::pin(barrier.wait_async());
    assert!(second.as_mut().poll(&mut context).is_pending());
    let mut third = pin!(barrier.wait_async());
    let Poll::Ready(Ok(arrival)) = third.as_mut().poll(&mut context) else {
        panic!("two have arrived");
    };
    assert!(arrival.is_leader());
    assert_eq!(bell.rings(), 1);
    drop(second);
    let mut fourth = pin!(barrier.wait_async());
    assert!(fourth.as_mut().poll(&mut context).is_pending());
    assert_eq!(format!("{barrier:?}"), "Barrier { parties: 2, arrived: 1 }");
}

#[test]
fn nobody_waits_at_a_barrier_for_one() {
    let _watch = watch();
    for parties in [0, 1] {
        assert!(Barrier::new(parties).wait().unwrap().is_leader());
    }
}
