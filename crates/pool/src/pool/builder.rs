//! The description of a pool, and what can be wrong with it.

use std::any::Any;
use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;

use super::shared::{Handlers, Shared, Waits};
use super::{GLOBAL, Pool, start};
use crate::raw::gate;
use crate::sim;
use crate::sleep::MAX_WORKERS;
use crate::stack::{self, StackError};
use crate::sync::Ordering;
use crate::worker::Worker;

/// Names of a variable: ours, and the one that older deployments set.
const WORKERS_VARIABLES: [&str; 2] = ["JOBTREE_WORKERS", "XR_JOB_WORKERS"];
const WORKER_CAP_VARIABLES: [&str; 2] = ["JOBTREE_WORKER_CAP", "XR_JOB_WORKER_CAP"];

type NameWorker = dyn Fn(usize) -> String;
type SpawnWith = dyn FnMut(WorkerStart) -> io::Result<()>;

/// Describes a [`Pool`].
///
/// ```
/// let pool = jobtree_pool::Pool::builder()
///     .workers(2)
///     .worker_name(|index| format!("render-{index}"))
///     .build()?;
/// assert_eq!(pool.workers(), 2);
/// # Ok::<(), jobtree_pool::BuildError>(())
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct Builder {
    workers: Option<usize>,
    stack_size: usize,
    seed: u64,
    use_current_thread: bool,
    nested_waits: bool,
    name: Box<NameWorker>,
    handlers: Handlers,
    spawn_with: Option<Box<SpawnWith>>,
}

impl Builder {
    pub(super) fn new() -> Builder {
        Builder {
            workers: None,
            stack_size: stack::DEFAULT_STACK_SIZE,
            seed: 0x6A6F_6274_7265_6531,
            use_current_thread: false,
            nested_waits: false,
            name: Box::new(|index| format!("jobtree-{index}")),
            handlers: Handlers::default(),
            spawn_with: None,
        }
    }

    /// Sets the number of workers. By default the variable `JOBTREE_WORKERS`, else as many as the CPUs this process may use (its
    /// affinity and its container's limit count), at most `JOBTREE_WORKER_CAP`.
    pub fn workers(mut self, workers: usize) -> Builder {
        self.workers = Some(workers);
        self
    }

    /// Names the worker threads, by their number. By default `jobtree-0` and so on. A name must not contain a NUL.
    pub fn worker_name(mut self, name: impl Fn(usize) -> String + 'static) -> Builder {
        self.name = Box::new(name);
        self
    }

