//! Workers in this process: handlers that run durable jobs as jobs of a runtime's tree.
//!
//! A worker claims jobs, runs each under a label of its type and id, renews its leases from a thread of its own, and
//! answers for what ended. A wish that a job stop, and the loss of a lease, cancel the job and all below it. What
//! can be relied on:
//!
//! - A job whose lease is lost is asked to stop before the lease could be somebody else's; what it still says is refused.
//! - A run that fails or panics is a failed attempt. A process that dies loses its leases, and its jobs are rescued.
//! - At least once: what a handler does outside must bear being done twice, or be keyed by the job's id.

mod beat;
mod grantor;
mod handler;
mod held;
mod lease;
mod live;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jobtree_protocol::{AddonId, ApiError, ClaimRequest, InstanceId, JobId, JobType};
use jobtree_runtime::channel::{self, Receiver, Sender};
use jobtree_runtime::{
    BoxError, Dispatcher, DispatcherError, Job, JobHandle, Runtime, TreeDump, block_on, future,
    select, supervisor,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use beat::Board;
pub(crate) use grantor::{Grantor, Poke};
use handler::Handler;
pub use handler::{GiveBack, Permanent, Run};
pub(crate) use live::LiveJobs;

/// How long a claim waits for something to do before it is made anew.
const CLAIM_WAIT_SEC: u32 = 20;
/// How long a job that was asked to stop may take to do so before [`Worker::drain`] gives up on it.
const GRACE: Duration = Duration::from_secs(2);

/// What all parts of a worker share.
struct Shared {
    grantor: Arc<dyn Grantor>,
    addon: AddonId,
    handlers: HashMap<String, Handler>,
    instance: InstanceId,
    concurrency: usize,
    batch: u32,
    board: Arc<Board>,
    /// Of all workers of the queue.
    live: Arc<LiveJobs>,
    /// Of this one.
    own: LiveJobs,
    stopping: AtomicBool,
    last_error: Mutex<Option<ApiError>>,
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn begin(&self, id: JobId, job: &Job) {
        self.live.add(id, job.clone());
        self.own.add(id, job.clone());
    }

    fn end(&self, job: &Job) {
        self.live.remove(job);
        self.own.remove(job);
    }

    fn note(&self, error: &ApiError) {
        let mut last = self
            .last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *last = Some(error.clone());
    }
}

/// What is said about a worker before it starts.
#[must_use = "nothing runs before `start` or `run`"]
pub struct WorkerBuilder {
    grantor: Arc<dyn Grantor>,
    addon: AddonId,
    live: Arc<LiveJobs>,
    handlers: HashMap<String, Handler>,
    concurrency: usize,
    batch: u32,
    runtime: Option<Runtime>,
    on_start: Option<OnStart>,
}

type OnStart = Box<dyn FnOnce(&Arc<RunningWorker>) + Send>;

impl WorkerBuilder {
    pub(crate) fn new(grantor: Arc<dyn Grantor>, addon: AddonId, live: Arc<LiveJobs>) -> Self {
        WorkerBuilder {
            grantor,
            addon,
            live,
            handlers: HashMap::new(),
            concurrency: std::thread::available_parallelism().map_or(1, usize::from),
            batch: 1,
            runtime: None,
            on_start: None,
        }
    }

    /// Is told of the worker when it has started.
    pub(crate) fn on_start(
        mut self,
        tell: impl FnOnce(&Arc<RunningWorker>) + Send + 'static,
    ) -> Self {
        self.on_start = Some(Box::new(tell));
        self
    }

    /// Jobs of this type are run by `handler`, on the workers of the runtime: for what computes, or waits by the
    /// runtime's means. It gets the payload, and what it returns is the job's result.
    ///
    /// An error is a failed attempt; [`Permanent`] and [`GiveBack`] say otherwise.
    pub fn handle<P, R, F>(self, job_type: &str, handler: F) -> Self
    where
        P: DeserializeOwned,
        R: Serialize,
        F: Fn(P, &Run) -> Result<R, BoxError> + Send + Sync + 'static,
    {
        self.with(job_type, Handler::new(false, handler))
    }

    /// As [`handle`](WorkerBuilder::handle), on a thread that may be blocked: for files, sockets, processes.
    pub fn handle_blocking<P, R, F>(self, job_type: &str, handler: F) -> Self
    where
        P: DeserializeOwned,
        R: Serialize,
        F: Fn(P, &Run) -> Result<R, BoxError> + Send + Sync + 'static,
    {
        self.with(job_type, Handler::new(true, handler))
    }

    /// As [`handle`](WorkerBuilder::handle), with a future.
    pub fn handle_future<P, R, F, Fut>(self, job_type: &str, handler: F) -> Self
    where
        P: DeserializeOwned,
        R: Serialize,
        F: Fn(P, Run) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, BoxError>>,
    {
        self.with(job_type, Handler::of_future(handler))
    }

    fn with(mut self, job_type: &str, handler: Handler) -> Self {
        self.handlers.insert(job_type.to_owned(), handler);
        self
    }

    /// How many leases it holds at once, each for jobs that run one after the other; one for each processor if nothing
    /// is said.
    pub fn concurrency(mut self, leases: usize) -> Self {
        self.concurrency = leases.max(1);
        self
    }

    /// How many jobs one lease may be for; 1 if nothing is said. Many short jobs go faster so, but those of one lease
    /// wait for each other.
    pub fn batch(mut self, jobs: u32) -> Self {
        self.batch = jobs.max(1);
        self
    }

    /// The runtime in whose tree the jobs run; the global one if nothing is said.
    pub fn on(mut self, runtime: &Runtime) -> Self {
        self.runtime = Some(runtime.clone());
        self
    }

    /// Starts to claim and run jobs.
    ///
    /// # Errors
    /// If there is no handler, a type is no name, or there is no thread for the heartbeats.
    pub fn start(self) -> Result<Worker, WorkerError> {
        if self.handlers.is_empty() {
            return Err(WorkerError::NoHandler);
        }
        let types: Result<Vec<JobType>, _> = self.handlers.keys().map(JobType::new).collect();
        let types = types.map_err(|wrong| WorkerError::Type(wrong.to_string()))?;
        let heart = Dispatcher::new(1).map_err(WorkerError::Thread)?;
        let board = Arc::<Board>::default();
        let watched = Arc::downgrade(&board);
        self.grantor.watch(Arc::new(move |lease| {
            if let Some(board) = watched.upgrade() {
                board.poke(lease);
            }
        }));
        let shared = Arc::new(Shared {
            grantor: self.grantor,
            addon: self.addon,
            handlers: self.handlers,
            instance: InstanceId::generate(),
            concurrency: self.concurrency,
            batch: self.batch,
            board,
            live: self.live,
            own: LiveJobs::default(),
            stopping: AtomicBool::new(false),
            last_error: Mutex::new(None),
        });
        let (stop, stopped) = channel::rendezvous();
        let inside = Arc::clone(&shared);
        let runtime = self.runtime.as_ref().unwrap_or_else(|| Runtime::global());
        let root = runtime.spawn(move || work(&inside, &types, &heart, &stopped));
        let worker = Arc::new(RunningWorker { shared, root, stop });
        if let Some(tell) = self.on_start {
            tell(&worker);
        }
        Ok(Worker(worker))
    }

    /// Starts, and returns when the worker has ended: when its queue is drained, or its runtime shut down.
    ///
    /// # Errors
    /// As [`start`](WorkerBuilder::start).
    pub fn run(self) -> Result<(), WorkerError> {
        let worker = self.start()?;
        // Cancelled with whoever waits.
        let _ = block_on(worker.0.root.job().ended());
        Ok(())
    }
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerBuilder")
            .field("addon", &self.addon)
            .field("types", &self.handlers.keys())
            .field("concurrency", &self.concurrency)
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}

/// Why a worker did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkerError {
    /// No handler was given.
    NoHandler,
    /// A type that no job can have.
    Type(String),
    /// No thread for the heartbeats.
    Thread(DispatcherError),
}

