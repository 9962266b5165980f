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
    /// Jobs that were submitted and not found yet, and when.
    waiting: BTreeMap<JobId, Duration>,
    /// How long each job waited from its submission to its first reservation or lease.
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

    pub(super) fn committed(&mut self, written: &[Written], time: Duration) {
        for event in written.iter().flat_map(|it| &it.changes.events) {
            let Some(job) = event.job_id else { continue };
            match event.kind {
                EventKind::Submitted => drop(self.waiting.insert(job, time)),
                EventKind::Dispatching | EventKind::Running => {
                    let since = self.waiting.remove(&job);
                    self.found
                        .extend(since.map(|since| time.saturating_sub(since)));
                }
                _ => {}
            }
        }
    }

    /// Returns the time within which so many of 100 jobs were found.
    pub fn found_within(&self, percent: usize) -> Duration {
        let mut found = self.found.clone();
        found.sort_unstable();
        let place = (found.len() * percent / 100).min(found.len().saturating_sub(1));
        found.get(place).copied().unwrap_or_default()
    }
}
