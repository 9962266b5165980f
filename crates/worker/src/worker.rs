//! A worker that runs: heartbeats beside, claims here, each lease a job.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use jobtree_protocol::{AddonId, ApiError, InstanceId, JobId, JobType};
use jobtree_runtime::channel::{self, Receiver, Sender};
use jobtree_runtime::sync::Semaphore;
use jobtree_runtime::{
    BoxError, Clock, Dispatcher, Job, JobHandle, Runtime, TreeDump, block_on, future, supervisor,
};

use crate::beat::Board;
use crate::claiming::claim;
use crate::draw;
use crate::grantor::Grantor;
use crate::handler::Handler;
use crate::held::Held;
use crate::lease;
use crate::live::LiveJobs;
use crate::outbox::Link;
use crate::pace::Pace;
use crate::planted::Planted;
use crate::stragglers::Stragglers;

/// How long a job that was asked to stop may take to do so before [`Worker::drain`] gives up on it.
const GRACE: Duration = Duration::from_secs(2);

/// What was said about a worker before it started.
pub(crate) struct Setup {
    pub(crate) grantor: Arc<dyn Grantor>,
    pub(crate) addon: AddonId,
    pub(crate) types: Vec<JobType>,
    pub(crate) handlers: BTreeMap<String, Handler>,
    pub(crate) concurrency: usize,
    pub(crate) batch: u32,
    /// What it is, in words.
    pub(crate) program: String,
    /// Of all workers of the queue.
    pub(crate) live: Arc<LiveJobs>,
    pub(crate) planted: Planted,
}

/// What all parts of a worker share.
pub(crate) struct Shared {
    pub(crate) setup: Setup,
    pub(crate) instance: InstanceId,
    pub(crate) board: Arc<Board>,
    pub(crate) pace: Pace,
    /// The runtime's: in a simulation it is not the system's.
    pub(crate) clock: Clock,
    /// As many as jobs may run at once.
    pub(crate) running: Semaphore,
    /// Of this one.
    pub(crate) own: LiveJobs,
    /// The scheduler knows begins, as far as it did not refuse a claim that speaks of them.
    reports: AtomicBool,
    stopping: AtomicBool,
    last_error: Mutex<Option<ApiError>>,
}

impl Shared {
    pub(crate) fn grantor(&self) -> &dyn Grantor {
        &*self.setup.grantor
    }

    /// Sends what the lease's outbox has, if it is time.
    pub(crate) fn move_on(&self, held: &Arc<Held>) {
        self.linked(held, |link| held.outbox.move_on(link));
    }

    /// Calls `with` with what the lease's outbox needs.
    fn linked<T>(&self, held: &Arc<Held>, with: impl FnOnce(&Link<'_>) -> T) -> T {
        with(&Link {
            grantor: self.grantor(),
            waker: &Waker::from(Arc::clone(held)),
            note: &|error: &ApiError| self.note(error),
            begins: &**held,
        })
    }

    /// Ready when the lease's outbox is empty.
    pub(crate) fn poll_settled(&self, held: &Arc<Held>, context: &mut Context<'_>) -> Poll<()> {
        self.linked(held, |link| held.outbox.poll_settled(context, link))
    }

    /// Whether the scheduler is told of begins.
    pub(crate) fn reports_begins(&self) -> bool {
        self.reports.load(Ordering::Relaxed)
    }

    /// The scheduler does not know begins: it is of the first release.
    pub(crate) fn report_no_begins(&self) {
        self.reports.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(crate) fn begin(&self, id: JobId, job: &Job) {
        self.setup.live.add(id, job.clone());
        self.own.add(id, job.clone());
    }

    pub(crate) fn end(&self, job: &Job) {
        self.setup.live.remove(job);
        self.own.remove(job);
    }

    pub(crate) fn note(&self, error: &ApiError) {
        let mut last = self
            .last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *last = Some(error.clone());
    }
}

/// A worker that runs. Dropped, it takes nothing new; what runs goes on.
#[must_use = "dropped, it takes no jobs any more"]
pub struct Worker(WorkerHandle);

/// A worker that somebody else owns: it may be looked at and stopped, and goes on when this is dropped.
#[derive(Clone)]
pub struct WorkerHandle(Arc<Running>);

struct Running {
    shared: Arc<Shared>,
    root: JobHandle<()>,
    /// Closed to stop.
    stop: Sender<()>,
}

impl Worker {
    pub(crate) fn start(setup: Setup, runtime: &Runtime, heart: Dispatcher) -> Worker {
        let board = Arc::<Board>::default();
        let watched = Arc::downgrade(&board);
        setup.grantor.watch(Arc::new(move |lease| {
            if let Some(board) = watched.upgrade() {
                board.poke(lease);
            }
        }));
        let shared = Arc::new(Shared {
            instance: draw::instance_id(),
            board,
            pace: Pace::default(),
            clock: runtime.clock(),
            running: Semaphore::new(setup.concurrency),
            setup,
            own: LiveJobs::default(),
            reports: AtomicBool::new(true),
            stopping: AtomicBool::new(false),
            last_error: Mutex::new(None),
        });
        let (stop, stopped) = channel::rendezvous();
        let inside = Arc::clone(&shared);
        let root = runtime.spawn(move || work(&inside, &heart, &stopped));
        Worker(WorkerHandle(Arc::new(Running { shared, root, stop })))
    }

    /// One that may be kept by whoever stops it.
    pub fn handle(&self) -> &WorkerHandle {
        &self.0
    }

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

    /// Waits until it has ended: it was stopped, or its runtime was shut down.
    pub fn join(&self) {
        self.0.join();
    }

    /// The tree of a durable job that runs here: what it is doing now.
    pub fn live_tree(&self, id: JobId) -> Option<TreeDump> {
        self.0.live_tree(id)
    }

    /// The durable jobs that run here.
    pub fn running(&self) -> Vec<JobId> {
        self.0.running()
    }

    /// What the scheduler last refused or failed at.
    pub fn last_error(&self) -> Option<ApiError> {
        self.0.last_error()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.show(f, "Worker")
    }
}

impl fmt::Debug for WorkerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show(f, "WorkerHandle")
    }
}

