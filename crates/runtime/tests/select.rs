//! `select!`: every rule by name.

mod support;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use jobtree_pool::OnceLatch;
use jobtree_runtime::channel::{Receiver, Sender, bounded, rendezvous, unbounded};
use jobtree_runtime::{JobError, WaitingFor, nursery, select, select_async};
use support::{Bell, Census, FAR, end, for_ever, rounds, runtime, until, until_it_waits, watch};

#[test]
fn the_first_that_is_ready_wins_by_order() {
    let _watch = watch();
    let (a, from_a) = unbounded();
    let (b, from_b) = unbounded();
    let (c, from_c) = bounded(1);
    a.send("a").unwrap();
    b.send("b").unwrap();
    for expected in ["a", "b", "c"] {
        let told = select! {
            recv(from_a) -> value => value.unwrap(),
            recv(from_b) -> value => value.unwrap(),
            send(c, "c") -> sent => { sent.unwrap(); "c" }
            after(Duration::ZERO) => "late",
        };
        assert_eq!(told.unwrap(), expected);
    }
    assert_eq!(from_c.try_recv(), Ok("c"));
    let ready = select! {
        future(async { 1 }) -> one => one,
        recv(from_a) -> _ => 2,
        after(Duration::ZERO) => 3,
    };
    assert_eq!(ready.unwrap(), 1);
    let over = select! {
        recv(from_a) -> _ => 1,
        after(Duration::ZERO) => 2,
        future(async { 3 }) -> three => three,
    };
    assert_eq!(over.unwrap(), 2);
    drop((a, b));
}

#[test]
fn the_fair_form_reaches_every_clause() {
    let _watch = watch();
    let channels: Vec<_> = (0..3).map(|_| unbounded()).collect();
    for (sender, _) in &channels {
        for _ in 0..1000 {
            sender.send(()).unwrap();
        }
    }
    let mut wins = [0; 4];
    for _ in 0..400 {
        let winner = select! {
            fair;
            recv(channels[0].1) -> _ => 0,
            recv(channels[1].1) -> _ => 1,
            recv(channels[2].1) -> _ => 2,
            future(async {}) -> () => 3,
        };
        wins[winner.unwrap()] += 1;
    }
    assert!(wins.iter().all(|wins| *wins >= 40), "{wins:?}");
    let taken: u64 = channels
        .iter()
        .map(|(sender, _)| sender.stats().received)
        .sum();
    assert_eq!(taken + wins[3], 400, "one effect each");
}

#[test]
fn default_wins_if_nothing_else_can_at_once() {
    let _watch = watch();
    let (sender, receiver) = rendezvous::<u8>();
    let look = || {
        select! {
            recv(receiver) -> value => value.ok(),
            send(sender, 1) -> _ => unreachable!("nobody receives"),
            future(std::future::pending::<()>()) -> () => unreachable!(),
            default => None,
        }
    };
    assert_eq!(look().unwrap(), None);
    std::thread::scope(|s| {
        s.spawn(|| sender.send(7).unwrap());
        until(|| receiver.stats().senders_waiting == 1);
        assert_eq!(look().unwrap(), Some(7));
    });
    assert_eq!(receiver.stats().receivers_waiting, 0);
}

#[test]
fn it_waits_for_whatever_comes_first_and_leaves_no_trace() {
    let _watch = watch();
    let runtime = runtime(1);
    let (sender, receiver) = rendezvous::<u8>();
    let (other, from_other) = bounded::<u8>(1);
    other.send(0).unwrap();
    for who in 0..4 {
        let job_may_end = Arc::new(OnceLatch::new());
        let (call, called) = tokio::sync::oneshot::channel();
        let waiting = {
            let (receiver, other) = (receiver.clone(), other.clone());
            let mut job = runtime.spawn({
                let may_end = Arc::clone(&job_may_end);
                move || {
                    may_end.wait();
                    Ok("job")
                }
            });
            runtime.spawn(move || {
                let told = select! {
                    recv(receiver) -> value => { value?; "received" }
                    send(other, 9) -> sent => { sent?; "sent" }
                    join(job) -> outcome => outcome?,
                    future(called) -> rung => rung?,
                    after(FAR) => "late",
                }?;
                Ok(told)
            })
        };
        until_it_waits(waiting.job());
        assert_eq!(waiting.job().waiting_for(), Some(WaitingFor::Select));
        let expected = match who {
            0 => {
                sender.send(1).unwrap();
                "received"
            }
            1 => {
                assert_eq!(from_other.recv().unwrap(), 0);
                "sent"
            }
            2 => {
                job_may_end.set();
                "job"
            }
            _ => {
                call.send("rung").unwrap();
                "rung"
            }
        };
        assert_eq!(waiting.join().unwrap(), expected);
        job_may_end.set();
        let waiting = |channel: &Sender<u8>| {
            let stats = channel.stats();
            stats.senders_waiting + stats.receivers_waiting
        };
        assert_eq!((waiting(&sender), waiting(&other)), (0, 0));
    }
    assert_eq!(from_other.try_recv(), Ok(9), "sent once");
    assert!(from_other.try_recv().is_err());
    end(&runtime);
}

