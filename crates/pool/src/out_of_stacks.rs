//! The report of a pool that a stack was not to be had: to the layers above, once.
//!
//! A worker notices it in the middle of a wait, or between two tasks, where no code of the program's may run. So it only posts
//! a task, which calls the listeners.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

#[cfg(jobtree_stacks)]
use crate::pool::shared::Shared;
#[cfg(jobtree_stacks)]
use crate::spawn::spawn_unasked;

/// A layer above that wants to know of it.
pub trait OutOfStacks: Send + Sync {
    /// Called once, by a task of the pool, after the system has refused a stack for the first time.
    fn out_of_stacks(&self);
}

/// See the module's head.
#[derive(Default)]
pub(crate) struct Listeners {
    is_reported: AtomicBool,
    /// The listeners; those that are still there are called.
    all: Mutex<Vec<Weak<dyn OutOfStacks>>>,
}

impl Listeners {
    /// Has `listener` called; at once, if it has happened.
    pub(crate) fn add(&self, listener: &Arc<dyn OutOfStacks>) {
        {
            let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
            // Runtimes come and go on a pool that stays.
            all.retain(|listener| listener.strong_count() > 0);
            all.push(Arc::downgrade(listener));
            // Under the lock: who reports takes the list under it afterwards.
            if !self.is_reported.load(Ordering::Relaxed) {
                return;
            }
        }
        listener.out_of_stacks();
    }

    #[cfg(jobtree_stacks)]
    fn call(&self) {
        let all: Vec<_> = {
            let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
            self.is_reported.store(true, Ordering::Relaxed);
            all.iter().filter_map(Weak::upgrade).collect()
        };
        for listener in all {
            listener.out_of_stacks();
        }
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listeners").finish_non_exhaustive()
    }
}

/// Says that a stack was not to be had. Called by a worker of the pool.
#[cfg(jobtree_stacks)]
#[cold]
pub(crate) fn report(pool: &Arc<Shared>) {
    // A simulation has its stacks, and what runs in it is part of its trace.
    if pool.tuning.is_simulated || pool.posted_out_of_stacks.swap(true, Ordering::Relaxed) {
        return;
    }
    let told = Arc::clone(pool);
    spawn_unasked(pool, move || told.out_of_stacks.call());
}
