//! Describing a manager.

use std::error::Error;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use jobtree_runtime::{JobError, Runtime};

use crate::lane::FrameLane;
use crate::manager::JobManager;
use crate::notices::{Listener, Notice};
use crate::remote::{MAX_UNDER_WAY, RemoteTransport};
use crate::settings::{Asked, Settings, SettingsError};
use crate::shared::Shared;

/// Describes a [`JobManager`].
///
/// What is not said comes from the environment (`JOBTREE_WORKERS`, `JOBTREE_WORKER_CAP`, `JOBTREE_QUEUE_LIMIT`,
/// `JOBTREE_QUEUE_WARN`), and else from the defaults. Where those are not set, the same names with `XR_JOB_` in place of
/// `JOBTREE_` are read.
///
/// ```
/// use std::time::Duration;
/// use jobtree_lanes::JobManager;
///
/// let manager = JobManager::builder()
///     .workers(2)
///     .queue_limit(100)
///     .aging(Duration::from_millis(500))
///     .frame_lane("physics")
///     .on_notice(|notice| eprintln!("{notice}"))
///     .build()?;
/// assert_eq!(manager.slots().capacity, Some(100));
/// assert!(JobManager::builder().workers(0).build().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct JobManagerBuilder {
    runtime: Option<Runtime>,
    asked: Asked,
    frames: Vec<FrameLane>,
    transport: Option<Arc<dyn RemoteTransport>>,
    remote_requests: Option<usize>,
    listener: Option<Listener>,
}

impl JobManagerBuilder {
    pub(crate) fn new() -> JobManagerBuilder {
        JobManagerBuilder {
            runtime: None,
            asked: Asked::default(),
            frames: vec![FrameLane::COLLECT_VISIBLE_SWAP],
            transport: None,
            remote_requests: None,
            listener: None,
        }
    }

    /// Whose workers run its jobs; without it, those of the global runtime.
    pub fn runtime(mut self, runtime: &Runtime) -> Self {
        self.runtime = Some(runtime.clone());
        self
    }

    /// How many of the runtime's workers run its jobs at a time. Without it: as many as there are CPUs, less 4, at least 1.
    pub fn workers(mut self, count: usize) -> Self {
        self.asked.workers = Some(count);
        self
    }

    /// How many workers at most; 16 without it.
    pub fn worker_cap(mut self, count: usize) -> Self {
        self.asked.worker_cap = Some(count);
        self
    }

    /// How many jobs may be scheduled and not ended; 8192 without it. 0 is any number.
    pub fn queue_limit(mut self, count: usize) -> Self {
        self.asked.queue_limit = Some(count);
        self
    }

    /// From how many queued jobs of one lane and priority on there are warnings; 2048 without it. 0 is never.
    pub fn queue_warning(mut self, count: usize) -> Self {
        self.asked.queue_warning = Some(count);
        self
    }

    /// After what time a job has turns by age; 2 s without it.
    pub fn aging(mut self, after: Duration) -> Self {
        self.asked.aging = Some(after);
        self
    }

    /// How many steps a job takes in one dispatch; 64 without it.
    pub fn steps_per_dispatch(mut self, count: usize) -> Self {
        self.asked.steps_per_dispatch = Some(count);
        self
    }

    /// A frame lane that is there from the beginning. Others are made when they are first used.
    pub fn frame_lane(mut self, lane: impl Into<FrameLane>) -> Self {
        self.frames.push(lane.into());
        self
    }

    /// What carries the jobs of the remote lane. Without it, scheduling one is an error, until
    /// [`JobManager::set_remote`] gives the manager a transport.
    ///
    /// The manager does not close it.
    pub fn remote(mut self, transport: impl RemoteTransport + 'static) -> Self {
        self.transport = Some(Arc::new(transport));
        self
    }

    /// How many remote requests may be under way at a time; 64 without it. Others wait, best first.
    pub fn remote_requests(mut self, count: usize) -> Self {
        self.remote_requests = Some(count);
        self
    }

    /// Is told what the manager notices: jobs that starve, queues that are long, callers that wait, jobs that are slow.
    pub fn on_notice(mut self, listener: impl Fn(&Notice) + Send + Sync + 'static) -> Self {
        self.listener = Some(Arc::new(listener));
        self
    }

    /// Makes the manager.
    ///
    /// # Errors
    /// If one of the numbers makes no sense, or the runtime was shut down.
    pub fn build(self) -> Result<JobManager, BuildError> {
        let runtime = self.runtime.unwrap_or_else(|| Runtime::global().clone());
        let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let workers = runtime.workers();
        let settings = Settings::resolve(&self.asked, |name| std::env::var_os(name), cpus, workers)
            .map_err(BuildError::Settings)?;
        let scope = runtime
            .labelled_scope("job manager")
            .map_err(BuildError::Runtime)?;
        let max_under_way = self.remote_requests.unwrap_or(MAX_UNDER_WAY);
        let shared = Shared::new(
            &runtime,
            settings,
            scope,
            &self.frames,
            (self.transport, max_under_way),
            self.listener,
        );
        Ok(JobManager::new(shared, runtime))
    }
}

impl fmt::Debug for JobManagerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobManagerBuilder")
            .field("runtime", &self.runtime)
            .field("asked", &self.asked)
            .field("frames", &self.frames)
            .finish_non_exhaustive()
    }
}

/// Why there is no manager.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// A number makes no sense.
    Settings(SettingsError),
    /// The runtime was shut down.
    Runtime(JobError),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Settings(error) => error.fmt(f),
            BuildError::Runtime(error) => {
                write!(
                    f,
                    "a job manager needs a runtime that was not shut down: {error}"
                )
            }
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            BuildError::Settings(error) => Some(error),
            BuildError::Runtime(error) => Some(error),
        }
    }
}
