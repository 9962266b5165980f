//! A scope that is an object: for bindings to languages that have no closures to lend it to.
//!
//! It is open until it is closed, and closed it ends with its last job. Dropped open, it cancels what is in it and
//! waits: so whoever owns one cannot leave anything behind. All of it works through a shared reference, since a
//! binding cannot keep two threads from using the same scope at once; closing happens once, whoever does it.

use std::pin::pin;
use std::sync::{Mutex, PoisonError};

use jobtree_tree::{Body, BodyResult, Cause, Job, JobError, JobOptions, Outcome, WaitingFor};

use crate::block::until_ready;
use crate::future;
use crate::inline::ended_with;
use crate::runtime::{self, Place};

/// See the module's head.
#[derive(Debug)]
pub struct OwnedNursery {
    nursery: future::Nursery,
    /// There until it is closed.
    execution: Mutex<Option<Body>>,
}

impl OwnedNursery {
    /// Opens a scope under the current job, or under the root of the global runtime.
    ///
    /// # Errors
    /// If that job has ended: with its cancellation.
    pub fn open(supervisor: bool) -> Outcome<OwnedNursery> {
        OwnedNursery::open_in(runtime::current(), supervisor)
    }

    pub(crate) fn open_in(place: Place, supervisor: bool) -> Outcome<OwnedNursery> {
        let options = JobOptions::new();
        OwnedNursery::open_with(
            place,
            match supervisor {
                true => options.supervisor(),
                false => options,
            },
        )
    }

    pub(crate) fn open_with(place: Place, options: JobOptions) -> Outcome<OwnedNursery> {
        let options = options.contained().started();
        let Ok((job, execution)) = place.parent.attach(options) else {
            return Err(JobError::Cancelled(ended_with(&place.parent)));
        };
        Ok(OwnedNursery {
            nursery: future::Nursery::new(job, place.runtime),
            execution: Mutex::new(Some(execution)),
        })
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
        self.job().cancel(Cause::Abandoned.into());
        self.end(BodyResult::Cancelled);
    }

    /// Closes the scope, waits for its end, and says what came of it. A cancellation of the calling job does not end the
    /// wait; a scope under that job is cancelled with it, and so ends soon.
    ///
    /// # Errors
    /// The first error of a job in it, or its cancellation.
    pub fn wait(&self) -> Outcome<()> {
        self.close();
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
            Some(execution) => {
                execution.end(result);
                true
            }
            None => false,
        }
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
            self.wait_for_end();
        }
    }
}
