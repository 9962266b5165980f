//! A durable queue in one object, in this process: no server, a file.
//!
//! ```
//! use jobtree_scheduler::durable::{NewJob, Queue};
//!
//! let queue = Queue::in_memory();
//! let worker = queue.worker().handle("double", |number: u64, _| Ok(number * 2)).start()?;
//! let job = queue.submit(NewJob::new("double", &21)).wait()?;
//! assert_eq!(queue.result_of::<u64>(job.job_id).wait()?, 42);
//! # drop(worker);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What was submitted is on disk when `submit` answers, and is run at least once, whatever happens to the process
//! meanwhile. By default jobs start as soon as a worker is free. With a [policy](QueueBuilder::policy) they wait
//! for a quiet machine, which is then measured.
//!
//! If the process is killed, the jobs that its workers had run again as soon as the file is opened. A handler that starts a
//! program which may outlive the process reports its processes ([`Scheduler::report`]): then its job waits for the end of
//! the lease.

mod in_process;
mod new_job;
mod result;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jobtree_protocol::{CancelRequest, SubmitAnswer, SubmitManyAnswer, SubmitManyRequest};
use jobtree_queue::policy::PolicyError;
use jobtree_runtime::TreeDump;
use jobtree_store::{OpenError, SqliteOptions, Store};
use jobtree_worker::{LiveJobs, WorkerHandle};
use serde::de::DeserializeOwned;

use crate::Options;
use crate::sampler::Sampling;
use in_process::InProcess;

pub use crate::outbox::{OutboxError, Relay, Relayed};
pub use crate::workers::{
    GiveBack, Permanent, Run, Stragglers, Worker, WorkerBuilder, WorkerError,
};
pub use crate::{Reply, Scheduler};
pub use jobtree_protocol as protocol;
pub use jobtree_protocol::{
    AddonId, Advice, ApiError, Backoff, JobId, JobState, JobView, Late, Priority,
};
pub use jobtree_queue::policy::{self, Policy};
pub use jobtree_queue::signals::{HostSignals, Sample};
pub use jobtree_store::outbox;
pub use new_job::NewJob;
pub use result::{ResultError, ResultOf};

/// A durable queue in this process. Clones are the same one; see the [module](self).
#[derive(Clone)]
pub struct Queue {
    inner: Arc<Inner>,
    /// In whose name this handle submits and works.
    addon: AddonId,
}

struct Inner {
    scheduler: Scheduler,
    live: Arc<LiveJobs>,
    /// Those that have not ended, as far as it is known.
    workers: Mutex<Vec<WorkerHandle>>,
    /// There if jobs wait for a quiet machine.
    sampling: Option<Sampling>,
}

impl Queue {
    /// Opens the queue in this file, which is made if it is missing. What was left unfinished goes on.
    ///
    /// # Errors
    /// If the file is in use, not ours, too new, or cannot be opened.
    pub fn open(path: impl Into<PathBuf>) -> Result<Queue, QueueError> {
        Queue::builder().open(path)
    }

    /// A queue that forgets everything with the process: for tests.
    pub fn in_memory() -> Queue {
        Queue::builder()
            .in_memory()
            .expect("the defaults are allowed, and nothing is measured")
    }

    /// What may be said before it is opened.
    pub fn builder() -> QueueBuilder {
        QueueBuilder::default()
    }

    /// A queue on a scheduler that runs.
    pub fn on(scheduler: Scheduler, addon: AddonId) -> Queue {
        let inner = Inner {
            scheduler,
            live: Arc::default(),
            workers: Mutex::default(),
            sampling: None,
        };
        Queue {
            inner: Arc::new(inner),
            addon,
        }
    }

    /// The same queue in another name: names share the capacity fairly, and each runs its own jobs.
    pub fn for_addon(&self, addon: AddonId) -> Queue {
        Queue {
            inner: Arc::clone(&self.inner),
            addon,
        }
    }

    /// In whose name it submits and works.
    pub fn addon(&self) -> &AddonId {
        &self.addon
    }

