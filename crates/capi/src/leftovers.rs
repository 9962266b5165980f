//! Nurseries that a job has made and not destroyed yet.
//!
//! A nursery is under the job that made it, which cannot end before it. In Rust the compiler sees to it that a scope is
//! closed; here, whoever runs a task asks for what it left open, when its function has returned.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use jobtree_runtime::JobId;

type ByOwner = HashMap<JobId, Vec<u64>>;

static OPEN: LazyLock<Mutex<ByOwner>> = LazyLock::new(Mutex::default);
/// How many owners there are: mostly none, and then nobody needs the lock. An owner sees its own notes in any case,
/// since it is one job that makes them and asks for them.
static OWNERS: AtomicUsize = AtomicUsize::new(0);

fn lock() -> MutexGuard<'static, ByOwner> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `owner` has made the nursery with this handle.
pub(crate) fn note(owner: JobId, nursery: u64) {
    let mut open = lock();
    open.entry(owner).or_default().push(nursery);
    OWNERS.store(open.len(), Ordering::Relaxed);
}

/// The nursery was destroyed.
pub(crate) fn strike(owner: JobId, nursery: u64) {
    let mut open = lock();
    if let Some(nurseries) = open.get_mut(&owner) {
        nurseries.retain(|other| *other != nursery);
        if nurseries.is_empty() {
            open.remove(&owner);
        }
    }
    OWNERS.store(open.len(), Ordering::Relaxed);
}

/// What `owner` has left open, the newest last.
pub(crate) fn take(owner: JobId) -> Vec<u64> {
    if OWNERS.load(Ordering::Relaxed) == 0 {
        return Vec::new();
    }
    let mut open = lock();
    let left = open.remove(&owner).unwrap_or_default();
    OWNERS.store(open.len(), Ordering::Relaxed);
    left
}

/// All handles are stale.
pub(crate) fn clear() {
    let mut open = lock();
    open.clear();
    OWNERS.store(0, Ordering::Relaxed);
}
