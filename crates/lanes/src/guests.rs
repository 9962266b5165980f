//! Jobs of the manager that are below jobs which are none of its own.
//!
//! The manager's own jobs are all below one of its own, its scope: cancelling that one cancels them, and its end is
//! theirs. Guests are elsewhere in the tree, so the manager has to know each, to end them when it is shut down.

use std::collections::BTreeMap;
use std::sync::Mutex;

use jobtree_runtime::{Job, JobId};

use crate::lock::lock;

/// Those that have not ended.
#[derive(Default)]
pub(crate) struct Guests(Mutex<BTreeMap<JobId, Job>>);

impl Guests {
    /// One was made, and nobody has run it yet: so it comes before it leaves.
    pub(crate) fn comes(&self, guest: &Job) {
        lock(&self.0).insert(guest.id(), guest.clone());
    }

    /// It has ended.
    pub(crate) fn leaves(&self, guest: &Job) {
        let left = lock(&self.0).remove(&guest.id());
        // Not under the lock: it may be the last handle.
        drop(left);
    }

    pub(crate) fn all(&self) -> Vec<Job> {
        lock(&self.0).values().cloned().collect()
    }
}
