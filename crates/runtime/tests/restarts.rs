//! Supervision with restart: who is started again, in which order, how often, and when the supervisor gives up.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jobtree_pool::OnceLatch;
use jobtree_runtime::actor::{
    Actor, ActorContext, ActorEnd, ActorOptions, AskError, Mailbox, Reply,
};
use jobtree_runtime::supervision::{Backoff, RestartPolicy, Strategy, Supervisor, TooManyRestarts};
use jobtree_runtime::{
    BoxError, CancelReason, Job, JobError, JobState, channel, checkpoint, nursery,
};
use support::{FAR, Log, end, for_ever, runtime, until, watch};

/// Children that log their starts and ends, and end when they are told.
struct Troupe {
    log: Log,
    orders: Vec<(channel::Sender<Order>, channel::Receiver<Order>)>,
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Return,
    Fail,
    Panic,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

impl Troupe {
    fn new() -> Troupe {
        Troupe {
            log: Log::default(),
            orders: NAMES.map(|_| channel::unbounded()).into(),
        }
    }

    fn tell(&self, child: usize, order: Order) {
        self.orders[child].0.send(order).unwrap();
    }

    fn play(&self, child: usize) -> Result<(), BoxError> {
        let name = NAMES[child];
        self.log.add(format!("{name} starts"));
        let ended = match self.orders[child].1.recv() {
            Ok(Order::Return) => Ok(()),
            Ok(Order::Fail) => Err(format!("{name} fails").into()),
            Ok(Order::Panic) => panic!("{name} panics"),
            Err(cancelled) => Err(cancelled.into()),
        };
        self.log.add(format!("{name} ends"));
        ended
    }

    fn describe<'a>(
        &'a self,
        mut supervisor: Supervisor<'a>,
        policies: [RestartPolicy; 3],
    ) -> Supervisor<'a> {
        for (child, policy) in policies.into_iter().enumerate() {
            supervisor.job(NAMES[child], policy, move || self.play(child));
        }
        supervisor
    }

    /// What has happened when that much has.
    #[track_caller]
    fn expect(&self, events: &[&str]) {
        until(|| self.log.len() >= events.len());
        let log = self.log.take();
        assert_eq!(log, events);
    }

    /// As [`expect`](Troupe::expect), where starts may be logged in any order: each child begins on whichever worker is free.
    #[track_caller]
    fn expect_starts(&self, names: &[&str]) {
        until(|| self.log.len() >= names.len());
        let mut log = self.log.take();
        log.sort();
        let expected: Vec<_> = names.iter().map(|name| format!("{name} starts")).collect();
        assert_eq!(log, expected);
    }
}

