//! A scope that is an object: for bindings to languages that have no closures to lend it to.
//!
//! It is open until it is waited for. Dropped without that, it cancels what is in it and waits: so whoever owns
//! one cannot leave anything behind.

use std::pin::pin;

use jobtree_tree::{
    Body, BodyResult, BoxError, Cause, Job, JobError, JobOptions, Outcome, WaitingFor,
};

use crate::block::until_ready;
use crate::future;
use crate::inline::ended_with;
use crate::runtime::{self, Place};

/// See the module's head.
#[derive(Debug)]
pub struct OwnedNursery {
    nursery: future::Nursery,
    /// There until it was waited for.
    execution: Option<Body>,
}

impl OwnedNursery {
    /// Opens a scope under the current job, or under the root of the global runtime.
    ///
    /// # Errors
    /// If that job has ended or is cancelled: with its cancellation.
    pub fn open(supervisor: bool) -> Outcome<OwnedNursery> {
        OwnedNursery::open_in(runtime::current(), supervisor)
    }

    pub(crate) fn open_in(place: Place, supervisor: bool) -> Outcome<OwnedNursery> {
        let mut options = JobOptions::new().contained().started();
        if supervisor {
            options = options.supervisor();
        }
        let Ok((job, execution)) = place.parent.attach(options) else {
            return Err(JobError::Cancelled(ended_with(&place.parent)));
        };
        Ok(OwnedNursery {
            nursery: future::Nursery::new(job, place.runtime),
            execution: Some(execution),
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

    /// Closes the scope: it ends when its last job has. Waits for that, and says what came of it.
    ///
    /// # Errors
    /// The first error of a job in it, or its cancellation.
    pub fn wait(mut self) -> Outcome<()> {
        self.close(BodyResult::Value);
        match self.job().error() {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    /// Closes the scope as failed with an error of its owner, and waits.
    ///
    /// # Errors
    /// Always.
    pub fn fail(mut self, error: BoxError) -> Outcome<()> {
        self.close(BodyResult::Failed(error));
        match self.job().error() {
            None => unreachable!("a scope that was failed has an error"),
            Some(error) => Err(error),
        }
    }

    fn close(&mut self, result: BodyResult) {
        let Some(execution) = self.execution.take() else {
            return;
        };
        execution.end(result);
        let job = self.job();
        if !job.is_ended() {
            job.begin_waiting(WaitingFor::Children);
            until_ready(pin!(job.ended()), Some(job.as_ptr()));
        }
    }
}

impl Drop for OwnedNursery {
    fn drop(&mut self) {
        if self.execution.is_some() {
            self.job().cancel(Cause::Abandoned.into());
            self.close(BodyResult::Cancelled);
        }
    }
}
