//! What a worker needs of whoever grants leases, and no more: so it can be tried against one that lies, stalls and
//! forgets.

use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::{
    ClaimAnswer, ClaimRequest, CompleteAnswer, CompleteRequest, Heartbeat, HeartbeatAnswer, JobId,
    LeaseId, ReleaseRequest,
};

use crate::reply::Reply;

/// Tells a worker that something happened to a lease, so that it renews at once and hears what.
pub(crate) type Poke = Arc<dyn Fn(LeaseId) + Send + Sync>;

pub(crate) trait Grantor: Send + Sync + 'static {
    fn claim(&self, request: ClaimRequest) -> Reply<Vec<ClaimAnswer>>;

    fn heartbeat(&self, request: Heartbeat) -> Reply<HeartbeatAnswer>;

    fn complete(&self, job: JobId, request: CompleteRequest) -> Reply<CompleteAnswer>;

    fn release(&self, lease: LeaseId, request: ReleaseRequest) -> Reply<()>;

    /// The worker's own clock, which nobody sets.
    fn mono(&self) -> Duration;

    /// Calls `poke` when somebody else changed a lease. A hint: without it the next heartbeat tells.
    fn watch(&self, poke: Poke);
}
