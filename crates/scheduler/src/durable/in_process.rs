//! A scheduler in this process, as a worker sees it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jobtree_protocol::{
    ClaimAnswer, ClaimRequest, CompleteManyAnswer, CompleteManyRequest, Each, EventKind,
    HeartbeatManyAnswer, HeartbeatManyRequest, JobId, LeaseId, LogAppend, LogAppendAnswer,
    ReleaseRequest,
};
use jobtree_store::Listening;
use jobtree_worker::{Grantor, Poke};

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
        self.scheduler.claim_in_process(request)
    }

    /// All begin before the first is answered, so they share a commit.
    fn heartbeat_many(&self, request: HeartbeatManyRequest) -> Reply<HeartbeatManyAnswer> {
        let beats = request.leases.into_iter();
        let replies: Vec<_> = beats.map(|beat| self.scheduler.heartbeat(beat)).collect();
        Reply::new(async move {
            let mut leases = Vec::with_capacity(replies.len());
            for reply in replies {
                leases.push(match reply.await {
                    Ok(answer) => Each::Done(answer),
                    Err(error) => Each::Refused { error },
                });
            }
            Ok(HeartbeatManyAnswer { leases })
        })
    }

    fn complete_many(&self, request: CompleteManyRequest) -> Reply<CompleteManyAnswer> {
        self.scheduler.complete_many(request)
    }

    fn release(&self, lease: LeaseId, request: ReleaseRequest) -> Reply<()> {
        self.scheduler.release(lease, request)
    }

    fn append_log(&self, job: JobId, request: LogAppend) -> Reply<LogAppendAnswer> {
        self.scheduler.append_log(job, request)
    }

    fn mono(&self) -> Duration {
        self.clock.mono()
    }

    /// The store tells of each commit; what is not about the end of a lease, a wish to stop or a wish to have jobs back is passed over.
    fn watch(&self, poke: Poke) {
        let listening = self.scheduler.store().listen(Arc::new(move |written| {
            for lease in written.iter().flat_map(|written| &written.changes.asked) {
                poke(*lease);
            }
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
