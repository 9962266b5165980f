//! Why a simulation has failed.

use std::collections::HashMap;
use std::fmt;

use jobtree_pool::raw::sim::SimulationError;
use jobtree_tree::{JobError, JobState, TreeDump, WaitingFor};

use super::events::Numbers;

/// Why a simulation has no value to report.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SimError {
    /// There is no simulation here: stacks cannot be switched, or one runs on this thread already, or it was asked for
    /// on a worker of a pool.
    Unavailable(SimulationError),
    /// The program returned an error or panicked.
    Failed(JobError),
    /// A task that nobody waits for has panicked: with this message.
    TaskPanicked(String),
    /// A callback that the simulator called has panicked, with this message: the callback of a cancellation, or a waker.
    CallbackPanicked(String),
    /// All wait, and no deadline is left: a deadlock.
    Stuck {
        /// The jobs that have not ended.
        jobs: Vec<WaitingJob>,
    },
    /// The program has not ended within the limit.
    NoEnd {
        /// After how many steps.
        steps: u64,
        /// The jobs that had not ended.
        jobs: Vec<WaitingJob>,
    },
    /// The program has ended, but there were jobs or tasks that did not, although they were cancelled. They were unwound.
    LeftOver {
        /// The jobs that have not ended.
        jobs: Vec<WaitingJob>,
        /// How many tasks have not, those of jobs among them.
        tasks: u64,
    },
}

/// A job that does not end, as [`SimError`] tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingJob {
    /// The labels from the root down. A job without a label is called by its number in the trace.
    pub path: String,
    /// Where it is in its life.
    pub state: JobState,
    /// What it waits for, as far as it is known.
    pub waits_for: Option<String>,
}

impl WaitingJob {
    /// All jobs of `dumps` that have not ended, except roots.
    pub(super) fn all_of(dumps: &[TreeDump], numbers: &Numbers) -> Vec<WaitingJob> {
        let mut labels: Vec<String> = Vec::new();
        let mut paths = HashMap::new();
        let mut alive = Vec::new();
        for job in dumps.iter().flat_map(TreeDump::jobs) {
            labels.truncate(job.depth);
            let has_label = job.label != job.id.to_string();
            labels.push(if has_label {
                job.label.clone()
            } else {
                format!("job {}", numbers.of(job.id))
            });
            paths.insert(job.id, labels.join("/"));
            // The root belongs to nobody.
            if job.depth > 0 && !job.state.is_terminal() {
                alive.push((job.id, job.state, job.waiting_for));
            }
        }
        let describe = |waiting| match waiting {
            WaitingFor::Job(id) => match paths.get(&id) {
                Some(path) => path.clone(),
                None => format!("job {}, which has ended", numbers.of(id)),
            },
            other => other.to_string(),
        };
        alive
            .into_iter()
            .map(|(id, state, waiting)| WaitingJob {
                path: paths[&id].clone(),
                state,
                waits_for: waiting.map(describe),
            })
            .collect()
    }
}

impl fmt::Display for WaitingJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.path, self.state)?;
        match &self.waits_for {
            Some(what) => write!(f, " waits for {what}"),
            None if self.state == JobState::Pending => f.write_str(" was not started"),
            None if self.state == JobState::Completing => f.write_str(" waits for its children"),
            // The pool knows neither jobs nor names.
            None => f.write_str(" computes, or waits for a fork, a scope or a latch"),
        }
    }
}

/// Jobs, one a line.
pub(super) struct Lines<'a>(pub(super) &'a [WaitingJob]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|job| write!(f, "\n  {job}"))
    }
}

impl fmt::Display for SimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SimError::Unavailable(error) => error.fmt(f),
            SimError::Failed(error) => error.fmt(f),
            SimError::TaskPanicked(message) => {
                write!(f, "a task that nobody waits for panicked: {message}")
            }
            SimError::CallbackPanicked(message) => {
                write!(f, "a callback or a waker panicked: {message}")
            }
            SimError::Stuck { jobs } => write!(
                f,
                "stuck: everybody waits and no deadline is left. Not ended:{}",
                Lines(jobs)
            ),
            SimError::NoEnd { steps, jobs } => write!(
                f,
                "no end after {steps} steps. If the program is only long, raise `max_steps`; if it computes until its \
                 time is over, set `time_per_step`. Not ended:{}",
                Lines(jobs)
            ),
            SimError::LeftOver { jobs, tasks } => write!(
                f,
                "the program has ended, but {tasks} tasks did not although they were cancelled, and had to be unwound; \
                 wait for them, or have them call `checkpoint`. Not ended:{}",
                Lines(jobs)
            ),
        }
    }
}

impl std::error::Error for SimError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SimError::Unavailable(error) => Some(error),
            SimError::Failed(error) => Some(error),
            _ => None,
        }
    }
}
