//! The life of an actor: message after message, until there is none.

use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use jobtree_base::user_code::discard_payload;
use jobtree_pool::yield_now;
use jobtree_tree::{BoxError, Job, JobOptions};

use super::Actor;
use super::address::{About, Address};
use super::options::{ActorEnd, ActorOptions, OnDone};
use crate::channel::{Receiver, RecvError};
use crate::inline;

/// What an actor knows of itself while it handles a message.
pub struct ActorContext<'a, M> {
    mailbox: &'a Receiver<M>,
    about: &'a Arc<About>,
}

impl<M> ActorContext<'_, M> {
    /// The actor's own address, to be given to others. As long as it is kept, the mailbox stays open; so an actor
    /// that keeps its own address ends only by [`stop`](ActorContext::stop) or [`Address::close`]. If all other addresses
    /// are gone already, the mailbox is closed, and stays so.
    pub fn address(&self) -> Address<M> {
        Address::new(self.mailbox.new_sender(), Arc::clone(self.about))
    }

    /// Closes the mailbox: what is in it is handled, then the actor has completed.
    pub fn stop(&self) {
        self.mailbox.close();
    }

    /// How many messages wait.
    pub fn waiting(&self) -> usize {
        self.mailbox.len()
    }
}

impl<M> fmt::Debug for ActorContext<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActorContext")
            .field("mailbox", self.mailbox)
            .finish_non_exhaustive()
    }
}

/// Runs an actor until its mailbox is closed and empty, it fails, or the current job is cancelled. Says when it has been
/// started.
pub(crate) fn run<A: Actor>(
    actor: &mut A,
    mailbox: &Receiver<A::Message>,
    about: &Arc<About>,
    is_started: impl FnOnce(),
) -> Result<(), BoxError> {
    let context = ActorContext { mailbox, about };
    actor.started(&context)?;
    is_started();
    let served = serve(actor, &context);
    let stopped = actor.stopped(&context);
    served.and(stopped)
}

fn serve<A: Actor>(actor: &mut A, context: &ActorContext<'_, A::Message>) -> Result<(), BoxError> {
    loop {
        let message = match context.mailbox.recv() {
            Ok(message) => message,
            Err(RecvError::Closed) => return Ok(()),
            Err(cancelled) => return Err(cancelled.into()),
        };
        let unfinished = Unfinished(context.about);
        actor.handle(message, context)?;
        std::mem::forget(unfinished);
        yield_now();
    }
}

/// A message that counts as lost when this is dropped, which it is on the ways that end the actor.
struct Unfinished<'a>(&'a About);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.count_lost();
    }
}

/// An actor that is ready to be started.
pub(super) struct Prepared<M, F> {
    pub(super) label: Option<Cow<'static, str>>,
    pub(super) address: Address<M>,
    /// Of its job.
    pub(super) body: F,
}

/// Makes the mailbox of an actor, and the body of its job.
#[track_caller]
pub(super) fn prepare<'a, A>(
    options: ActorOptions<'a>,
    actor: A,
) -> Prepared<A::Message, impl FnOnce() -> Result<(), BoxError> + Send + use<'a, A>>
where
    A: Actor + 'a,
    A::Message: 'a,
{
    let opened = options.open();
    let about = Arc::new(About::default());
    let life = Life {
        actor,
        mailbox: opened.receiver,
        about: Arc::clone(&about),
        on_done: opened.on_done,
    };
    Prepared {
        label: opened.label,
        address: Address::new(opened.sender, about),
        body: move || life.live(),
    }
}

/// An actor that nobody will start again. The fields are dropped in this order: first the state goes, then nobody can
/// send any more, then somebody is told.
struct Life<'a, A: Actor> {
    actor: A,
    mailbox: Receiver<A::Message>,
    about: Arc<About>,
    on_done: OnDone<'a>,
}

impl<A: Actor> Life<'_, A> {
    fn live(mut self) -> Result<(), BoxError> {
        let Some(job) = Job::current() else {
            unreachable!("the body of a job runs in it");
        };
        // A job of its own, which has ended when somebody is told how: so what they are told is what came of it.
        let mut outcome = inline::run(&job, JobOptions::new().label("actor"), |_| {
            run(&mut self.actor, &self.mailbox, &self.about, || ())
        });
        // A destructor that panics is a failure of the actor, if it has not failed before; its end is told in any case.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(self.actor))) {
            let mut payload = Some(payload);
            outcome = outcome.and_then(|()| {
                inline::run(&job, JobOptions::new().label("actor"), |_| {
                    match payload.take() {
                        Some(payload) => resume_unwind(payload),
                        None => unreachable!("a body runs once"),
                    }
                })
            });
            payload.into_iter().for_each(discard_payload);
        }
        drop(self.mailbox);
        self.on_done.tell(ActorEnd::of(&outcome));
        Ok(outcome?)
    }
}
