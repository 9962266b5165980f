//! What jobs run in: a pool, a tree, and the thread that keeps deadlines.

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use jobtree_pool::raw::task::RawContext;
use jobtree_pool::raw::{OutOfStacks, PoolRef, start_service_thread};
use jobtree_pool::{Pool, PoolStats};
use jobtree_tree::{
    BoxError, CancelToken, Cause, Counters, Hooks, Job, JobOptions, Lacking, Outcome, Recorded,
    Tree, TreeDump, Watcher, raw,
};

use crate::block::{FirstOf, until_ready, until_ready_or_unwound};
use crate::budget::{Ground, GroundBuilder, Profile, Statistics};
use crate::builder::RuntimeBuilder;
use crate::clock::Clock;
use crate::current;
use crate::deadline::Sleep;
use crate::degraded::Degraded;
use crate::dispatcher::{Blocking, Route};
use crate::future;
use crate::handle::JobHandle;
use crate::inline;
use crate::nursery::{Nursery, open};
use crate::owned::OwnedNursery;
use crate::panics;
use crate::sim;
use crate::task::{self, TaskStack};
use crate::timers::Timers;
use crate::user_code;

/// A pool, a tree of jobs and their deadlines.
///
/// Most programs use the global one, without naming it. A runtime of one's own has its own threads and its own root,
/// and ends by [`shutdown`](Runtime::shutdown). Dropped, it cancels its jobs and does not wait for them.
///
/// ```
/// use std::time::Duration;
/// use jobtree_runtime::Runtime;
///
/// let runtime = Runtime::builder().workers(2).build()?;
/// let handle = runtime.spawn(|| Ok(6 * 7));
/// assert_eq!(handle.join()?, 42);
/// runtime.shutdown(Duration::from_secs(5))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Runtime {
    owner: Arc<Owner>,
}

/// What the handles to a runtime share; with the last one its jobs are cancelled.
struct Owner {
    inner: Arc<Inner>,
    /// The handle that keeps the pool's threads; none for the global pool.
    own_pool: Mutex<Option<Pool>>,
    tree: Tree,
    root: Job,
}

/// What jobs need of their runtime. The tree has it, so it is there as long as any of its jobs.
pub(crate) struct Inner {
    pool: PoolRef,
    pub(crate) timers: Timers,
    /// What jobs start on, unless they say otherwise.
    pub(crate) task_stack: TaskStack,
    pub(crate) ground: Ground,
    pub(crate) blocking: Blocking,
    pub(crate) degraded: Arc<Degraded>,
}

/// What a runtime is made of.
pub(crate) struct MadeOf {
    pub(crate) pool: PoolRef,
    pub(crate) own_pool: Option<Pool>,
    pub(crate) timers: Timers,
    pub(crate) task_stack: TaskStack,
    pub(crate) ground: GroundBuilder,
    pub(crate) blocking: Blocking,
    /// Is told of every event of a job.
    pub(crate) watcher: Option<Watcher>,
}

impl MadeOf {
    /// Nothing special, on this pool.
    pub(crate) fn pool(pool: PoolRef) -> MadeOf {
        MadeOf {
            pool,
            own_pool: None,
            timers: Timers::new(),
            task_stack: TaskStack::Default,
            ground: GroundBuilder::default(),
            blocking: Blocking::new(Route::default(), None),
            watcher: None,
        }
    }
}

/// Where new jobs go: under the current one, or under the root of the global runtime.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) parent: Job,
    pub(crate) runtime: Arc<Inner>,
}

pub(crate) fn current() -> Place {
    if let Some(job) = Job::current()
        && let Some(runtime) = runtime_of(&job)
    {
        return Place {
            parent: job,
            runtime,
        };
    }
    sim::with_runtime(|simulated| match simulated {
        Some(simulated) => simulated.place(),
        None => Runtime::global().place(),
    })
}

/// The runtime of a job that has not ended.
pub(crate) fn runtime_of(job: &Job) -> Option<Arc<Inner>> {
    raw::with_extension(job, Arc::<Inner>::clone)
}