    /// Bytes of each stack. Only the pages that are used cost memory. By default 2 MiB.
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_size = bytes;
        self
    }

    /// Called on each worker thread before its first work. It may fork, wait, spawn and drop the pool. A panic of it goes
    /// to the handler of panics, or is only recorded if there is none.
    pub fn on_start(mut self, handler: impl Fn(usize) + Send + Sync + 'static) -> Builder {
        self.handlers.on_start = Some(Box::new(handler));
        self
    }

    /// Called on each worker thread after its last work. What it spawns runs on that thread; otherwise as
    /// [`on_start`](Builder::on_start).
    pub fn on_exit(mut self, handler: impl Fn(usize) + Send + Sync + 'static) -> Builder {
        self.handlers.on_exit = Some(Box::new(handler));
        self
    }

    /// Called when a task panics that no code waits for. Without it such a panic is recorded: it is counted and kept in a short list
    /// (`jobtree::user_code`), after the panic hook has reported it, and the pool goes on. So is a panic of the handler itself.
    /// A program that would rather end calls `std::process::abort` in the handler.
    pub fn on_panic(
        mut self,
        handler: impl Fn(Box<dyn Any + Send>) + Send + Sync + 'static,
    ) -> Builder {
        self.handlers.on_panic = Some(Box::new(handler));
        self
    }

    /// Starts the worker threads in another way than `std::thread`: `spawn` must have a new thread
    /// call [`WorkerStart::run`]. If it drops the [`WorkerStart`] instead and returns `Ok`, the pool is not made
    /// ([`BuildError::StartDropped`]).
    ///
    /// A [`WorkerStart`] that is dropped after that, by a thread that never ran it, leaves the pool without this worker: a
    /// broadcast waits for it for ever. If no worker is left, `install` and scopes from outside panic, but those that wait already
    /// wait for ever, and what was spawned never runs.
    pub fn spawn_with(
        mut self,
        spawn: impl FnMut(WorkerStart) -> io::Result<()> + 'static,
    ) -> Builder {
        self.spawn_with = Some(Box::new(spawn));
        self
    }

    /// Makes the building thread worker 0. It takes part whenever it waits inside the pool. Its stack is its own, so it is
    /// never parked: while it waits it helps in place. So tasks that wait nest on that stack, as deep as there are such tasks
    /// for it to run: a program in which thousands of tasks wait at once gives them to workers of their own, or the stack
    /// overflows, which ends the process.
    ///
    /// It is a worker until the pool is dropped; if that happens inside of a call of this crate on the thread, or on another
    /// thread, until that call or the thread's next one returns; at the latest until the thread ends. The pool does not end
    /// before. A broadcast after that runs as often as before, but on the workers that are left.
    pub fn use_current_thread(mut self) -> Builder {
        self.use_current_thread = true;
        self
    }

    /// Has a worker that waits run other work on top of the waiting frame, last in, first out, instead of parking its stack; as
    /// rayon does. Then no two pieces of work on one thread overlap in part: whatever begins during a wait ends before the wait
    /// does. Code needs that which puts something into a thread-local for the time of a call and takes it out afterwards
    /// (`scoped_tls`, entered spans, a `RefCell` that stays borrowed), and forks or waits inside.
    ///
    /// The price: a wait that is over goes on only after what runs on top of it, work on top that waits for work below waits for ever,
    /// and tasks that wait nest on the worker's stack. So jobs of `jobtree-runtime` do not belong on such a pool if many of them
    /// wait, or wait for each other.
    ///
    /// ```
    /// use std::cell::Cell;
    /// use jobtree_pool::{Pool, join};
    ///
    /// thread_local!(static DEPTH: Cell<u32> = const { Cell::new(0) });
    ///
    /// fn count(depth: u32) {
    ///     let before = DEPTH.replace(depth);
    ///     if depth < 10 {
    ///         join(|| count(depth + 1), || count(depth + 1));
    ///     }
    ///     // Whatever ran here meanwhile has put back what it found.
    ///     assert_eq!(DEPTH.replace(before), depth);
    /// }
    /// let pool = Pool::builder().workers(2).nested_waits().build()?;
    /// pool.install(|| count(1));
    /// assert_eq!(pool.stats().total().parks, 0);
    /// # Ok::<(), jobtree_pool::BuildError>(())
    /// ```
    pub fn nested_waits(mut self) -> Builder {
        self.nested_waits = true;
        self
    }

    /// The seed of the order in which idle workers try the others.
    pub fn seed(mut self, seed: u64) -> Builder {
        self.seed = seed;
        self
    }

    /// Makes the pool.
    ///
    /// ```
    /// use jobtree_pool::{BuildError, Pool};
    ///
    /// assert!(matches!(Pool::builder().workers(0).build(), Err(BuildError::ZeroWorkers)));
    /// assert!(matches!(Pool::builder().stack_size(1).build(), Err(BuildError::Stack(_))));
    /// ```
    pub fn build(self) -> Result<Pool, BuildError> {
        gate::may_start_threads().map_err(BuildError::Refused)?;
        self.build_unasked()
    }

    /// [`build`](Builder::build), whatever the limits of the calling code are.
    fn build_unasked(self) -> Result<Pool, BuildError> {
        let workers = match self.workers {
            Some(0) => return Err(BuildError::ZeroWorkers),
            Some(workers) => workers,
            None => default_workers(|name| std::env::var_os(name))?,
        };
        if workers > MAX_WORKERS {
            return Err(BuildError::TooManyWorkers { requested: workers });
        }
        let stack_size = stack::checked_stack_size(self.stack_size).map_err(BuildError::Stack)?;
        // The thread of a simulation is that of all its workers.
        let is_worker = || sim::is_simulated() || Worker::with_current(|worker| worker.is_some());
        if self.use_current_thread && is_worker() {
            return Err(BuildError::CurrentThreadIsWorker);
        }
        let shared = Arc::new(Shared::new(
            workers,
            self.seed,
            stack_size,
            self.handlers,
            #[cfg(jobtree_stacks)]
            stack::StackSupply::new(stack_size).map_err(BuildError::Stack)?,
        ));
        if self.nested_waits {
            shared.set_waits(Waits::Nest);
        }
        start::start_workers(
            shared,
            self.use_current_thread,
            &*self.name,
            self.spawn_with,
        )
    }

    /// Makes the pool the global one, which must not exist yet.
    pub fn build_global(self) -> Result<(), BuildError> {
        gate::may_start_threads().map_err(BuildError::Refused)?;
        self.build_global_unasked()
    }

    /// [`build_global`](Builder::build_global) for code that needs the global pool, which is not the code's own.
    pub(super) fn build_global_unasked(self) -> Result<(), BuildError> {
        // The second of two must not start threads for nothing.
        if GLOBAL.get().is_some() {
            return Err(BuildError::GlobalPoolExists);
        }
        let pool = self.build_unasked()?;
        GLOBAL.set(pool).map_err(|_| BuildError::GlobalPoolExists)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("workers", &self.workers)
            .field("stack_size", &self.stack_size)
            .field("use_current_thread", &self.use_current_thread)
            .finish_non_exhaustive()
    }
}

