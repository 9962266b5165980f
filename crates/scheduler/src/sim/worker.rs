//! Workers of the simulation: they ask, run, renew and answer; and now and then crash, stall or lie.
//!
//! A worker counts its lease from the moment at which it *sent* the last renewal that was answered, and begins to run
//! when its first one was: a grant may have waited on its way for longer than it holds. When its own clock says that the
//! lease may be over, it stops.

use std::collections::VecDeque;
use std::time::Duration;

use jobtree_protocol::{AddonId, InstanceId, JobId, JobView, LeaseId};
use serde::{Deserialize, Serialize};

use crate::core::CapacityRequest;

/// What a job of the simulation does.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Script {
    /// How long it runs, in milliseconds.
    pub(super) takes: u64,
    /// It takes its worker with it.
    pub(super) poison: bool,
    /// Its first so many runs fail.
    pub(super) fails: u32,
}

impl Default for Script {
    /// Of a job that says nothing, such as one of a schedule.
    fn default() -> Self {
        Script {
            takes: 1000,
            poison: false,
            fails: 0,
        }
    }
}

/// How a worker gets its jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It claims.
    Claim,
    /// It takes up dispatches.
    TakeUp,
    /// It has no jobs in the queue, and asks for capacity.
    Capacity,
}

/// One job of a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) id: JobId,
    pub(super) attempts: u32,
    pub(super) script: Script,
}

impl Task {
    pub(super) fn of(job: &JobView) -> Self {
        let script = job.payload.as_ref().and_then(|json| json.read().ok());
        Self {
            id: job.job_id,
            attempts: job.attempts,
            script: script.unwrap_or_default(),
        }
    }
}

/// A lease that a worker has.
#[derive(Clone, Debug)]
pub(super) struct Holding {
    pub(super) lease: LeaseId,
    pub(super) tasks: VecDeque<Task>,
    /// A renewal was answered: it may run.
    pub(super) confirmed: bool,
    /// When it has to stop, by its own clock.
    pub(super) fence: Duration,
    pub(super) next_beat: Duration,
    /// When what it runs is done; none while it waits to begin.
    pub(super) ends: Option<Duration>,
    /// It has worked, and tells so: since when, until it is answered.
    pub(super) telling: Option<Duration>,
    /// Jobs that it was asked for and will not begin.
    pub(super) given_back: Vec<JobId>,
}

/// What a worker does.
#[derive(Clone, Debug)]
pub(super) enum Doing {
    /// Nothing.
    Idle,
    /// It has asked, and asks again then.
    Asking {
        /// The id that it drew.
        lease: Option<LeaseId>,
        again: Duration,
    },
    /// It works.
    Holding(Holding),
    /// It hangs.
    Stalled(Holding),
    /// Its process is gone.
    Dead,
}

pub(super) struct Worker {
    pub(super) node: usize,
    pub(super) addon: AddonId,
    pub(super) way: Way,
    pub(super) instance: InstanceId,
    pub(super) doing: Doing,
    /// Grows with each change of mind: what is for an earlier turn is for nobody.
    pub(super) turn: u64,
    /// Which timer counts.
    pub(super) alarm: u64,
    /// A lease that it asked for before it has a job to run under it.
    pub(super) spare: Option<LeaseId>,
    /// The request for capacity that was not answered.
    pub(super) request: Option<CapacityRequest>,
    /// Of a worker that ignores its clock.
    pub(super) careless: bool,
}

impl Worker {
    /// Whether it may believe that it holds a lease.
    pub(super) fn believes(&self, lease: LeaseId, time: Duration) -> bool {
        let (Doing::Holding(holding) | Doing::Stalled(holding)) = &self.doing else {
            return false;
        };
        holding.lease == lease && holding.confirmed && time < holding.fence && !self.careless
    }

    /// The job that it runs and believes to hold.
    pub(super) fn runs(&self, time: Duration) -> Option<(JobId, LeaseId)> {
        let Doing::Holding(holding) = &self.doing else {
            return None;
        };
        let works = holding.ends.is_some_and(|ends| ends > time);
        let believes = self.careless || time < holding.fence;
        let task = holding.tasks.front()?;
        (works && believes && holding.confirmed).then_some((task.id, holding.lease))
    }
}
