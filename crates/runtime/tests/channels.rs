//! Channels: every rule by name.

mod support;

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use jobtree_runtime::channel::{
    self, BroadcastRecvError, Receiver, RecvError, RecvTimeoutError, Sender, TryRecvError, bounded,
    conflated, dropping_newest, dropping_oldest, oneshot, rendezvous, unbounded,
};
use jobtree_runtime::{BoxError, JobError, WaitingFor, block_on, nursery, shield};
use support::{Bell, Census, FAR, end, rounds, runtime, until, until_it_waits, watch};

/// A channel with as much room as it gets, made in each of the ways whose senders wait.
fn waiting_kinds<T>() -> Vec<(Sender<T>, Receiver<T>)> {
    vec![rendezvous(), bounded(1), bounded(5), unbounded()]
}

#[test]
fn values_arrive_in_the_order_of_their_sender() {
    let _watch = watch();
    for (sender, receiver) in waiting_kinds() {
        let runtime = runtime(2);
        let sending = runtime.spawn(move || {
            for number in 0..1000 {
                sender.send(number)?;
            }
            Ok(())
        });
        let received: Vec<i32> = receiver.iter().collect();
        sending.join().unwrap();
        assert!(received.into_iter().eq(0..1000));
        end(&runtime);
    }
}

#[test]
fn every_value_goes_to_one_of_many_receivers_in_its_senders_order() {
    let _watch = watch();
    const SENDERS: u64 = 6;
    const EACH: u64 = 500;
    for (sender, receiver) in waiting_kinds() {
        let runtime = runtime(3);
        let received = runtime
            .nursery(|n| {
                for name in 0..SENDERS {
                    let sender = sender.clone();
                    n.launch(move || {
                        for number in 0..EACH {
                            sender.send((name, number))?;
                        }
                        Ok(())
                    });
                }
                drop(sender);
                let receivers: Vec<_> = (0..4)
                    .map(|_| {
                        let receiver = receiver.clone();
                        n.spawn(move || Ok(receiver.iter().collect::<Vec<_>>()))
                    })
                    .collect();
                drop(receiver);
                let mut all = Vec::new();
                for receiver in receivers {
                    let part = receiver.join()?;
                    for name in 0..SENDERS {
                        let of_one = part.iter().filter(|(sender, _)| *sender == name);
                        assert!(of_one.is_sorted(), "out of order: {part:?}");
                    }
                    all.extend(part);
                }
                Ok(all)
            })
            .unwrap();
        assert_eq!(received.len() as u64, SENDERS * EACH);
        let distinct: HashSet<_> = received.iter().collect();
        assert_eq!(distinct.len(), received.len());
        end(&runtime);
    }
}

#[test]
fn a_rendezvous_hands_over_exactly() {
    let _watch = watch();
    let (sender, receiver) = rendezvous();
    assert_eq!(sender.capacity(), Some(0));
    assert!(sender.try_send(0).unwrap_err().is_full());
    let is_sent = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            sender.send(1).unwrap();
            is_sent.store(true, Ordering::SeqCst);
        });
        until(|| receiver.stats().senders_waiting == 1);
        assert!(!is_sent.load(Ordering::SeqCst), "nobody has received it");
        assert_eq!(receiver.len(), 0);
        assert_eq!(receiver.try_recv(), Ok(1));
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        until(|| is_sent.load(Ordering::SeqCst));
        s.spawn(|| assert_eq!(receiver.recv().unwrap(), 2));
        until(|| sender.stats().receivers_waiting == 1);
        sender.try_send(2).unwrap();
    });
}

#[test]
fn a_bounded_channel_holds_so_many_and_a_waiting_sender_keeps_its_place() {
    let _watch = watch();
    let (sender, receiver) = bounded(2);
    sender.send(1).unwrap();
    sender.send(2).unwrap();
    std::thread::scope(|s| {
        let waiting = s.spawn(|| sender.send(3).unwrap());
        until(|| sender.stats().senders_waiting == 1);
        assert_eq!((sender.len(), sender.capacity()), (2, Some(2)));
        assert_eq!(receiver.recv().unwrap(), 1);
        waiting.join().unwrap();
        assert_eq!(sender.len(), 2, "its value went in");
        assert!(
            sender.try_send(4).is_err(),
            "nobody gets in before who waits"
        );
    });
    assert_eq!((receiver.recv().unwrap(), receiver.recv().unwrap()), (2, 3));
}

