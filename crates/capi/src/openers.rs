//! Which job's stack a scope runs on, if that is not the job above it.
//!
//! A scope that was opened under another job (jt_scope_in) still runs on the stack of the job that opened it, which
//! cannot end before the scope. In the tree the two do not belong together, so this remembers it: the function of the
//! scope cannot wait for that job.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use jobtree_runtime::{Job, JobId};

static OPENERS: LazyLock<Mutex<HashMap<JobId, Job>>> = LazyLock::new(Mutex::default);
/// How many there are: mostly none, and then the lock is not needed. A scope sees its own entry in any case, since it
/// was made on its own stack.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn lock() -> MutexGuard<'static, HashMap<JobId, Job>> {
    OPENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes that the current job is a scope on the stack of `opener`, until what is returned is dropped.
pub(crate) fn note(opener: Option<Job>) -> Option<Noted> {
    let scope = Job::current()?.id();
    let mut openers = lock();
    openers.insert(scope, opener?);
    COUNT.store(openers.len(), Ordering::Relaxed);
    Some(Noted(scope))
}

/// The job on whose stack the scope `job` runs, if that is not the job above it.
pub(crate) fn opener_of(job: &Job) -> Option<Job> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    lock().get(&job.id()).cloned()
}

/// See [`note`].
pub(crate) struct Noted(JobId);

impl Drop for Noted {
    fn drop(&mut self) {
        let mut openers = lock();
        let opener = openers.remove(&self.0);
        COUNT.store(openers.len(), Ordering::Relaxed);
        drop(openers);
        // The last handle to a job may drop what belongs to the program.
        drop(opener);
    }
}
