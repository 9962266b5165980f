//! The mistake [`Mistake::BlindRescue`](super::Mistake::BlindRescue): what was read some time ago is written back as if
//! nothing had happened since. No transition allows that, so it is made of a raw transaction.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use jobtree_protocol::{JobState, LeaseId};
use jobtree_queue::transitions::Changes;
use jobtree_queue::{JobRecord, LeaseEnd, Now};
use jobtree_store::{Backend, Stamp, StoreError, Tables, Work};

use super::disk::{Plug, Port};
use crate::core::{Answer, Expire, Performing};

type Outcome = Arc<Mutex<Option<Result<(), StoreError>>>>;

/// What is to be written back.
#[derive(Debug)]
pub(super) struct Rescue {
    now: Now,
    lease: LeaseId,
    old: Vec<Arc<JobRecord>>,
    outcome: Outcome,
}

impl Work for Rescue {
    fn run(&mut self, tables: &mut dyn Tables) -> Result<(), StoreError> {
        let ids: Vec<_> = self.old.iter().map(|job| job.id).collect();
        let there = tables.jobs(&ids)?;
        let jobs = self.old.iter().map(|old| {
            let found = there.iter().find(|job| job.id == old.id);
            Arc::new(JobRecord {
                state: JobState::Queued,
                lease_id: None,
                revision: found.map_or(old.revision, |job| job.revision) + 1,
                ..JobRecord::clone(old)
            })
        });
        let mut changes = Changes {
            jobs: jobs.collect(),
            ..Changes::default()
        };
        if let Some(mut lease) = tables.lease(self.lease)? {
            lease.revision += 1;
            lease.end = Some(LeaseEnd::Expired);
            lease.ended_at = Some(self.now.wall);
            lease.jobs.clear();
            changes.leases.push(lease);
        }
        tables.write(changes, self.now)
    }

    fn finish(self: Box<Self>, committed: Result<(), StoreError>) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        *outcome = Some(committed);
    }
}

impl Rescue {
    /// Asks for it to be written.
    pub(super) fn ask(self, port: &Arc<Port>) {
        Plug(Arc::clone(port)).transact(Box::new(self));
    }
}

/// One that was read now, and what comes of it.
pub(super) fn rescue(
    stamp: Stamp,
    request: Expire,
    old: Vec<Arc<JobRecord>>,
) -> (Rescue, Performing) {
    let outcome = Outcome::default();
    let rescue = Rescue {
        now: stamp.now,
        lease: request.lease,
        old,
        outcome: Arc::clone(&outcome),
    };
    let operation = std::future::poll_fn(move |_| {
        let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome.take() {
            None => Poll::Pending,
            Some(outcome) => Poll::Ready(Answer::Expire(request.clone(), outcome)),
        }
    });
    (rescue, Box::pin(operation))
}
