//! A program that uses a store as hard as it can, and a ledger outside of it of all that was acknowledged. However the
//! program ends, whoever opens the store afterwards must find what stands in the ledger.

use std::collections::{HashMap, HashSet};

use jobtree_protocol::{CompleteRequest, EventKind, JobId, JobState, LeaseId};
use jobtree_queue::replay::Story;
use jobtree_queue::transitions::Proof;
use jobtree_store::Store;

use super::{claim, stamp, submission};

/// One acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    Submitted(JobId),
    Claimed(JobId, LeaseId),
    Done(JobId, LeaseId),
}

impl Entry {
    pub fn line(&self) -> String {
        match self {
            Self::Submitted(job) => format!("submitted {job}"),
            Self::Claimed(job, lease) => format!("claimed {job} {lease}"),
            Self::Done(job, lease) => format!("done {job} {lease}"),
        }
    }

    /// `None` for a line that was cut off, or is none of ours.
    pub fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["submitted", job] => Some(Self::Submitted(job.parse().ok()?)),
            ["claimed", job, lease] => Some(Self::Claimed(job.parse().ok()?, lease.parse().ok()?)),
            ["done", job, lease] => Some(Self::Done(job.parse().ok()?, lease.parse().ok()?)),
            _ => None,
        }
    }
}

/// Ends the leases of a program that is gone, as an engine does after their term.
pub fn recover(store: &Store) {
    for lease in store.live_leases().wait().expect("the leases") {
        let proof = Proof::Seen {
            revision: lease.revision,
        };
        store
            .expire(stamp(), lease.id, proof)
            .wait()
            .expect("it is over");
    }
}

/// Submits until the store fails, or so many times.
pub fn submit_on(store: &Store, times: usize, tell: &(dyn Fn(Entry) + Sync)) {
    for time in 0..times {
        if time % 4 == 0 {
            let batch = (0..5).map(|_| submission()).collect();
            let Ok(answers) = store.submit_many(stamp(), batch).wait() else {
                return;
            };
            for answer in answers {
                tell(Entry::Submitted(answer.expect("valid").job_id));
            }
        } else {
            let Ok(answer) = store.submit(stamp(), submission()).wait() else {
                return;
            };
            tell(Entry::Submitted(answer.job_id));
        }
    }
}

/// Claims and completes until the store fails, or so many times.
pub fn work_on(store: &Store, times: usize, tell: &(dyn Fn(Entry) + Sync)) {
    for _ in 0..times {
        let Ok(waiting) = store.queued(None, 8).wait() else {
            return;
        };
        let jobs: Vec<JobId> = waiting.iter().map(|job| job.id).collect();
        if jobs.is_empty() {
            std::thread::yield_now();
            continue;
        }
        let lease = LeaseId::generate();
        let claimed = match store.claim(stamp(), jobs, claim(lease)).wait() {
            Ok(claimed) => claimed,
            // Another worker was faster.
            Err(jobtree_store::StoreError::Refused(_)) => continue,
            Err(_) => return,
        };
        for job in &claimed.jobs {
            tell(Entry::Claimed(job.id, lease));
        }
        let requests: Vec<_> = claimed
            .jobs
            .iter()
            .map(|job| (job.id, CompleteRequest::done(lease, None)))
            .collect();
        let Ok(answers) = store.complete_many(stamp(), requests).wait() else {
            return;
        };
        for (job, answer) in claimed.jobs.iter().zip(answers) {
            assert_eq!(answer.expect("its lease holds").state, JobState::Done);
            tell(Entry::Done(job.id, lease));
        }
    }
}

/// What is wrong with the store, compared with the ledger; nothing, hopefully.
pub fn compare(store: &Store, ledger: &[Entry]) -> Result<(), String> {
    let mut done: HashMap<JobId, LeaseId> = HashMap::new();
    let mut jobs = HashSet::new();
    for entry in ledger {
        match entry {
            Entry::Submitted(job) | Entry::Claimed(job, _) => drop(jobs.insert(*job)),
            Entry::Done(job, lease) => {
                if let Some(other) = done.insert(*job, *lease) {
                    return Err(format!("{job} was done under {other} and under {lease}"));
                }
            }
        }
    }
    for job in jobs {
        let record = store
            .job(job)
            .wait()
            .map_err(|error| error.to_string())?
            .job;
        let events = store
            .events_of(job)
            .wait()
            .map_err(|error| error.to_string())?;
        let story = Story::of(events.iter().map(|recorded| &recorded.event))
            .map_err(|error| error.to_string())?;
        if !story.agrees(&record) {
            return Err(format!(
                "the trail of {job} says {story:?}, the record {record:?}"
            ));
        }
        let ends = events
            .iter()
            .filter(|recorded| recorded.event.kind == EventKind::Done);
        let ends: Vec<_> = ends.map(|recorded| recorded.event.lease_id).collect();
        if ends.len() > 1 {
            return Err(format!("{job} was done {} times", ends.len()));
        }
        if let Some(lease) = done.get(&job)
            && (record.state != JobState::Done || ends != [Some(*lease)])
        {
            return Err(format!(
                "{job} was acknowledged as done, and is {}",
                record.state
            ));
        }
    }
    for entry in ledger {
        if let Entry::Claimed(job, lease) = entry {
            let events = store
                .events_of(*job)
                .wait()
                .map_err(|error| error.to_string())?;
            let claims = [EventKind::Dispatching, EventKind::Running];
            let claimed = events.iter().any(|recorded| {
                let event = &recorded.event;
                claims.contains(&event.kind) && event.lease_id == Some(*lease)
            });
            if !claimed {
                return Err(format!(
                    "{job} was acknowledged as claimed under {lease}; its trail does not know"
                ));
            }
        }
    }
    Ok(())
}