/// Runs the children until the script is over, and stops them then.
fn play(strategy: Strategy, policies: [RestartPolicy; 3], script: impl FnOnce(&Troupe) + Send) {
    let runtime = runtime(2);
    let troupe = Troupe::new();
    runtime
        .nursery(|n| {
            let supervisor = Supervisor::new(strategy).max_restarts(1000, FAR);
            let supervisor = troupe.describe(supervisor, policies);
            let stopper = supervisor.stopper();
            let handle = n.supervise(supervisor);
            troupe.expect_starts(&NAMES);
            script(&troupe);
            stopper.stop();
            handle.join()?;
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

const ALWAYS: [RestartPolicy; 3] = [RestartPolicy::Always; 3];

#[test]
fn one_for_one_restarts_only_the_one_that_ended() {
    let _watch = watch();
    play(Strategy::OneForOne, ALWAYS, |troupe| {
        troupe.tell(1, Order::Fail);
        troupe.expect(&["b ends", "b starts"]);
        troupe.tell(0, Order::Panic);
        troupe.expect(&["a starts"]);
    });
}

#[test]
fn one_for_all_stops_the_others_in_reverse_and_starts_all_in_order() {
    let _watch = watch();
    play(Strategy::OneForAll, ALWAYS, |troupe| {
        troupe.tell(1, Order::Fail);
        until(|| troupe.log.len() >= 6);
        let log = troupe.log.take();
        assert_eq!(log[..3], ["b ends", "c ends", "a ends"]);
        let mut starts = log[3..].to_vec();
        starts.sort();
        assert_eq!(starts, ["a starts", "b starts", "c starts"]);
    });
}

#[test]
fn rest_for_one_restarts_those_that_build_on_it() {
    let _watch = watch();
    play(Strategy::RestForOne, ALWAYS, |troupe| {
        troupe.tell(1, Order::Fail);
        until(|| troupe.log.len() >= 4);
        let log = troupe.log.take();
        assert_eq!(log[..2], ["b ends", "c ends"]);
        let mut starts = log[2..].to_vec();
        starts.sort();
        assert_eq!(starts, ["b starts", "c starts"]);
        // The last one concerns only itself.
        troupe.tell(2, Order::Fail);
        troupe.expect(&["c ends", "c starts"]);
    });
}

/// Logs its start and its stop.
struct Logging {
    name: &'static str,
    log: Log,
}

impl Actor for Logging {
    type Message = ();

    fn started(&mut self, _: &ActorContext<'_, ()>) -> Result<(), BoxError> {
        // Time for the others to come first, if they could.
        jobtree_pool::yield_now();
        self.log.add(format!("{} starts", self.name));
        Ok(())
    }

    fn handle(&mut self, (): (), _: &ActorContext<'_, ()>) -> Result<(), BoxError> {
        Err("told to fail".into())
    }

    fn stopped(&mut self, _: &ActorContext<'_, ()>) -> Result<(), BoxError> {
        self.log.add(format!("{} stops", self.name));
        Ok(())
    }
}

#[test]
fn children_start_in_order_and_stop_in_reverse() {
    let _watch = watch();
    const START: [&str; 3] = ["a starts", "b starts", "c starts"];
    for workers in [1, 2, 4] {
        let runtime = runtime(workers);
        let log = Log::default();
        runtime
            .nursery(|n| {
                let mut supervisor = Supervisor::new(Strategy::OneForAll);
                let addresses = NAMES.map(|name| {
                    let log = log.clone();
                    let new = move || Logging {
                        name,
                        log: log.clone(),
                    };
                    let options = ActorOptions::new().label(name);
                    supervisor.actor(options, RestartPolicy::Always, new)
                });
                let stopper = supervisor.stopper();
                let handle = n.supervise(supervisor);
                until(|| log.len() == 3);
                assert_eq!(log.take(), START);
                addresses[1].send(())?;
                until(|| log.len() == 6);
                let events = log.take();
                assert_eq!(events[..3], ["b stops", "c stops", "a stops"]);
                assert_eq!(events[3..], START);
                assert!(stopper.stop());
                handle.join()?;
                assert_eq!(log.take(), ["c stops", "b stops", "a stops"]);
                assert!(!stopper.stop(), "it has ended");
                Ok(())
            })
            .unwrap();
        end(&runtime);
    }
}

#[test]
fn policies_say_who_is_started_again() {
    use RestartPolicy::{Always, Never, OnFailure};
    let _watch = watch();
    play(Strategy::OneForOne, [Always, OnFailure, Never], |troupe| {
        troupe.tell(0, Order::Return);
        troupe.expect(&["a ends", "a starts"]);
        troupe.tell(1, Order::Panic);
        troupe.expect(&["b starts"]);
        troupe.tell(1, Order::Return);
        troupe.expect(&["b ends"]);
        troupe.tell(2, Order::Fail);
        troupe.expect(&["c ends"]);
        // Neither comes back: the next thing that happens is what the first one does.
        troupe.tell(0, Order::Fail);
        troupe.expect(&["a ends", "a starts"]);
    });
}

#[test]
fn who_has_ended_for_good_is_not_started_with_the_others() {
    use RestartPolicy::{Always, Never, OnFailure};
    let _watch = watch();
    play(Strategy::OneForAll, [Always, OnFailure, Never], |troupe| {
        troupe.tell(1, Order::Return);
        troupe.expect(&["b ends"]);
        troupe.tell(0, Order::Fail);
        troupe.expect(&["a ends", "c ends", "a starts"]);
    });
}

#[test]
fn a_supervisor_ends_when_all_have_ended_for_good() {
    let _watch = watch();
    let runs = AtomicUsize::new(0);
    let mut supervisor = Supervisor::new(Strategy::OneForOne);
    for _ in 0..10 {
        supervisor.job("once", RestartPolicy::OnFailure, || {
            runs.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
    }
    supervisor.job("temporary", RestartPolicy::Never, || Err("alone".into()));
    supervisor.run().unwrap();
    assert_eq!(runs.into_inner(), 10);
    Supervisor::new(Strategy::OneForAll).run().unwrap();
}

#[test]
fn too_many_restarts_are_a_failure_with_the_last_error() {
    let _watch = watch();
    for most in [0, 1, 4] {
        let lives = AtomicUsize::new(0);
        let log = Log::default();
        let mut supervisor = Supervisor::new(Strategy::OneForOne).max_restarts(most, FAR);
        supervisor.job("bystander", RestartPolicy::Always, || {
            let ended = for_ever();
            log.add("bystander stopped");
            ended
        });
        supervisor.job("broken", RestartPolicy::OnFailure, || {
            let life = lives.fetch_add(1, Ordering::SeqCst) + 1;
            Err(format!("life {life}").into())
        });
        let JobError::Failed(failure) = supervisor.run().unwrap_err() else {
            panic!("it failed");
        };
        let error = failure.error().downcast_ref::<TooManyRestarts>().unwrap();
        assert_eq!(error.child(), "broken");
        let expected = format!("life {}", most + 1);
        assert!(error.last_error().unwrap().to_string().contains(&expected));
        assert!(error.to_string().contains("gives up"));
        assert_eq!(lives.into_inner(), most + 1);
        // It may have been stopped before it began.
        assert!(log.len() <= 1);
    }
}

#[test]
fn success_counts_as_a_restart_too_where_one_should_go_on() {
    let _watch = watch();
    let mut supervisor = Supervisor::new(Strategy::OneForOne).max_restarts(2, FAR);
    supervisor.job("hasty", RestartPolicy::Always, || Ok(()));
    let JobError::Failed(failure) = supervisor.run().unwrap_err() else {
        panic!("it failed");
    };
    let error = failure.error().downcast_ref::<TooManyRestarts>().unwrap();
    assert!(error.last_error().is_none());
}

#[test]
fn restarts_that_are_longer_ago_than_the_period_do_not_count() {
    let _watch = watch();
    let lives = AtomicUsize::new(0);
    // Nothing is within no time: more restarts than allowed, but never at once.
    let supervisor = Supervisor::new(Strategy::OneForOne).max_restarts(1, Duration::ZERO);
    let mut supervisor = supervisor.backoff(Backoff::constant(Duration::from_millis(1)));
    supervisor.job("often", RestartPolicy::OnFailure, || {
        match lives.fetch_add(1, Ordering::SeqCst) {
            20 => Ok(()),
            _ => Err("again".into()),
        }
    });
    supervisor.run().unwrap();
    assert_eq!(lives.into_inner(), 21);
}

#[test]
fn pauses_grow_and_are_told() {
    let _watch = watch();
    let told = Mutex::new(Vec::new());
    let lives = AtomicUsize::new(0);
    let millis = Duration::from_millis;
    let mut supervisor = Supervisor::new(Strategy::OneForOne)
        .max_restarts(5, FAR)
        .backoff(Backoff::exponential(millis(1), millis(4)))
        .on_restart(|restart| {
            let error = restart.error.map(ToString::to_string).unwrap_or_default();
            let ending = error.chars().last();
            told.lock()
                .unwrap()
                .push((restart.restarts, restart.pause, ending));
            assert_eq!(restart.child, "flaky");
        });
    supervisor.job("flaky", RestartPolicy::OnFailure, || {
        match lives.fetch_add(1, Ordering::SeqCst) {
            life @ 0..4 => Err(format!("life {life}").into()),
            _ => Ok(()),
        }
    });
    supervisor.run().unwrap();
    let expected = [
        (1, millis(1), Some('0')),
        (2, millis(2), Some('1')),
        (3, millis(4), Some('2')),
        (4, millis(4), Some('3')),
    ];
    assert_eq!(told.into_inner().unwrap(), expected);
}

#[test]
fn a_pause_of_one_child_holds_up_neither_the_others_nor_the_stop() {
    let _watch = watch();
    let runtime = runtime(2);
    let troupe = Troupe::new();
    let lives = AtomicUsize::new(0);
    runtime
        .nursery(|n| {
            let supervisor = Supervisor::new(Strategy::OneForOne).max_restarts(100, FAR);
            // The pause does not end while the test runs.
            let paused = Arc::new(OnceLatch::new());
            let pauses = paused.clone();
            let supervisor = supervisor
                .backoff(Backoff::constant(FAR))
                .on_restart(move |_| pauses.set());
            let mut supervisor = troupe.describe(supervisor, [RestartPolicy::Never; 3]);
            supervisor.job("broken", RestartPolicy::Always, || {
                lives.fetch_add(1, Ordering::SeqCst);
                Err("broken".into())
            });
            let stopper = supervisor.stopper();
            let handle = n.supervise(supervisor);
            troupe.expect_starts(&NAMES);
            paused.wait();
            troupe.tell(0, Order::Return);
            troupe.expect(&["a ends"]);
            stopper.stop();
            handle.join()?;
            assert_eq!(troupe.log.take(), ["c ends", "b ends"]);
            Ok(())
        })
        .unwrap();
    assert_eq!(lives.into_inner(), 1);
    end(&runtime);
}

#[test]
fn cancelling_the_supervisor_cancels_all_and_restarts_none() {
    let _watch = watch();
    let runtime = runtime(2);
    let troupe = Troupe::new();
    runtime
        .nursery(|n| {
            let supervisor = Supervisor::new(Strategy::OneForOne).max_restarts(1000, FAR);
            let handle = n.supervise(troupe.describe(supervisor, ALWAYS));
            troupe.expect_starts(&NAMES);
            let job = handle.job().clone();
            handle.cancel("enough");
            assert!(matches!(handle.join(), Err(JobError::Cancelled(_))));
            assert_eq!(job.state(), JobState::Cancelled);
            let mut log = troupe.log.take();
            log.sort();
            assert_eq!(log, ["a ends", "b ends", "c ends"]);
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn a_child_that_somebody_cancels_is_started_again_only_if_it_must_always_run() {
    let _watch = watch();
    for (policy, lives_expected) in [(RestartPolicy::Always, 2), (RestartPolicy::OnFailure, 1)] {
        let lives = AtomicUsize::new(0);
        let mut supervisor = Supervisor::new(Strategy::OneForOne);
        let stopper = supervisor.stopper();
        let lives_so_far = &lives;
        supervisor.job("victim", policy, move || {
            if lives_so_far.fetch_add(1, Ordering::SeqCst) == 1 {
                stopper.stop();
                return for_ever();
            }
            Job::current()
                .unwrap()
                .cancel(CancelReason::from("by itself"));
            checkpoint()?;
            Ok(())
        });
        supervisor.run().unwrap();
        assert_eq!(lives.into_inner(), lives_expected);
    }
}

#[test]
fn each_life_is_a_new_job_with_the_childs_name() {
    let _watch = watch();
    let jobs = Mutex::new(Vec::new());
    let mut supervisor = Supervisor::new(Strategy::OneForOne);
    supervisor.job("cat", RestartPolicy::OnFailure, || {
        let job = Job::current().unwrap();
        assert!(job.path().ends_with("/supervisor/cat"), "{}", job.path());
        let mut jobs = jobs.lock().unwrap();
        jobs.push(job.id());
        match jobs.len() {
            3 => Ok(()),
            _ => Err("again".into()),
        }
    });
    supervisor.run().unwrap();
    let mut ids = jobs.into_inner().unwrap();
    ids.dedup();
    assert_eq!(ids.len(), 3);
}

#[test]
fn supervisors_nest_and_a_failure_goes_up() {
    let _watch = watch();
    let (inner_lives, lives) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let mut outer = Supervisor::new(Strategy::OneForOne).max_restarts(2, FAR);
    outer.job("inner", RestartPolicy::OnFailure, || {
        inner_lives.fetch_add(1, Ordering::SeqCst);
        let mut inner = Supervisor::new(Strategy::OneForOne).max_restarts(1, FAR);
        inner.job("broken", RestartPolicy::OnFailure, || {
            lives.fetch_add(1, Ordering::SeqCst);
            Err("broken".into())
        });
        Ok(inner.run()?)
    });
    let error = outer.run().unwrap_err();
    assert!(error.to_string().contains("`inner`"), "{error}");
    assert!(error.to_string().contains("broken"), "{error}");
    assert_eq!((inner_lives.into_inner(), lives.into_inner()), (3, 6));
}

/// Adds numbers up, and fails at zero.
struct Sum {
    total: u64,
    log: Log,
}

enum Add {
    Number(u64),
    Total(Reply<u64>),
    Break(Reply<u64>),
}

impl Actor for Sum {
    type Message = Add;

    fn started(&mut self, _: &ActorContext<'_, Add>) -> Result<(), BoxError> {
        self.log.add("started");
        Ok(())
    }

    fn handle(&mut self, message: Add, _: &ActorContext<'_, Add>) -> Result<(), BoxError> {
        match message {
            Add::Number(0) => return Err("zero".into()),
            Add::Number(number) => self.total += number,
            Add::Total(reply) => {
                reply.send(self.total);
            }
            Add::Break(_reply) => panic!("broken"),
        }
        Ok(())
    }
}

#[test]
fn an_actors_mailbox_survives_a_restart_and_only_the_message_in_hand_is_lost() {
    let _watch = watch();
    let runtime = runtime(2);
    let log = Log::default();
    let ends = Mutex::new(Vec::new());
    let errors = Mutex::new(Vec::new());
    runtime
        .nursery(|n| {
            let supervisor = Supervisor::new(Strategy::OneForOne);
            let mut supervisor = supervisor.on_restart(|restart| {
                let error = restart.error.unwrap().to_string();
                errors
                    .lock()
                    .unwrap()
                    .push((restart.child.to_owned(), error));
            });
            let options = ActorOptions::new()
                .label("sum")
                .on_done(|end| ends.lock().unwrap().push(end));
            let sum = supervisor.actor(options, RestartPolicy::OnFailure, || Sum {
                total: 0,
                log: log.clone(),
            });
            assert!(sum.job().is_none(), "it was not started yet");
            // All wait before it is started, and those behind the bad one survive it.
            for number in [1, 2, 0, 30, 4] {
                sum.send(Add::Number(number))?;
            }
            let handle = n.supervise(supervisor);
            assert_eq!(sum.ask(Add::Total)?, 34);
            assert_eq!(sum.lost(), 1);
            assert!(matches!(sum.ask(Add::Break), Err(AskError::NoReply)));
            assert_eq!(sum.ask(Add::Total)?, 0);
            assert_eq!(sum.lost(), 2);
            assert!(ends.lock().unwrap().is_empty(), "a restart is no end");
            sum.send(Add::Number(5))?;
            drop(sum);
            // Without addresses it completes, and with it the supervisor.
            handle.join()?;
            Ok(())
        })
        .unwrap();
    assert_eq!(log.take(), ["started"; 3]);
    let ends = ends.into_inner().unwrap();
    assert!(matches!(ends[..], [ActorEnd::Completed]), "{ends:?}");
    let errors = errors.into_inner().unwrap();
    assert!(
        errors[0].0 == "sum" && errors[0].1.contains("zero"),
        "{errors:?}"
    );
    assert!(errors[1].1.contains("broken"), "{errors:?}");
    end(&runtime);
}

#[test]
fn an_actor_whose_supervisor_gives_up_is_done_once_and_who_asks_is_told() {
    let _watch = watch();
    let ends = Mutex::new(Vec::new());
    let log = Log::default();
    let outcome = nursery(|n| {
        let mut supervisor = Supervisor::new(Strategy::OneForAll).max_restarts(2, FAR);
        let mut options = ["broken", "bystander"].map(|name| {
            let ends = &ends;
            let options = ActorOptions::new().label(name).mailbox(Mailbox::Unbounded);
            options.on_done(move |end| ends.lock().unwrap().push((name, end)))
        });
        let [broken, bystander] = options.each_mut().map(|options| {
            let log = log.clone();
            let new = move || Sum {
                total: 0,
                log: log.clone(),
            };
            supervisor.actor(std::mem::take(options), RestartPolicy::Always, new)
        });
        for _ in 0..4 {
            broken.send(Add::Number(0))?;
        }
        let waits = broken.clone();
        let asks = n.spawn(move || Ok(waits.ask(Add::Total)));
        until(|| broken.len() == 5);
        let handle = n.spawn(move || Ok(supervisor.run()));
        let outcome = handle.join()?;
        assert!(outcome.unwrap_err().to_string().contains("gives up"));
        // Three were handled; the fourth and the question nobody will see.
        assert!(matches!(asks.join()?, Err(AskError::NoReply)));
        assert!(broken.is_closed() && bystander.is_closed() && broken.is_empty());
        assert_eq!(broken.lost(), 3);
        Ok(())
    });
    outcome.unwrap();
    let ends = ends.into_inner().unwrap();
    assert!(
        matches!(
            ends[..],
            [
                ("bystander", ActorEnd::Cancelled),
                ("broken", ActorEnd::Failed(_))
            ]
        ),
        "{ends:?}"
    );
}

#[test]
fn actors_of_a_supervisor_that_is_cancelled_or_never_runs_are_done_once() {
    let _watch = watch();
    let count = AtomicUsize::new(0);
    let log = Log::default();
    let describe = || {
        let mut supervisor = Supervisor::new(Strategy::OneForOne);
        let options = ActorOptions::new().on_done(|end| {
            assert!(matches!(end, ActorEnd::Cancelled));
            count.fetch_add(1, Ordering::SeqCst);
        });
        let log = log.clone();
        let new = move || Sum {
            total: 0,
            log: log.clone(),
        };
        let address = supervisor.actor(options, RestartPolicy::Always, new);
        (supervisor, address)
    };
    let (supervisor, address) = describe();
    drop(supervisor);
    assert!(address.is_closed());
    assert_eq!(count.load(Ordering::SeqCst), 1);
    let outcome = nursery(|n| {
        let (supervisor, address) = describe();
        let handle = n.supervise(supervisor);
        assert_eq!(address.ask(Add::Total)?, 0);
        handle.cancel("enough");
        assert!(handle.join().is_err());
        assert!(address.is_closed());
        assert_eq!(count.load(Ordering::SeqCst), 2);
        n.cancel("before it began");
        let (supervisor, address) = describe();
        assert!(n.supervise(supervisor).is_finished());
        assert!(address.is_closed());
        Ok(())
    });
    assert!(outcome.is_err());
    assert_eq!(count.into_inner(), 3);
}