impl fmt::Display for WorkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHandler => f.write_str("a worker without a handler does nothing: give it one"),
            Self::Type(wrong) => write!(f, "a handler's type {wrong}"),
            Self::Thread(error) => write!(f, "no thread for the heartbeats: {error}"),
        }
    }
}

impl std::error::Error for WorkerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Thread(error) => Some(error),
            _ => None,
        }
    }
}

/// A worker that runs. Dropped, it takes nothing new; what runs goes on.
#[must_use = "dropped, it takes no jobs any more"]
pub struct Worker(Arc<RunningWorker>);

/// A worker, for its owner and for the queue that it belongs to.
pub(crate) struct RunningWorker {
    shared: Arc<Shared>,
    root: JobHandle<()>,
    /// Closed to stop.
    stop: Sender<()>,
}

impl Worker {
    /// Takes nothing new from now on. Jobs that wait in a batch go back; those that run go on.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// [Stops](Worker::stop) and waits until what runs has ended. What has not when `limit` is over is asked to stop, and
    /// waits in the queue again as if nothing had happened.
    ///
    /// # Errors
    /// With the paths of jobs that did not stop: they go on under their leases.
    pub fn drain(&self, limit: Duration) -> Result<(), Stragglers> {
        self.0.drain(limit)
    }

    /// The tree of a durable job that runs here: what it is doing now.
    pub fn live_tree(&self, id: JobId) -> Option<TreeDump> {
        self.0.shared.own.tree(id)
    }

    /// The durable jobs that run here.
    pub fn running(&self) -> Vec<JobId> {
        self.0.shared.own.ids()
    }

