//! What a job gives, as a value of the program's own.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use jobtree_protocol::{ApiError, JobId, JobState, JobView};
use jobtree_runtime::{Cancelled, block_on};
use serde::de::DeserializeOwned;

use crate::Scheduler;

/// How long the scheduler is asked to wait at a time.
const AT_A_TIME: Duration = Duration::from_secs(300);

/// The result of a job that may not have ended yet. Await it on any executor, or block for it with
/// [`wait`](ResultOf::wait).
#[must_use = "nothing waits for the result yet"]
pub struct ResultOf<R> {
    job: JobId,
    future: Pin<Box<dyn Future<Output = Result<R, ResultError>> + Send>>,
}

impl<R: DeserializeOwned + Send + 'static> ResultOf<R> {
    pub(super) fn of(scheduler: Scheduler, job: JobId) -> Self {
        let future = async move {
            loop {
                let told = scheduler.wait_for(job, AT_A_TIME).await;
                let told = told.map_err(ResultError::Unknown)?;
                if told.state.is_ended() {
                    return read(told);
                }
            }
        };
        ResultOf {
            job,
            future: Box::pin(future),
        }
    }
}

impl<R> ResultOf<R> {
    /// The job.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// Waits for it. A job of a runtime parks its stack meanwhile; any other thread sleeps.
    ///
    /// # Errors
    /// If the job ended badly, or its result has another shape, or the current job is cancelled.
    pub fn wait(self) -> Result<R, ResultError> {
        block_on(self.future).map_err(ResultError::Interrupted)?
    }
}

impl<R> Future for ResultOf<R> {
    type Output = Result<R, ResultError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.future.as_mut().poll(context)
    }
}

impl<R> fmt::Debug for ResultOf<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResultOf")
            .field("job", &self.job)
            .finish_non_exhaustive()
    }
}

fn read<R: DeserializeOwned>(job: JobView) -> Result<R, ResultError> {
    let shape = |error: serde_json::Error| ResultError::Shape(error.to_string());
    match job.state {
        JobState::Done => match &job.result {
            Some(result) => result.read().map_err(shape),
            None => serde_json::from_str("null").map_err(shape),
        },
        JobState::Canceled => Err(ResultError::Canceled(job.last_error)),
        _ => Err(ResultError::Failed {
            error: job.last_error.unwrap_or_default(),
            attempts: job.attempts,
            quarantined: job.quarantined,
        }),
    }
}

/// Why there is no result.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ResultError {
    /// The job has failed for good. It is kept, and can be redriven.
    Failed {
        /// Why its last run failed.
        error: String,
        /// How many runs it had.
        attempts: u32,
        /// It took too many workers with it.
        quarantined: bool,
    },
    /// Somebody stopped it.
    Canceled(Option<String>),
    /// It is done, but its result is no such value.
    Shape(String),
    /// The scheduler does not know, or does not answer.
    Unknown(ApiError),
    /// Whoever waits was cancelled; the job goes on.
    Interrupted(Cancelled),
}

impl fmt::Display for ResultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed {
                error, attempts, ..
            } => write!(f, "the job failed after {attempts} attempts: {error}"),
            Self::Canceled(None) => f.write_str("the job was canceled"),
            Self::Canceled(Some(why)) => write!(f, "the job was canceled: {why}"),
            Self::Shape(error) => write!(
                f,
                "the job is done, but its result is of another type than what it is read as: {error}"
            ),
            Self::Unknown(error) => error.fmt(f),
            Self::Interrupted(cancelled) => cancelled.fmt(f),
        }
    }
}

impl std::error::Error for ResultError {}
