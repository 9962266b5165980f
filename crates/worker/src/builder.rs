//! What is said about a worker before it starts.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use jobtree_protocol::{AddonId, JobType};
use jobtree_runtime::{BoxError, Dispatcher, DispatcherError, Runtime};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::grantor::Grantor;
use crate::handler::{Handler, Run};
use crate::live::LiveJobs;
use crate::planted::Planted;
use crate::worker::{Setup, Worker, WorkerHandle};

/// What is said about a worker before it starts.
#[must_use = "nothing runs before `start` or `run`"]
pub struct WorkerBuilder {
    grantor: Arc<dyn Grantor>,
    addon: AddonId,
    live: Arc<LiveJobs>,
    handlers: BTreeMap<String, Handler>,
    concurrency: usize,
    batch: u32,
    program: String,
    runtime: Option<Runtime>,
    planted: Planted,
    on_start: Option<OnStart>,
}

type OnStart = Box<dyn FnOnce(&WorkerHandle) + Send>;

impl WorkerBuilder {
    /// A worker of this addon's jobs.
    pub fn new(grantor: Arc<dyn Grantor>, addon: AddonId) -> Self {
        WorkerBuilder {
            grantor,
            addon,
            live: Arc::default(),
            handlers: BTreeMap::new(),
            concurrency: std::thread::available_parallelism().map_or(1, usize::from),
            batch: 500,
            program: own_name(),
            runtime: None,
            planted: Planted::default(),
            on_start: None,
        }
    }

    /// Notes what runs here, too, beside what other workers run.
    pub fn live(mut self, live: Arc<LiveJobs>) -> Self {
        self.live = live;
        self
    }

    /// Is told of the worker when it has started.
    pub fn on_start(mut self, tell: impl FnOnce(&WorkerHandle) + Send + 'static) -> Self {
        self.on_start = Some(Box::new(tell));
        self
    }

    /// Jobs of this type are run by `handler`, on the workers of the runtime: for what computes, or waits by the
    /// runtime's means. It gets the payload, and what it returns is the job's result.
    ///
    /// An error is a failed attempt; [`Permanent`](crate::Permanent) and [`GiveBack`](crate::GiveBack) say otherwise.
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

    /// How many jobs run at once; one for each processor if nothing is said.
    pub fn concurrency(mut self, leases: usize) -> Self {
        self.concurrency = leases.max(1);
        self
    }

    /// How many jobs one lease may be for, at most; 500 if nothing is said. It is for so many that they are worth a tenth
    /// of a second, by how long jobs took here so far: many short ones share commits, and long ones come one by
    /// one. Those of one lease wait for each other.
    pub fn batch(mut self, jobs: u32) -> Self {
        self.batch = jobs.max(1);
        self
    }

    /// What this program is, in words, for those who look at who works; its file's name if nothing is said.
    pub fn program(mut self, program: impl Into<String>) -> Self {
        self.program = program.into();
        self
    }

    /// The runtime in whose tree the jobs run; the global one if nothing is said.
    pub fn on(mut self, runtime: &Runtime) -> Self {
        self.runtime = Some(runtime.clone());
        self
    }

    /// Switches a mistake on.
    #[cfg(feature = "sim")]
    pub fn plant(mut self, bug: crate::Bug) -> Self {
        self.planted = Planted::new(bug);
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
        let setup = Setup {
            grantor: self.grantor,
            addon: self.addon,
            types,
            handlers: self.handlers,
            concurrency: self.concurrency,
            batch: self.batch,
            program: self.program,
            live: self.live,
            planted: self.planted,
        };
        let runtime = self.runtime.as_ref().unwrap_or_else(|| Runtime::global());
        let worker = Worker::start(setup, runtime, heart);
        if let Some(tell) = self.on_start {
            tell(worker.handle());
        }
        Ok(worker)
    }

    /// Starts, and returns when the worker has ended: when its queue is drained, or its runtime shut down.
    ///
    /// # Errors
    /// As [`start`](WorkerBuilder::start).
    pub fn run(self) -> Result<(), WorkerError> {
        self.start()?.join();
        Ok(())
    }
}

fn own_name() -> String {
    let path = std::env::current_exe().ok();
    let name = path.as_ref().and_then(|path| path.file_name());
    name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
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
