//! Whether the calling thread has work of its own waiting, whichever pool it belongs to.
//!
//! jobtree answers that for a given pool only, so this keeps a list of the pools there are. It is read
//! by one function that hardly anybody calls, and written when a pool is made.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use jobtree_pool::Pool;

use crate::global;

static POOLS: Mutex<Vec<Weak<Pool>>> = Mutex::new(Vec::new());

/// Adds a new pool to the list.
pub(crate) fn remember(pool: &Arc<Pool>) {
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    pools.retain(|known| known.strong_count() > 0);
    pools.push(Arc::downgrade(pool));
}

/// Whether the calling thread has forks or tasks of its own waiting; `None` outside of every pool.
///
/// ```
/// assert_eq!(rayon_core::current_thread_has_pending_tasks(), None);
/// let pool = rayon_core::ThreadPoolBuilder::new().num_threads(1).build()?;
/// let (before, after) = pool.install(|| {
///     let before = rayon_core::current_thread_has_pending_tasks();
///     rayon_core::spawn(|| ());
///     (before, rayon_core::current_thread_has_pending_tasks())
/// });
/// assert_eq!((before, after), (Some(false), Some(true)));
/// # Ok::<(), rayon_core::ThreadPoolBuildError>(())
/// ```
pub fn current_thread_has_pending_tasks() -> Option<bool> {
    crate::current_thread_index()?;
    let pools: Vec<_> = {
        let pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        pools.iter().filter_map(Weak::upgrade).collect()
    };
    pools
        .iter()
        .find_map(|pool| pool.current_worker_has_pending_tasks())
        .or_else(|| global::pool().current_worker_has_pending_tasks())
}
