//! A scheduler in this process, as a worker sees it.

use std::time::Duration;

use jobtree_protocol::{
    ClaimAnswer, ClaimRequest, CompleteAnswer, CompleteRequest, EventKind, Heartbeat,
    HeartbeatAnswer, JobId, LeaseId, ReleaseRequest,
};
use jobtree_store::Listening;
use std::sync::{Arc, Mutex, PoisonError};

use crate::workers::{Grantor, Poke};
use crate::{Clock, Reply, Scheduler};

pub(super) struct InProcess {
    scheduler: Scheduler,
    clock: Clock,
    /// Ends with the worker.
    watching: Mutex<Vec<Listening>>,
}

impl InProcess {
    pub(super) fn new(scheduler: Scheduler) -> Self {
        InProcess {
            scheduler,
            clock: Clock::system(),
            watching: Mutex::default(),
        }
    }
}

impl Grantor for InProcess {
    fn claim(&self, request: ClaimRequest) -> Reply<Vec<ClaimAnswer>> {
        self.scheduler.claim(request)
    }

    fn heartbeat(&self, request: Heartbeat) -> Reply<HeartbeatAnswer> {
        self.scheduler.heartbeat(request)
    }

    fn complete(&self, job: JobId, request: CompleteRequest) -> Reply<CompleteAnswer> {
        self.scheduler.complete(job, request)
    }

    fn release(&self, lease: LeaseId, request: ReleaseRequest) -> Reply<()> {
        self.scheduler.release(lease, request)
    }

    fn mono(&self) -> Duration {
        self.clock.mono()
    }

    /// The store tells of each commit; what is not about the end of a lease or a wish to stop is passed over.
    fn watch(&self, poke: Poke) {
        let listening = self.scheduler.store().listen(Arc::new(move |written| {
            for event in written.iter().flat_map(|written| &written.changes.events) {
                let ends = matches!(
                    event.kind,
                    EventKind::CancelRequested
                        | EventKind::LeaseExpired
                        | EventKind::LeaseRevoked
                        | EventKind::Timeout
                );
                if let Some(lease) = event.lease_id.filter(|_| ends) {
                    poke(lease);
                }
            }
        }));
        let mut watching = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
        watching.push(listening);
    }
}