#[test]
fn a_closed_channel_is_ready() {
    let _watch = watch();
    let (sender, receiver) = rendezvous::<u8>();
    let (other, from_other) = rendezvous::<u8>();
    std::thread::scope(|s| {
        let waiting = s.spawn(|| {
            select! {
                recv(receiver) -> value => value.unwrap_err().is_closed(),
                send(other, 1) -> _ => false,
            }
        });
        until(|| sender.stats().receivers_waiting == 1);
        sender.close();
        assert!(waiting.join().unwrap().unwrap());
        let waiting = s.spawn(|| {
            select! {
                send(other, 1) -> sent => {
                    let refused = sent.unwrap_err();
                    assert!(refused.is_closed());
                    refused.into_inner()
                }
            }
        });
        until(|| other.stats().senders_waiting == 1);
        from_other.close();
        assert_eq!(waiting.join().unwrap().unwrap(), 1);
    });
}

#[test]
fn a_value_that_was_not_sent_stays_in_its_slot() {
    let _watch = watch();
    let census = Census::default();
    let (sender, receiver) = rendezvous();
    let mut slot = Some(census.value());
    let late = select! {
        send_from(sender, slot) -> _ => false,
        after(Duration::from_millis(1)) => slot.is_some(),
    };
    assert!(late.unwrap());
    std::thread::scope(|s| {
        s.spawn(|| drop(receiver.recv().unwrap()));
        until(|| sender.stats().receivers_waiting == 1);
        let sent = select! { send_from(sender, slot) -> sent => sent.is_ok() };
        assert!(sent.unwrap());
    });
    assert!(slot.is_none());
    // Without a value it takes no part.
    let looked = select! {
        send_from(sender, slot) -> _ => false,
        default => true,
    };
    assert!(looked.unwrap());
    let late = select! {
        send(sender, census.value()) -> _ => false,
        after(Duration::from_millis(1)) => true,
    };
    assert!(late.unwrap());
    assert_eq!(census.dropped(), 2, "what `send` did not send is gone");
    census.assert_all_gone(2);
}

#[test]
fn a_cancelled_job_gets_its_cancellation_and_nothing_is_done() {
    let _watch = watch();
    let runtime = runtime(1);
    let (sender, receiver) = rendezvous::<u8>();
    let (ready, from_ready) = unbounded::<u8>();
    ready.send(1).unwrap();
    let waiting = runtime.spawn({
        let (sender, receiver, from_ready) = (sender.clone(), receiver.clone(), from_ready.clone());
        move || {
            let waited = select! {
                recv(receiver) -> _ => (),
                send(sender, 1) -> _ => (),
                future(std::future::pending::<()>()) -> () => (),
            };
            assert!(waited.is_err());
            let again = select! { recv(from_ready) -> _ => () };
            assert!(again.is_err(), "even if it need not wait");
            let default = select! { recv(receiver) -> _ => (), default => () };
            assert!(default.is_err());
            again?;
            Ok(())
        }
    });
    until_it_waits(waiting.job());
    waiting.cancel("enough");
    assert!(matches!(waiting.join(), Err(JobError::Cancelled(_))));
    let stats = sender.stats();
    assert_eq!((stats.senders_waiting, stats.receivers_waiting), (0, 0));
    assert_eq!(stats.sent + from_ready.stats().received, 0);
    end(&runtime);
}

#[test]
fn control_flow_goes_through() {
    let _watch = watch();
    fn find(receiver: &Receiver<i32>, wanted: i32) -> Result<Option<usize>, JobError> {
        let mut seen = 0;
        let found = loop {
            select! {
                recv(receiver) -> value => match value {
                    Ok(value) if value == wanted => return Ok(Some(seen)),
                    Ok(value) if value < 0 => continue,
                    Ok(_) => seen += 1,
                    Err(_) => break None,
                },
            }
            .map_err(JobError::Cancelled)?;
        };
        Ok(found)
    }
    let (sender, receiver) = unbounded();
    for value in [1, -1, 2, 3] {
        sender.send(value).unwrap();
    }
    assert_eq!(find(&receiver, 2).unwrap(), Some(1));
    sender.close();
    assert_eq!(find(&receiver, 2).unwrap(), None);
}