/// Has the forks of cancelled jobs look. A body that runs on a thread of the program's own forks in the global pool, even
/// if its children run in another.
fn interrupt(own: &PoolRef) {
    own.interrupt_forks();
    if let Some(global) = PoolRef::global_if_made().filter(|global| global != own) {
        global.interrupt_forks();
    }
}

/// What the workers have done on which the current job's children run; those of the global runtime outside of any job.
///
/// ```
/// use jobtree_runtime::{Runtime, pool_stats};
///
/// let runtime = Runtime::builder().workers(2).build()?;
/// let stats = runtime.spawn(|| Ok(pool_stats())).join()?;
/// assert_eq!(stats.workers.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn pool_stats() -> PoolStats {
    current().runtime.pool.stats()
}

impl Inner {
    pub(crate) fn pool(&self) -> &PoolRef {
        &self.pool
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.timers.close();
    }
}

impl Runtime {
    /// Starts to describe a runtime.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::new()
    }

    /// The runtime of everybody who has none of their own; made on first use, on [`Pool::global`].
    ///
    /// # Panics
    /// If the global pool cannot be made (see [`Pool::try_global`]).
    pub fn global() -> &'static Runtime {
        static GLOBAL: OnceLock<Runtime> = OnceLock::new();
        GLOBAL.get_or_init(|| Runtime::made_of(MadeOf::pool(PoolRef::of(Pool::global()))))
    }

    /// A runtime on a simulated pool, with a clock to match; `watcher` is told of every event of a job.
    pub(crate) fn simulated(pool: PoolRef, timers: Timers, watcher: Watcher) -> Runtime {
        Runtime::made_of(MadeOf {
            timers,
            blocking: Blocking::new(Route::Workers, None),
            watcher: Some(watcher),
            ..MadeOf::pool(pool)
        })
    }

    pub(crate) fn made_of(made_of: MadeOf) -> Runtime {
        let MadeOf {
            pool,
            own_pool,
            timers,
            task_stack,
            ground,
            blocking,
            watcher: event,
        } = made_of;
        current::install();
        let own = pool.clone();
        let tree = Tree::with_hooks(Hooks {
            cancelled: Some(Arc::new(move || interrupt(&own))),
            event,
        });
        let degraded = Arc::<Degraded>::default();
        degraded.report_to(tree.reporter());
        if !panics::install() {
            degraded.add(Lacking::HookThread);
        }
        timers.fall_back_on(pool.clone(), Arc::clone(&degraded));
        let listener: Arc<dyn OutOfStacks> = degraded.clone();
        pool.on_out_of_stacks(&listener);
        let inner = Arc::new(Inner {
            pool,
            timers,
            task_stack,
            ground: ground.build(),
            blocking,
            degraded,
        });
        let is_first = tree.set_extension(Arc::clone(&inner)).is_ok();
        debug_assert!(is_first, "a tree belongs to one runtime");
        let owner = Arc::new(Owner {
            inner,
            own_pool: Mutex::new(own_pool),
            root: tree.root().clone(),
            tree,
        });
        Runtime { owner }
    }

    fn place(&self) -> Place {
        Place {
            parent: self.owner.root.clone(),
            runtime: Arc::clone(&self.owner.inner),
        }
    }

    /// Where bodies run that are in no job.
    pub(crate) fn inner(&self) -> &Inner {
        &self.owner.inner
    }

    /// Cancels everything, and lets the root end as soon as everything else has. Callbacks are called on the calling
    /// thread.
    pub(crate) fn close_tree(&self) {
        self.owner.tree.close();
    }

    /// Closes the tree on a thread of its own: callbacks and wakers are user code and may never return, but the time limit of
    /// a shutdown holds all the same. Returns `false` if `limit` was over first. In a simulation, or if no thread can be
    /// started, the calling thread closes the tree.
    fn close_within(&self, limit: Duration) -> bool {
        let timers = &self.owner.inner.timers;
        if timers.virtual_time().is_none() && !self.owner.root.is_ended() {
            let closed = CancelToken::new();
            let tell = closed.clone().drop_guard();
            let runtime = self.clone();
            let close = move || {
                runtime.close_tree();
                // First: who is told may rely on it that nobody else keeps the runtime.
                drop(runtime);
                drop(tell);
            };
            if start_service_thread("jobtree-shutdown".to_owned(), close).is_ok() {
                let patience = Sleep::new(timers.clone(), limit);
                until_ready_or_unwound(pin!(FirstOf(closed.cancelled(), patience)));
                return closed.is_cancelled();
            }
            self.owner.inner.degraded.add(Lacking::ShutdownThread);
        }
        self.close_tree();
        true
    }

    pub(crate) fn root_nursery(&self) -> future::Nursery {
        let (root, inner) = (&self.owner.root, &self.owner.inner);
        future::Nursery::new(root.clone(), Arc::clone(inner), None)
    }

    /// The job above all others of this runtime.
    pub fn root(&self) -> &Job {
        &self.owner.root
    }

    /// Starts a job that belongs to nobody: it is under the root, is not waited for by its creator, and ends by
    /// [`shutdown`](Runtime::shutdown) at the latest. If it fails, it does so alone.
    ///
    /// After the shutdown the job is born cancelled. If the runtime's profile does not allow it, the job fails with the
    /// [`Refusal`](crate::budget::Refusal). Called by code that has limits, the job comes out of the caller's budget, and
    /// must be allowed to the caller, too.
    pub fn spawn<F, T>(&self, body: F) -> JobHandle<T>
    where
        F: FnOnce() -> Result<T, BoxError> + Send + 'static,
        T: Send + 'static,
    {
        self.root_nursery().spawn(body)
    }

    /// Starts a future as a job that belongs to nobody: [`spawn`](Runtime::spawn).
    ///
    /// ```
    /// use jobtree_runtime::Runtime;
    ///
    /// let handle = Runtime::global().spawn_future(async { Ok(42) });
    /// assert_eq!(handle.join()?, 42);
    /// # Ok::<(), jobtree_runtime::JobError>(())
    /// ```
    pub fn spawn_future<F, T>(&self, future: F) -> JobHandle<T>
    where
        F: Future<Output = Result<T, BoxError>> + Send + 'static,
        T: Send + 'static,
    {
        self.root_nursery().spawn_future(future)
    }

    /// Waits for a future in this runtime: what it spawns, and the time it waits for, are this runtime's.
    ///
    /// The future is polled on the calling thread, as a job under the root.
    ///
    /// ```
    /// use jobtree_runtime::Runtime;
    ///
    /// assert_eq!(Runtime::global().block_on(async { 6 * 7 })?, 42);
    /// # Ok::<(), jobtree_runtime::JobError>(())
    /// ```
    ///
    /// # Errors
    /// If the runtime is shut down first; the future is dropped then. If the future panics. In a simulation, if this is not
    /// the simulated runtime.
    pub fn block_on<F: Future>(&self, future: F) -> Outcome<F::Output> {
        let place = self.place();
        if let Some(refusal) = sim::refusal(&place.runtime) {
            return inline::run(&place.parent, JobOptions::new(), |_| Err(refusal.into()));
        }
        let scope = future::scope::run(place, JobOptions::new(), |_, _| async { Ok(future.await) });
        until_ready(pin!(scope), None)
    }

    /// The clock that this runtime keeps deadlines by. In a simulation that is not the system's.
    pub fn clock(&self) -> Clock {
        Clock::new(self.owner.inner.timers.clone())
    }

    /// How many workers its pool has.
    pub fn workers(&self) -> usize {
        self.owner.inner.pool.workers()
    }

    /// Opens a scope under this runtime's root; see [`nursery`](crate::nursery()).
    ///
    /// # Errors
    /// As [`nursery`](crate::nursery()); and always after the shutdown, and in a simulation of which this is not the
    /// runtime. `body` is not called then.
    pub fn nursery<'env, F, T>(&self, body: F) -> Outcome<T>
    where
        F: for<'scope> FnOnce(&'scope Nursery<'scope, 'env>) -> Result<T, BoxError>,
    {
        open(self.place(), JobOptions::new(), body)
    }

    /// Opens a scope whose children fail alone; see [`supervisor`](crate::supervisor()).
    ///
    /// # Errors
    /// As [`supervisor`](crate::supervisor()); and always after the shutdown.
    pub fn supervisor<'env, F, T>(&self, body: F) -> Outcome<T>
    where
        F: for<'scope> FnOnce(&'scope Nursery<'scope, 'env>) -> Result<T, BoxError>,
    {
        open(self.place(), JobOptions::new().supervisor(), body)
    }

    /// Opens a scope that is an object, under this runtime's root.
    ///
    /// # Errors
    /// After the shutdown.
    #[doc(hidden)]
    pub fn owned_nursery(&self, supervisor: bool) -> Outcome<OwnedNursery> {
        OwnedNursery::open_in(self.place(), supervisor)
    }

    /// Opens a scope that is an object, under this runtime's root, with a label; its jobs fail alone.
    ///
    /// # Errors
    /// After the shutdown.
    #[doc(hidden)]
    pub fn labelled_scope(&self, label: &'static str) -> Outcome<OwnedNursery> {
        OwnedNursery::open_with(self.place(), JobOptions::new().supervisor().label(label))
    }

    /// A picture of all jobs that have not ended, with a note for each thing that the runtime could not get from the
    /// system and does without.
    pub fn dump_tree(&self) -> TreeDump {
        let inner = &self.owner.inner;
        let dump = self.owner.root.dump_tree();
        let dump = inner.degraded.note_in(dump, inner.timers.are_on_workers());
        match inner.pool.stats().degradation() {
            Some(note) => dump.with_note(note),
            None => dump,
        }
    }

    /// What the jobs of this runtime did so far, counted.
    pub fn counters(&self) -> Counters {
        self.owner.tree.counters()
    }

    /// What this runtime and its pool did so far, counted.
    pub fn statistics(&self) -> Statistics {
        let counters = self.counters();
        let pool = self.owner.inner.pool.stats();
        let workers = pool.total();
        let mut statistics = Statistics {
            executed: workers.executed,
            completed: counters.completed,
            failed: counters.failed + counters.timed_out,
            cancelled: counters.cancelled,
            blocked: workers.parks,
            steals: workers.stolen,
            local_pops: workers.executed.saturating_sub(workers.stolen),
            idle: workers.sleeps,
            caught_panics: user_code::caught_panics(),
            stack_failures: pool.stacks.refused,
            ..Statistics::default()
        };
        self.owner.inner.ground.counters().add_to(&mut statistics);
        self.owner.inner.degraded.add_to(&mut statistics);
        statistics
    }

    /// What it allows its jobs.
    pub fn profile(&self) -> Profile {
        self.owner.inner.ground.profile()
    }

    /// Keeps the newest `capacity` events of jobs from now on; 0 stops it.
    pub fn record_events(&self, capacity: usize) {
        self.owner.tree.record_events(capacity);
    }

    /// The events kept since the last call.
    pub fn take_events(&self) -> Recorded {
        self.owner.tree.take_events()
    }

    /// Cancels all jobs, waits until they have ended, and ends the threads, all within `limit`. What runs longer is left
    /// alone: it goes on on its thread, and keeps what it uses.
    ///
    /// Cancel callbacks and wakers are called on a thread of their own, so that the limit holds even if one does not return. If
    /// that thread cannot be started, the calling thread calls them, and the limit does not hold until they return:
    /// [`Statistics::shutdown_thread_failures`] counts it, an event and a note in [`dump_tree`](Runtime::dump_tree) tell it.
    ///
    /// # Errors
    /// If `limit` was over first: with the paths of the jobs that were still there. Always if it is called
    /// from inside a job of this runtime, which is then one of them; the others are waited for. And at once if the calling code
    /// runs because such a job ends, as the destructor of its value does.
    pub fn shutdown(&self, limit: Duration) -> Result<(), ShutdownError> {
        let owner = &self.owner;
        let began = owner.inner.timers.now();
        let closed = self.close_within(limit);
        let inside = Job::current().filter(|job| {
            runtime_of(job).is_some_and(|runtime| Arc::ptr_eq(&runtime, &owner.inner))
        });
        match inside {
            None => self.wait_for(&owner.root, limit.saturating_sub(self.since(began))),
            Some(job) => self.wait_for_others(&job, began, limit),
        }
        if !owner.root.is_ended() {
            let mut stragglers = paths_of_leaves(&owner.root.dump_tree());
            if !closed {
                stragglers.push("a cancel callback or a waker that has not returned".to_owned());
            }
            if !stragglers.is_empty() {
                return Err(ShutdownError { stragglers });
            }
        }
        let pool = owner
            .own_pool
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let left = || limit.saturating_sub(began.elapsed()).max(MOMENT);
        if !owner.inner.blocking.shut_down(left()) {
            return Err(ShutdownError {
                stragglers: vec!["a blocking thread".to_owned()],
            });
        }
        let Some(pool) = pool else {
            return Ok(());
        };
        let left = left();
        pool.shutdown(left).map_err(|error| ShutdownError {
            stragglers: vec![error.to_string()],
        })
    }

    fn since(&self, moment: Instant) -> Duration {
        let now = self.owner.inner.timers.now();
        now.saturating_duration_since(moment)
    }

    fn wait_for(&self, job: &Job, limit: Duration) {
        if raw::is_part_of_end(job) {
            // A destructor, callback or handler that the end of the job waits for: there is nothing to gain.
            return;
        }
        let patience = Sleep::new(self.owner.inner.timers.clone(), limit);
        until_ready_or_unwound(pin!(FirstOf(job.ended(), patience)));
    }

    /// Waits for all jobs but the one that calls, and those that wait for it.
    fn wait_for_others(&self, caller: &Job, began: Instant, limit: Duration) {
        let mut above = vec![caller.clone()];
        while let Some(parent) = above.last().and_then(Job::parent) {
            above.push(parent);
        }
        for job in &above {
            for other in job.children() {
                if !above.contains(&other) {
                    self.wait_for(&other, limit.saturating_sub(self.since(began)));
                }
            }
        }
    }
}