    /// Submits a job. The answer comes when it is on disk.
    pub fn submit(&self, job: NewJob) -> Reply<SubmitAnswer> {
        match job.into_request(&self.addon) {
            Ok(request) => self.inner.scheduler.submit(request),
            Err(wrong) => Reply::ready(Err(wrong)),
        }
    }

    /// Submits many in one commit, each answered for itself. They may depend on ones before them.
    pub fn submit_many(&self, jobs: impl IntoIterator<Item = NewJob>) -> Reply<SubmitManyAnswer> {
        let requests = jobs.into_iter().map(|job| job.into_request(&self.addon));
        match requests.collect() {
            Ok(jobs) => self.inner.scheduler.submit_many(SubmitManyRequest { jobs }),
            Err(wrong) => Reply::ready(Err(wrong)),
        }
    }

    /// What a job gives, when it has ended.
    pub fn result_of<R>(&self, id: JobId) -> ResultOf<R>
    where
        R: DeserializeOwned + Send + 'static,
    {
        ResultOf::of(self.inner.scheduler.clone(), id)
    }

    /// A job as it is now.
    pub fn job(&self, id: JobId) -> Reply<JobView> {
        self.inner.scheduler.job(id)
    }

    /// Stops a job: at once if nobody runs it, else its handler is cancelled.
    pub fn cancel(&self, id: JobId, reason: impl Into<String>) -> Reply<JobState> {
        let reason = Some(reason.into());
        self.inner.scheduler.cancel(id, CancelRequest { reason })
    }

    /// A worker for jobs of this name, yet to be told what it handles.
    pub fn worker(&self) -> WorkerBuilder {
        let grantor = Arc::new(InProcess::new(self.inner.scheduler.clone()));
        let live = Arc::clone(&self.inner.live);
        let inner = Arc::downgrade(&self.inner);
        let builder = WorkerBuilder::new(grantor, self.addon.clone()).live(live);
        builder.on_start(move |worker| {
            if let Some(inner) = inner.upgrade() {
                let mut workers = inner.workers.lock().unwrap_or_else(PoisonError::into_inner);
                let ended: Vec<_> = workers.extract_if(.., |it| it.has_ended()).collect();
                workers.push(worker.clone());
                // Not under the lock: the last handle of a worker drops its handlers, which are user code.
                drop(workers);
                drop(ended);
            }
        })
    }

    /// The tree of a job that runs in this process: what it is doing now.
    pub fn live_tree(&self, id: JobId) -> Option<TreeDump> {
        self.inner.live.tree(id)
    }

    /// Lets all workers of this queue end: they take nothing new, and what runs may finish. What has not when `limit` is
    /// over is asked to stop, and waits in the queue again as if nothing had happened.
    ///
    /// # Errors
    /// With the paths of jobs that did not stop: they go on under their leases.
    pub fn drain(&self, limit: Duration) -> Result<(), Stragglers> {
        let workers = &self.inner.workers;
        let workers = workers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for worker in &workers {
            worker.stop();
        }
        let end = Instant::now().checked_add(limit);
        let mut stragglers = Stragglers::default();
        for worker in workers {
            let left = end.map_or(limit, |end| end.saturating_duration_since(Instant::now()));
            if let Err(more) = worker.drain(left) {
                stragglers.extend(more);
            }
        }
        stragglers.into_result()
    }

    /// The scheduler behind it, for everything else: explanations, schedules, pauses, history.
    pub fn scheduler(&self) -> &Scheduler {
        &self.inner.scheduler
    }

    /// The thread that measures this machine, if jobs wait for it to be quiet.
    pub fn sampling(&self) -> Option<&Sampling> {
        self.inner.sampling.as_ref()
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("addon", &self.addon)
            .field("scheduler", &self.inner.scheduler)
            .finish_non_exhaustive()
    }
}

/// What is said about a queue before it is opened.
#[derive(Clone, Debug)]
pub struct QueueBuilder {
    addon: Option<String>,
    options: Options,
    /// Somebody tells the scheduler how busy the machine is.
    told: bool,
    every: Duration,
}

impl Default for QueueBuilder {
    fn default() -> Self {
        let options = Options {
            policy: at_once(),
            ..Options::default()
        };
        QueueBuilder {
            addon: None,
            options,
            told: false,
            every: Duration::from_secs(2),
        }
    }
}

