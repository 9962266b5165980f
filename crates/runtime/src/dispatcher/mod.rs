//! Where a job runs: on the workers, or on threads that may be blocked.
//!
//! A worker that waits inside of a system call or of foreign code does nothing else meanwhile, and there are only as many
//! as processors. Such work belongs on a [`Dispatcher`]'s threads. The jobs there are jobs like all others: they have a
//! place in the tree, are cancelled with it, may open nurseries, and may wait, which blocks only their thread.
//!
//! ```
//! use jobtree_runtime::{Dispatcher, nursery};
//!
//! // One at a time, while the calling stack is parked:
//! let text = Dispatcher::io().run(|| Ok(std::fs::read_to_string("/dev/null")?))?;
//! assert_eq!(text, "");
//!
//! // Several:
//! let lengths = nursery(|n| {
//!     let paths = ["/dev/null", "/dev/null"];
//!     let reads = paths.map(|path| {
//!         n.job_options().on(&Dispatcher::io()).spawn(move || Ok(std::fs::read(path)?.len()))
//!     });
//!     let mut lengths = Vec::new();
//!     for read in reads {
//!         lengths.push(read.join()?);
//!     }
//!     Ok(lengths)
//! })?;
//! assert_eq!(lengths, [0, 0]);
//! # Ok::<(), jobtree_runtime::JobError>(())
//! ```
//!
//! A job that is cancelled while it waits for a thread never runs, and ends without one. A job that runs is asked to end,
//! and does so when it next looks: nothing can stop a thread in a system call.
//!
//! If the system has no room for a further thread, jobs of [`Dispatcher::io`] wait for the threads that are there; if there
//! are none, they run on the workers, of which they block at most all. The runtime says so in
//! [`Statistics::blocking_thread_failures`](crate::budget::Statistics::blocking_thread_failures), by an event
//! [`Degraded`](crate::EventKind::Degraded) and in [`dump_tree`](crate::Runtime::dump_tree); each further job tries to start
//! a thread again. A dispatcher with threads of its own has all of them from the start.

mod job;
mod load;
mod route;
mod spawner;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use jobtree_pool::raw::BlockingThreads;
use jobtree_pool::raw::task::RawContext;
use jobtree_tree::{BoxError, Job, JobOptions, Outcome, ParentEnded, WaitingFor};

use crate::block::{Either, FirstOf, unless_cancelled};
use crate::budget::{Executor, ExecutorRefused, may_use_executor};
use crate::deadline::Sleep;
use crate::nursery::open;
use crate::runtime::{self, Inner};
use crate::task::Spawned;
use crate::timers::Timer;
use load::Load;

pub use load::DrainError;
pub(crate) use route::{Blocking, Route};
pub use spawner::DispatchedSpawner;

/// Where jobs run; see the [module](self). Clones are the same dispatcher.
#[derive(Clone)]
pub struct Dispatcher {
    target: Target,
}

#[derive(Clone)]
enum Target {
    /// The workers of whichever runtime the job belongs to.
    Workers,
    /// The blocking threads of whichever runtime the job belongs to.
    Io,
    Own(Arc<Queue>),
}

/// Threads, and what is to be done on them.
pub(crate) struct Queue {
    threads: BlockingThreads,
    load: Arc<Load>,
}

