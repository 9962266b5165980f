//! What a worker needs of whoever grants leases, and no more: so it can be near or far, and a worker can be tried against
//! one that lies, stalls and forgets.

use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::{
    ClaimAnswer, ClaimRequest, CompleteManyAnswer, CompleteManyRequest, HeartbeatManyAnswer,
    HeartbeatManyRequest, JobId, LeaseId, LogAppend, LogAppendAnswer, ReleaseRequest,
};

use crate::reply::Reply;

/// Tells a worker that something happened to a lease, so that it renews at once and hears what.
pub type Poke = Arc<dyn Fn(LeaseId) + Send + Sync>;

/// Whoever grants leases to a worker.
///
/// No call may block: it begins, and its reply comes later or never. A worker stops its jobs by its own clock when
/// renewals are not answered, so a grantor that hangs harms nobody; but one that keeps a call for ever keeps the worker
/// from asking again, so each call should end, with [`Unavailable`](jobtree_protocol::ErrorCode::Unavailable), in a
/// time that is short beside the leases' TTL.
pub trait Grantor: Send + Sync + 'static {
    /// Asks for jobs, as many leases as the request says. A claim whose reply is dropped is not wanted any more.
    fn claim(&self, request: ClaimRequest) -> Reply<Vec<ClaimAnswer>>;

    /// Renews leases, one answer each.
    fn heartbeat_many(&self, request: HeartbeatManyRequest) -> Reply<HeartbeatManyAnswer>;

    /// Answers for jobs of one lease that ended, one answer each. Repeating what took effect succeeds.
    fn complete_many(&self, request: CompleteManyRequest) -> Reply<CompleteManyAnswer>;

    /// Gives a lease back.
    fn release(&self, lease: LeaseId, request: ReleaseRequest) -> Reply<()>;

    /// Keeps what a job printed.
    fn append_log(&self, job: JobId, request: LogAppend) -> Reply<LogAppendAnswer>;

    /// The worker's own clock, which nobody sets.
    fn mono(&self) -> Duration;

    /// Calls `poke` when somebody else changed a lease. A hint: without it the next heartbeat tells.
    fn watch(&self, poke: Poke);

    /// Whether answers may get lost on their way, so that a claim must be known again when it is repeated. Whoever is in
    /// the same process loses none.
    fn loses_answers(&self) -> bool {
        false
    }

    /// Returns where the scheduler is: to tell this worker's load from that of others, it must recognise the processes.
    fn place(&self) -> SchedulerPlace {
        SchedulerPlace::SameProcess
    }

    /// How often it wants to hear how the worker does, with the heartbeats; never if nothing is said.
    fn report_every(&self) -> Option<Duration> {
        None
    }
}

/// The place of a scheduler, as a worker sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerPlace {
    /// In this process, which it knows without being told.
    SameProcess,
    /// In another process of this machine: it compares what it is told of processes with what it sees itself.
    SameMachine,
    /// On another machine, where the numbers of processes here mean nothing, or other processes.
    Elsewhere,
}