#[test]
#[should_panic(expected = "use channel::rendezvous()")]
fn a_bound_of_zero_is_refused() {
    let _ = bounded::<()>(0);
}

#[test]
fn without_room_the_oldest_or_the_newest_is_dropped_and_counted() {
    let _watch = watch();
    let census = Census::default();
    for (make, kept) in [
        (
            dropping_oldest as fn(usize) -> (Sender<_>, Receiver<_>),
            [2, 3, 4],
        ),
        (dropping_newest, [0, 1, 2]),
    ] {
        let (sender, receiver) = make(3);
        let before = census.dropped();
        for number in 0..5 {
            sender.send((number, census.value())).unwrap();
        }
        assert_eq!(census.dropped() - before, 2, "dropped at once");
        let stats = sender.stats();
        assert_eq!((stats.sent, stats.received, stats.dropped), (5, 0, 2));
        sender.close();
        let left: Vec<i32> = receiver.iter().map(|(number, _)| number).collect();
        assert_eq!(left, kept);
        assert_eq!(receiver.stats().received, 3);
    }
    census.assert_all_gone(10);
}

#[test]
fn a_conflated_channel_keeps_the_newest() {
    let _watch = watch();
    let (sender, receiver) = conflated();
    for number in 0..10 {
        sender.send(number).unwrap();
    }
    assert_eq!((receiver.len(), receiver.capacity()), (1, Some(1)));
    assert_eq!(receiver.recv().unwrap(), 9);
    assert_eq!(receiver.stats().dropped, 9);
    std::thread::scope(|s| {
        let waiting = s.spawn(|| receiver.recv().unwrap());
        until(|| sender.stats().receivers_waiting == 1);
        sender.send(10).unwrap();
        sender.send(11).unwrap();
        assert_eq!(waiting.join().unwrap(), 10, "handed over, not replaced");
    });
    assert_eq!(receiver.try_recv(), Ok(11));
}

#[test]
fn a_limit_of_zero_tries_and_none_waits_for_ever() {
    let _watch = watch();
    let (sender, receiver) = rendezvous();
    let refused = sender.send_timeout(1, Some(Duration::ZERO)).unwrap_err();
    assert!(refused.is_timed_out());
    assert_eq!(refused.into_inner(), 1);
    let nothing = receiver.recv_timeout(Some(Duration::ZERO)).unwrap_err();
    assert!(nothing.is_timed_out());
    std::thread::scope(|s| {
        s.spawn(|| sender.send_timeout(2, None).unwrap());
        until(|| receiver.stats().senders_waiting == 1);
        assert_eq!(receiver.recv_timeout(Some(Duration::ZERO)).unwrap(), 2);
        s.spawn(|| assert_eq!(receiver.recv_timeout(None).unwrap(), 3));
        until(|| sender.stats().receivers_waiting == 1);
        sender.send_timeout(3, Some(Duration::ZERO)).unwrap();
        s.spawn(|| assert_eq!(receiver.recv_timeout(Some(FAR)).unwrap(), 4));
        sender.send_timeout(4, Some(FAR)).unwrap();
        s.spawn(|| assert_eq!(receiver.recv_timeout(Some(Duration::MAX)).unwrap(), 5));
        sender.send_timeout(5, Some(Duration::MAX)).unwrap();
    });
}

#[test]
fn a_limit_ends_the_wait_and_leaves_no_trace() {
    let _watch = watch();
    let (sender, receiver) = rendezvous();
    let limit = Some(Duration::from_millis(2));
    assert!(receiver.recv_timeout(limit).unwrap_err().is_timed_out());
    let refused = sender.send_timeout("mine", limit).unwrap_err();
    assert_eq!(refused.into_inner(), "mine");
    let stats = sender.stats();
    assert_eq!((stats.senders_waiting, stats.receivers_waiting), (0, 0));
    assert_eq!((stats.sent, stats.received), (0, 0));
}

