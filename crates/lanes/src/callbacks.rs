//! What is called when a job gets further or ends, and where.
//!
//! Nothing is lost: a callback that was to run on a lane runs on the thread that drops it, if the lane does not run it
//! any more. A callback that panics has panicked for itself alone, and so has the destructor of one that is never called:
//! both are recorded (`jobtree_base::user_code`).

use std::fmt;
use std::sync::{Arc, Mutex};

use jobtree_base::user_code::{Place, call_user, drop_user};
use jobtree_base::user_owned::UserOwned;
use jobtree_runtime::JobError;

use crate::lane::Lane;
use crate::lock::lock;
use crate::progress::Progress;
use crate::shared::Shared;

/// Something to be called once.
pub type Call = Box<dyn FnOnce() + Send>;

/// Is told how far a job is.
pub(crate) type OnProgress = Arc<UserOwned<Box<dyn Fn(&Progress) + Send + Sync>>>;

/// Is told why a job failed.
type OnFaulted = Box<dyn FnOnce(&JobError) + Send>;

/// Where the callbacks of a job are called.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Callbacks {
    /// By the thread that ends the job, or takes it a step further.
    #[default]
    Inline,
    /// On a lane, when its turn comes; before all other jobs there. After the manager's shutdown inline.
    Lane(Lane),
    /// By whoever is given them: an event loop, another pool.
    Executor(Arc<dyn Fn(Call) + Send + Sync>),
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Callbacks::Inline => f.write_str("Inline"),
            Callbacks::Lane(lane) => f.debug_tuple("Lane").field(lane).finish(),
            Callbacks::Executor(_) => f.write_str("Executor(..)"),
        }
    }
}

/// The callbacks of a job.
#[derive(Default)]
pub(crate) struct CallbackSet {
    pub(crate) place: Callbacks,
    pub(crate) progress: Option<OnProgress>,
    /// There until the job has ended.
    pub(crate) ends: Mutex<Ends>,
}

/// What is called at the end: one of them.
#[derive(Default)]
pub(crate) struct Ends {
    pub(crate) completed: Option<Call>,
    pub(crate) cancelled: Option<Call>,
    pub(crate) faulted: Option<OnFaulted>,
}

impl CallbackSet {
    /// Takes the callbacks out, so that each is dropped without the lock.
    fn take_ends(&self) -> Ends {
        std::mem::take(&mut *lock(&self.ends))
    }

    pub(crate) fn completed(&self, shared: &Arc<Shared>) {
        if let Some(completed) = self.take_ends().completed.take() {
            self.deliver(shared, completed);
        }
    }

    pub(crate) fn cancelled(&self, shared: &Arc<Shared>) {
        if let Some(cancelled) = self.take_ends().cancelled.take() {
            self.deliver(shared, cancelled);
        }
    }

    pub(crate) fn faulted(&self, shared: &Arc<Shared>, error: JobError) {
        match self.take_ends().faulted.take() {
            Some(faulted) => self.deliver(shared, Box::new(move || faulted(&error))),
            None => drop_user(Place::Error, error),
        }
    }

    pub(crate) fn progress(&self, shared: &Arc<Shared>, progress: Progress) {
        let Some(callback) = &self.progress else {
            return;
        };
        match self.place {
            Callbacks::Inline => {
                call_user(Place::Callback, || callback(&progress));
                drop_user(Place::Value, progress);
            }
            _ => {
                let callback = Arc::clone(callback);
                self.deliver(shared, Box::new(move || callback(&progress)));
            }
        }
    }

    fn deliver(&self, shared: &Arc<Shared>, call: Call) {
        let call = Delivery(Some(call));
        match &self.place {
            Callbacks::Inline => drop(call),
            Callbacks::Lane(lane) => shared.run_aside(lane, move || drop(call)),
            Callbacks::Executor(executor) => {
                call_user(Place::Callback, || executor(Box::new(move || drop(call))));
            }
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        drop_user(Place::Captured, self.completed.take());
        drop_user(Place::Captured, self.cancelled.take());
        drop_user(Place::Captured, self.faulted.take());
    }
}

impl Drop for CallbackSet {
    fn drop(&mut self) {
        if let Callbacks::Executor(_) = self.place {
            drop_user(Place::Captured, std::mem::take(&mut self.place));
        }
    }
}

/// Is called when it is dropped, so that nobody can lose it.
struct Delivery(Option<Call>);

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            // It must not end the dispatch of a job.
            call_user(Place::Callback, call);
        }
    }
}
