//! The programs that are told of dispatches while they listen: webhooks and event streams. The scheduler reserves for the job
//! types of their addons.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jobtree_protocol::AddonId;
use jobtree_scheduler::Scheduler;

/// Counts the listeners of each addon, and of all (`None`), and tells the scheduler.
pub struct DispatchListeners {
    scheduler: Scheduler,
    counts: Mutex<BTreeMap<Option<AddonId>, u32>>,
}

/// One listener. Dropped, it does not count any more.
pub struct DispatchListener {
    all: Arc<DispatchListeners>,
    addon: Option<AddonId>,
}

impl DispatchListeners {
    /// Makes the counter of a scheduler that knows no listeners.
    pub fn new(scheduler: Scheduler) -> Arc<Self> {
        Arc::new(Self {
            scheduler,
            counts: Mutex::default(),
        })
    }

    /// Counts a listener for dispatches of an addon, or of all.
    pub fn listen(self: &Arc<Self>, addon: Option<AddonId>) -> DispatchListener {
        self.change(addon.clone(), |count| *count += 1);
        DispatchListener {
            all: Arc::clone(self),
            addon,
        }
    }

    fn change(&self, addon: Option<AddonId>, change: impl FnOnce(&mut u32)) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(addon.clone()).or_default();
        change(count);
        let listeners = *count;
        if listeners == 0 {
            counts.remove(&addon);
        }
        // Under the lock, so that the scheduler hears of the numbers in their order.
        self.scheduler.set_listeners(addon, listeners);
    }
}

impl Drop for DispatchListener {
    fn drop(&mut self) {
        self.all.change(self.addon.take(), |count| *count -= 1);
    }
}
