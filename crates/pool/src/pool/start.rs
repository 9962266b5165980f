//! The start and the end of worker threads.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use jobtree_base::user_code;

use super::builder::{BuildError, WorkerStart};
#[cfg(jobtree_stacks)]
use super::shared::Waits;
use super::shared::{IndexHandler, Shared};
use super::{Pool, adopted};
use crate::found::Work;
use crate::sync::Ordering;
use crate::worker::{Worker, WorkerThread};

/// Starts all threads of the pool; if one cannot be started, the others end again.
pub(super) fn start_workers(
    shared: Arc<Shared>,
    use_current_thread: bool,
    name: &dyn Fn(usize) -> String,
    spawn_with: Option<Box<dyn FnMut(WorkerStart) -> io::Result<()>>>,
) -> Result<Pool, BuildError> {
    let mut spawn = spawn_with.unwrap_or_else(|| Box::new(spawn_std_thread));
    let first_own_thread = usize::from(use_current_thread);
    if use_current_thread {
        adopted::adopt_current_thread(&shared);
    }
    let pool = Pool {
        own_threads: shared.workers.len() - first_own_thread,
        shared,
    };
    for index in first_own_thread..pool.shared.workers.len() {
        let name = name(index);
        if name.contains('\0') {
            return Err(BuildError::Name {
                worker: index,
                name,
            });
        }
        let start = WorkerStart {
            pool: pool.shared.clone(),
            index,
            name,
            ran: false,
        };
        // Dropping the half-made pool ends those that have started.
        spawn(start).map_err(BuildError::Thread)?;
        if pool.shared.never_started.load(Ordering::Relaxed) > 0 {
            return Err(BuildError::StartDropped { worker: index });
        }
    }
    Ok(pool)
}

fn spawn_std_thread(start: WorkerStart) -> io::Result<()> {
    std::thread::Builder::new()
        .name(start.name().to_owned())
        .stack_size(start.stack_size())
        .spawn(move || start.run())
        .map(drop)
}

/// The life of a worker thread.
pub(super) fn run_worker(start: &WorkerStart) {
    let thread = WorkerThread::new(start.pool.clone(), start.index);
    let pool = &start.pool;
    #[cfg(jobtree_stacks)]
    let _overflow_is_reported = {
        crate::stack::overflow::install_handler();
        crate::stack::overflow::ThreadGuard::new(start.name())
    };
    thread.enter(|strand| {
        call_handler(pool, pool.handlers.on_start.as_deref(), start.index);
        run_loops(&thread, Worker::of_strand(strand));
        thread.set_current(strand);
        call_handler(pool, pool.handlers.on_exit.as_deref(), start.index);
        run_what_is_left(&thread, Worker::of_strand(strand));
    });
    drop(thread);
    pool.worker_is_gone();
}

fn run_loops(thread: &WorkerThread, worker: &Worker) {
    #[cfg(jobtree_stacks)]
    if thread.pool.waits() != Waits::Nest && thread.run_hub().is_ok() {
        return;
    }
    // No stacks to park, or they shall not be: the loop runs right here, and waiting helps in place.
    thread.work_loop(worker, None);
}

/// Runs what the handler at the end has spawned: no other thread looks any more.
fn run_what_is_left(thread: &WorkerThread, worker: &Worker) {
    while let Some(found) = thread.find_work() {
        if !matches!(found.work(), Work::Ready(_)) {
            thread.execute(worker, found);
        }
    }
}

fn call_handler(pool: &Shared, handler: Option<&IndexHandler>, index: usize) {
    if let Some(handler) = handler
        && let Err(payload) = panic::catch_unwind(AssertUnwindSafe(|| handler(index)))
    {
        match pool.handlers.on_panic {
            Some(_) => pool.handle_panic(payload),
            None => user_code::record(user_code::Place::Handler, payload),
        }
    }
}
