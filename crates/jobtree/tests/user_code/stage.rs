//! What a cell's program works with: the objects that user code acts on, and how often it acted.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jobtree::{Job, JobError, JobHandle, JobManager, Pool, Runtime, RuntimeBuilder, yield_now};

use crate::behaviour::{self, Behaviour, MUCH_LATER};

/// The time that user code which drops handles waits for the program to have dropped its own.
const UNTIL_ALONE: Duration = Duration::from_millis(300);

type Reentry = Arc<dyn Fn() + Send + Sync>;

/// The program of one cell.
pub struct Stage {
    pub behaviour: Behaviour,
    pub workers: usize,
    runs: AtomicUsize,
    /// How many runs have returned, or panicked.
    ended: AtomicUsize,
    /// How many of its runs do what the cell is about; the others do nothing.
    most: AtomicUsize,
    objects: Mutex<Objects>,
    steps: Mutex<Steps>,
    changed: Condvar,
}

/// What user code can reach.
#[derive(Default)]
struct Objects {
    runtime: Option<Runtime>,
    pool: Option<Arc<Pool>>,
    manager: Option<JobManager>,
    root: Option<Job>,
    job: Option<Job>,
    reentries: Vec<Reentry>,
    /// Its jobs have budgets, which do not suffice for a canary.
    has_limits: bool,
}

#[derive(Default)]
struct Steps {
    /// The program holds no handle of its own any more.
    is_alone: bool,
    is_holding: bool,
    is_released: bool,
}

