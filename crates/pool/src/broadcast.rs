//! The same closure once on every worker.

use std::marker::PhantomData;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};

use jobtree_base::user_code::{Place, drop_user};

use crate::pool::shared::Shared;
use crate::raw::gate;
use crate::scope::{current_pool, in_place_scope_of};
use crate::spawn::detached;
use crate::worker::Worker;

/// Where a broadcast closure runs.
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

    /// How many workers it runs on.
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
    broadcast_on(&current_pool(), body)
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
    spawn_broadcast_on(&current_pool(), body);
}

pub(crate) fn broadcast_on<F, R>(pool: &Arc<Shared>, body: F) -> Vec<R>
where
    F: Fn(BroadcastContext<'_>) -> R + Sync,
    R: Send,
{
    let results: Vec<Mutex<Option<R>>> = pool.workers.iter().map(|_| Mutex::new(None)).collect();
    let (body, slots) = (&body, &results);
    let run = || {
        in_place_scope_of(pool, |scope| {
            scope.spawn_broadcast(move |_, context| {
                let result = body(context);
                *slots[context.sent_to]
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner) = Some(result);
            });
        });
    };
    if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(run)) {
        // One by one, and before the panic goes on: their destructors may panic, too.
        for result in results {
            drop_user(Place::Value, result);
        }
        panic::resume_unwind(payload);
    }
    results
        .into_iter()
        .map(|slot| {
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