/// What a target is in a given runtime.
enum Place<'a> {
    Workers(&'a Arc<Load>),
    Queue(&'a Queue),
}

impl Default for Dispatcher {
    /// The workers of the runtime that the job belongs to: where jobs run that name no dispatcher.
    fn default() -> Dispatcher {
        Dispatcher {
            target: Target::Workers,
        }
    }
}

impl Dispatcher {
    /// The blocking threads of the runtime that the job belongs to. They come when they are needed, up to a limit
    /// ([`RuntimeBuilder::blocking_threads`](crate::RuntimeBuilder::blocking_threads)), and go when they have had
    /// nothing to do for some seconds. What finds no thread waits its turn.
    pub fn io() -> Dispatcher {
        Dispatcher { target: Target::Io }
    }

    /// The most threads that a dispatcher can have. They are all started at once, and a process that has used up the
    /// system's threads and mappings cannot even report it.
    pub const MOST_THREADS: usize = 4096;

    /// A dispatcher with `threads` threads of its own: for what must not wait for others, or must not run more often at
    /// once. They end when the last clone is dropped and everything on them has ended.
    ///
    /// ```
    /// use jobtree_runtime::Dispatcher;
    ///
    /// // One connection, one thread: what runs there never runs twice at once.
    /// let database = Dispatcher::new(1)?;
    /// assert_eq!(database.run(|| Ok(6 * 7)).unwrap(), 42);
    /// # Ok::<(), jobtree_runtime::DispatcherError>(())
    /// ```
    ///
    /// # Errors
    /// If `threads` is 0 or more than [`MOST_THREADS`](Dispatcher::MOST_THREADS), or the system does not have that many. If the current job may not have threads of its own
    /// ([`Executor::Threaded`]).
    pub fn new(threads: usize) -> Result<Dispatcher, DispatcherError> {
        if threads == 0 {
            return Err(DispatcherError::NoThreads);
        }
        if threads > Dispatcher::MOST_THREADS {
            return Err(DispatcherError::TooManyThreads);
        }
        may_use_executor(Executor::Threaded).map_err(DispatcherError::Refused)?;
        let carriers = route::carriers_here("jobtree-own");
        let threads = BlockingThreads::new(threads, None, carriers);
        threads.start_all().map_err(DispatcherError::Thread)?;
        Ok(Dispatcher {
            target: Target::Own(Arc::new(Queue::new(threads))),
        })
    }

    /// Runs `body` there as a job under the current one, and returns what came of it. The calling stack is parked
    /// meanwhile. If the calling thread is one of the dispatcher's own, the body runs right there.
    ///
    /// So a job on the dispatcher may call it in its own code. But one that waits in another way for a job on the same dispatcher (by
    /// [`on`](crate::Spawner::on), in a fork that a worker runs, or through a second dispatcher whose jobs come back to this one)
    /// needs a further thread there. If all threads wait so, none of them goes on: give such jobs a dispatcher of their own.
    ///
    /// # Errors
    /// If the body fails, panics, or is cancelled. If the calling job is cancelled, the body is asked to end; the call
    /// returns, with that cancellation, when it has.
    pub fn run<F, T>(&self, body: F) -> Outcome<T>
    where
        F: FnOnce() -> Result<T, BoxError> + Send,
        T: Send,
    {
        let place = runtime::current();
        // A thread that waited for itself would wait for ever, if all others of the dispatcher do, too.
        let is_here = self
            .queue(&place.runtime)
            .is_some_and(|queue| queue.threads.carries_caller());
        match is_here {
            true => open(place, JobOptions::new(), |_| body()),
            false => open(place, JobOptions::new(), |n| {
                Ok(n.job_options().on(self).spawn(body).join()?)
            }),
        }
    }

    /// Waits until nothing that was started on it by [`run`](Dispatcher::run) or [`on`](crate::Spawner::on) is waiting
    /// or running there any more; what is started meanwhile counts, too. For [`default`](Dispatcher::default) and
    /// [`io`](Dispatcher::io): of the current runtime.
    ///
    /// ```
    /// use std::time::Duration;
    /// use jobtree_runtime::{Dispatcher, nursery};
    ///
    /// let writer = Dispatcher::new(1)?;
    /// nursery(|n| {
    ///     n.job_options().on(&writer).launch(|| Ok(()));
    ///     writer.drain(Duration::from_secs(60))?;
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If `limit` was over first: with the paths of what is left. A job that runs on the dispatcher waits for itself, and
    /// gets no other answer. If the current job is cancelled.
    pub fn drain(&self, limit: Duration) -> Result<(), DrainError> {
        let runtime = runtime::current().runtime;
        let load = match self.place(&runtime) {
            Place::Workers(load) => load,
            Place::Queue(queue) => &queue.load,
        };
        let patience = Sleep::new(runtime.timers.clone(), limit);
        match unless_cancelled(FirstOf(load.empty(), patience), WaitingFor::Future) {
            Ok(Either::First(())) => Ok(()),
            Ok(Either::Second(())) => Err(DrainError::TimedOut { left: load.paths() }),
            Err(cancelled) => Err(DrainError::Cancelled(cancelled)),
        }
    }

    /// The threads that it is in a given runtime; `None` if it is that runtime's workers.
    pub(crate) fn queue<'a>(&'a self, runtime: &'a Inner) -> Option<&'a Queue> {
        match self.place(runtime) {
            Place::Workers(_) => None,
            Place::Queue(queue) => Some(queue),
        }
    }

    /// Ends its threads, if they are its own and nobody will use it any more, as soon as they have nothing left to do;
    /// `false` if `limit` was over first.
    pub(crate) fn end_threads(&self, limit: Duration) -> bool {
        match &self.target {
            Target::Workers | Target::Io => true,
            Target::Own(queue) => {
                queue.threads.close();
                queue.threads.wait_until_gone(limit)
            }
        }
    }

    fn place<'a>(&'a self, runtime: &'a Inner) -> Place<'a> {
        match &self.target {
            Target::Workers => Place::Workers(runtime.blocking.workers_load()),
            Target::Io => Place::Queue(runtime.blocking.io(runtime.pool())),
            Target::Own(queue) => Place::Queue(queue),
        }
    }
}

/// Makes a job under `parent` that runs on the threads of `queue`. It belongs to no frame, and so to no isolation.
pub(crate) fn spawn_on<F, T>(
    queue: &Queue,
    parent: &Job,
    options: JobOptions,
    runtime: &Inner,
    timer: impl FnOnce(&Job) -> Option<Timer>,
    body: F,
) -> Result<Spawned<T>, ParentEnded>
where
    F: FnOnce() -> Result<T, BoxError> + Send + 'static,
    T: Send + 'static,
{
    // SAFETY: neither the body nor its value borrows anything.
    unsafe {
        job::spawn(
            parent,
            options,
            runtime,
            queue,
            RawContext::outermost(),
            timer,
            body,
        )
    }
}

impl Queue {
    fn new(threads: BlockingThreads) -> Queue {
        Queue {
            threads,
            load: Arc::default(),
        }
    }
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Target::Workers => f.write_str("Dispatcher::default"),
            Target::Io => f.write_str("Dispatcher::io"),
            Target::Own(queue) => f.debug_tuple("Dispatcher").field(&queue.threads).finish(),
        }
    }
}

