//! Jobs that fail when their deadline passes while they wait.

use std::collections::{BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use jobtree_protocol::{JobId, JobState, Late};
use jobtree_queue::JobRecord;

use super::operations::MissDeadline;
use super::turn::Turn;

/// The deadlines of waiting jobs, by the wall clock.
#[derive(Debug, Default)]
pub(super) struct LateJobs {
    order: BTreeSet<(Timestamp, JobId)>,
    deadline_of: HashMap<JobId, Timestamp>,
    /// Jobs whose end is under way.
    ending: HashSet<JobId>,
}

impl LateJobs {
    /// Takes a job as it is now.
    pub(super) fn watch(&mut self, job: &JobRecord) {
        let intent = &job.intent;
        let wanted = intent.late == Late::Fail && job.redrives == 0;
        let deadline = intent
            .deadline_at
            .filter(|_| wanted && job.state == JobState::Queued);
        self.forget(job.id);
        if let Some(deadline) = deadline {
            self.order.insert((deadline, job.id));
            self.deadline_of.insert(job.id, deadline);
        }
    }

    fn forget(&mut self, job: JobId) {
        if let Some(before) = self.deadline_of.remove(&job) {
            self.order.remove(&(before, job));
        }
    }

    /// Ends the jobs that are late.
    pub(super) fn sweep(&mut self, turn: &mut Turn) {
        let late = self.order.iter();
        let late = late.take_while(|(at, _)| *at <= turn.now.wall);
        let late: Vec<JobId> = late
            .map(|(_, job)| *job)
            .filter(|job| !self.ending.contains(job))
            .collect();
        for job in late {
            self.ending.insert(job);
            turn.ask(MissDeadline { job });
        }
    }

    /// The end of a late job was answered. Returns `true` if it has to be read: the store did not find it late.
    pub(super) fn answered(&mut self, job: JobId, refused: bool) -> bool {
        self.ending.remove(&job);
        if refused {
            self.forget(job);
        }
        refused
    }

    /// Returns the first deadline that has not passed.
    pub(super) fn next(&self, wall: Timestamp) -> Option<Timestamp> {
        let first = self.order.first().map(|(at, _)| *at);
        first.filter(|at| *at > wall)
    }
}