    /// What the scheduler last refused or failed at.
    pub fn last_error(&self) -> Option<ApiError> {
        let last = &self.0.shared.last_error;
        last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("addon", &self.0.shared.addon)
            .field("running", &self.running())
            .field("stopping", &self.0.shared.is_stopping())
            .finish_non_exhaustive()
    }
}

impl RunningWorker {
    pub(crate) fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.stop.close();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.root.is_finished()
    }

    pub(crate) fn drain(&self, limit: Duration) -> Result<(), Stragglers> {
        self.stop();
        if self.ends_within(limit) {
            return Ok(());
        }
        self.shared.own.cancel_all("the worker is stopping");
        if self.ends_within(GRACE) {
            return Ok(());
        }
        let mut left = self.shared.own.paths();
        if left.is_empty() {
            // No handler runs: it is still saying what came of them.
            left.push(self.root.job().path());
        }
        Err(Stragglers(left))
    }

    fn ends_within(&self, limit: Duration) -> bool {
        let job: Job = self.root.job().clone();
        let ended = future::with_timeout(limit, async move {
            job.ended().await;
            Ok(())
        });
        matches!(block_on(ended), Ok(Ok(())))
    }
}

/// Jobs that went on although they were asked to stop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stragglers(Vec<String>);

impl Stragglers {
    /// Where they are in the tree.
    pub fn paths(&self) -> &[String] {
        &self.0
    }

    pub(crate) fn extend(&mut self, more: Stragglers) {
        self.0.extend(more.0);
    }

    pub(crate) fn into_result(self) -> Result<(), Stragglers> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Stragglers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        write!(
            f,
            "{count} jobs did not stop; let them look whether they are cancelled: "
        )?;
        f.write_str(&self.0.join(", "))
    }
}

impl std::error::Error for Stragglers {}

/// The body of a worker: heartbeats beside, claims here, each lease a job.
fn work(
    shared: &Arc<Shared>,
    types: &[JobType],
    heart: &Dispatcher,
    stopped: &Receiver<()>,
) -> Result<(), BoxError> {
    let ended = supervisor(|n| {
        let (board, grantor) = (Arc::clone(&shared.board), Arc::clone(&shared.grantor));
        let beats = n.job_options().label("heartbeats").on(heart);
        beats.launch(move || {
            board.keep(&*grantor);
            Ok(())
        });
        let leases = supervisor(|leases| {
            claim(shared, types, stopped, |lease, asked, slot| {
                let shared = Arc::clone(shared);
                let label = format!("lease {}", lease.lease_id);
                leases.job_options().label(label).launch(move || {
                    let _slot = slot;
                    lease::run(&shared, lease, asked);
                    Ok(())
                });
            })
        });
        // The last lease has ended: nothing is to be renewed.
        shared.board.close();
        Ok(leases?)
    });
    Ok(ended?)
}

/// A place for a lease; free again when it is dropped.
struct Slot(Sender<()>);

impl Drop for Slot {
    fn drop(&mut self) {
        // There is room: it was taken out before.
        let _ = self.0.try_send(());
    }
}

/// Claims as many leases as there are places, again and again, until it is stopped.
fn claim(
    shared: &Arc<Shared>,
    types: &[JobType],
    stopped: &Receiver<()>,
    mut start: impl FnMut(jobtree_protocol::ClaimAnswer, Duration, Slot),
) -> Result<(), BoxError> {
    let (give, free) = channel::bounded(shared.concurrency);
    for _ in 0..shared.concurrency {
        give.send(())?;
    }
    let mut spare = 0;
    let mut pause = Duration::from_millis(50);
    loop {
        if spare == 0 {
            select! {
                recv(stopped) -> _ => return Ok(()),
                recv(free) -> _ => spare += 1,
            }?;
        }
        while free.try_recv().is_ok() {
            spare += 1;
        }
        let asked = shared.grantor.mono();
        let reply = shared.grantor.claim(ClaimRequest {
            lease_id: None,
            addon_id: shared.addon.clone(),
            job_types: types.to_vec(),
            max_jobs: shared.batch,
            max_leases: spare,
            wait_sec: CLAIM_WAIT_SEC,
            instance_id: shared.instance,
            node_id: None,
            pids: vec![std::process::id()],
        });
        let answer = select! {
            recv(stopped) -> _ => return Ok(()),
            future(reply) -> answer => answer,
        }?;
        match answer {
            Ok(leases) => {
                pause = Duration::from_millis(50);
                for lease in leases {
                    spare = spare.saturating_sub(1);
                    start(lease, asked, Slot(give.clone()));
                }
            }
            Err(error) => {
                shared.note(&error);
                select! {
                    recv(stopped) -> _ => return Ok(()),
                    after(pause) => pause = (pause * 2).min(Duration::from_secs(5)),
                }?;
            }
        }
    }
}
