//! `join`: jobtree's, with rayon's promise that both closures run whatever happens.
//!
//! jobtree drops the second closure if the first one panics before anybody has taken it. Rayon runs
//! it, and programs count on that. So each closure's panic is caught here and brought back after both
//! have ended.

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{self, AssertUnwindSafe};

use jobtree_pool::Worker;

use crate::global;

/// What a closure of [`join_context`] is told.
#[derive(Debug)]
pub struct FnContext {
    migrated: bool,
    // As upstream: it says something about this thread, so it stays here.
    stays_on_its_thread: PhantomData<*mut ()>,
}

impl FnContext {
    #[inline]
    fn new(migrated: bool) -> FnContext {
        FnContext {
            migrated,
            stays_on_its_thread: PhantomData,
        }
    }

    /// Whether the closure runs on another thread than the one that called `join_context`.
    #[inline]
    pub fn migrated(&self) -> bool {
        self.migrated
    }
}

/// Runs both closures, possibly at the same time, and returns both results.
///
/// On a thread of a pool it forks there, elsewhere on the global pool. The second closure may be taken
/// by an idle thread.
///
/// ```
/// let (a, b) = rayon_core::join(|| 6 * 7, || "both");
/// assert_eq!((a, b), (42, "both"));
/// ```
///
/// What a closure returns or borrows has to be able to go to another thread:
///
/// ```compile_fail,E0277
/// let shared = std::rc::Rc::new(1);
/// rayon_core::join(|| *shared, || *shared);
/// ```
///
/// # Panics
/// If one of the closures does, after both have ended. If both do, with the panic of `oper_a`.
#[inline]
pub fn join<A, B, RA, RB>(oper_a: A, oper_b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    join_context(
        #[inline(always)]
        |_| oper_a(),
        #[inline(always)]
        |_| oper_b(),
    )
}

/// [`join`](join()) whose closures learn whether they run on another thread than the caller's.
///
/// ```
/// let pool = rayon_core::ThreadPoolBuilder::new().num_threads(1).build()?;
/// let moved = pool.install(|| rayon_core::join_context(|a| a.migrated(), |b| b.migrated()));
/// assert_eq!(moved, (false, false));
/// # Ok::<(), rayon_core::ThreadPoolBuildError>(())
/// ```
///
/// # Panics
/// As [`join`](join()).
#[inline]
pub fn join_context<A, B, RA, RB>(oper_a: A, oper_b: B) -> (RA, RB)
where
    A: FnOnce(FnContext) -> RA + Send,
    B: FnOnce(FnContext) -> RB + Send,
    RA: Send,
    RB: Send,
{
    if crate::current_thread_index().is_none() {
        return join_from_outside(oper_a, oper_b);
    }
    jobtree_pool::with_worker(
        #[inline(always)]
        |worker| join_on(worker, false, oper_a, oper_b),
    )
}

#[cold]
#[inline(never)]
fn join_from_outside<A, B, RA, RB>(oper_a: A, oper_b: B) -> (RA, RB)
where
    A: FnOnce(FnContext) -> RA + Send,
    B: FnOnce(FnContext) -> RB + Send,
    RA: Send,
    RB: Send,
{
    global::pool()
        .install(|| jobtree_pool::with_worker(|worker| join_on(worker, true, oper_a, oper_b)))
}

/// Forks on `worker`; `came_from_outside` means that the caller waits on another thread.
#[inline(always)]
fn join_on<A, B, RA, RB>(worker: &Worker, came_from_outside: bool, oper_a: A, oper_b: B) -> (RA, RB)
where
    A: FnOnce(FnContext) -> RA + Send,
    B: FnOnce(FnContext) -> RB + Send,
    RA: Send,
    RB: Send,
{
    let (a, b) = worker.join_context(
        #[inline(always)]
        |_, _| caught(|| oper_a(FnContext::new(came_from_outside))),
        #[inline(always)]
        |_, taken| caught(|| oper_b(FnContext::new(came_from_outside || taken))),
    );
    match (a, b) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(payload), _) | (Ok(_), Err(payload)) => resume(payload),
    }
}

#[inline(always)]
fn caught<R>(body: impl FnOnce() -> R) -> std::thread::Result<R> {
    // The panic goes on in `resume`, so nobody sees what it may have left half-done.
    panic::catch_unwind(AssertUnwindSafe(body))
}

#[cold]
#[inline(never)]
fn resume(payload: Box<dyn Any + Send>) -> ! {
    panic::resume_unwind(payload)
}
