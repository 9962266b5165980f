//! What a supervisor can start, as often as it has to.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use jobtree_base::user_code::{Place, call_user, drop_user};
use jobtree_tree::{BoxError, Job};

use super::policy::RestartPolicy;
use crate::actor::{self, About, Actor, ActorEnd, OnDone};
use crate::channel::Receiver;

/// A child as it was described.
pub(super) struct Described<'a> {
    pub(super) name: Cow<'static, str>,
    pub(super) policy: RestartPolicy,
    pub(super) child: Box<dyn Child + 'a>,
}

/// What a description makes. One life is over before the next one begins.
pub(super) trait Child: Send + Sync {
    /// One life, in a job of its own. Calls `is_started` when the next child may be started.
    fn live(&self, is_started: &dyn Fn()) -> Result<(), BoxError>;

    /// A new life has begun in `job`.
    fn begun(&self, job: &Job);

    /// Whether another life would have anything to do.
    fn can_go_on(&self) -> bool;

    /// There will be no other life. May be called again, which does nothing.
    fn done(&self, end: ActorEnd);
}

/// A job that is a function.
pub(super) struct JobChild<F>(pub(super) F);

impl<F: Fn() -> Result<(), BoxError> + Send + Sync> Child for JobChild<F> {
    fn live(&self, is_started: &dyn Fn()) -> Result<(), BoxError> {
        is_started();
        (self.0)()
    }

    fn begun(&self, _: &Job) {}

    fn can_go_on(&self) -> bool {
        true
    }

    fn done(&self, _: ActorEnd) {}
}

/// An actor: each life has a new state, and all have one mailbox.
pub(super) struct ActorChild<'a, A: Actor, F> {
    pub(super) new: F,
    pub(super) mailbox: Receiver<A::Message>,
    pub(super) about: Arc<About>,
    pub(super) on_done: Mutex<Option<OnDone<'a>>>,
}

impl<A: Actor, F: Fn() -> A + Send + Sync> Child for ActorChild<'_, A, F> {
    fn live(&self, is_started: &dyn Fn()) -> Result<(), BoxError> {
        let mut actor = (self.new)();
        let run = || actor::run(&mut actor, &self.mailbox, &self.about, is_started);
        match catch_unwind(AssertUnwindSafe(run)) {
            // A destructor that panics is a failure, too.
            Ok(result) => {
                drop(actor);
                result
            }
            Err(payload) => {
                // While the thread panics, a second panic would end the process.
                drop_user(Place::Captured, actor);
                resume_unwind(payload)
            }
        }
    }

    fn begun(&self, job: &Job) {
        self.about.set_job(job);
    }

    fn can_go_on(&self) -> bool {
        !self.mailbox.is_closed() || !self.mailbox.is_empty()
    }

    fn done(&self, end: ActorEnd) {
        let on_done = {
            let mut on_done = self.on_done.lock().unwrap_or_else(PoisonError::into_inner);
            on_done.take()
        };
        let Some(on_done) = on_done else {
            return;
        };
        // What nobody will handle: whoever waits for an answer to it must be told.
        self.mailbox.close();
        while let Ok(message) = self.mailbox.try_recv() {
            drop_user(Place::Value, message);
        }
        // The other children are told, too, whatever this callback does.
        call_user(Place::Callback, || on_done.tell(end));
    }
}
