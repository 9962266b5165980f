//! Actors: one message at a time, every way to end, and who is told of it.

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use jobtree_pool::OnceLatch;
use jobtree_runtime::actor::{
    Actor, ActorContext, ActorEnd, ActorOptions, Address, AskError, Mailbox, Reply, from_fn,
};
use jobtree_runtime::{BoxError, JobError, JobState, Runtime, future, nursery, sleep, supervisor};
use support::{Census, FAR, Log, end, for_ever, rounds, runtime, until, watch};

/// Counts how an actor ended, each way for itself.
#[derive(Default)]
struct Ends {
    completed: AtomicUsize,
    failed: AtomicUsize,
    cancelled: AtomicUsize,
}

impl Ends {
    fn count(&self, end: &ActorEnd) {
        let counter = match end {
            ActorEnd::Completed => &self.completed,
            ActorEnd::Failed(_) => &self.failed,
            ActorEnd::Cancelled => &self.cancelled,
            other => panic!("{other:?}"),
        };
        counter.fetch_add(1, Ordering::SeqCst);
    }

    fn options(&self) -> ActorOptions<'_> {
        ActorOptions::new().on_done(|end| self.count(&end))
    }

    /// Completed, failed, cancelled.
    fn all(&self) -> [usize; 3] {
        [&self.completed, &self.failed, &self.cancelled].map(|count| count.load(Ordering::SeqCst))
    }
}

/// Logs what happens to it, and does what it is told.
struct Logging {
    log: Log,
    start_fails: bool,
}

enum Order {
    Note(&'static str),
    Fail,
    Panic,
    WaitForEver(Arc<OnceLatch>),
    Stop,
    Answer(Reply<usize>),
    Forget(Reply<usize>),
    PanicInsteadOf(Reply<usize>),
}

impl Logging {
    fn new(log: &Log) -> Logging {
        let log = log.clone();
        Logging {
            log,
            start_fails: false,
        }
    }
}

impl Actor for Logging {
    type Message = Order;

    fn started(&mut self, _: &ActorContext<'_, Order>) -> Result<(), BoxError> {
        self.log.add("started");
        match self.start_fails {
            true => Err("no room".into()),
            false => Ok(()),
        }
    }

    fn handle(&mut self, order: Order, context: &ActorContext<'_, Order>) -> Result<(), BoxError> {
        match order {
            Order::Note(note) => self.log.add(note),
            Order::Fail => return Err("told to fail".into()),
            Order::Panic => panic!("told to panic"),
            Order::WaitForEver(begun) => {
                begun.set();
                return for_ever();
            }
            Order::Stop => context.stop(),
            Order::Answer(reply) => {
                assert!(reply.send(context.waiting()));
            }
            Order::Forget(reply) => drop(reply),
            Order::PanicInsteadOf(_reply) => panic!("instead of an answer"),
        }
        Ok(())
    }

