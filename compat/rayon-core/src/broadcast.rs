//! The same closure once on every thread.

use std::fmt;
use std::marker::PhantomData;

use crate::global;

/// Where a broadcast closure runs.
pub struct BroadcastContext<'a> {
    index: usize,
    num_threads: usize,
    // As upstream: neither sent nor shared, and good for this one call only.
    here: PhantomData<&'a mut dyn Fn()>,
}

impl<'a> BroadcastContext<'a> {
    pub(crate) fn new(context: &jobtree_pool::BroadcastContext<'a>) -> BroadcastContext<'a> {
        BroadcastContext {
            index: context.index(),
            num_threads: context.workers(),
            here: PhantomData,
        }
    }

    /// The number of the thread it runs on.
    #[inline]
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many threads it runs on.
    #[inline]
    pub fn num_threads(&self) -> usize {
        self.num_threads
    }
}

impl fmt::Debug for BroadcastContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BroadcastContext")
            .field("index", &self.index)
            .field("num_threads", &self.num_threads)
            .finish_non_exhaustive()
    }
}

/// Runs `op` once on every thread of the current pool, or the global one, and returns the results by
/// thread number.
///
/// ```
/// let indices = rayon_core::broadcast(|context| context.index());
/// assert!(indices.into_iter().eq(0..rayon_core::current_num_threads()));
/// ```
///
/// # Panics
/// If `op` does on any thread, after all have ended.
pub fn broadcast<OP, R>(op: OP) -> Vec<R>
where
    OP: Fn(BroadcastContext<'_>) -> R + Sync,
    R: Send,
{
    global::make_if_outside();
    jobtree_pool::broadcast(|context| op(BroadcastContext::new(&context)))
}

/// Runs `op` once on every thread of the current pool, or the global one, some time; nobody waits for
/// it.
///
/// ```
/// let (sender, receiver) = std::sync::mpsc::channel();
/// rayon_core::spawn_broadcast(move |context| sender.send(context.index()).unwrap());
/// assert_eq!(receiver.into_iter().count(), rayon_core::current_num_threads());
/// ```
pub fn spawn_broadcast<OP>(op: OP)
where
    OP: Fn(BroadcastContext<'_>) + Send + Sync + 'static,
{
    global::make_if_outside();
    jobtree_pool::spawn_broadcast(move |context| op(BroadcastContext::new(&context)));
}
