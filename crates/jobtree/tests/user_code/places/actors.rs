//! Actors and supervisors: handlers, factories, callbacks, and what they own.

use std::sync::Arc;
use std::time::Duration;

use jobtree::actor::{Actor, ActorContext, ActorOptions, Reply, from_fn};
use jobtree::supervision::{Backoff, RestartPolicy, Strategy, Supervisor};
use jobtree::{BoxError, nursery};

use crate::place::Place;
use crate::stage::{OnDrop, Stage};

pub const PLACES: &[Place] = &[
    Place::new("actor/started", |stage| actor(stage, Step::Started)),
    Place::new("actor/handle", |stage| actor(stage, Step::Handle)),
    Place::new("actor/stopped", |stage| actor(stage, Step::Stopped)),
    Place::new("actor/on-done", on_done),
    Place::new("actor/on-done-never-started", on_done_never_started),
    Place::new("actor/captured-by-on-done", captured_by_on_done),
    Place::new("actor/dropped-state", dropped_state),
    Place::new("actor/dropped-message", dropped_message),
    Place::new("actor/dropped-reply", dropped_reply),
    Place::new("actor/made-question", made_question),
    Place::new("actor/answered-after-asker-left", answered_late),
    Place::new("supervision/child", child),
    Place::new("supervision/restarted-child", restarted_child),
    Place::new("supervision/on-restart", on_restart),
    Place::new("supervision/actor-factory", actor_factory),
    Place::new("supervision/restarted-actor", restarted_actor),
    Place::new("supervision/captured-by-child", captured_by_child),
    Place::new("supervision/captured-never-run", captured_never_run),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Started,
    Handle,
    Stopped,
}

struct Acting {
    stage: Arc<Stage>,
    step: Step,
}

impl Acting {
    fn at(&self, step: Step, context: &ActorContext<'_, u32>) {
        if self.step == step {
            let address = context.address();
            // Whatever the cell is about, it also calls its own actor.
            let _ = (
                context.waiting(),
                address.len(),
                address.stats(),
                address.try_send(7),
            );
            self.stage.act();
        }
    }
}

impl Actor for Acting {
    type Message = u32;

    fn started(&mut self, context: &ActorContext<'_, u32>) -> Result<(), BoxError> {
        Ok(self.at(Step::Started, context))
    }

    fn handle(&mut self, _: u32, context: &ActorContext<'_, u32>) -> Result<(), BoxError> {
        Ok(self.at(Step::Handle, context))
    }

    fn stopped(&mut self, context: &ActorContext<'_, u32>) -> Result<(), BoxError> {
        Ok(self.at(Step::Stopped, context))
    }
}

fn actor(stage: &Arc<Stage>, step: Step) {
    let user = stage.clone();
    let handle = stage.in_job(move || {
        nursery(|n| {
            let acting = Acting {
                stage: user.clone(),
                step,
            };
            let address = n.actor(ActorOptions::new().label("acting"), acting);
            let _ = address.send(1);
            Ok(())
        })?;
        Ok(())
    });
    stage.check_body(handle.join());
}

/// Runs `body` in a job; user code that panics may fail it or not.
fn in_job(
    stage: &Arc<Stage>,
    body: impl FnOnce(&Arc<Stage>) -> Result<(), BoxError> + Send + 'static,
) {
    let user = stage.clone();
    let handle = stage.in_job(move || body(&user));
    stage.contain(|| drop(handle.join()));
    stage.until_acted();
}

fn on_done(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        nursery(|n| {
            let options = ActorOptions::new().on_done(|_| stage.act());
            let address = n.actor(options, from_fn(|_: u32, _| Ok(())));
            let _ = address.send(1);
            Ok(())
        })?;
        Ok(())
    });
}

fn on_done_never_started(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        drop(nursery(|n| {
            n.cancel("before it is started");
            let options = ActorOptions::new().on_done(|_| stage.act());
            drop(n.actor(options, from_fn(|_: u32, _| Ok(()))));
            Ok(())
        }));
        Ok(())
    });
}

fn captured_by_on_done(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        nursery(|n| {
            let value = stage.on_drop();
            let options = ActorOptions::new().on_done(move |_| drop(value));
            drop(n.actor(options, from_fn(|_: u32, _| Ok(()))));
            Ok(())
        })?;
        Ok(())
    });
}