    fn stopped(&mut self, _: &ActorContext<'_, Order>) -> Result<(), BoxError> {
        self.log.add("stopped");
        Ok(())
    }
}

#[test]
fn messages_are_handled_one_at_a_time_in_order() {
    let _watch = watch();
    let runtime = runtime(4);
    let busy = AtomicBool::new(false);
    let mut seen = Vec::new();
    runtime
        .nursery(|n| {
            let (busy, seen) = (&busy, &mut seen);
            let actor = from_fn(move |(sender, number): (usize, usize), _| {
                assert!(!busy.swap(true, Ordering::SeqCst), "two at once");
                jobtree_pool::yield_now();
                seen.push((sender, number));
                busy.store(false, Ordering::SeqCst);
                Ok(())
            });
            let address = n.actor(ActorOptions::new().mailbox(Mailbox::Bounded(2)), actor);
            for sender in 0..4 {
                let address = address.clone();
                n.launch(move || {
                    for number in 0..100 {
                        address.send((sender, number))?;
                    }
                    Ok(())
                });
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(seen.len(), 400);
    for sender in 0..4 {
        let of_sender: Vec<_> = seen.iter().filter(|(from, _)| *from == sender).collect();
        assert!(of_sender.is_sorted());
    }
    end(&runtime);
}

#[test]
fn two_actors_on_one_worker_alternate() {
    let _watch = watch();
    const MESSAGES: usize = 200;
    let runtime = runtime(1);
    let log: Mutex<Vec<char>> = Mutex::default();
    runtime
        .nursery(|n| {
            // On the only worker, so that neither begins before both have all their messages.
            n.launch(|| {
                let start = |name: char| {
                    let log = &log;
                    let options = ActorOptions::new().mailbox(Mailbox::Unbounded);
                    let note = from_fn(move |(), _| {
                        log.lock().unwrap().push(name);
                        Ok(())
                    });
                    n.actor(options, note)
                };
                let both = [start('a'), start('b')];
                for _ in 0..MESSAGES {
                    both.iter().for_each(|actor| actor.send(()).unwrap());
                }
                Ok(())
            });
            Ok(())
        })
        .unwrap();
    let log = log.into_inner().unwrap();
    assert_eq!(log.len(), 2 * MESSAGES);
    let repeated = log.windows(2).filter(|pair| pair[0] == pair[1]).count();
    // Each gives way after each message; at the beginning and the end one of them may be alone for a moment.
    assert!(repeated <= 4, "{repeated} of {} in a row", log.len());
    end(&runtime);
}

#[test]
fn closing_drains_the_mailbox() {
    let _watch = watch();
    let (log, ends) = (Log::default(), Ends::default());
    nursery(|n| {
        let actor = n.actor(ends.options(), Logging::new(&log));
        for note in ["one", "two", "three"] {
            actor.send(Order::Note(note))?;
        }
        assert!(actor.close() && !actor.close());
        assert!(actor.send(Order::Note("late")).unwrap_err().is_closed());
        Ok(())
    })
    .unwrap();
    assert_eq!(log.take(), ["started", "one", "two", "three", "stopped"]);
    assert_eq!(ends.all(), [1, 0, 0]);
}

#[test]
fn an_actor_can_stop_itself_and_still_drains() {
    let _watch = watch();
    let runtime = runtime(1);
    let (log, ends) = (Log::default(), Ends::default());
    runtime
        .nursery(|n| {
            n.launch(|| {
                let actor = n.actor(ends.options(), Logging::new(&log));
                actor.send(Order::Stop)?;
                actor.send(Order::Note("was there before"))?;
                // Kept open by this address, if the actor did not stop.
                until(|| actor.is_closed());
                Ok(())
            });
            Ok(())
        })
        .unwrap();
    assert_eq!(log.take(), ["started", "was there before", "stopped"]);
    assert_eq!(ends.all(), [1, 0, 0]);
    end(&runtime);
}

#[test]
fn cancelling_does_not_drain() {
    let _watch = watch();
    let (log, ends, census) = (Log::default(), Ends::default(), Census::default());
    let begun = Arc::new(OnceLatch::new());
    nursery(|n| {
        let actor = n.actor(ends.options(), Logging::new(&log));
        actor.send(Order::WaitForEver(begun.clone()))?;
        begun.wait();
        actor.send(Order::Note("never handled"))?;
        let value = census.value();
        let keeps = n.actor(
            ActorOptions::new(),
            from_fn(|_: support::Counted, _| for_ever()),
        );
        keeps.send(value)?;
        keeps.send(census.value())?;
        assert!(actor.cancel("enough") && !actor.cancel("again"));
        keeps.cancel("enough");
        until(|| actor.job().unwrap().is_ended() && keeps.job().unwrap().is_ended());
        assert_eq!(actor.job().unwrap().state(), JobState::Cancelled);
        assert!(actor.try_send(Order::Stop).unwrap_err().is_closed());
        assert_eq!((actor.lost(), actor.len()), (1, 0));
        Ok(())
    })
    .unwrap();
    census.assert_all_gone(2);
    assert_eq!(log.take(), ["started", "stopped"]);
    assert_eq!(ends.all(), [0, 0, 1]);
}

/// Counts down by messages to itself, and forgets its own address at zero.
struct CountDown<'a> {
    own: Option<Address<usize>>,
    handled: &'a AtomicUsize,
}

impl Actor for CountDown<'_> {
    type Message = usize;

    fn started(&mut self, context: &ActorContext<'_, usize>) -> Result<(), BoxError> {
        self.own = Some(context.address());
        Ok(())
    }

    fn handle(&mut self, left: usize, _: &ActorContext<'_, usize>) -> Result<(), BoxError> {
        self.handled.fetch_add(1, Ordering::SeqCst);
        match left {
            0 => self.own = None,
            _ => self.own.as_ref().unwrap().send(left - 1)?,
        }
        Ok(())
    }
}

#[test]
fn without_addresses_an_actor_ends_and_its_own_address_keeps_it() {
    let _watch = watch();
    let runtime = runtime(2);
    let handled = AtomicUsize::new(0);
    runtime
        .nursery(|n| {
            let actor = CountDown {
                own: None,
                handled: &handled,
            };
            let address = n.actor(ActorOptions::new(), actor);
            address.send(99)?;
            until(|| handled.load(Ordering::SeqCst) > 0);
            drop(address);
            Ok(())
        })
        .unwrap();
    assert_eq!(handled.into_inner(), 100);
    end(&runtime);
}

#[test]
fn a_failure_is_the_scopes_and_is_told_once() {
    let _watch = watch();
    for (order, message) in [
        (Order::Fail, "told to fail"),
        (Order::Panic, "told to panic"),
    ] {
        let (log, ends) = (Log::default(), Ends::default());
        let is_panic = matches!(order, Order::Panic);
        let outcome = nursery(|n| {
            let actor = n.actor(ends.options().label("victim"), Logging::new(&log));
            actor.send(order)?;
            sleep(Duration::MAX)?;
            Ok(())
        });
        let error = outcome.unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
        assert_eq!(matches!(error, JobError::Panicked(_)), is_panic);
        assert_eq!(ends.all(), [0, 1, 0]);
        let stopped: &[&str] = if is_panic {
            &["started"]
        } else {
            &["started", "stopped"]
        };
        assert_eq!(log.take(), stopped);
    }
}

#[test]
fn under_a_supervisor_it_fails_alone() {
    let _watch = watch();
    let (log, ends) = (Log::default(), Ends::default());
    supervisor(|n| {
        let fails = n.actor(ends.options(), Logging::new(&log));
        let other = n.actor(ends.options(), Logging::new(&log));
        fails.send(Order::Fail)?;
        until(|| fails.is_closed());
        assert_eq!(other.ask(Order::Answer)?, 0);
        assert_eq!(fails.lost(), 1);
        Ok(())
    })
    .unwrap();
    assert_eq!(ends.all(), [1, 1, 0]);
}

#[test]
fn an_actor_that_cannot_start_has_failed_and_is_not_stopped() {
    let _watch = watch();
    let (log, ends) = (Log::default(), Ends::default());
    let outcome = nursery(|n| {
        let mut actor = Logging::new(&log);
        actor.start_fails = true;
        let address = n.actor(ends.options(), actor);
        until(|| address.is_closed());
        assert!(matches!(
            address.ask(Order::Answer),
            Err(AskError::Closed | AskError::Cancelled(_))
        ));
        Ok(())
    });
    assert!(outcome.unwrap_err().to_string().contains("no room"));
    assert_eq!(log.take(), ["started"]);
    assert_eq!(ends.all(), [0, 1, 0]);
}

#[test]
fn an_actor_that_never_ran_is_done_all_the_same() {
    let _watch = watch();
    let runtime = runtime(1);
    let (log, ends) = (Log::default(), Ends::default());
    // Born cancelled.
    let outcome = runtime.nursery(|n| {
        n.cancel("before it began");
        let actor = n.actor(ends.options(), Logging::new(&log));
        assert!(actor.is_closed());
        Ok(())
    });
    assert!(outcome.is_err());
    assert_eq!((ends.all(), log.take()), ([0, 0, 1], vec![]));
    // Cancelled while it waits for the only worker.
    runtime
        .nursery(|n| {
            n.launch(|| {
                let actor = n.actor(ends.options(), Logging::new(&log));
                actor.send(Order::Note("never handled"))?;
                assert!(actor.cancel("too late"));
                Ok(())
            });
            Ok(())
        })
        .unwrap();
    assert_eq!((ends.all(), log.take()), ([0, 0, 2], vec![]));
    end(&runtime);
}

#[test]
fn nobody_can_send_when_the_end_is_told() {
    let _watch = watch();
    let runtime = runtime(1);
    let log = Log::default();
    // It completes; it is cancelled before it has run.
    for is_cancelled in [false, true] {
        let address: OnceLock<Address<Order>> = OnceLock::new();
        let was_closed = Mutex::new(Vec::new());
        runtime
            .nursery(|n| {
                // On the only worker: it does not begin before the address is known.
                n.launch(|| {
                    let options = ActorOptions::new().on_done(|_| {
                        let is_closed = address.get().unwrap().is_closed();
                        was_closed.lock().unwrap().push(is_closed);
                    });
                    let actor = address.get_or_init(|| n.actor(options, Logging::new(&log)));
                    match is_cancelled {
                        true => assert!(actor.cancel("too late")),
                        false => actor.send(Order::Stop)?,
                    }
                    Ok(())
                });
                Ok(())
            })
            .unwrap();
        assert_eq!(was_closed.into_inner().unwrap(), [true]);
    }
    end(&runtime);
}

#[test]
fn a_thousand_racing_cancels_are_told_once_each() {
    let _watch = watch();
    let runtime = runtime(2);
    let count = rounds(1000);
    let ends = Ends::default();
    let log = Log::default();
    runtime
        .supervisor(|n| {
            for round in 0..count {
                let actor = n.actor(ends.options(), Logging::new(&log));
                let order = match round % 4 {
                    0 => Order::Note("a message"),
                    1 => Order::Fail,
                    2 => Order::Stop,
                    _ => Order::Panic,
                };
                if round % 3 != 0 {
                    actor.try_send(order).unwrap();
                }
                if round % 2 == 0 {
                    std::thread::yield_now();
                }
                actor.cancel("racing");
            }
            Ok(())
        })
        .unwrap();
    let [completed, failed, cancelled] = ends.all();
    assert_eq!(completed + failed + cancelled, count);
    assert!(cancelled > 0);
    end(&runtime);
}

#[test]
fn who_asks_an_actor_that_dies_is_told() {
    let _watch = watch();
    let log = Log::default();
    supervisor(|n| {
        let options = ActorOptions::new().mailbox(Mailbox::Bounded(8));
        let actor = n.actor(options, Logging::new(&log));
        assert_eq!(actor.ask(Order::Answer)?, 0);
        assert!(matches!(actor.ask(Order::Forget), Err(AskError::NoReply)));
        // One is being handled, others wait behind it.
        let begun = Arc::new(OnceLatch::new());
        actor.send(Order::WaitForEver(begun.clone()))?;
        begun.wait();
        let asks: Vec<_> = (0..3)
            .map(|_| {
                let actor = actor.clone();
                n.spawn(move || Ok(actor.ask(Order::Answer)))
            })
            .collect();
        until(|| actor.len() == 3);
        actor.cancel("dies");
        for ask in asks {
            assert!(matches!(ask.join()?, Err(AskError::NoReply)));
        }
        assert!(matches!(actor.ask(Order::Answer), Err(AskError::Closed)));
        let panics = n.actor(ActorOptions::new(), Logging::new(&log));
        assert!(matches!(
            panics.ask(Order::PanicInsteadOf),
            Err(AskError::NoReply)
        ));
        Ok(())
    })
    .unwrap();
}

#[test]
fn asking_ends_with_time_and_with_cancellation() {
    let _watch = watch();
    let log = Log::default();
    let outcome = supervisor(|n| {
        let options = ActorOptions::new().mailbox(Mailbox::Bounded(1));
        let actor = n.actor(options, Logging::new(&log));
        assert_eq!(actor.ask_timeout(Order::Answer, FAR)?, 0);
        let begun = Arc::new(OnceLatch::new());
        actor.send(Order::WaitForEver(begun.clone()))?;
        begun.wait();
        let tiny = Duration::from_millis(1);
        // For want of an answer, then for want of room.
        for _ in 0..2 {
            assert!(matches!(
                actor.ask_timeout(Order::Answer, tiny),
                Err(AskError::TimedOut)
            ));
        }
        let asks = n.spawn(move || Ok(actor.ask(Order::Answer)?));
        until(|| asks.job().waiting_for().is_some());
        asks.cancel("enough");
        let job = asks.job().clone();
        assert!(asks.join().is_err());
        assert_eq!(job.state(), JobState::Cancelled);
        n.cancel("all was seen");
        Ok(())
    });
    assert!(matches!(outcome, Err(JobError::Cancelled(_))));
}

#[test]
fn mailboxes_are_of_every_kind() {
    let _watch = watch();
    let runtime = runtime(1);
    let kinds = [
        (Mailbox::Bounded(2), vec![0, 1], true),
        (Mailbox::Unbounded, vec![0, 1, 2, 3], false),
        (Mailbox::Conflated, vec![3], false),
        (Mailbox::DroppingOldest(2), vec![2, 3], false),
        (Mailbox::DroppingNewest(2), vec![0, 1], false),
        (Mailbox::Rendezvous, vec![], true),
    ];
    for (kind, expected, is_full) in kinds {
        let seen = Mutex::new(Vec::new());
        runtime
            .nursery(|n| {
                // On the only worker: the actor takes nothing before all were sent.
                n.launch(|| {
                    let note = from_fn(|number: u32, _| {
                        seen.lock().unwrap().push(number);
                        Ok(())
                    });
                    let address = n.actor(ActorOptions::new().mailbox(kind), note);
                    let sent: Vec<_> = (0..4).map(|number| address.try_send(number)).collect();
                    let refused = sent.into_iter().filter_map(Result::err);
                    let refused: Vec<_> = refused.map(|error| error.is_full()).collect();
                    assert_eq!(refused.len(), if is_full { 4 - expected.len() } else { 0 });
                    assert!(refused.iter().all(|is_full| *is_full));
                    Ok(())
                });
                Ok(())
            })
            .unwrap();
        assert_eq!(seen.into_inner().unwrap(), expected, "{kind:?}");
    }
    end(&runtime);
}

#[test]
fn a_sender_waits_for_room_in_a_full_mailbox() {
    let _watch = watch();
    let runtime = runtime(2);
    let gate = OnceLatch::new();
    let handled = AtomicUsize::new(0);
    runtime
        .nursery(|n| {
            let count = from_fn(|(), _| {
                gate.wait();
                handled.fetch_add(1, Ordering::SeqCst);
                Ok(())
            });
            let address = n.actor(ActorOptions::new().mailbox(Mailbox::Bounded(1)), count);
            let sender = n.spawn(move || {
                for _ in 0..5 {
                    address.send(())?;
                }
                Ok(())
            });
            until(|| sender.job().waiting_for().is_some());
            assert!(!sender.is_finished() && handled.load(Ordering::SeqCst) == 0);
            gate.set();
            sender.join()?;
            Ok(())
        })
        .unwrap();
    assert_eq!(handled.into_inner(), 5);
    end(&runtime);
}

#[test]
fn async_code_starts_and_asks_actors() {
    let _watch = watch();
    let log = Log::default();
    let logging = Logging::new(&log);
    let waiting = Runtime::global().block_on(future::nursery(async |n| {
        let actor = n.actor(ActorOptions::new().label("async"), logging);
        actor.send_async(Order::Note("one")).await?;
        Ok(actor.ask_async(Order::Answer).await?)
    }));
    assert_eq!(waiting.unwrap().unwrap(), 0);
    assert_eq!(log.take(), ["started", "one", "stopped"]);
}