#[test]
fn one_select_never_meets_itself() {
    let _watch = watch();
    let (sender, receiver) = rendezvous();
    let late = select! {
        send(sender, 1) -> _ => "sent",
        recv(receiver) -> _ => "received",
        after(Duration::from_millis(5)) => "late",
    };
    assert_eq!(late.unwrap(), "late");
    assert_eq!(sender.stats().sent, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_awaiting_form_works_on_tokio() {
    let _watch = watch();
    const COUNT: u64 = 500;
    let (sender, receiver) = rendezvous();
    let (back, from_back) = bounded(2);
    let relay = tokio::spawn(async move {
        let mut held = None;
        let mut is_open = true;
        while is_open || held.is_some() {
            if held.is_some() {
                select_async! { fair; send_from(back, held) -> sent => sent.unwrap() }.unwrap();
            } else {
                select_async! {
                    recv(receiver) -> value => match value {
                        Ok(value) => held = Some(value),
                        Err(_) => is_open = false,
                    },
                    after(FAR) => panic!("late"),
                }
                .unwrap();
            }
        }
    });
    let thread = std::thread::spawn(move || {
        for number in 0..COUNT {
            sender.send(number).unwrap();
        }
    });
    let mut sum: u64 = 0;
    while let Ok(number) = from_back.recv_async().await {
        sum += number;
    }
    assert_eq!(sum, COUNT * (COUNT - 1) / 2);
    relay.await.unwrap();
    thread.join().unwrap();
}

#[test]
fn an_awaiting_select_that_was_won_and_is_dropped_gives_the_value_back() {
    let _watch = watch();
    let (a, from_a) = rendezvous();
    let (b, from_b) = rendezvous();
    let bell = Arc::new(Bell::default());
    let waker = bell.waker();
    let mut context = Context::from_waker(&waker);
    {
        let mut selecting = Box::pin(async {
            select_async! {
                recv(from_a) -> value => value.unwrap(),
                recv(from_b) -> value => value.unwrap(),
            }
        });
        assert!(selecting.as_mut().poll(&mut context).is_pending());
        a.try_send(1).unwrap();
        assert!(
            b.try_send(2).unwrap_err().is_full(),
            "it has been won already"
        );
        assert_eq!(bell.rings(), 1);
    }
    assert_eq!(from_a.try_recv(), Ok(1), "it came back");
    let mut selecting = pin!(async {
        select_async! {
            recv(from_a) -> value => value.unwrap(),
            recv(from_b) -> value => value.unwrap(),
        }
    });
    for _ in 0..3 {
        assert!(selecting.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(from_b.stats().receivers_waiting, 1, "entered once");
    b.try_send(3).unwrap();
    assert_eq!(
        selecting.as_mut().poll(&mut context).map(Result::unwrap),
        Poll::Ready(3)
    );
}

#[test]
fn an_awaiting_select_is_cancelled_with_the_job_that_polls_it() {
    let _watch = watch();
    let outcome = nursery(|n| {
        let (_sender, receiver) = rendezvous::<()>();
        let bell = Arc::new(Bell::default());
        let waker = bell.waker();
        let mut context = Context::from_waker(&waker);
        let mut selecting = pin!(async {
            select_async! { recv(receiver) -> _ => (), after(FAR) => () }
        });
        assert!(selecting.as_mut().poll(&mut context).is_pending());
        n.cancel("enough");
        assert_eq!(bell.rings(), 1);
        assert!(matches!(
            selecting.as_mut().poll(&mut context),
            Poll::Ready(Err(_))
        ));
        Ok(())
    });
    assert!(outcome.unwrap_err().is_cancelled());
}

/// Selects that send and receive on the same rendezvous channels, in both roles at once: each has exactly one effect, and
/// nobody is forgotten.
#[test]
fn selects_that_face_each_other_meet_in_pairs() {
    let _watch = watch();
    const PLAYERS: u64 = 8;
    let runtime = runtime(3);
    let each = rounds(400) as u64;
    let channels: [(Sender<u64>, Receiver<u64>); 3] = std::array::from_fn(|_| rendezvous());
    let (given, taken) = (AtomicU64::new(0), AtomicU64::new(0));
    let games = AtomicU64::new(0);
    let (over, is_over) = rendezvous::<()>();
    runtime
        .nursery(|n| {
            let players: Vec<_> = (0..PLAYERS)
                .map(|player| {
                    let (channels, given, taken, games, is_over) =
                        (&channels, &given, &taken, &games, &is_over);
                    let (a, b, c) = match player % 3 {
                        0 => (0, 1, 2),
                        1 => (1, 2, 0),
                        _ => (2, 0, 1),
                    };
                    n.spawn(move || {
                        for round in 0..each {
                            let (x, y) = (player * each + round, PLAYERS * each + round);
                            let (gave, took) = select! {
                                send(channels[a].0, x) -> sent => { sent?; (x, 0) }
                                recv(channels[b].1) -> value => (0, value?),
                                send(channels[b].0, y) -> sent => { sent?; (y, 0) }
                                recv(channels[c].1) -> value => (0, value?),
                                recv(channels[a].1) -> value => (0, value?),
                                recv(is_over) -> _ => break,
                            }?;
                            given.fetch_add(gave, Ordering::Relaxed);
                            taken.fetch_add(took, Ordering::Relaxed);
                            games.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(())
                    })
                })
                .collect();
            // The last one who still plays may have nobody to play with: all others are through.
            until(|| {
                players
                    .iter()
                    .filter(|player| !player.is_finished())
                    .count()
                    <= 1
            });
            drop(over);
            for player in players {
                player.join()?;
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(
        given.load(Ordering::Relaxed),
        taken.load(Ordering::Relaxed),
        "what was given was taken, once"
    );
    let stats = channels.each_ref().map(|(sender, _)| sender.stats());
    let met: u64 = stats.iter().map(|stats| stats.sent).sum();
    assert_eq!(games.load(Ordering::Relaxed), 2 * met, "two to each");
    assert!(games.load(Ordering::Relaxed) >= (PLAYERS - 1) * each);
    for stats in stats {
        assert_eq!(stats.sent, stats.received);
        assert_eq!((stats.senders_waiting, stats.receivers_waiting), (0, 0));
    }
    end(&runtime);
}

/// Many plain senders and receivers against selects that also wait for futures, limits and jobs.
#[test]
fn one_winner_among_channels_futures_and_limits() {
    let _watch = watch();
    let runtime = runtime(3);
    let count = rounds(1000) as u64;
    let (a, from_a) = rendezvous();
    let (b, from_b) = bounded(1);
    let received = AtomicU64::new(0);
    runtime
        .nursery(|n| {
            for sender in [a, b] {
                n.launch(move || {
                    for number in 1..=count {
                        sender.send(number)?;
                    }
                    Ok(())
                });
            }
            for _ in 0..3 {
                let (from_a, from_b, received) = (from_a.clone(), from_b.clone(), &received);
                n.launch(move || {
                    let (mut a_ended, mut b_ended) = (false, false);
                    let mut other = runtime_job();
                    while !(a_ended && b_ended) {
                        let (_never, closed) = rendezvous();
                        let number = select! {
                            fair;
                            recv(if a_ended { &closed } else { &from_a }) -> value => match value {
                                Ok(number) => number,
                                Err(_) => { a_ended = true; 0 }
                            },
                            recv(if b_ended { &closed } else { &from_b }) -> value => match value {
                                Ok(number) => number,
                                Err(_) => { b_ended = true; 0 }
                            },
                            join(other) -> outcome => { outcome?; other = runtime_job(); 0 }
                            after(Duration::from_micros(100)) => 0,
                        }?;
                        received.fetch_add(number, Ordering::Relaxed);
                    }
                    other.cancel("enough");
                    Ok(())
                });
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(received.load(Ordering::Relaxed), count * (count + 1));
    end(&runtime);
}

/// A job that ends soon.
fn runtime_job() -> jobtree_runtime::JobHandle<()> {
    jobtree_runtime::Runtime::global().spawn(|| Ok(()))
}

#[test]
fn many_selects_that_wait_end_when_they_are_cancelled() {
    let _watch = watch();
    const SELECTS: usize = 1000;
    let runtime = runtime(2);
    let channels: Vec<_> = (0..10).map(|_| rendezvous::<usize>()).collect();
    let outcome = runtime.nursery(|n| {
        for index in 0..SELECTS {
            let channels = &channels;
            n.launch(move || {
                let (a, b) = (&channels[index % 10].1, &channels[index / 10 % 10].1);
                let received = select! {
                    recv(a) -> value => value,
                    recv(b) -> value => value,
                    after(FAR) => Ok(0),
                }?;
                panic!("{received:?}");
            });
        }
        n.launch(for_ever);
        until(|| {
            let waiting = channels
                .iter()
                .map(|(sender, _)| sender.stats().receivers_waiting);
            waiting.sum::<usize>() == 2 * SELECTS
        });
        n.cancel("enough");
        Ok(())
    });
    assert!(outcome.unwrap_err().is_cancelled());
    end(&runtime);
}