impl WorkerHandle {
    /// As [`Worker::stop`].
    pub fn stop(&self) {
        self.0.shared.stopping.store(true, Ordering::Release);
        self.0.stop.close();
    }

    /// Whether nothing of it runs any more.
    pub fn has_ended(&self) -> bool {
        self.0.root.is_finished()
    }

    /// As [`Worker::join`].
    pub fn join(&self) {
        // Cancelled with whoever waits.
        let _ = block_on(self.0.root.job().ended());
    }

    /// As [`Worker::drain`].
    ///
    /// # Errors
    /// With the paths of jobs that did not stop: they go on under their leases.
    pub fn drain(&self, limit: Duration) -> Result<(), Stragglers> {
        self.stop();
        if self.ends_within(limit) {
            return Ok(());
        }
        let own = &self.0.shared.own;
        own.cancel_all("the worker is stopping");
        if self.ends_within(GRACE) {
            return Ok(());
        }
        let mut left = own.paths();
        if left.is_empty() {
            // No handler runs: it is still saying what came of them.
            left.push(self.0.root.job().path());
        }
        Err(Stragglers::at(left))
    }

    /// As [`Worker::live_tree`].
    pub fn live_tree(&self, id: JobId) -> Option<TreeDump> {
        self.0.shared.own.tree(id)
    }

    /// As [`Worker::running`].
    pub fn running(&self) -> Vec<JobId> {
        self.0.shared.own.ids()
    }

    /// As [`Worker::last_error`].
    pub fn last_error(&self) -> Option<ApiError> {
        let last = &self.0.shared.last_error;
        last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn ends_within(&self, limit: Duration) -> bool {
        let job: Job = self.0.root.job().clone();
        let ended = future::with_timeout(limit, async move {
            job.ended().await;
            Ok(())
        });
        matches!(block_on(ended), Ok(Ok(())))
    }

    fn show(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        f.debug_struct(name)
            .field("addon", &self.0.shared.setup.addon)
            .field("running", &self.running())
            .field("stopping", &self.0.shared.is_stopping())
            .finish_non_exhaustive()
    }
}

/// The body of a worker: heartbeats beside, claims here, each lease a job.
fn work(shared: &Arc<Shared>, heart: &Dispatcher, stopped: &Receiver<()>) -> Result<(), BoxError> {
    let ended = supervisor(|n| {
        let inside = Arc::clone(shared);
        let beats = n.job_options().label("heartbeats").on(heart);
        beats.launch(move || {
            inside.board.keep(&inside);
            Ok(())
        });
        let leases = supervisor(|leases| {
            claim(shared, stopped, |lease, asked, slot| {
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
