//! The same closure once on every worker.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use jobtree_base::user_owned::{UserOwned, UserVec};

use crate::pool::shared::Shared;
use crate::raw::gate;
use crate::scope::{current_pool, in_place_scope_of};
use crate::spawn::detached;
use crate::worker::Worker;

/// The place where a broadcast closure runs.
#[derive(Debug, Clone, Copy)]
pub struct BroadcastContext<'a> {
    index: usize,
    workers: usize,
    /// The worker that it was sent to: another one only if that has left its pool.
    pub(crate) sent_to: usize,
    here: PhantomData<&'a Worker>,
}

impl BroadcastContext<'_> {
    pub(crate) fn new(worker: &Worker, sent_to: usize) -> BroadcastContext<'_> {
        BroadcastContext {
            index: worker.index(),
            workers: worker.workers(),
            sent_to,
            here: PhantomData,
        }
    }

    /// The number of the worker it runs on.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the number of workers that the closure runs on.
    pub fn workers(&self) -> usize {
        self.workers
    }
}

/// Runs `body` once on every worker of the current pool, or the global one, and returns the results by
/// worker number.
///
/// ```
/// let indices = jobtree_pool::broadcast(|context| context.index());
/// assert!(indices.iter().enumerate().all(|(expected, index)| expected == *index));
/// ```
///
/// # Panics
/// If `body` does on any worker, after all have ended.
pub fn broadcast<F, R>(body: F) -> Vec<R>
where
    F: Fn(BroadcastContext<'_>) -> R + Sync,
    R: Send,
{
    let body = UserOwned::captured(body);
    let pool = current_pool();
    broadcast_on(&pool, body.into_inner())
}

/// Runs `body` once on every worker of the current pool, or the global one, some time.
///
/// ```
/// use std::sync::Arc;
/// use jobtree_pool::{CountLatch, Pool};
///
/// let pool = Pool::builder().workers(2).build()?;
/// let ran = Arc::new(CountLatch::new(2));
/// let latch = ran.clone();
/// pool.spawn_broadcast(move |_| latch.count_down());
/// ran.wait();
/// # Ok::<(), jobtree_pool::BuildError>(())
/// ```
pub fn spawn_broadcast<F>(body: F)
where
    F: Fn(BroadcastContext<'_>) + Send + Sync + 'static,
{
    let body = UserOwned::captured(body);
    let pool = current_pool();
    spawn_broadcast_on(&pool, body.into_inner());
}

pub(crate) fn broadcast_on<F, R>(pool: &Arc<Shared>, body: F) -> Vec<R>
where
    F: Fn(BroadcastContext<'_>) -> R + Sync,
    R: Send,
{
    let body = UserOwned::captured(body);
    let results = pool.workers.iter().map(|_| Mutex::new(None)).collect();
    // If one panics, the results of the others are dropped before the panic goes on.
    let mut results = UserVec::new(results);
    let (run, slots) = (&*body, &*results);
    in_place_scope_of(pool, |scope| {
        scope.spawn_broadcast(move |_, context| {
            let result = run(context);
            *slots[context.sent_to]
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = Some(result);
        });
    });
    results
        .drain(..)
        .map(|slot: Mutex<Option<R>>| {
            let result = slot.into_inner().unwrap_or_else(PoisonError::into_inner);
            result.expect("the scope has waited for every worker")
        })
        .collect()
}

pub(crate) fn spawn_broadcast_on<F>(pool: &Arc<Shared>, body: F)
where
    F: Fn(BroadcastContext<'_>) + Send + Sync + 'static,
{
    let workers = pool.workers.len();
    let body = UserOwned::captured(body);
    let Some(permit) = gate::admit_detached(workers) else {
        return;
    };
    let shared = Arc::new((body, permit));
    for index in 0..workers {
        let shared = shared.clone();
        let entry = detached::<F>(move |worker| {
            let (body, permit) = &*shared;
            gate::run_within(&**permit, || body(BroadcastContext::new(worker, index)));
        });
        pool.send(index, entry);
    }
}