impl QueueBuilder {
    /// In whose name the queue submits and works; `app` if nothing is said.
    pub fn addon(mut self, addon: impl Into<String>) -> Self {
        self.addon = Some(addon.into());
        self
    }

    /// Jobs start by this policy, and so wait for a quiet machine: it is measured from now on, unless the policy says
    /// that load does not matter (`busy.ignore`). `Policy::default()` is a good one.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.options.policy = policy;
        self.told = false;
        self
    }

    /// How often the machine is measured, if it is; each two seconds if nothing is said.
    pub fn measure_every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// The policy decides, but nothing is measured: somebody tells the scheduler what the load is.
    pub fn without_measuring(mut self) -> Self {
        self.told = true;
        self
    }

    /// Changes any other option of the scheduler.
    pub fn options(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// Opens it in this file, which is made if it is missing.
    ///
    /// # Errors
    /// If something said above is not allowed; if the file is in use, not ours, too new, or cannot be opened.
    pub fn open(self, path: impl Into<PathBuf>) -> Result<Queue, QueueError> {
        let path = path.into();
        let (addon, policy) = (self.checked()?, self.options.policy.clone());
        policy.validate().map_err(QueueError::Policy)?;
        let store = Store::open(&SqliteOptions::new(&path)).map_err(QueueError::Store)?;
        self.start(addon, store, &path)
    }

    /// Keeps it in memory.
    ///
    /// # Errors
    /// If something said above is not allowed.
    pub fn in_memory(self) -> Result<Queue, QueueError> {
        let addon = self.checked()?;
        self.options.policy.validate().map_err(QueueError::Policy)?;
        self.start(addon, Store::in_memory(), Path::new("."))
    }

    fn checked(&self) -> Result<AddonId, QueueError> {
        let addon = self.addon.as_deref().unwrap_or("app");
        AddonId::new(addon).map_err(|wrong| QueueError::Addon(wrong.to_string()))
    }

    fn start(self, addon: AddonId, store: Store, path: &Path) -> Result<Queue, QueueError> {
        let measured = !self.told && !self.options.policy.busy.ignore;
        let scheduler = Scheduler::start(store, self.options);
        let sampling = measured.then(|| Sampling::start_in_process(&scheduler, path, self.every));
        let sampling = sampling.transpose().map_err(QueueError::Thread)?;
        let inner = Inner {
            scheduler,
            live: Arc::default(),
            workers: Mutex::default(),
            sampling,
        };
        Ok(Queue {
            inner: Arc::new(inner),
            addon,
        })
    }
}

/// A policy by which jobs start at once, however busy the machine is: no measuring, no waiting for quiet. What runs at
/// once is bounded by the workers, and by the capacity that costs are counted against.
fn at_once() -> Policy {
    let mut policy = Policy::default();
    policy.busy.ignore = true;
    policy
}

/// Why a queue was not opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum QueueError {
    /// Its name is none.
    Addon(String),
    /// The policy has values that are not allowed.
    Policy(PolicyError),
    /// The file could not be opened.
    Store(OpenError),
    /// There was no thread to measure with.
    Thread(std::io::Error),
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addon(wrong) => write!(f, "the queue's name {wrong}"),
            Self::Policy(error) => write!(f, "the policy is not allowed: {error}"),
            Self::Store(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "no thread to measure this machine with: {error}"),
        }
    }
}

impl std::error::Error for QueueError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Addon(_) => None,
            Self::Policy(error) => Some(error),
            Self::Store(error) => error.source(),
            Self::Thread(error) => Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_of_starting_at_once_is_allowed() {
        at_once().validate().unwrap();
    }

    #[test]
    fn what_is_not_allowed_is_told() {
        let named = Queue::builder().addon("no name").in_memory();
        assert!(named.unwrap_err().to_string().contains("holds ' '"));
        let mut policy = Policy::default();
        policy.quiet.quiet_max = 12.0;
        let ruled = Queue::builder().policy(policy).in_memory();
        assert!(ruled.unwrap_err().to_string().contains("quiet.quiet_max"));
    }
}
