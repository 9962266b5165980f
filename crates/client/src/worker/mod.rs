//! Workers that run a daemon's jobs in this process.
//!
//! A handler is a function; each run of it is a job in the tree of a [`Runtime`], under a label of the job's type and id.
//! What is canceled at the daemon is cancelled here, with everything below, within a moment: the daemon's event stream
//! tells. A worker that does not reach its daemon stops its jobs by its own clock before their leases end, so that nobody
//! runs them twice at the same time.
//!
//! # Jobs on a lane
//!
//! A handler may hand its work to a job manager (`jobtree-lanes`), for its priorities and lanes, and wait for it there. Such
//! work belongs to the manager's tree, not to the handler's, so the wish that it stop must be passed on: `on_lane` (with the
//! feature `lanes`) does that.

mod errands;
mod grantor;
mod place;
mod signals;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::AddonId;
use jobtree_runtime::{BoxError, Runtime};
use jobtree_worker::{Run, Stragglers, WorkerBuilder, WorkerError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::Client;
#[cfg(feature = "lanes")]
pub(crate) use errands::Errands;
use grantor::OverHttp;

/// A worker, before it starts; see the [module](self).
///
/// ```no_run
/// use jobtree_client::{Client, Worker};
///
/// let client = Client::builder("http://127.0.0.1:7717").token("…").build()?;
/// Worker::new(client)
///     .addon("photos")
///     .handle("thumbnail", |path: String, run| {
///         run.log(format!("reading {path}"));
///         run.progress(0.5, "half of it");
///         Ok(path.len())
///     })
///     .run()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing runs before `start` or `run`"]
pub struct Worker {
    client: Client,
    addon: String,
    patience: Duration,
    /// All that is said of it otherwise, in order.
    said: Vec<Box<dyn FnOnce(WorkerBuilder) -> WorkerBuilder + Send>>,
}

impl Worker {
    /// A worker for jobs of this daemon, yet to be told what it handles.
    pub fn new(client: Client) -> Self {
        Worker {
            client,
            addon: "app".to_owned(),
            patience: Duration::from_secs(30),
            said: Vec::new(),
        }
    }

    fn say(mut self, what: impl FnOnce(WorkerBuilder) -> WorkerBuilder + Send + 'static) -> Self {
        self.said.push(Box::new(what));
        self
    }

    /// Whose jobs it runs; `app`'s if nothing is said.
    pub fn addon(mut self, addon: impl Into<String>) -> Self {
        self.addon = addon.into();
        self
    }

    /// Jobs of this type are run by `handler`, on the workers of the runtime: for what computes, or waits by the
    /// runtime's means. It gets the payload, and what it returns is the job's result.
    ///
    /// An error is a failed attempt; [`Permanent`](crate::Permanent) and [`GiveBack`](crate::GiveBack) say otherwise.
    pub fn handle<P, R, F>(self, job_type: &str, handler: F) -> Self
    where
        P: DeserializeOwned + 'static,
        R: Serialize + 'static,
        F: Fn(P, &Run) -> Result<R, BoxError> + Send + Sync + 'static,
    {
        let job_type = job_type.to_owned();
        self.say(move |builder| builder.handle(&job_type, handler))
    }

    /// As [`handle`](Worker::handle), on a thread that may be blocked: for files, sockets, processes.
    pub fn handle_blocking<P, R, F>(self, job_type: &str, handler: F) -> Self
    where
        P: DeserializeOwned + 'static,
        R: Serialize + 'static,
        F: Fn(P, &Run) -> Result<R, BoxError> + Send + Sync + 'static,
    {
        let job_type = job_type.to_owned();
        self.say(move |builder| builder.handle_blocking(&job_type, handler))
    }

    /// As [`handle`](Worker::handle), with a future.
    pub fn handle_future<P, R, F, Fut>(self, job_type: &str, handler: F) -> Self
    where
        P: DeserializeOwned + 'static,
        R: Serialize + 'static,
        F: Fn(P, Run) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, BoxError>> + 'static,
    {
        let job_type = job_type.to_owned();
        self.say(move |builder| builder.handle_future(&job_type, handler))
    }

    /// How many jobs run at once; one for each processor if nothing is said.
    pub fn concurrency(self, leases: usize) -> Self {
        self.say(move |builder| builder.concurrency(leases))
    }

    /// How many jobs one lease may be for, at most; 500 if nothing is said. It is for so many that they are worth a tenth
    /// of a second, by how long jobs took here so far: many short ones share requests, and long ones come one by
    /// one. Those of one lease wait for each other.
    pub fn batch(self, jobs: u32) -> Self {
        self.say(move |builder| builder.batch(jobs))
    }

    /// The runtime in whose tree the jobs run; the global one if nothing is said.
    pub fn on(self, runtime: &Runtime) -> Self {
        let runtime = runtime.clone();
        self.say(move |builder| builder.on(&runtime))
    }

    /// What this program is, in words, for those who look at who works; its file's name if nothing is said.
    pub fn program(self, program: impl Into<String>) -> Self {
        let program = program.into();
        self.say(move |builder| builder.program(program))
    }

    /// How long what runs may go on after a signal that the process shall end; 30 seconds if nothing is said.
    pub fn drain_for(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Starts to claim and run jobs.
    ///
    /// # Errors
    /// If there is no handler, a type or the addon is no name, or there is no thread.
    pub fn start(self) -> Result<jobtree_worker::Worker, WorkError> {
        let addon =
            AddonId::new(&self.addon).map_err(|wrong| WorkError::Addon(wrong.to_string()))?;
        let grantor = Arc::new(OverHttp::new(self.client, addon.clone()));
        let builder = WorkerBuilder::new(grantor, addon);
        let builder = self
            .said
            .into_iter()
            .fold(builder, |builder, say| say(builder));
        builder.start().map_err(WorkError::Worker)
    }

    /// Starts, and returns when the worker has ended: by SIGTERM or SIGINT, which let what runs finish for as long as
    /// [`drain_for`](Worker::drain_for) says; a second one does not wait. What has not finished then waits in the queue
    /// again.
    ///
    /// # Errors
    /// As [`start`](Worker::start); and with the paths of jobs that did not stop when they were asked to.
    pub fn run(self) -> Result<(), WorkError> {
        let patience = self.patience;
        let worker = self.start()?;
        signals::run(&worker, patience)
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("client", &self.client)
            .field("addon", &self.addon)
            .finish_non_exhaustive()
    }
}

/// Why a worker did not start, or did not end well.
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkError {
    /// The addon is no name.
    Addon(String),
    /// It could not start.
    Worker(WorkerError),
    /// Signals cannot be listened to.
    Signals(std::io::Error),
    /// Jobs went on although they were asked to stop.
    Stragglers(Stragglers),
}

impl fmt::Display for WorkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addon(wrong) => write!(f, "the worker's addon {wrong}"),
            Self::Worker(error) => error.fmt(f),
            Self::Signals(error) => write!(f, "signals cannot be listened to: {error}"),
            Self::Stragglers(stragglers) => stragglers.fmt(f),
        }
    }
}

impl std::error::Error for WorkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Addon(_) => None,
            Self::Worker(error) => error.source(),
            Self::Signals(error) => Some(error),
            Self::Stragglers(_) => None,
        }
    }
}
