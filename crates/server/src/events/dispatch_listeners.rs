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

#[cfg(test)]
mod tests {
    use jobtree_scheduler::Options;
    use jobtree_store::Store;

    use super::*;

    /// The numbers that the scheduler was told last, without those that are 0.
    fn counts(listeners: &DispatchListeners) -> Vec<(Option<AddonId>, u32)> {
        let counts = listeners.counts.lock().unwrap();
        let counts = counts.iter().map(|(addon, count)| (addon.clone(), *count));
        counts.collect()
    }

    #[test]
    fn an_addon_is_listened_for_until_its_last_listener_goes() {
        let scheduler = Scheduler::start(Store::in_memory(), Options::default());
        let listeners = DispatchListeners::new(scheduler);
        let photos: Option<AddonId> = Some("photos".parse().unwrap());
        let [first, second] = [(); 2].map(|()| listeners.listen(photos.clone()));
        let all = listeners.listen(None);
        assert_eq!(counts(&listeners), [(None, 1), (photos.clone(), 2)]);
        drop(first);
        assert_eq!(counts(&listeners), [(None, 1), (photos.clone(), 1)]);
        drop(all);
        assert_eq!(counts(&listeners), [(photos, 1)]);
        drop(second);
        assert_eq!(counts(&listeners), []);
    }
}