#[test]
fn a_cancellation_beats_a_limit_and_what_could_be_done_at_once() {
    let _watch = watch();
    let (sender, receiver) = bounded(2);
    sender.send(1).unwrap();
    let outcome = nursery(|n| {
        n.cancel("enough");
        for limit in [Some(Duration::ZERO), Some(FAR), None] {
            let nothing = receiver.recv_timeout(limit).unwrap_err();
            assert!(nothing.is_cancelled(), "{nothing}");
            let refused = sender.send_timeout(2, limit).unwrap_err();
            assert!(refused.is_cancelled(), "{refused}");
            assert_eq!(refused.into_inner(), 2);
        }
        assert!(receiver.recv().unwrap_err().is_cancelled());
        let refused = sender.send(2).unwrap_err();
        assert!(refused.is_cancelled());
        assert_eq!(refused.into_inner(), 2);
        assert_eq!(receiver.iter().count(), 0, "iteration ends");
        assert_eq!(receiver.try_recv(), Ok(1), "trying does not look");
        sender.try_send(2).unwrap();
        shield(FAR, || Ok(receiver.recv()?)).unwrap();
        Ok(())
    });
    assert!(matches!(outcome, Err(JobError::Cancelled(_))));
}

#[test]
fn a_cancelled_sender_keeps_its_value() {
    let _watch = watch();
    let runtime = runtime(1);
    let (sender, receiver) = rendezvous();
    for waits_with in [None, Some(FAR)] {
        let sender = sender.clone();
        let handle = runtime.spawn(move || {
            let refused = sender.send_timeout("mine", waits_with).unwrap_err();
            assert!(refused.is_cancelled());
            assert_eq!(refused.into_inner(), "mine");
            Ok(())
        });
        until_it_waits(handle.job());
        assert_eq!(handle.job().waiting_for(), Some(WaitingFor::Channel));
        handle.cancel("enough");
        assert!(matches!(handle.join(), Err(JobError::Cancelled(_))));
    }
    assert_eq!(receiver.stats().sent, 0);
    assert_eq!(receiver.stats().senders_waiting, 0);
    end(&runtime);
}

#[test]
fn a_body_that_returns_a_channels_cancellation_was_cancelled_and_has_not_failed() {
    let _watch = watch();
    let runtime = runtime(2);
    // Not `Sync`: the error may go through `?` all the same.
    type Value = std::cell::Cell<u8>;
    type Body = fn(&Sender<Value>, &Receiver<Value>) -> Result<(), BoxError>;
    let bodies: Vec<Body> = vec![
        |sender, _| Ok(sender.send(Value::new(1))?),
        |sender, _| Ok(sender.send_timeout(Value::new(1), Some(FAR))?),
        |_, receiver| {
            receiver.recv()?;
            Ok(())
        },
        |_, receiver| {
            receiver.recv_timeout(Some(FAR))?;
            Ok(())
        },
        |sender, _| Ok(block_on(sender.send_async(Value::new(1)))??),
        |_, receiver| {
            block_on(receiver.recv_async())??;
            Ok(())
        },
    ];
    for body in bodies {
        let (sender, receiver) = rendezvous();
        let handle = runtime.spawn(move || body(&sender, &receiver));
        until_it_waits(handle.job());
        handle.cancel("enough");
        let error = handle.join().unwrap_err();
        assert!(error.is_cancelled(), "{error}");
    }
    // Another job's cancellation is no excuse, and a closed channel is a failure.
    let (sender, receiver) = unbounded::<()>();
    drop(sender);
    let handle = runtime.spawn(move || Ok(receiver.recv()?));
    assert!(matches!(handle.join(), Err(JobError::Failed(_))));
    end(&runtime);
}

#[test]
fn close_drains_and_refuses() {
    let _watch = watch();
    for close_by_sender in [true, false] {
        let (sender, receiver) = bounded(2);
        sender.send(1).unwrap();
        sender.send(2).unwrap();
        std::thread::scope(|s| {
            let waiting = s.spawn(|| sender.send(3).unwrap_err());
            until(|| sender.stats().senders_waiting == 1);
            let closed = match close_by_sender {
                true => sender.close(),
                false => receiver.close(),
            };
            assert!(closed && sender.is_closed() && receiver.is_closed());
            assert!(!sender.close(), "only once");
            let refused = waiting.join().unwrap();
            assert!(refused.is_closed());
            assert_eq!(refused.into_inner(), 3);
        });
        assert!(sender.try_send(4).unwrap_err().is_closed());
        assert!(sender.send_timeout(4, Some(FAR)).unwrap_err().is_closed());
        assert_eq!(receiver.recv().unwrap(), 1);
        assert_eq!(receiver.try_recv(), Ok(2));
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
        assert!(matches!(receiver.recv(), Err(RecvError::Closed)));
        let timed = receiver.recv_timeout(Some(FAR));
        assert!(matches!(timed, Err(RecvTimeoutError::Closed)));
    }
}

