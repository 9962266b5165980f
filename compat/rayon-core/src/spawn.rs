//! Tasks that nobody waits for, and giving way to others.

use crate::global;

/// Runs `func` some time on the current pool, or the global one; nobody waits for it.
///
/// A panic goes to the pool's panic handler; without one the process aborts.
///
/// ```
/// let (sender, receiver) = std::sync::mpsc::channel();
/// rayon_core::spawn(move || sender.send(42).unwrap());
/// assert_eq!(receiver.recv()?, 42);
/// # Ok::<(), std::sync::mpsc::RecvError>(())
/// ```
pub fn spawn<F>(func: F)
where
    F: FnOnce() + Send + 'static,
{
    global::make_if_outside();
    jobtree_pool::spawn(func);
}

/// [`spawn`], but what one thread spawns so starts in the order of spawning.
pub fn spawn_fifo<F>(func: F)
where
    F: FnOnce() + Send + 'static,
{
    global::make_if_outside();
    jobtree_pool::spawn_fifo(func);
}

/// What came of giving way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yield {
    /// Something else has run.
    Executed,
    /// There was nothing to run.
    Idle,
}

impl Yield {
    pub(crate) fn from_pool(outcome: jobtree_pool::Yield) -> Yield {
        match outcome {
            jobtree_pool::Yield::Executed => Yield::Executed,
            jobtree_pool::Yield::Idle => Yield::Idle,
        }
    }
}

/// Lets something else run on this thread, if there is anything; `None` outside of every pool.
///
/// ```
/// use rayon_core::{ThreadPoolBuilder, Yield, yield_now};
///
/// let pool = ThreadPoolBuilder::new().num_threads(1).build()?;
/// assert_eq!(pool.install(yield_now), Some(Yield::Idle));
/// assert_eq!(yield_now(), None);
/// # Ok::<(), rayon_core::ThreadPoolBuildError>(())
/// ```
pub fn yield_now() -> Option<Yield> {
    jobtree_pool::yield_now().map(Yield::from_pool)
}

/// [`yield_now`], but only to this thread's own tasks.
pub fn yield_local() -> Option<Yield> {
    jobtree_pool::yield_local().map(Yield::from_pool)
}
