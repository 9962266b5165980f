//! Actors and supervisors whose code and destructors panic: callbacks are still called once, and the others go on.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jobtree_runtime::actor::{Actor, ActorContext, ActorEnd, ActorOptions, Reply};
use jobtree_runtime::supervision::{RestartPolicy, Strategy, Supervisor};
use jobtree_runtime::{BoxError, supervisor};
use support::child::run_in_child;

#[track_caller]
fn goes_on(body: impl FnOnce()) {
    run_in_child(0, Duration::from_secs(30), body).assert_success();
}

/// Panics when it is dropped.
struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("a destructor of the test panics");
    }
}

enum Message {
    /// Has the actor panic.
    Panic,
    /// Is dropped in the mailbox.
    Nasty(#[allow(dead_code, reason = "for its destructor")] PanicsOnDrop),
    /// Wants an answer, and is dropped in the mailbox.
    Question(#[allow(dead_code, reason = "it is never answered")] Reply<u8>),
}

/// An actor with a destructor that panics.
struct Nasty(#[allow(dead_code, reason = "for its destructor")] PanicsOnDrop);

impl Actor for Nasty {
    type Message = Message;

    fn handle(&mut self, message: Message, _: &ActorContext<'_, Message>) -> Result<(), BoxError> {
        match message {
            Message::Panic => panic!("the actor panics"),
            Message::Nasty(_) | Message::Question(_) => Ok(()),
        }
    }
}

/// An actor that fails with its first message, whatever it is.
struct Fails;

impl Actor for Fails {
    type Message = Message;

    fn handle(&mut self, message: Message, _: &ActorContext<'_, Message>) -> Result<(), BoxError> {
        std::mem::forget(message);
        Err("it fails".into())
    }
}

#[test]
fn an_actor_whose_destructor_panics_has_failed_and_on_done_hears_of_it_once() {
    goes_on(|| {
        let failed = Arc::new(AtomicUsize::new(0));
        let told = Arc::clone(&failed);
        let options = ActorOptions::new().on_done(move |end| {
            told.fetch_add(
                if matches!(end, ActorEnd::Failed(_)) {
                    1
                } else {
                    100
                },
                Ordering::Relaxed,
            );
        });
        supervisor(|n| {
            n.actor(options, Nasty(PanicsOnDrop)).close();
            Ok(())
        })
        .unwrap();
        assert_eq!(failed.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn an_actor_that_panics_and_whose_destructor_does_too_ends_alone() {
    goes_on(|| {
        supervisor(|n| {
            let address = n.actor(ActorOptions::new(), Nasty(PanicsOnDrop));
            let _ = address.send(Message::Panic);
            Ok(())
        })
        .unwrap();
        // Under a supervisor its state is dropped in another place.
        let mut supervisor = Supervisor::new(Strategy::OneForOne);
        let address = supervisor.actor(ActorOptions::new(), RestartPolicy::Never, || {
            Nasty(PanicsOnDrop)
        });
        address.send(Message::Panic).unwrap();
        supervisor.run().unwrap();
    });
}

#[test]
fn messages_that_panic_when_they_are_dropped_do_not_keep_others_from_being_told() {
    goes_on(|| {
        let mut ends = 0;
        supervisor(|n| {
            let options = ActorOptions::new().on_done(|_| ends += 1);
            let address = n.actor(options, Fails);
            for _ in 0..4 {
                let _ = address
                    .try_send(Message::Nasty(PanicsOnDrop))
                    .map_err(std::mem::forget);
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(ends, 1);
    });
}

#[test]
fn a_supervisor_tells_all_of_its_actors_whatever_one_of_them_does() {
    goes_on(|| {
        let told = AtomicUsize::new(0);
        let mut supervisor = Supervisor::new(Strategy::OneForOne);
        let mut addresses = Vec::new();
        for _ in 0..3 {
            let options = ActorOptions::new().on_done(|_| {
                told.fetch_add(1, Ordering::Relaxed);
                panic!("a callback of the test panics");
            });
            addresses.push(supervisor.actor(options, RestartPolicy::Never, || Fails));
        }
        std::thread::scope(|threads| {
            for address in addresses {
                for _ in 0..3 {
                    let _ = address
                        .try_send(Message::Nasty(PanicsOnDrop))
                        .map_err(std::mem::forget);
                }
                // It is never answered: the actor forgets the first message and drops the others.
                threads.spawn(move || assert!(address.ask(Message::Question).is_err()));
            }
            supervisor.run().unwrap();
        });
        assert_eq!(told.load(Ordering::Relaxed), 3);
    });
}