#[test]
fn all_who_wait_hear_of_the_end() {
    let _watch = watch();
    let (sender, receiver) = rendezvous::<()>();
    std::thread::scope(|s| {
        for _ in 0..40 {
            s.spawn(|| assert!(receiver.recv().unwrap_err().is_closed()));
        }
        until(|| sender.stats().receivers_waiting == 40);
        drop(sender);
    });
    let (sender, receiver) = rendezvous();
    std::thread::scope(|s| {
        for _ in 0..40 {
            s.spawn(|| assert!(sender.send(()).unwrap_err().is_closed()));
        }
        until(|| receiver.stats().senders_waiting == 40);
        drop(receiver);
    });
}

#[test]
fn the_last_end_that_goes_closes_the_channel() {
    let _watch = watch();
    let census = Census::default();
    let (sender, receiver) = unbounded();
    let (sender_too, receiver_too) = (sender.clone(), receiver.clone());
    drop(sender);
    sender_too.send(census.value()).unwrap();
    drop(sender_too);
    assert!(receiver.is_closed());
    drop(receiver.recv().unwrap());
    assert!(receiver_too.recv().unwrap_err().is_closed());

    let (sender, receiver) = unbounded();
    let receiver_too = receiver.clone();
    sender.send(census.value()).unwrap();
    drop(receiver);
    sender.send(census.value()).unwrap();
    assert_eq!(census.dropped(), 1);
    drop(receiver_too);
    assert_eq!(census.dropped(), 3, "nobody will receive them");
    let refused = sender.send(census.value()).unwrap_err();
    assert!(refused.is_closed());
    assert_eq!(census.dropped(), 3, "the sender has it");
    drop(refused);
    census.assert_all_gone(4);
}

#[test]
fn what_a_receiver_was_handed_and_never_took_goes_to_the_next() {
    let _watch = watch();
    let (sender, receiver) = unbounded();
    let bells: [Arc<Bell>; 2] = Default::default();
    {
        let mut gives_up = Box::pin(receiver.recv_async());
        let mut stays = pin!(receiver.recv_async());
        let wakers = [bells[0].waker(), bells[1].waker()];
        let polled = gives_up.as_mut().poll(&mut Context::from_waker(&wakers[0]));
        assert!(polled.is_pending());
        let polled = stays.as_mut().poll(&mut Context::from_waker(&wakers[1]));
        assert!(polled.is_pending());
        sender.send(1).unwrap();
        sender.close();
        assert_eq!(bells[0].rings(), 1);
        drop(gives_up);
        assert_eq!(bells[1].rings(), 1, "told once, of the close");
        let polled = stays.as_mut().poll(&mut Context::from_waker(&wakers[1]));
        assert!(matches!(polled, Poll::Ready(Err(RecvError::Closed))));
    }
    assert_eq!(receiver.recv().unwrap(), 1, "it came back");

    let (sender, receiver) = rendezvous();
    let mut gives_up = Box::pin(receiver.recv_async());
    let mut stays = pin!(receiver.recv_async());
    let wakers = [bells[0].waker(), bells[1].waker()];
    let polled = gives_up.as_mut().poll(&mut Context::from_waker(&wakers[0]));
    assert!(polled.is_pending());
    let polled = stays.as_mut().poll(&mut Context::from_waker(&wakers[1]));
    assert!(polled.is_pending());
    sender.try_send(2).unwrap();
    assert_eq!((bells[0].rings(), bells[1].rings()), (2, 1), "one is woken");
    drop(gives_up);
    assert_eq!(bells[1].rings(), 2);
    let polled = stays.as_mut().poll(&mut Context::from_waker(&wakers[1]));
    assert!(matches!(polled, Poll::Ready(Ok(2))));
    assert_eq!(receiver.stats().received, 1);
}

