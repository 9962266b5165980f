//! Jobs that could not be scheduled.

use std::error::Error;
use std::fmt;

use crate::bodies::Boxed;
use crate::job::LaneJob;

/// Why a job was not scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhyRefused {
    /// All slots are taken.
    QueueFull,
    /// The manager was shut down.
    ShutDown,
    /// It is for the remote lane, and the manager has no transport.
    NoTransport,
}

impl fmt::Display for WhyRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WhyRefused::QueueFull => {
                "all slots of the job manager are taken; wait for one with `schedule`, or raise its `queue_limit`"
            }
            WhyRefused::ShutDown => "the job manager was shut down and schedules nothing any more",
            WhyRefused::NoTransport => {
                "the job manager has no remote transport; give it one with `JobManagerBuilder::remote`"
            }
        })
    }
}

impl Error for WhyRefused {}

/// A job that was not scheduled, and why.
pub struct ScheduleRefused<T, B = Boxed<T>> {
    why: WhyRefused,
    job: LaneJob<T, B>,
}

impl<T, B> ScheduleRefused<T, B> {
    pub(crate) fn new(why: WhyRefused, job: LaneJob<T, B>) -> ScheduleRefused<T, B> {
        ScheduleRefused { why, job }
    }

    /// Why.
    pub fn why(&self) -> WhyRefused {
        self.why
    }

    /// The job, to be scheduled later.
    pub fn into_job(self) -> LaneJob<T, B> {
        self.job
    }
}

impl<T, B> fmt::Debug for ScheduleRefused<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduleRefused")
            .field("why", &self.why)
            .field("job", &self.job)
            .finish()
    }
}

impl<T, B> fmt::Display for ScheduleRefused<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl<T, B> Error for ScheduleRefused<T, B> {}
