//! Why a job waits: everything that is in its way, and the least that would have to change.
//!
//! The obstacles are collected from the same rules that deny. Whether they are all is not argued but tried: the changes
//! they name are supposed ([`Planner`] looks at the world through its `what_if`), the real search for what starts
//! is run, and everything it did is taken back. If the job still does not start, the job that started instead stands before it,
//! and is added. Then each obstacle is left out in turn, the last first, and stays out if the job starts without its change. So
//! applying exactly the named changes starts the job, and no proper part of them does.
//!
//! The order of the obstacles is that of `Planner::obstacles` alone: what lists of jobs show ([`Planner::first_obstacle`]) is the
//! first of them, without the search.
//!
//! What is supposed of the machine is as said in [`Change`]; of time nothing is supposed but what a change names, so that
//! a job that would age or come nearer its deadline meanwhile may start sooner.

mod obstacles;
mod suppose;

use jiff::Timestamp;
use jobtree_protocol::{Explain, JobId, LoadSignal, Reason};

use crate::block::Block;
use crate::change::Change;
use crate::now::Now;
use crate::planner::Planner;

/// Jobs before a job that are named; beyond, it is only said that there are more.
const NAMED: usize = 128;

/// One thing in the way of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Obstacle {
    /// What, with its numbers.
    pub block: Block,
    /// Since when.
    pub since: Timestamp,
    /// What would have to change.
    pub change: Change,
}

/// Why a job waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The job.
    pub job: JobId,
    /// Everything in its way; none when it is about to start.
    pub obstacles: Vec<Obstacle>,
    /// Whether the changes are known to be enough, and all of them needed. Not when too many jobs stand before it.
    pub exact: bool,
    /// By the policy load does not matter.
    pub load_ignored: bool,
}

impl Obstacle {
    /// As it is told.
    pub fn to_wire(&self) -> Reason {
        let signals = self.block.high_signals().iter().map(|high| {
            let (value, bound) = high.written();
            LoadSignal {
                signal: high.signal.to_owned(),
                value,
                bound,
            }
        });
        Reason {
            code: self.block.code().to_owned(),
            message: self.block.to_string(),
            measured: self.block.measured(),
            threshold: self.block.threshold(),
            since: Some(self.since),
            change: self.change.to_string(),
            signals: signals.collect(),
        }
    }
}

impl Explanation {
    /// As it is told.
    pub fn to_wire(&self) -> Explain {
        Explain {
            job_id: self.job,
            reasons: self.obstacles.iter().map(Obstacle::to_wire).collect(),
            estimate: None,
            load_ignored: self.load_ignored,
            cost: None,
        }
    }
}

impl Planner {
    /// Why a job waits; none when it does not wait here. Changes nothing: what it tries, it takes back.
    pub fn explain(&mut self, job: JobId, now: Now) -> Option<Explanation> {
        if !self.is_waiting(job) {
            return None;
        }
        let mut obstacles = self.obstacles(job, now);
        let (behind, exact) = self.jobs_before(job, &obstacles, now);
        obstacles.extend(behind);
        if exact {
            for index in (0..obstacles.len()).rev() {
                let mut fewer = obstacles.clone();
                fewer.remove(index);
                if self.starts_with(job, &fewer, now) {
                    obstacles = fewer;
                }
            }
        }
        Some(Explanation {
            job,
            obstacles,
            exact,
            load_ignored: self.admission().policy().busy.ignore,
        })
    }

    /// Returns the first thing in a job's way, without the search for all jobs before it; none when it does not wait here, or is
    /// about to start. Changes nothing.
    pub fn first_obstacle(&mut self, job: JobId, now: Now) -> Option<Obstacle> {
        if !self.is_waiting(job) {
            return None;
        }
        if let Some(own) = self.obstacles(job, now).into_iter().next() {
            return Some(own);
        }
        let tried = self.suppose(job, &[], now);
        if tried.jobs.contains(&job) {
            return None;
        }
        let before = tried.jobs.into_iter().chain(tried.held);
        let before = before.filter(|id| *id != job).take(NAMED).collect();
        self.behind(job, before, true, now)
    }

    /// Whether a job starts when exactly these changes come about.
    fn starts_with(&mut self, job: JobId, obstacles: &[Obstacle], now: Now) -> bool {
        let changes: Vec<&Change> = obstacles.iter().map(|obstacle| &obstacle.change).collect();
        self.suppose(job, &changes, now).jobs.contains(&job)
    }

    /// Who stands before a job when nothing else is in its way: the fewest that would have to be gone.
    fn jobs_before(
        &mut self,
        job: JobId,
        obstacles: &[Obstacle],
        now: Now,
    ) -> (Option<Obstacle>, bool) {
        let changes: Vec<&Change> = obstacles.iter().map(|obstacle| &obstacle.change).collect();
        let mut gone: Vec<JobId> = Vec::new();
        loop {
            let without = Change::JobsGone(gone.clone());
            let all: Vec<&Change> = changes.iter().copied().chain([&without]).collect();
            let tried = self.suppose(job, &all, now);
            if tried.jobs.contains(&job) {
                break;
            }
            let before = gone.len();
            gone.extend(
                tried
                    .jobs
                    .iter()
                    .chain(&tried.held)
                    .filter(|id| **id != job),
            );
            if gone.len() == before || gone.len() > NAMED {
                gone.truncate(NAMED);
                let more = gone.len() == NAMED;
                return (self.behind(job, gone, more, now), false);
            }
        }
        // The last to go first: those before them may be enough.
        for index in (0..gone.len()).rev() {
            let mut fewer = gone.clone();
            fewer.remove(index);
            let without = Change::JobsGone(fewer.clone());
            let all: Vec<&Change> = changes.iter().copied().chain([&without]).collect();
            if self.suppose(job, &all, now).jobs.contains(&job) {
                gone = fewer;
            }
        }
        (self.behind(job, gone, false, now), true)
    }

    fn behind(&self, job: JobId, jobs: Vec<JobId>, more: bool, now: Now) -> Option<Obstacle> {
        if jobs.is_empty() {
            return None;
        }
        let block = Block::Behind {
            jobs: jobs.clone(),
            more,
        };
        let since = self.denied_since(job, &block, now);
        Some(Obstacle {
            block,
            since,
            change: Change::JobsGone(jobs),
        })
    }
}
