//! What is called when a job gets further or ends, and where.
//!
//! Nothing is lost: a callback that was to run on a lane runs on the thread that drops it, if the lane does not run it
//! any more. A callback that panics has panicked for itself alone, and so has the destructor of one that is never called:
//! both are recorded (`jobtree_base::user_code`).
//!
//! A job may be subscribed to after it was scheduled, and while it ends. The subscriber adds its callback and then looks whether the
//! job has ended; the end comes first and then looks for callbacks. Both pass a full fence in between, so one of them finds the
//! callback, and it is taken out under the lock, so it is called once.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};

use jobtree_base::user_code::{Place, call_user, drop_user};
use jobtree_base::user_owned::UserOwned;
use jobtree_runtime::JobError;

use crate::lane::Lane;
use crate::lock::lock;
use crate::progress::Progress;
use crate::shared::Shared;

/// The reports of progress of one job that wait for a lane, at most: a job may report faster than the lane is pumped. Picked by
/// feel: more than a frame can show, and little memory.
const MOST_WAITING: usize = 32;

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
    /// On a lane, when its turn comes; before all other jobs there. After the manager's shutdown inline. At most 32
    /// reports of a job's progress wait for the lane: further ones take the place of the newest.
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
    pub(crate) progress: Vec<OnProgress>,
    /// The reports that wait for their turn on a lane, oldest first.
    waiting: Arc<Mutex<VecDeque<Progress>>>,
    /// There until the job has ended.
    pub(crate) ends: Mutex<Ends>,
}

/// The callbacks for the end of a job, by its kind.
#[derive(Default)]
pub(crate) struct Ends {
    pub(crate) completed: Vec<Call>,
    pub(crate) cancelled: Vec<Call>,
    pub(crate) faulted: Vec<OnFaulted>,
}

impl CallbackSet {
    /// Takes the callbacks out, so that each is dropped without the lock.
    fn take_ends(&self) -> Ends {
        std::mem::take(&mut *lock(&self.ends))
    }

    pub(crate) fn completed(&self, shared: &Arc<Shared>) {
        for completed in std::mem::take(&mut self.take_ends().completed) {
            self.deliver(shared, completed);
        }
    }

    pub(crate) fn cancelled(&self, shared: &Arc<Shared>) {
        for cancelled in std::mem::take(&mut self.take_ends().cancelled) {
            self.deliver(shared, cancelled);
        }
    }

    pub(crate) fn faulted(&self, shared: &Arc<Shared>, error: JobError) {
        for faulted in std::mem::take(&mut self.take_ends().faulted) {
            let error = error.clone();
            self.deliver(shared, Box::new(move || faulted(&error)));
        }
        drop_user(Place::Error, error);
    }

    pub(crate) fn progress(&self, shared: &Arc<Shared>, progress: Progress) {
        if self.progress.is_empty() {
            return;
        }
        match self.place {
            Callbacks::Inline => tell_all(&self.progress, progress),
            Callbacks::Lane(_) => {
                if let Some(outdated) = self.wait_for_lane(progress) {
                    return drop_user(Place::Value, outdated);
                }
                let (callbacks, waiting) = (self.progress.clone(), Arc::clone(&self.waiting));
                let tell_oldest = move || {
                    let oldest = lock(&waiting).pop_front();
                    if let Some(oldest) = oldest {
                        tell_all(&callbacks, oldest);
                    }
                };
                self.deliver(shared, Box::new(tell_oldest));
            }
            Callbacks::Executor(_) => {
                let callbacks = self.progress.clone();
                self.deliver(shared, Box::new(move || tell_all(&callbacks, progress)));
            }
        }
    }

    /// Has a report wait for the lane. If as many wait as may, it takes the place of the newest, which is returned.
    fn wait_for_lane(&self, progress: Progress) -> Option<Progress> {
        let mut waiting = lock(&self.waiting);
        if waiting.len() < MOST_WAITING {
            waiting.push_back(progress);
            return None;
        }
        let newest = waiting.back_mut();
        newest.map(|newest| std::mem::replace(newest, progress))
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

/// Calls each of `callbacks` with `progress`.
fn tell_all(callbacks: &[OnProgress], progress: Progress) {
    for callback in callbacks {
        call_user(Place::Callback, || callback(&progress));
    }
    drop_user(Place::Value, progress);
}

impl Drop for Ends {
    fn drop(&mut self) {
        // Each alone, so that the panic of one destructor does not keep the others from running.
        let calls = self.completed.drain(..).chain(self.cancelled.drain(..));
        calls.for_each(|call| drop_user(Place::Captured, call));
        let faulted = self.faulted.drain(..);
        faulted.for_each(|call| drop_user(Place::Captured, call));
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