/// Why there is no dispatcher.
#[derive(Debug)]
#[non_exhaustive]
pub enum DispatcherError {
    /// None were asked for.
    NoThreads,
    /// More than [`Dispatcher::MOST_THREADS`] were asked for.
    TooManyThreads,
    /// A thread could not be started.
    Thread(io::Error),
    /// The current job may not have threads of its own.
    Refused(ExecutorRefused),
}

impl fmt::Display for DispatcherError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DispatcherError::NoThreads => f.write_str(
                "a dispatcher without threads would never run anything; ask for at least one thread",
            ),
            DispatcherError::TooManyThreads => write!(
                f,
                "a dispatcher has at most {} threads; ask for fewer, or make several",
                Dispatcher::MOST_THREADS
            ),
            DispatcherError::Thread(error) => write!(
                f,
                "a thread of a dispatcher could not be started ({error}); ask for fewer, or raise the limit of threads"
            ),
            DispatcherError::Refused(refused) => write!(f, "the dispatcher was not made: {refused}"),
        }
    }
}

impl std::error::Error for DispatcherError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            DispatcherError::NoThreads | DispatcherError::TooManyThreads => None,
            DispatcherError::Thread(error) => Some(error),
            DispatcherError::Refused(refused) => Some(refused),
        }
    }
}