fn dropped_state(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        nursery(|n| {
            let value = stage.on_drop();
            let state = from_fn(move |_: u32, _| {
                let _ = &value;
                Ok(())
            });
            let _ = n.actor(ActorOptions::new(), state).send(1);
            Ok(())
        })?;
        Ok(())
    });
}

fn dropped_message(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        drop(nursery(|n| {
            let address = n.actor(
                ActorOptions::new(),
                from_fn(|message: Option<OnDrop>, _| match message {
                    None => Err("fails, with a message in the mailbox".into()),
                    Some(_) => Ok(()),
                }),
            );
            let _ = address.send(None);
            let _ = address.try_send(Some(stage.on_drop()));
            Ok(())
        }));
        Ok(())
    });
}

fn dropped_reply(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        nursery(|n| {
            // The actor forgets to answer, and drops the question.
            let address = n.actor(
                ActorOptions::new(),
                from_fn(|question: (Reply<u32>, OnDrop), _| Ok(drop(question))),
            );
            let answer = address.ask(|reply| (reply, stage.on_drop()));
            assert!(answer.is_err());
            Ok(())
        })?;
        Ok(())
    });
}

fn made_question(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        nursery(|n| {
            let address = n.actor(
                ActorOptions::new(),
                from_fn(|reply: Reply<u32>, _| {
                    reply.send(1);
                    Ok(())
                }),
            );
            let answer = address.ask(|reply| {
                stage.act();
                reply
            });
            Ok(drop(answer))
        })?;
        Ok(())
    });
}

fn answered_late(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        nursery(|n| {
            let address = n.actor(
                ActorOptions::new(),
                from_fn(|reply: Reply<OnDrop>, _| {
                    jobtree::sleep(Duration::from_millis(3))?;
                    reply.send(stage.on_drop());
                    Ok(())
                }),
            );
            let answer = address.ask_timeout(|reply| reply, Duration::from_millis(1));
            // On a busy machine the answer may come in time.
            Ok(drop(answer))
        })?;
        Ok(())
    });
}

/// A supervisor that restarts once.
fn once<'a>() -> Supervisor<'a> {
    let supervisor = Supervisor::new(Strategy::OneForOne);
    let supervisor = supervisor.max_restarts(1, Duration::from_secs(60));
    supervisor.backoff(Backoff::constant(Duration::from_millis(1)))
}

fn child(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        let mut supervisor = once();
        supervisor.job("child", RestartPolicy::OnFailure, || Ok(stage.act()));
        Ok(supervisor.run()?)
    });
}

fn restarted_child(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        let mut supervisor = once();
        let lives = std::sync::atomic::AtomicUsize::new(0);
        supervisor.job("child", RestartPolicy::OnFailure, || {
            if lives.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 {
                return Err("the first life".into());
            }
            Ok(stage.act())
        });
        Ok(supervisor.run()?)
    });
}

fn on_restart(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        let mut supervisor = once().on_restart(|_| stage.act());
        supervisor.job("child", RestartPolicy::OnFailure, || Err("again".into()));
        Ok(supervisor.run()?)
    });
}

fn actor_factory(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        let mut supervisor = once();
        let address = supervisor.actor(ActorOptions::new(), RestartPolicy::OnFailure, || {
            stage.act();
            from_fn(|_: u32, _| Ok(()))
        });
        drop(address);
        Ok(supervisor.run()?)
    });
}

fn restarted_actor(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        let mut supervisor = once();
        let address = supervisor.actor(ActorOptions::new(), RestartPolicy::OnFailure, || {
            let value = stage.on_drop();
            from_fn(move |_: u32, _| {
                let _ = &value;
                Err("again".into())
            })
        });
        let _ = (address.try_send(1), address.try_send(2));
        drop(address);
        Ok(supervisor.run()?)
    });
}

fn captured_by_child(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        let mut supervisor = once();
        let value = stage.on_drop();
        supervisor.job("child", RestartPolicy::OnFailure, move || {
            let _ = &value;
            Ok(())
        });
        Ok(supervisor.run()?)
    });
}

fn captured_never_run(stage: &Arc<Stage>) {
    in_job(stage, |stage| {
        let mut supervisor = once();
        let value = stage.on_drop();
        supervisor.job("child", RestartPolicy::OnFailure, move || {
            let _ = &value;
            Ok(())
        });
        drop(supervisor);
        Ok(())
    });
}
