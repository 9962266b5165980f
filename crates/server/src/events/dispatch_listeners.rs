//! The programs that are told of dispatches while they listen: webhooks and event streams. The scheduler reserves for the job
//! types that they listen for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jobtree_queue::planner::ListenScope;
use jobtree_scheduler::Scheduler;

/// Counts the listeners of each scope, and tells the scheduler.
pub struct DispatchListeners {
    scheduler: Scheduler,
    counts: Mutex<BTreeMap<ListenScope, u32>>,
}

/// One listener. Dropped, it does not count any more.
pub struct DispatchListener {
    all: Arc<DispatchListeners>,
    scope: ListenScope,
}

impl DispatchListeners {
    /// Makes the counter of a scheduler that knows no listeners.
    pub fn new(scheduler: Scheduler) -> Arc<Self> {
        Arc::new(Self {
            scheduler,
            counts: Mutex::default(),
        })
    }

    /// Counts a listener for dispatches of these job types.
    pub fn listen(self: &Arc<Self>, scope: ListenScope) -> DispatchListener {
        self.change(scope.clone(), |count| *count += 1);
        DispatchListener {
            all: Arc::clone(self),
            scope,
        }
    }

    fn change(&self, scope: ListenScope, change: impl FnOnce(&mut u32)) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(scope.clone()).or_default();
        change(count);
        let listeners = *count;
        if listeners == 0 {
            counts.remove(&scope);
        }
        // Under the lock, so that the scheduler hears of the numbers in their order.
        self.scheduler.set_listeners(scope, listeners);
    }
}

impl Drop for DispatchListener {
    fn drop(&mut self) {
        let scope = std::mem::take(&mut self.scope);
        self.all.change(scope, |count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use jobtree_scheduler::Options;
    use jobtree_store::Store;

    use super::*;

    /// The numbers that the scheduler was told last, without those that are 0.
    fn counts(listeners: &DispatchListeners) -> Vec<(ListenScope, u32)> {
        let counts = listeners.counts.lock().unwrap();
        let counts = counts.iter().map(|(scope, count)| (scope.clone(), *count));
        counts.collect()
    }

    #[test]
    fn a_scope_is_listened_for_until_its_last_listener_goes() {
        let scheduler = Scheduler::start(Store::in_memory(), Options::default());
        let listeners = DispatchListeners::new(scheduler);
        let everything = ListenScope::default();
        let photos = ListenScope {
            addon: Some("photos".parse().unwrap()),
            job_type: None,
        };
        let indexing = ListenScope {
            job_type: Some("index".parse().unwrap()),
            ..photos.clone()
        };
        let [first, second] = [(); 2].map(|()| listeners.listen(photos.clone()));
        let all = listeners.listen(everything.clone());
        let one_type = listeners.listen(indexing.clone());
        assert_eq!(
            counts(&listeners),
            [
                (everything.clone(), 1),
                (photos.clone(), 2),
                (indexing.clone(), 1)
            ]
        );
        drop((first, one_type));
        assert_eq!(counts(&listeners), [(everything, 1), (photos.clone(), 1)]);
        drop(all);
        assert_eq!(counts(&listeners), [(photos, 1)]);
        drop(second);
        assert_eq!(counts(&listeners), []);
    }
}