/// A worker thread that is yet to be started; see [`Builder::spawn_with`].
#[derive(Debug)]
pub struct WorkerStart {
    pub(super) pool: Arc<Shared>,
    pub(super) index: usize,
    pub(super) name: String,
    pub(super) ran: bool,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl WorkerStart {
    /// The worker's number.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The name that the thread should have.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The stack size that the thread should have.
    pub fn stack_size(&self) -> usize {
        self.pool.stack_size
    }

    /// Is the worker; returns when the pool has ended.
    pub fn run(mut self) {
        self.ran = true;
        start::run_worker(&self);
    }
}

impl Drop for WorkerStart {
    fn drop(&mut self) {
        if !self.ran {
            // Never started: the pool must not wait for it.
            self.pool.never_started.fetch_add(1, Ordering::Relaxed);
            self.pool.worker_is_gone();
        }
    }
}

/// The reason why a pool could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// `workers(0)`.
    ZeroWorkers,
    /// More workers than a pool can have.
    TooManyWorkers {
        /// The number of workers that was requested.
        requested: usize,
    },
    /// The stack size is absurd, or no stack could be had.
    Stack(StackError),
    /// An environment variable has a value that is not a positive number.
    Variable {
        /// The variable.
        name: &'static str,
        /// The variable's value.
        value: String,
    },
    /// There is a global pool already.
    GlobalPoolExists,
    /// `use_current_thread` on a thread that is a worker already.
    CurrentThreadIsWorker,
    /// The name of a worker contains a NUL, which names of threads cannot.
    Name {
        /// The worker's number.
        worker: usize,
        /// The name.
        name: String,
    },
    /// `spawn_with` dropped the [`WorkerStart`] of a worker instead of running it.
    StartDropped {
        /// The worker's number.
        worker: usize,
    },
    /// A thread could not be started.
    Thread(io::Error),
    /// The limits of the calling code do not allow threads of its own.
    Refused(gate::Refused),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::ZeroWorkers => write!(
                f,
                "a pool needs at least one worker; leave `workers` out to have one per CPU"
            ),
            BuildError::TooManyWorkers { requested } => write!(
                f,
                "a pool can have at most {MAX_WORKERS} workers, not {requested}"
            ),
            BuildError::Stack(error) => error.fmt(f),
            BuildError::Variable { name, value } => write!(
                f,
                "the environment variable {name} is `{value}`, which is not a whole number from 1 to \
                 {MAX_WORKERS}; correct it or unset it"
            ),
            BuildError::GlobalPoolExists => write!(
                f,
                "the global pool exists already: build it before anything uses it, or build a pool of \
                 your own with `build`"
            ),
            BuildError::CurrentThreadIsWorker => write!(
                f,
                "this thread is a worker of a pool already and cannot become one of another"
            ),
            BuildError::Name { worker, name } => write!(
                f,
                "the name of worker {worker}, {name:?}, contains a NUL; give it another one with `worker_name`"
            ),
            BuildError::StartDropped { worker } => write!(
                f,
                "the function given to `spawn_with` dropped the start of worker {worker}, so that nothing would ever run there; have a \
                 new thread call `WorkerStart::run`, or return an error"
            ),
            BuildError::Thread(error) => write!(
                f,
                "a worker thread could not be started ({error}); ask for fewer workers or raise the \
                 limit of threads"
            ),
            BuildError::Refused(refused) => write!(f, "the pool was not made: {refused}"),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BuildError::Stack(error) => Some(error),
            BuildError::Thread(error) => Some(error),
            BuildError::Refused(refused) => Some(&**refused),
            _ => None,
        }
    }
}