impl Stage {
    pub fn new(behaviour: Behaviour, workers: usize) -> Arc<Stage> {
        Arc::new(Stage {
            behaviour,
            workers,
            runs: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            most: AtomicUsize::new(1),
            objects: Mutex::default(),
            steps: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Is called by the library, as user code.
    pub fn act(self: &Arc<Self>) {
        let run = self.runs.fetch_add(1, Ordering::SeqCst);
        if run < self.most.load(Ordering::SeqCst) {
            let _ended = Guard::new(|| {
                self.ended.fetch_add(1, Ordering::SeqCst);
            });
            behaviour::perform(self);
        }
    }

    /// The number of times that user code ran with the behaviour of the cell.
    pub fn runs(&self) -> usize {
        self.runs
            .load(Ordering::SeqCst)
            .min(self.most.load(Ordering::SeqCst))
    }

    /// Has the first `count` runs do what the cell is about, not only the first one.
    pub fn act_often(&self, count: usize) {
        self.most.store(count, Ordering::SeqCst);
    }

    /// A value whose destructor is the user code.
    pub fn on_drop(self: &Arc<Self>) -> OnDrop {
        OnDrop {
            stage: Arc::clone(self),
            is_guarded: false,
        }
    }

    /// A value whose destructor is user code, and which the library drops although its thread unwinds.
    pub fn on_guarded_drop(self: &Arc<Self>) -> OnDrop {
        OnDrop {
            stage: Arc::clone(self),
            is_guarded: true,
        }
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn steps(&self) -> MutexGuard<'_, Steps> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // The objects.

    /// Makes the runtime that the cell is about. The stage keeps a handle, which user code may drop.
    pub fn runtime(&self) -> Runtime {
        self.runtime_of(Runtime::builder().workers(self.workers))
    }

    /// As `runtime`, by a builder.
    pub fn runtime_of(&self, builder: RuntimeBuilder) -> Runtime {
        let runtime = builder.build().unwrap();
        let mut objects = self.objects();
        objects.root = Some(runtime.root().clone());
        objects.runtime = Some(runtime.clone());
        runtime
    }

    /// Makes the pool that the cell is about its stage's.
    pub fn keep_pool(&self, pool: Pool) -> Arc<Pool> {
        let pool = Arc::new(pool);
        self.objects().pool = Some(Arc::clone(&pool));
        pool
    }

    /// Makes the pool that the cell is about.
    pub fn pool(&self) -> Arc<Pool> {
        self.keep_pool(Pool::builder().workers(self.workers).build().unwrap())
    }

    pub fn keep_manager(&self, manager: &JobManager) {
        self.objects().manager = Some(manager.clone());
    }

    /// Names the job that the user code belongs to.
    pub fn keep_job(&self, job: &Job) {
        self.objects().job = Some(job.clone());
    }

    /// Adds calls to what `reenter` does.
    pub fn on_reenter(&self, calls: impl Fn() + Send + Sync + 'static) {
        self.objects().reentries.push(Arc::new(calls));
    }

    /// Says that the jobs of the cell's runtime have budgets.
    pub fn has_limits(&self) {
        self.objects().has_limits = true;
    }

    /// Makes the runtime of a simulation the one that the cell is about.
    pub fn simulate_with(&self, runtime: &Runtime) {
        let mut objects = self.objects();
        objects.root = Some(runtime.root().clone());
        objects.runtime = Some(runtime.clone());
        drop(objects);
        self.is_alone();
    }

    /// Forgets that runtime, which has ended.
    pub fn end_simulation(&self) {
        let mut objects = self.objects();
        let ended = (objects.runtime.take(), objects.root.take());
        drop(objects);
        drop(ended);
    }

    /// Drops what `on_reenter` added.
    pub fn clear_reentries(&self) {
        let reentries = mem::take(&mut self.objects().reentries);
        drop(reentries);
    }

    /// Drops the stage's handle of the job that the user code belongs to.
    pub fn forget_job(&self) {
        let job = self.objects().job.take();
        drop(job);
    }

    /// Says that the handles which the stage keeps are the last ones.
    pub fn is_alone(&self) {
        self.steps().is_alone = true;
        self.changed.notify_all();
    }

    /// Starts `body` as a job of the cell's runtime, to which only the stage has a handle then.
    pub fn in_job<T: Send + 'static>(
        &self,
        body: impl FnOnce() -> Result<T, jobtree::BoxError> + Send + 'static,
    ) -> JobHandle<T> {
        let runtime = self.runtime();
        let handle = runtime.spawn(body);
        self.keep_job(handle.job());
        drop(runtime);
        self.is_alone();
        handle
    }

    /// The runtime that the cell is about, or else the global one.
    pub fn some_runtime(&self) -> Runtime {
        let own = self.objects().runtime.clone();
        own.unwrap_or_else(|| Runtime::global().clone())
    }

    pub fn some_root(&self) -> Job {
        let own = self.objects().root.clone();
        // The root of the global runtime is not for cells to cancel: nothing could be checked afterwards.
        own.unwrap_or_else(|| {
            Runtime::builder()
                .workers(1)
                .build()
                .unwrap()
                .root()
                .clone()
        })
    }

    /// The job that the user code belongs to.
    pub fn own_job(&self) -> Option<Job> {
        let own = self.objects().job.clone();
        own.or_else(Job::current)
    }

    // Behaviours that need the objects.

    pub fn reenter(&self) {
        let (runtime, pool, manager, job, reentries) = {
            let objects = self.objects();
            (
                objects.runtime.clone(),
                objects.pool.clone(),
                objects.manager.clone(),
                objects.job.clone(),
                objects.reentries.clone(),
            )
        };
        reentries.iter().for_each(|calls| calls());
        if let Some(job) = job.or_else(Job::current) {
            drop(job.on_cancel(|_| ()));
            let _ = (job.children(), job.path(), job.error(), job.is_cancelled());
            let _ = job.dump_tree();
        }
        if let Some(runtime) = runtime {
            runtime.record_events(16);
            let _ = (runtime.counters(), runtime.take_events());
            let _ = (runtime.dump_tree(), runtime.statistics());
            drop(runtime.spawn(|| Ok(())));
        }
        if let Some(pool) = pool {
            let _ = (pool.stats(), pool.yield_now(), pool.yield_local());
            pool.spawn(|| ());
            assert_eq!(pool.install(|| 1), 1);
        }
        if let Some(manager) = manager {
            let _ = (manager.stats(), manager.slots(), manager.tracker().view());
            let job = jobtree::lanes::LaneJob::action(|| Ok(()));
            drop(manager.schedule(job));
        }
    }

    pub fn drop_handles(&self) {
        let mut steps = self.steps();
        let began = Instant::now();
        while !steps.is_alone && began.elapsed() < UNTIL_ALONE {
            (steps, _) = self
                .changed
                .wait_timeout(steps, UNTIL_ALONE)
                .unwrap_or_else(PoisonError::into_inner);
        }
        drop(steps);
        let taken = {
            let mut objects = self.objects();
            (
                objects.manager.take(),
                objects.runtime.take(),
                objects.pool.take(),
            )
        };
        drop(taken);
    }

    /// Shuts everything down; returns `true` if all of it had ended within the limit.
    pub fn shut_down(&self, limit: Duration) -> bool {
        let (manager, runtime, pool) = {
            let mut objects = self.objects();
            (
                objects.manager.clone(),
                objects.runtime.clone(),
                objects.pool.take(),
            )
        };
        let manager = manager.map(|manager| manager.shutdown(limit));
        let runtime = runtime.map(|runtime| runtime.shutdown(limit));
        let pool = pool.and_then(Arc::into_inner);
        let pool = pool.map(|pool| pool.shutdown(limit));
        !(matches!(manager, Some(Err(_)))
            || matches!(runtime, Some(Err(_)))
            || matches!(pool, Some(Err(_))))
    }

    /// Blocks the thread until `release`.
    pub fn hold(&self) {
        let mut steps = self.steps();
        steps.is_holding = true;
        self.changed.notify_all();
        while !steps.is_released {
            steps = self
                .changed
                .wait(steps)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Has what `hold` blocks go on.
    pub fn release(&self) {
        self.steps().is_released = true;
        self.changed.notify_all();
    }

    /// Waits until user code blocks in `hold`.
    pub fn wait_until_held(&self) {
        let mut steps = self.steps();
        while !steps.is_holding {
            steps = self
                .changed
                .wait(steps)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    // Checks.

    /// Waits until the user code has been called.
    pub fn until_called(&self) {
        until(|| self.runs() > 0);
    }

    /// Waits until the user code has been called, and has returned wherever it was called.
    pub fn until_acted(&self) {
        self.until_called();
        until(|| self.ended.load(Ordering::SeqCst) == self.runs());
    }

    /// Calls `code`; a planned panic may come out of it. Returns `None` then.
    #[track_caller]
    pub fn contain<R>(&self, code: impl FnOnce() -> R) -> Option<R> {
        match catch_unwind(AssertUnwindSafe(code)) {
            Ok(result) => Some(result),
            Err(payload) => {
                assert!(
                    self.behaviour.panics() && is_planned(&*payload),
                    "an unplanned panic came out: {:?}",
                    text_of(&*payload)
                );
                mem::forget(payload);
                None
            }
        }
    }

    /// Calls `code`, out of which a panic comes exactly if the user code panics.
    #[track_caller]
    pub fn propagates<R>(&self, code: impl FnOnce() -> R) -> Option<R> {
        let result = self.contain(code);
        assert_eq!(
            result.is_none(),
            self.behaviour.panics(),
            "a panic of user code is to come out of the call, and nothing else"
        );
        result
    }

    /// Checks the outcome of a job whose body is the user code.
    #[track_caller]
    pub fn check_body<T>(&self, outcome: Result<T, JobError>) -> Option<T> {
        match outcome {
            Ok(value) if !self.behaviour.panics() => Some(value),
            Ok(_) => panic!("the job completed although its body panicked"),
            Err(JobError::Panicked(panic)) if self.behaviour.panics() => {
                self.contain(|| drop(panic));
                None
            }
            Err(error) if self.behaviour.cancels() && is_cancellation(&error) => None,
            Err(error) => panic!("the job ended by: {}", error.report()),
        }
    }

    /// Checks the outcome of a job to which the user code does not belong: the user code may have cancelled it.
    #[track_caller]
    pub fn check_bystander<T>(&self, outcome: Result<T, JobError>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(error) if self.behaviour.cancels() && is_cancellation(&error) => None,
            Err(error) => panic!("the job ended by: {}", error.report()),
        }
    }

    /// Checks that the shutdown of what is there keeps to its limit while user code does not return, and says so if that is
    /// the body of a job. When the code has returned, it succeeds; see `end`.
    pub fn check_held(&self, is_body: bool) {
        self.wait_until_held();
        let began = Instant::now();
        let has_ended = self.shut_down(Duration::from_millis(30));
        let took = began.elapsed();
        self.release();
        assert!(
            !(has_ended && is_body),
            "a shutdown succeeded although the body of a job had not returned"
        );
        assert!(
            took < MUCH_LATER,
            "a shutdown with a limit of 30 ms took {took:?}"
        );
    }

    /// Checks that the objects which are left still work, and ends them.
    pub fn end(&self) {
        self.until_acted();
        let objects = mem::take(&mut *self.objects());
        drop((objects.reentries, objects.job));
        if let Some(manager) = objects.manager {
            manager.shutdown(MUCH_LATER).unwrap();
        }
        if let Some(runtime) = objects.runtime {
            // A shutdown whose time was up may go on to cancel the root at any moment.
            let was_shut_down = matches!(self.behaviour, Behaviour::Hold | Behaviour::Shutdown);
            let is_open = !was_shut_down && !runtime.root().is_cancelled();
            if is_open && !objects.has_limits {
                crate::canary::check_runtime(&runtime);
            }
            runtime.shutdown(MUCH_LATER).unwrap();
        }
        if let Some(pool) = objects.pool {
            pool.install(|| jobtree::join(|| (), || ()));
            let pool = Arc::into_inner(pool).expect("the stage has the last handle");
            pool.shutdown(MUCH_LATER).unwrap();
        }
    }
}

/// Returns when `condition` holds.
pub fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        if yield_now().is_none() {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

/// Returns `true` for the cancellation of a job, also if it came back as the error of a job that waited for it.
fn is_cancellation(error: &JobError) -> bool {
    error.is_cancelled() || error.to_string().contains("cancelled")
}

fn text_of(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

fn is_planned(payload: &(dyn Any + Send)) -> bool {
    payload.is::<PanickingPayload>()
        || text_of(payload).is_some_and(|text| text.contains("planned panic"))
}

/// The payload of a panic; its destructor panics.
pub struct PanickingPayload;

impl Drop for PanickingPayload {
    fn drop(&mut self) {
        // A second panic of a thread would end the process, and that is the language's doing.
        if !std::thread::panicking() {
            panic!("planned panic in the destructor of a payload");
        }
    }
}

/// A value whose destructor is user code.
pub struct OnDrop {
    stage: Arc<Stage>,
    /// The library, and not a frame of the program, drops it while its thread unwinds.
    is_guarded: bool,
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        // As above.
        let would_abort = std::thread::panicking() && self.stage.behaviour.panics();
        if self.is_guarded || !would_abort {
            self.stage.act();
        }
    }
}

/// Calls a closure when it is dropped.
pub struct Guard<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Guard<F> {
    pub fn new(end: F) -> Guard<F> {
        Guard(Some(end))
    }
}

impl<F: FnOnce()> Drop for Guard<F> {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}