/// A job in a tree that was cancelled: what one gets of a root that has ended, and can have no more children.
pub(crate) fn born_cancelled<T: Send>(pool: &PoolRef) -> task::Spawned<T> {
    let tree = Tree::new();
    tree.root().cancel(Cause::Shutdown);
    let never = || unreachable!("a job that is born cancelled never runs");
    // SAFETY: the body borrows nothing, and the outermost context is always there.
    let spawned = unsafe {
        let context = RawContext::outermost();
        task::spawn(
            tree.root(),
            JobOptions::new(),
            pool,
            context,
            TaskStack::Default,
            |_| None,
            never,
        )
    };
    match spawned {
        Ok(spawned) => spawned,
        Err(ended) => unreachable!("the root of a new tree: {ended}"),
    }
}

/// Jobs have ended, so their threads are about to; they get at least this long.
const MOMENT: Duration = Duration::from_millis(100);

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("pool", &self.owner.inner.pool)
            .field("root", &self.owner.root)
            .finish()
    }
}

/// The paths of those jobs that wait for no child.
fn paths_of_leaves(dump: &TreeDump) -> Vec<String> {
    let jobs = dump.jobs();
    let mut labels: Vec<&str> = Vec::new();
    let mut paths = Vec::new();
    for (index, job) in jobs.iter().enumerate() {
        labels.truncate(job.depth);
        labels.push(&job.label);
        let is_leaf = jobs
            .get(index + 1)
            .is_none_or(|next| next.depth <= job.depth);
        if is_leaf && job.depth > 0 && !job.state.is_terminal() {
            paths.push(raw::printable(&labels.join("/")).into_owned());
        }
    }
    paths
}

/// Jobs were still running when the time for their end was over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShutdownError {
    stragglers: Vec<String>,
}

impl ShutdownError {
    /// The paths of the jobs that were still there, of those that wait for no other.
    pub fn stragglers(&self) -> &[String] {
        &self.stragglers
    }
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "still running after the time limit of the shutdown: {}; have them call `checkpoint` more often, or \
             give them more time",
            self.stragglers.join(", ")
        )
    }
}

impl std::error::Error for ShutdownError {}
