//! What a transition is asked to do. What a caller of the API sends is in `jobtree_protocol`; here is what it becomes
//! once ids are drawn, and what only the scheduler itself asks for.

use jiff::Timestamp;
use jobtree_protocol::{
    AddonId, Advice, ClaimRequest, Constraints, InstanceId, Intent, JobId, JobState, JobType,
    LeaseId, NodeId, Priority, ProcessOrigin,
};

use crate::record::{JobRecord, KeyRecord, RequestName};

/// A submission, with what the store knows that bears on it.
#[derive(Clone, Debug)]
pub struct Submit<'a> {
    /// The id that the job gets: a new one, or the caller's.
    pub id: JobId,
    /// What was submitted and checked.
    pub intent: Intent,
    /// The job that has this id already; also from history.
    pub same_id: Option<&'a JobRecord>,
    /// The key's record, if the intent has a key that was used.
    pub same_key: Option<&'a KeyRecord>,
    /// The job of the same addon, type and unique key that has not ended.
    pub same_unique: Option<(JobId, JobState)>,
    /// For each of `depends_on`, its state; none if there is no such job.
    pub dependencies: &'a [(JobId, Option<JobState>)],
}

/// A place on a node for a waiting job.
#[derive(Clone, Debug)]
pub struct Reserve {
    /// A new id.
    pub reservation_id: LeaseId,
    /// Where.
    pub node_id: NodeId,
    /// Live leases and reservations of other jobs that hold the job's concurrency key; 0 if it has none.
    pub key_holders: u32,
    /// Why it was admitted, with the numbers.
    pub reason: String,
}

/// A dispatch that somebody takes up.
#[derive(Clone, Debug)]
pub struct TakeUp {
    /// A new id.
    pub lease_id: LeaseId,
    /// Which process.
    pub instance_id: Option<InstanceId>,
    /// Its processes.
    pub pids: Vec<u32>,
    /// The origin of these processes, to recognise them by.
    pub process_origin: Option<Box<ProcessOrigin>>,
}

/// Jobs that one worker runs one after the other under a new lease.
#[derive(Clone, Debug)]
pub struct Claim {
    /// A new id.
    pub lease_id: LeaseId,
    /// Where.
    pub node_id: NodeId,
    /// Which process.
    pub instance_id: Option<InstanceId>,
    /// Its processes.
    pub pids: Vec<u32>,
    /// The origin of these processes, to recognise them by.
    pub process_origin: Option<Box<ProcessOrigin>>,
    /// Why it was admitted, with the numbers.
    pub reason: String,
    /// The abilities that the worker declared with its claim.
    pub worker: Abilities,
}

/// What is known of a worker from its claim. The default is a worker of the first release, in another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// The worker reports when it begins a job.
    pub reports_begin: bool,
    /// The worker begins the first job of this lease at once, so that the grant may write the begin.
    pub begins_now: bool,
    /// The worker returns jobs that it has not begun, if it is asked to. Of a worker that reports no begins this is not
    /// believed: which jobs it has not begun is only guessed.
    pub returns_unbegun: bool,
    /// The worker runs inside the process that alone has the store open. The scheduler says so, not the worker.
    pub in_process: bool,
}

impl Abilities {
    /// The abilities for one more lease of a claim, of which `granted` were granted before.
    pub fn of(request: &ClaimRequest, granted: usize) -> Self {
        Self {
            reports_begin: request.begins_now.is_some(),
            begins_now: request
                .begins_now
                .is_some_and(|leases| granted < leases as usize),
            returns_unbegun: request.returns_unbegun,
            in_process: false,
        }
    }

    /// Returns `true` if the first job of the lease begins with the grant. A worker that reports no begins is taken to
    /// begin it then.
    pub fn begins_first(self) -> bool {
        self.begins_now || !self.reports_begin
    }
}

/// A job that is proposed for a claim.
#[derive(Clone, Copy, Debug)]
pub struct Proposed<'a> {
    /// The job.
    pub job: &'a JobRecord,
    /// Live leases and reservations that hold its concurrency key, without this claim; 0 if it has none.
    pub key_holders: u32,
}

/// A lease of capacity alone.
#[derive(Clone, Debug)]
pub struct Admit {
    /// A new id.
    pub lease_id: LeaseId,
    /// Whose.
    pub addon_id: AddonId,
    /// For what.
    pub job_type: JobType,
    /// How much.
    pub cost_units: u32,
    /// How urgent.
    pub priority: Priority,
    /// What it leans on.
    pub constraints: Constraints,
    /// How long it probably holds.
    pub expected_duration_sec: Option<u32>,
    /// Where.
    pub node_id: NodeId,
    /// Which process.
    pub instance_id: Option<InstanceId>,
    /// The process's key of the request, if it may repeat it.
    pub request_key: Option<String>,
    /// Its processes.
    pub pids: Vec<u32>,
    /// The origin of these processes, to recognise them by.
    pub process_origin: Option<Box<ProcessOrigin>>,
    /// Why it was admitted, with the numbers.
    pub reason: String,
}

impl Admit {
    /// The name of the request, if it may be repeated.
    pub fn request_name(&self) -> Option<RequestName> {
        RequestName::of(&self.addon_id, self.instance_id, self.request_key.as_ref())
    }
}

/// Why something is over. In each case the record is read again in the transaction that ends it, so a renewal that was
/// committed before wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// This process's own monotonic clock, which ran while the record had this revision (for a lease) or this id and
    /// revision (for a reservation).
    Seen {
        /// The revision that the timer was set for.
        revision: u64,
    },
    /// The calendar that all schedulers share: the database's. Compared with the record's own end.
    Wall,
    /// The process in which the worker ran has ended: it alone had the store open, and this process has it open now. It ends
    /// leases of workers that ran [inside that process](crate::LeaseRecord::in_process), and nothing else.
    OwnerGone,
}

/// What the load of a lease's node asks of its worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadAdvice(pub Advice);

/// A run that took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeOut {
    /// The job that was in its worker's hand.
    pub job_id: JobId,
    /// Since when it ran: another run of the same job began at another time.
    pub current_since: Timestamp,
    /// Who says so.
    pub by: RuntimeProof,
}

/// Whose judgement it is that a run took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeProof {
    /// This process's own monotonic clock.
    Monotonic,
    /// The calendar that all schedulers share.
    Wall,
}

/// How a dispatch comes back that was not taken up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unclaimed {
    /// Nobody came in time.
    TimedOut(Proof),
    /// The addon said no, the node went away, or a worker of the addon claims instead.
    Declined {
        /// Why.
        reason: String,
    },
}
