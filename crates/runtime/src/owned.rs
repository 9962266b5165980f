//! A scope that is an object: for bindings to languages that have no closures to lend it to.
//!
//! It is open until it is closed, and closed it ends with its last job. Dropped open, it cancels what is in it and
//! waits, so that its owner cannot leave anything behind; unless the owner is a job inside, for which the scope itself would
//! wait: then the job above the scope ends after it, as after everything below. All of it works through a shared reference, since a
//! binding cannot keep two threads from using the same scope at once; closing happens once, whoever does it.

use std::error::Error;
use std::fmt;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};

use jobtree_tree::raw;
use jobtree_tree::{
    Body, BodyResult, Cause, Job, JobError, JobOptions, Outcome, ParentEnded, WaitingFor,
};

use crate::block::until_ready;
use crate::budget::{self, Lease, Opened, Refusal, Scope};
use crate::future;
use crate::inline::{self, ended_with};
use crate::runtime::{self, Place, runtime_of};

/// See the module's head.
#[derive(Debug)]
pub struct OwnedNursery {
    nursery: future::Nursery,
    /// The execution of the scope's job, and its lease on a budget; taken out when the scope is closed.
    execution: Mutex<Option<(Body, Option<Lease>)>>,
}

impl OwnedNursery {
    /// Opens a scope under the current job, or under the root of the global runtime.
    ///
    /// # Errors
    /// If that job has ended: with its cancellation.
    pub fn open(supervisor: bool) -> Outcome<OwnedNursery> {
        OwnedNursery::open_in(runtime::current(), supervisor)
    }

    /// Opens a scope under `parent`. `None` if that job has ended, or may not open one.
    pub fn open_under(parent: &Job, supervisor: bool) -> Option<OwnedNursery> {
        let runtime = runtime_of(parent)?;
        let parent = parent.clone();
        let opened = OwnedNursery::open_scope(Place { parent, runtime }, supervisor);
        opened.ok()?.ok()
    }

    pub(crate) fn open_in(place: Place, supervisor: bool) -> Outcome<OwnedNursery> {
        let parent = place.parent.clone();
        OwnedNursery::open_scope(place, supervisor)
            .unwrap_or_else(|ParentEnded| Err(JobError::Cancelled(ended_with(&parent))))
    }

    /// Opens a scope whose jobs come out of the budget of the job it is part of; directly under a root with limits, out
    /// of a budget of its own.
    fn open_scope(place: Place, supervisor: bool) -> Result<Outcome<OwnedNursery>, ParentEnded> {
        let mut options = JobOptions::new();
        if supervisor {
            options = options.supervisor();
        }
        let opened = Scope::open(&place.parent, &place.runtime.ground);
        OwnedNursery::attach(place, options, opened)
    }

    /// Opens a scope whose jobs come out of the budget around it. Without limits around it, each of its jobs has what the
    /// profile gives one under the root.
    pub(crate) fn open_with(place: Place, options: JobOptions) -> Outcome<OwnedNursery> {
        let opened = match budget::is_limited() || budget::of(&place.parent).is_some() {
            true => Scope::open(&place.parent, &place.runtime.ground),
            false => Ok(None),
        };
        let parent = place.parent.clone();
        OwnedNursery::attach(place, options, opened)
            .unwrap_or_else(|ParentEnded| Err(JobError::Cancelled(ended_with(&parent))))
    }

    fn attach(
        place: Place,
        options: JobOptions,
        opened: Result<Option<Opened>, Refusal>,
    ) -> Result<Outcome<OwnedNursery>, ParentEnded> {
        let options = options.contained().started();
        let options = match &opened {
            Ok(Some(opened)) => opened.install(options),
            _ => options,
        };
        let (job, execution) = place.parent.attach(options)?;
        let lease = match opened {
            Ok(opened) => opened.and_then(|opened| opened.lease),
            Err(refusal) => {
                execution.end(BodyResult::Failed(refusal.into()));
                return match job.error() {
                    Some(error) => Ok(Err(error)),
                    None => unreachable!("{job:?} has failed without an error"),
                };
            }
        };
        // Shared with all handles to the scope's job.
        let budgets = Scope::of(&job);
        Ok(Ok(OwnedNursery {
            nursery: future::Nursery::new(job, place.runtime, budgets),
            execution: Mutex::new(Some((execution, lease))),
        }))
    }

    /// What jobs are started with.
    pub fn nursery(&self) -> &future::Nursery {
        &self.nursery
    }

    /// The scope as a job.
    pub fn job(&self) -> &Job {
        self.nursery.job()
    }

    /// Closes the scope: it ends when its last job has, which may still start others in it. `false` if it was
    /// closed before.
    pub fn close(&self) -> bool {
        self.end(BodyResult::Value)
    }

    /// Cancels what is in the scope and closes it, without waiting: what runs in it ends by itself, and whatever is above
    /// the scope ends after it.
    pub fn abandon(&self) {
        self.job().cancel(Cause::Abandoned);
        self.end(BodyResult::Cancelled);
    }

    /// Closes the scope, waits for its end, and says what came of it. A cancellation of the calling job does not end the
    /// wait; a scope under that job is cancelled with it, and so ends soon.
    ///
    /// # Errors
    /// The first error of a job in it, or its cancellation. With [`WaitInside`] if the calling code is part of a job in the scope,
    /// or of the end of one: the scope ends after that code, and is closed now.
    pub fn wait(&self) -> Outcome<()> {
        self.close();
        if self.ends_after_caller() {
            return self.refuse_to_wait();
        }
        self.wait_for_end();
        match self.job().error() {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    fn end(&self, result: BodyResult) -> bool {
        let mut execution = self
            .execution
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let taken = execution.take();
        // Ending a job wakes others; nobody should find the lock taken.
        drop(execution);
        match taken {
            Some((execution, lease)) => {
                // Before the end, so that the budget is back when somebody sees it.
                drop(lease);
                execution.end(result);
                true
            }
            None => false,
        }
    }

    /// Returns `true` if the scope cannot end before the calling code has returned.
    fn ends_after_caller(&self) -> bool {
        let scope = self.job();
        if scope.is_ended() {
            return false;
        }
        let mut above = Job::current();
        while let Some(job) = above {
            if job == *scope {
                return true;
            }
            above = job.parent();
        }
        raw::is_part_of_end(scope)
    }

    #[cold]
    fn refuse_to_wait(&self) -> Outcome<()> {
        let refused = WaitInside {
            scope: self.job().path(),
        };
        let parent = runtime::current().parent;
        inline::run(&parent, JobOptions::new(), |_| Err(refused.into()))
    }

    fn wait_for_end(&self) {
        let job = self.job();
        if !job.is_ended() {
            job.begin_waiting(WaitingFor::Children);
            until_ready(pin!(job.ended()), Some(job.as_ptr()));
        }
    }
}

impl Drop for OwnedNursery {
    fn drop(&mut self) {
        let is_open = self
            .execution
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some();
        if is_open {
            self.abandon();
            if !self.ends_after_caller() {
                self.wait_for_end();
            }
        }
    }
}

/// The refusal of a wait for a scope by a job that is inside it.
#[derive(Clone, Debug)]
pub struct WaitInside {
    /// The path of the scope.
    scope: String,
}

impl fmt::Display for WaitInside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a job inside the scope {} waits for the end of that scope, which comes after the job's own; close the scope there, and \
             wait for it outside",
            self.scope
        )
    }
}

impl Error for WaitInside {}
