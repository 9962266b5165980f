//! What schedulers cost the database and each other in a run, and how long jobs wait to be found.

use std::collections::BTreeMap;
use std::time::Duration;

use jobtree_protocol::{EventKind, JobId};
use jobtree_store::Written;

use crate::core::{Answer, Op};

/// Counts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Operations that read the store.
    pub reads: u64,
    /// Operations that write to it: proposals, ends of leases, notes.
    pub writes: u64,
    /// Notifications that came to a scheduler.
    pub hints: u64,
    /// Proposals for a job that another scheduler had by then: each waited for the lock on the job's row, and was refused.
    pub overtaken: u64,
    /// Jobs that were submitted, could start at once and were not found yet, and when they were submitted.
    waiting: BTreeMap<JobId, Duration>,
    /// How long each of these jobs waited from its submission to its first reservation or lease.
    found: Vec<Duration>,
}

impl Traffic {
    pub(super) fn asked(&mut self, op: &Op) {
        match op {
            Op::ReadLive(_)
            | Op::ReadNotes(_)
            | Op::ReadNodes(_)
            | Op::ReadQueued(_)
            | Op::ReadJobs(_)
            | Op::ReadExplained(_)
            | Op::ReadLeases(_)
            | Op::FindClaimed(_)
            | Op::FindRequested(_)
            | Op::PollEnded(_)
            | Op::PollDispatchable(_)
            | Op::PollEvents(_)
            | Op::PollLog(_) => self.reads += 1,
            _ => self.writes += 1,
        }
    }

    pub(super) fn answered(&mut self, answer: &Answer) {
        let refused = matches!(
            answer,
            Answer::Reserve(_, Err(_)) | Answer::Claim(_, Err(_))
        );
        self.overtaken += u64::from(refused);
    }

    /// Takes what a command wrote. Of the jobs that it submitted, those count that could start at once.
    pub(super) fn committed(
        &mut self,
        written: &[Written],
        time: Duration,
        could_start: impl Fn(JobId) -> bool,
    ) {
        for event in written.iter().flat_map(|it| &it.changes.events) {
            let Some(job) = event.job_id else { continue };
            match event.kind {
                EventKind::Submitted if could_start(job) => drop(self.waiting.insert(job, time)),
                EventKind::Dispatching | EventKind::Running => {
                    let since = self.waiting.remove(&job);
                    self.found
                        .extend(since.map(|since| time.saturating_sub(since)));
                }
                _ => {}
            }
        }
    }

    /// Returns how long each job that could start at once waited from its submission to its first reservation or lease.
    pub fn found(&self) -> &[Duration] {
        &self.found
    }
}
