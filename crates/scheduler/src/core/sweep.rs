//! What is over: leases that were not renewed, dispatches that were not taken up, runs that took too long, jobs that
//! waited beyond their deadline.
//!
//! Only the lease is trusted, and this process's own monotonic clock: no row of a worker, no wall clock. What is due is
//! told again until it is over, so one of each is under way at a time.

use jobtree_protocol::{JobId, LeaseId};
use jobtree_queue::Now;
use jobtree_queue::lease::Due;
use jobtree_queue::transitions::{Proof, RuntimeProof, TimeOut, Unclaimed};

use super::io::Op;
use super::{Bug, Core};

/// Something that is being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ending {
    Lease(LeaseId),
    Dispatch(JobId),
    Run(LeaseId),
    Late(JobId),
}

impl Core {
    pub(super) fn sweep(&mut self, now: Now) {
        if self.has(Bug::WallClockExpiry) {
            self.sweep_by_wall(now);
        }
        for due in self.deadlines.due(now) {
            if let Due::Lease { lease_id, .. } = &due
                && self.has(Bug::TrustWorkerNames)
                && self.worker_asks(*lease_id)
            {
                continue;
            }
            let (ending, op) = match due {
                Due::Lease { lease_id, revision } => (
                    Ending::Lease(lease_id),
                    Op::Expire(lease_id, Proof::Seen { revision }),
                ),
                Due::Reservation {
                    job_id,
                    reservation_id,
                    revision,
                } => (
                    Ending::Dispatch(job_id),
                    Op::Return {
                        job: job_id,
                        reservation: reservation_id,
                        why: Unclaimed::TimedOut(Proof::Seen { revision }),
                    },
                ),
                Due::Run {
                    lease_id,
                    job_id,
                    current_since,
                } => (
                    Ending::Run(lease_id),
                    Op::TimeOut(
                        lease_id,
                        TimeOut {
                            job_id,
                            current_since,
                            by: RuntimeProof::Monotonic,
                        },
                    ),
                ),
            };
            if self.ending.insert(ending) {
                // From now on the answer decides: a commit that ends it, or a reading that sets the timer anew.
                self.deadlines.forget(&due);
                self.op(op, None, now);
            }
        }
        self.sweep_late(now);
    }

    fn sweep_late(&mut self, now: Now) {
        let late: Vec<JobId> = self
            .late
            .iter()
            .take_while(|(at, _)| *at <= now.wall)
            .map(|(_, job)| *job)
            .filter(|job| !self.ending.contains(&Ending::Late(*job)))
            .collect();
        for job in late {
            self.ending.insert(Ending::Late(job));
            self.op(Op::MissDeadline(job), None, now);
        }
    }

    /// An end is no longer under way: it took effect, or was refused.
    pub(super) fn ended(&mut self, ending: Ending) {
        self.ending.remove(&ending);
    }

    /// The mistake [`Bug::TrustWorkerNames`]: somebody of that name is there.
    fn worker_asks(&self, lease: LeaseId) -> bool {
        let known = self.leases.get(&lease).and_then(|known| known.instance);
        known.is_some_and(|instance| self.claims.seen(instance))
    }

    /// The mistake [`Bug::WallClockExpiry`].
    fn sweep_by_wall(&mut self, now: Now) {
        let over = self
            .leases
            .iter()
            .filter(|(_, it)| it.expires_at <= now.wall);
        let ids: Vec<LeaseId> = over.map(|(id, _)| *id).collect();
        for lease in ids {
            if self.ending.insert(Ending::Lease(lease)) {
                self.op(Op::Expire(lease, Proof::Wall), None, now);
            }
        }
    }
}