#[test]
fn a_future_that_waits_again_with_another_waker_is_told_by_that_one() {
    let _watch = watch();
    let (sender, receiver) = rendezvous();
    let bells: [Arc<Bell>; 2] = Default::default();
    let mut receiving = pin!(receiver.recv_async());
    for bell in &bells {
        let waker = bell.waker();
        let polled = receiving.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
    }
    sender.try_send(1).unwrap();
    assert_eq!((bells[0].rings(), bells[1].rings()), (0, 1));
}

#[test]
fn dropped_senders_leave_nothing_behind() {
    let _watch = watch();
    let census = Census::default();
    let (sender, receiver) = rendezvous();
    let bell = Arc::new(Bell::default());
    let waker = bell.waker();
    {
        let mut first = Box::pin(sender.send_async(census.value()));
        let mut second = Box::pin(sender.send_async(census.value()));
        for sending in [&mut first, &mut second] {
            let polled = sending.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
        drop(first);
        assert_eq!(census.dropped(), 1);
        drop(receiver.try_recv().unwrap());
        assert_eq!(bell.rings(), 1);
        drop(second);
    }
    assert_eq!(receiver.try_recv().unwrap_err(), TryRecvError::Empty);
    assert_eq!(receiver.stats().sent, 1);
    census.assert_all_gone(2);
}

#[test]
fn blocking_and_awaiting_ends_meet() {
    let _watch = watch();
    const COUNT: u64 = 500;
    for (to_tokio, in_tokio) in waiting_kinds() {
        let (from_tokio, at_home) = bounded(3);
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        let runtime = runtime(2);
        let doubler = tokio.spawn(async move {
            while let Ok(number) = in_tokio.recv_async().await {
                let number: u64 = number;
                from_tokio.send_async(number * 2).await.unwrap();
            }
        });
        let sending = runtime.spawn(move || {
            for number in 0..COUNT {
                to_tokio.send(number)?;
            }
            Ok(())
        });
        let sum = runtime.spawn(move || Ok(at_home.iter().sum::<u64>()));
        sending.join().unwrap();
        assert_eq!(sum.join().unwrap(), COUNT * (COUNT - 1));
        tokio.block_on(doubler).unwrap();
        end(&runtime);
    }
}

#[test]
fn awaiting_in_a_job_ends_with_its_cancellation() {
    let _watch = watch();
    let runtime = runtime(1);
    let (sender, receiver) = rendezvous::<String>();
    let handle = runtime.spawn({
        let (sender, receiver) = (sender.clone(), receiver.clone());
        move || {
            let (begun, is_begun) = unbounded();
            // A future that is polled in the job, but not by a call of ours that looks itself.
            let waiting = async {
                begun.send(()).unwrap();
                receiver.recv_async().await.map(drop)
            };
            let mut waiting = pin!(waiting);
            let bell = Arc::new(Bell::default());
            let waker = bell.waker();
            let polled = waiting.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            is_begun.try_recv().unwrap();
            jobtree_runtime::Job::current().unwrap().cancel("enough");
            assert_eq!(bell.rings(), 1, "told of the cancellation");
            let polled = waiting.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(matches!(polled, Poll::Ready(Err(RecvError::Cancelled(_)))));
            // And what is awaited from now on is cancelled at once, with the value given back.
            let mut sending = pin!(sender.send_async("mine".to_owned()));
            let polled = sending.as_mut().poll(&mut Context::from_waker(&waker));
            let Poll::Ready(Err(refused)) = polled else {
                panic!("{polled:?}");
            };
            assert!(refused.is_cancelled());
            assert_eq!(refused.into_inner(), "mine");
            Ok(())
        }
    });
    assert!(handle.join().unwrap_err().is_cancelled());
    assert_eq!(sender.stats().receivers_waiting, 0);
    end(&runtime);
}

#[test]
fn ten_thousand_receivers_that_wait_end_when_they_are_cancelled() {
    let _watch = watch();
    const RECEIVERS: usize = 10_000;
    let runtime = runtime(2);
    let channels: Vec<_> = (0..100).map(|_| rendezvous::<u8>()).collect();
    let ended = AtomicUsize::new(0);
    let outcome = runtime.nursery(|n| {
        for index in 0..RECEIVERS {
            let receiver = &channels[index % channels.len()].1;
            let ended = &ended;
            n.launch(move || {
                let nothing = receiver.recv().unwrap_err();
                assert!(nothing.is_cancelled());
                ended.fetch_add(1, Ordering::Relaxed);
                Err(nothing.into())
            });
        }
        let waiting = || -> usize {
            channels
                .iter()
                .map(|(sender, _)| sender.stats().receivers_waiting)
                .sum()
        };
        until(|| waiting() == RECEIVERS);
        n.cancel("enough");
        Ok(())
    });
    assert!(matches!(outcome, Err(JobError::Cancelled(_))));
    assert_eq!(ended.load(Ordering::Relaxed), RECEIVERS);
    assert!(
        channels
            .iter()
            .all(|(sender, _)| sender.stats().receivers_waiting == 0)
    );
    end(&runtime);
}

/// Senders and receivers give up again and again, by limits and cancellations; nothing is lost, and nothing comes twice.
#[test]
fn giving_up_loses_nothing() {
    let _watch = watch();
    for (sender, receiver) in [rendezvous(), bounded(2)] {
        let runtime = runtime(3);
        let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
        let count = rounds(300) as u64;
        runtime
            .nursery(|n| {
                let (sent, received) = (&sent, &received);
                let senders: Vec<_> = (0..3)
                    .map(|_| {
                        let sender = sender.clone();
                        n.spawn(move || {
                            for number in 1..=count {
                                let limit = Duration::from_micros(number % 3 * 500);
                                let _ = jobtree_runtime::nursery(|inner| {
                                    let handle = inner.spawn(|| {
                                        // Counted by the body: a job that is cancelled has no value.
                                        if sender.send(number).is_ok() {
                                            sent.fetch_add(number, Ordering::Relaxed);
                                        }
                                        Ok(())
                                    });
                                    jobtree_runtime::sleep(limit)?;
                                    handle.cancel("enough");
                                    Ok(())
                                });
                                if sender.send_timeout(number, Some(limit)).is_ok() {
                                    sent.fetch_add(number, Ordering::Relaxed);
                                }
                            }
                            Ok(())
                        })
                    })
                    .collect();
                drop(sender);
                for _ in 0..3 {
                    let receiver = receiver.clone();
                    n.launch(move || {
                        loop {
                            match receiver.recv_timeout(Some(Duration::from_millis(1))) {
                                Ok(number) => received.fetch_add(number, Ordering::Relaxed),
                                Err(RecvTimeoutError::TimedOut) => continue,
                                Err(_) => break,
                            };
                        }
                        Ok(())
                    });
                }
                for sender in senders {
                    sender.join()?;
                }
                Ok(())
            })
            .unwrap();
        assert_eq!(
            sent.load(Ordering::Relaxed),
            received.load(Ordering::Relaxed)
        );
        let stats = receiver.stats();
        assert_eq!(stats.sent, stats.received);
        end(&runtime);
    }
}

#[test]
fn ends_know_their_channel() {
    let _watch = watch();
    let (sender, receiver) = channel::bounded::<u8>(3);
    let (other, _receiver) = channel::bounded::<u8>(3);
    assert!(sender.same_channel(&sender.clone()) && !sender.same_channel(&other));
    assert!(receiver.same_channel(&receiver.clone()));
    sender.send(1).unwrap();
    assert!(!sender.is_empty() && !receiver.is_empty());
    assert!(format!("{sender:?} {receiver:?}").contains("capacity: Some(3)"));
}

#[test]
fn an_answer_arrives_even_if_the_job_that_gives_it_is_cancelled() {
    let _watch = watch();
    let (answer, answered) = oneshot();
    let outcome = nursery(|n| {
        n.cancel("enough");
        assert!(answer.send(42).is_ok());
        Ok(())
    });
    assert!(outcome.unwrap_err().is_cancelled());
    assert_eq!(answered.recv().unwrap(), 42);
}

#[test]
fn who_waits_for_an_answer_hears_that_there_will_be_none() {
    let _watch = watch();
    let runtime = runtime(1);
    let (answer, answered) = oneshot::<u32>();
    let waiting = runtime.spawn(move || Ok(answered.recv()));
    until_it_waits(waiting.job());
    assert_eq!(waiting.job().waiting_for(), Some(WaitingFor::Channel));
    drop(answer);
    assert!(matches!(waiting.join().unwrap(), Err(RecvError::Closed)));
    end(&runtime);
}

#[test]
fn an_answer_that_nobody_receives_comes_back_or_is_dropped_with_the_receiver() {
    let _watch = watch();
    let census = Census::default();
    let (answer, answered) = oneshot();
    assert!(answered.close());
    assert!(answer.is_closed());
    let unsent = answer.send(census.value()).unwrap_err();
    drop(unsent.into_inner());
    assert_eq!(census.dropped(), 1);
    let (answer, answered) = oneshot();
    assert!(answer.send(census.value()).is_ok());
    assert_eq!(census.dropped(), 1);
    drop(answered);
    assert_eq!(census.dropped(), 2);
}

#[test]
fn an_answer_takes_part_in_select_and_can_be_waited_for_again_after_a_limit() {
    let _watch = watch();
    let (answer, answered) = oneshot();
    let too_early = answered.recv_timeout(Some(Duration::ZERO)).unwrap_err();
    assert!(too_early.is_timed_out());
    answer.send(7).unwrap();
    let received = jobtree_runtime::select! {
        recv(answered) -> value => value.unwrap(),
        after(FAR) => 0,
    };
    assert_eq!(received.unwrap(), 7);
    let (answer, answered) = oneshot();
    std::thread::scope(|s| {
        s.spawn(|| answer.send(8).unwrap());
        assert_eq!(block_on(answered.recv_async()).unwrap().unwrap(), 8);
    });
}

#[test]
fn a_broadcast_value_reaches_every_receiver_once_and_in_order() {
    let _watch = watch();
    let runtime = runtime(3);
    let (sender, receiver) = channel::broadcast(100);
    let receivers = (0..3).map(|_| sender.subscribe()).chain([receiver]);
    let receivers = Vec::from_iter(receivers);
    runtime
        .nursery(|n| {
            for mut receiver in receivers {
                n.launch(move || {
                    for expected in 0..100_u32 {
                        assert_eq!(*receiver.recv()?, expected);
                    }
                    assert!(matches!(receiver.recv(), Err(BroadcastRecvError::Closed)));
                    Ok(())
                });
            }
            for number in 0..100 {
                assert!(sender.send(number) <= 4);
            }
            drop(sender);
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn a_receiver_that_is_behind_is_told_how_much_it_missed() {
    let (sender, mut receiver) = channel::broadcast(3);
    let counted = Arc::new(());
    for number in 0..10_u32 {
        assert_eq!(sender.send((number, counted.clone())), 1);
    }
    assert_eq!(Arc::strong_count(&counted), 4, "three are kept");
    assert!(matches!(
        receiver.recv(),
        Err(BroadcastRecvError::Lagged(7))
    ));
    assert_eq!(receiver.recv().unwrap().0, 7);
    let mut late = sender.subscribe();
    assert!(
        late.try_recv().is_none(),
        "it gets what is sent from now on"
    );
    drop(receiver);
    drop(late);
    assert_eq!(Arc::strong_count(&counted), 1, "nobody would receive them");
    assert_eq!(sender.send((10, counted.clone())), 0);
    assert_eq!(Arc::strong_count(&counted), 1);
}

#[test]
fn a_watched_value_shows_its_newest_state_and_its_end() {
    let _watch = watch();
    let runtime = runtime(2);
    let (sender, mut receiver) = channel::watch(0);
    let seen = runtime.spawn(move || {
        let mut seen = Vec::new();
        while let Ok(value) = receiver.changed() {
            seen.push(*value);
        }
        Ok(seen)
    });
    for number in 1..=1000 {
        sender.send(number);
    }
    let mut other = sender.subscribe();
    assert!(!other.has_changed());
    assert_eq!(*other.get(), 1000);
    drop(sender);
    let seen = seen.join().unwrap();
    assert!(seen.is_sorted() && seen.last() == Some(&1000), "{seen:?}");
    assert!(matches!(other.changed(), Err(RecvError::Closed)));
    end(&runtime);
}

#[test]
fn a_cancelled_job_receives_nothing_from_broadcast_and_watch() {
    let _watch = watch();
    let (news, listener) = channel::broadcast(4);
    let (settings, watched) = channel::watch(1);
    news.send(7);
    settings.send(2);
    let outcome = nursery(|n| {
        n.cancel("before it receives");
        let (mut listener, mut watched) = (listener, watched);
        assert!(matches!(
            listener.recv(),
            Err(BroadcastRecvError::Cancelled(_))
        ));
        assert!(matches!(watched.changed(), Err(RecvError::Cancelled(_))));
        let mut receiving = pin!(listener.recv_async());
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(
            receiving.as_mut().poll(&mut context),
            Poll::Ready(Err(BroadcastRecvError::Cancelled(_)))
        ));
        let mut changed = pin!(watched.changed_async());
        assert!(matches!(
            changed.as_mut().poll(&mut context),
            Poll::Ready(Err(RecvError::Cancelled(_)))
        ));
        Ok(())
    });
    assert!(outcome.is_err_and(|error| error.is_cancelled()));
}

#[test]
fn waits_of_broadcast_and_watch_end_with_a_cancellation() {
    let _watch = watch();
    let runtime = runtime(2);
    let (values, mut value) = channel::watch(0);
    let (news, mut listener) = channel::broadcast::<u32>(1);
    let (_one, never) = channel::rendezvous::<u32>();
    let waits = [
        runtime.spawn(move || {
            value.changed()?;
            Ok(())
        }),
        runtime.spawn(move || {
            listener.recv()?;
            Ok(())
        }),
        runtime.spawn(move || {
            channel::recv_any(&[never])?;
            Ok(())
        }),
    ];
    for wait in waits {
        until_it_waits(wait.job());
        assert!(wait.cancel("enough"));
        assert!(wait.join().unwrap_err().is_cancelled());
    }
    drop((values, news));
    end(&runtime);
}

#[test]
fn of_many_channels_each_gets_its_turn_and_no_value_is_lost() {
    let _watch = watch();
    let runtime = runtime(3);
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..5).map(|_| channel::bounded::<usize>(1)).unzip();
    let mut sums = [0; 5];
    runtime
        .nursery(|n| {
            for sender in senders {
                n.launch(move || {
                    for number in 1..=100 {
                        sender.send(number)?;
                    }
                    Ok(())
                });
            }
            while let Ok((place, number)) = channel::recv_any(&receivers) {
                sums[place] += number;
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(sums, [5050; 5]);
    let none: [channel::Receiver<u32>; 0] = [];
    assert!(matches!(channel::recv_any(&none), Err(RecvError::Closed)));
    end(&runtime);
}

#[test]
fn no_channel_keeps_the_others_from_their_turns() {
    let (full, others) = (channel::unbounded(), channel::unbounded());
    for number in 0..100 {
        full.0.send(number).unwrap();
    }
    others.0.send(1000).unwrap();
    let receivers = [full.1, others.1];
    let first_few = (0..2).map(|_| channel::recv_any(&receivers).unwrap().0);
    assert!(first_few.max() == Some(1));
}

#[cfg(feature = "stream")]
#[test]
fn a_receiver_as_a_stream_gives_what_is_sent_and_leaves_what_it_does_not_take() {
    use futures_core::Stream;
    use std::future::poll_fn;
    use std::pin::pin;

    let (sender, receiver) = channel::unbounded();
    let other = receiver.clone();
    for number in 0..3 {
        sender.send(number).unwrap();
    }
    let first = jobtree_runtime::block_on(async {
        let mut stream = pin!(receiver.into_stream());
        poll_fn(|context| stream.as_mut().poll_next(context)).await
    });
    assert_eq!(first.unwrap(), Some(0));
    drop(sender);
    let rest = jobtree_runtime::block_on(async {
        let mut stream = pin!(other.into_stream());
        let mut rest = Vec::new();
        while let Some(number) = poll_fn(|context| stream.as_mut().poll_next(context)).await {
            rest.push(number);
        }
        rest
    });
    assert_eq!(rest.unwrap(), [1, 2]);
}