/// The number of workers when none is asked for; variables come from `lookup`.
fn default_workers(
    lookup: impl Fn(&str) -> Option<std::ffi::OsString>,
) -> Result<usize, BuildError> {
    let read = |names: [&'static str; 2]| -> Result<Option<usize>, BuildError> {
        for name in names {
            if let Some(value) = lookup(name) {
                let value = value.to_string_lossy().into_owned();
                return match value.trim().parse::<NonZeroUsize>() {
                    Ok(number) if number.get() <= MAX_WORKERS => Ok(Some(number.get())),
                    _ => Err(BuildError::Variable { name, value }),
                };
            }
        }
        Ok(None)
    };
    let cap = read(WORKER_CAP_VARIABLES)?.unwrap_or(MAX_WORKERS);
    if let Some(workers) = read(WORKERS_VARIABLES)? {
        return Ok(workers.min(cap));
    }
    // The standard library looks at affinity and cgroup quota.
    let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    Ok(cpus.min(cap))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn workers_with(variables: &[(&str, &str)]) -> Result<usize, BuildError> {
        default_workers(|name| {
            variables
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value.into())
        })
    }

    #[test]
    fn variables_set_and_cap_the_number_of_workers() {
        assert_eq!(workers_with(&[("JOBTREE_WORKERS", "7")]).unwrap(), 7);
        assert_eq!(workers_with(&[("XR_JOB_WORKERS", "5")]).unwrap(), 5);
        let both = [("JOBTREE_WORKERS", "7"), ("XR_JOB_WORKERS", "5")];
        assert_eq!(workers_with(&both).unwrap(), 7);
        let capped = [("JOBTREE_WORKERS", "7"), ("JOBTREE_WORKER_CAP", "3")];
        assert_eq!(workers_with(&capped).unwrap(), 3);
        assert_eq!(workers_with(&[("JOBTREE_WORKER_CAP", "1")]).unwrap(), 1);
    }

    #[test]
    fn variables_that_do_not_parse_are_named_in_the_error() {
        for value in ["0", "-1", "many", "", "1e3", "99999999999999999999", "4097"] {
            let error = workers_with(&[("JOBTREE_WORKERS", value)]).unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains("JOBTREE_WORKERS") && text.contains(value),
                "{text}"
            );
        }
        let error = workers_with(&[("JOBTREE_WORKER_CAP", "x")]).unwrap_err();
        assert!(error.to_string().contains("JOBTREE_WORKER_CAP"));
    }
}
