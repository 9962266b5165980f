//! What is kept of a job, a lease and an idempotency key.
//!
//! A record is plain data, and stores may take it apart as they like: all fields are public and all of them are needed
//! to build it again. Only `transitions` changes one. The rules that hold for records at rest:
//!
//! - `revision` grows by one with each change that is written. A store that compares and swaps does so on it.
//! - A job is in one [`Stage`], which its state and its lease say together. `lease_id` is there in `Held` and `Running`
//!   and in no other stage; `reservation` in `Reserved` and in no other; `ended_at` in ended stages and in no other.
//! - Of a lease's jobs one is in its worker's hand at a time. Those behind it are `Held`; whether one has begun is told by
//!   its own record, and nowhere else.
//! - A lease's list of jobs and the jobs' `lease_id` and `lease_position` say the same. A store may keep only the
//!   latter, and build the list again with [`LeasedJob::of`], in the order of the positions: then ending one job of a
//!   batch writes one row, however long the batch is.
//! - Counts of what is used (capacity, concurrency keys) are nowhere: they are computed from live leases and
//!   reservations.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use jobtree_protocol::{
    AddonId, CompleteStatus, Constraints, Fingerprint, InstanceId, Intent, JobId, JobState,
    JobType, JobView, Json, LeaseId, LeaseState, LeaseView, NodeId, Priority, ProcessOrigin,
    Progress,
};
use serde::{Deserialize, Serialize};

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A place on a node that waits for a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// New for every reservation, as a lease's: a timer of an earlier one does not end this.
    pub id: LeaseId,
    /// Where.
    pub node_id: NodeId,
    /// Since when.
    pub since: Timestamp,
    /// Until when, by the calendar of the time it was made. Within a process the monotonic clock decides.
    pub until: Timestamp,
}

/// A completion that took effect: what a repetition of it is answered by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// The lease of the run.
    pub lease_id: LeaseId,
    /// What the worker said.
    pub status: CompleteStatus,
    /// What became of the job by it.
    pub state: JobState,
    /// If another attempt followed: from when on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
}

/// Why a waiting job was not admitted when it was asked for last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// For programs.
    pub code: String,
    /// For people.
    pub reason: String,
    /// Since when this is the reason.
    pub since: Timestamp,
}

/// The stage that a job is in: its state, with DISPATCHING told apart by whether a worker has a lease for the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// QUEUED.
    Waiting,
    /// DISPATCHING without a lease: a place on a node is reserved for it.
    Reserved,
    /// DISPATCHING with a lease: a worker has claimed it and has not begun it, as far as the worker said.
    Held,
    /// RUNNING: its worker has begun it.
    Running,
    /// DONE.
    Done,
    /// FAILED.
    Failed,
    /// CANCELED.
    Canceled,
}

impl Stage {
    /// All stages, on the way.
    pub const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Reserved,
        Self::Held,
        Self::Running,
        Self::Done,
        Self::Failed,
        Self::Canceled,
    ];

    /// The state that clients see.
    pub const fn state(self) -> JobState {
        match self {
            Self::Waiting => JobState::Queued,
            Self::Reserved | Self::Held => JobState::Dispatching,
            Self::Running => JobState::Running,
            Self::Done => JobState::Done,
            Self::Failed => JobState::Failed,
            Self::Canceled => JobState::Canceled,
        }
    }

    /// Returns `true` if a worker has a lease for the job.
    pub const fn is_held(self) -> bool {
        matches!(self, Self::Held | Self::Running)
    }

    /// Returns `true` if the job has ended.
    pub const fn is_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Canceled)
    }
}

/// A job. As JSON it says only what differs from a job that has just been submitted: most have no more to say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// Its id.
    pub id: JobId,
    /// Which version of the record this is; the first is 1.
    pub revision: u64,
    /// What was submitted. It never changes, so records share it.
    #[serde(with = "shared")]
    pub intent: Arc<Intent>,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// Since when it waits: its submission, the end of the last that it depends on, its last failed attempt, or its
    /// redrive. A job that comes back through no fault of its own keeps its place. Aging counts from here, or from `not_before` if that is later.
    pub enqueued_at: Timestamp,
    /// Where it is on its way.
    pub state: JobState,
    /// Runs that ended by an answer or by `max_runtime_sec`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// Runs that ended because their lease ran out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rescues: u32,
    /// How often it was redriven.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub redrives: u32,
    /// Not before this: start time or backoff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// Jobs that it waits for: those of `depends_on` that had not ended when they were last looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<JobId>,
    /// The place that waits for it to be taken up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<Box<Reservation>>,
    /// The lease that it is claimed or runs under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<LeaseId>,
    /// Its place in that lease's batch.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lease_position: u32,
    /// Where it is dispatched to, runs or ran last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    /// When its last run began, by its worker's report. A claim does not change it, a begin does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended: of a run whose worker told its times, when the run ended, which is before that was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// When somebody asked a running job to stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_requested_at: Option<Timestamp>,
    /// It failed because it took too many workers with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quarantined: bool,
    /// DEADLINE_AT_RISK was told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_risk: bool,
    /// Why it is not admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denial: Option<Box<Denial>>,
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// What its worker measured, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
    /// What it gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// Why the last run failed, or why it was canceled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The last completions that took effect, newest last; at most [`JobRecord::COMPLETIONS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completions: Vec<Completion>,
}

impl JobRecord {
    /// How many completions are remembered. A worker repeats a call for some seconds, not for eight attempts.
    pub const COMPLETIONS: usize = 8;

    /// Its share of the capacity.
    pub fn cost(&self) -> u32 {
        self.intent.cost_units
    }

    /// The stage that it is in.
    pub fn stage(&self) -> Stage {
        match self.state {
            JobState::Queued => Stage::Waiting,
            JobState::Dispatching if self.lease_id.is_some() => Stage::Held,
            JobState::Dispatching => Stage::Reserved,
            JobState::Running => Stage::Running,
            JobState::Done => Stage::Done,
            JobState::Failed => Stage::Failed,
            JobState::Canceled => Stage::Canceled,
        }
    }

    /// Returns `true` if a place on a node is reserved for it, and no worker has it.
    pub fn is_reserved(&self) -> bool {
        self.stage() == Stage::Reserved
    }

    /// Returns `true` if a worker has a lease for it, begun or not.
    pub fn is_held(&self) -> bool {
        self.stage().is_held()
    }

    /// Returns `true` if its worker has begun it.
    pub fn has_begun(&self) -> bool {
        self.stage() == Stage::Running
    }

    /// What holds its concurrency key: its lease, which counts once for all of its jobs, or its own place, by its own id.
    pub fn key_holder(&self) -> Option<LeaseId> {
        match self.stage() {
            Stage::Reserved => Some(LeaseId(self.id.0)),
            Stage::Held | Stage::Running => self.lease_id,
            Stage::Waiting | Stage::Done | Stage::Failed | Stage::Canceled => None,
        }
    }

    /// Whether it may be dispatched, as far as it itself is concerned.
    pub fn is_dispatchable(&self, wall: Timestamp) -> bool {
        self.state == JobState::Queued
            && self.waiting_for.is_empty()
            && self.not_before.is_none_or(|start| start <= wall)
    }

    /// Whether it must have a lease of its own. A job whose worker crashed may be the one that crashed it: in a batch it
    /// would take others with it, and in a batch one cannot tell which one it was.
    pub fn runs_alone(&self) -> bool {
        self.rescues > 0
    }

    /// Since when it waits and could start: what aging and wait times count from.
    pub fn waiting_since(&self) -> Timestamp {
        self.not_before
            .map_or(self.enqueued_at, |start| start.max(self.enqueued_at))
    }

    /// Whether a completion under this lease took effect, and what it said.
    pub fn completion(&self, lease_id: LeaseId) -> Option<&Completion> {
        self.completions
            .iter()
            .rev()
            .find(|completion| completion.lease_id == lease_id)
    }

    /// As it is shown; its processes are known to its lease.
    pub fn view(&self, lease: Option<&LeaseRecord>) -> JobView {
        let intent = &*self.intent;
        let held = lease.filter(|lease| self.lease_id == Some(lease.id));
        let in_hand = held.filter(|lease| lease.in_hand().is_some_and(|job| job.id == self.id));
        JobView {
            job_id: self.id,
            addon_id: intent.addon_id.clone(),
            job_type: intent.job_type.clone(),
            cost_units: intent.cost_units,
            priority: intent.priority,
            constraints: intent.constraints,
            expected_duration_sec: intent.expected_duration_sec,
            created_at: self.created_at,
            state: self.state,
            attempts: self.attempts,
            max_attempts: intent.max_attempts,
            rescues: self.rescues,
            next_earliest_start_at: self.not_before,
            lease_id: self.lease_id,
            position: self.lease_id.map(|_| self.lease_position),
            node_id: self.node_id.clone(),
            dispatch_until: self
                .reservation
                .as_ref()
                .map(|reservation| reservation.until),
            payload: intent.payload.clone(),
            time_sensitive: intent.time_sensitive,
            start: intent.start,
            deadline_at: intent.deadline_at,
            deadline_at_risk: self.at_risk,
            max_runtime_sec: intent.max_runtime_sec,
            tags: intent.tags.clone(),
            pids: in_hand.map_or_else(Vec::new, |lease| lease.pids.clone()),
            waiting_for: self.waiting_for.clone(),
            progress: self.progress.clone(),
            metrics: self.metrics.clone(),
            result: self.result.clone(),
            last_error: self.last_error.clone(),
            cancel_requested: self.cancel_requested_at.is_some(),
            quarantined: self.quarantined,
            started_at: self.started_at,
            ended_at: self.ended_at,
            schedule_id: intent.schedule_id,
            traceparent: intent.traceparent,
            earliest_start_at: intent.earliest_start_at,
            late: intent.late,
            backoff: intent.backoff,
            idempotency_key: intent.idempotency_key.clone(),
            unique_key: intent.unique_key.clone(),
            concurrency_limit: (intent.concurrency_key.as_ref()).map(|_| intent.concurrency_limit),
            concurrency_key: intent.concurrency_key.clone(),
            depends_on: intent.depends_on.clone(),
            on_dependency_failure: intent.on_dependency_failure,
            required_node: intent.required_node.clone(),
            required_labels: intent.required_labels.clone(),
        }
    }
}

/// What a lease knows of one of its jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasedJob {
    /// The job.
    pub id: JobId,
    /// Its place: those of one lease grow, and are not always without gaps.
    pub position: u32,
    /// What it costs.
    pub cost: u32,
    /// How long it may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runtime_sec: Option<u32>,
    /// Somebody wants it to stop.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancel: bool,
    /// Its worker has begun it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begun: bool,
}

impl LeasedJob {
    /// What a lease knows of this job.
    pub fn of(job: &JobRecord) -> Self {
        Self {
            id: job.id,
            position: job.lease_position,
            cost: job.cost(),
            max_runtime_sec: job.intent.max_runtime_sec,
            cancel: job.cancel_requested_at.is_some(),
            begun: job.has_begun(),
        }
    }
}

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum LeaseEnd {
    /// All of its jobs ended.
    Completed,
    /// Its worker gave it back.
    Released,
    /// It was taken away.
    Revoked,
    /// It was not renewed in time.
    Expired,
}

impl LeaseEnd {
    /// In words, after "the lease".
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "ended with its last job",
            Self::Released => "was released",
            Self::Revoked => "was revoked",
            Self::Expired => "expired",
        }
    }
}

/// A lease: one grant to one worker, of capacity alone or of jobs too.
///
/// What it is charged is the larger of its own cost and the largest of the jobs that have not ended, since they run one
/// after the other. As jobs end, this falls and never rises, so a lease never takes more than was granted, and gives
/// back early what its dearest job needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// Its id, the fence.
    pub id: LeaseId,
    /// Which version of the record this is; the first is 1.
    pub revision: u64,
    /// Whose.
    pub addon_id: AddonId,
    /// For what; the type of its first job.
    pub job_type: JobType,
    /// Where.
    pub node_id: NodeId,
    /// Which process holds it, if it said.
    pub instance_id: Option<InstanceId>,
    /// The process's key of the request that it answers, for a lease of capacity: the same request gets the same lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_key: Option<String>,
    /// How urgent what it runs is.
    pub priority: Priority,
    /// What it leans on: all that one of its jobs leans on.
    pub constraints: Constraints,
    /// How long it probably holds, all jobs together; unknown if one of them is.
    pub expected_duration_sec: Option<u32>,
    /// What it was granted for itself, without jobs; 0 if it was granted for jobs.
    pub own_cost: u32,
    /// How long it holds without being renewed.
    pub ttl_sec: u32,
    /// When it was granted.
    pub granted_at: Timestamp,
    /// When it was granted or renewed last.
    pub renewed_at: Timestamp,
    /// How often it was renewed: by this, and by no clock, one tells whether it was.
    pub renewals: u64,
    /// Its end by the calendar. Within a process the monotonic clock decides; see `lease`.
    pub expires_at: Timestamp,
    /// Its jobs that have not ended, in their order.
    pub jobs: Vec<LeasedJob>,
    /// The one in the worker's hand, if the worker named it and it has not ended; else it is the first. See
    /// [`LeaseRecord::in_hand`].
    pub named_current: Option<JobId>,
    /// Since when the one in hand runs, if it has begun: its begin, not the grant.
    pub current_since: Timestamp,
    /// The worker reports when it begins a job. Without this, a job begins with the grant or with the end of the one
    /// before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reports_begin: bool,
    /// The worker returns jobs that it has not begun, if it is asked to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returns_unbegun: bool,
    /// Some job of the lease has begun, or has ended under it. A lease that was claimed in advance and waits in its worker
    /// has none.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub begun: bool,
    /// The worker runs inside the process that alone has the store open, and no other process works under the lease: when
    /// that process has ended, so has the run. A lease of the first release does not say so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_process: bool,
    /// Jobs that the worker is asked to give back, until it does, begins them or answers for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_back: Vec<JobId>,
    /// Its processes.
    pub pids: Vec<u32>,
    /// How to recognise them; none if the worker did not say, and then none of them is the worker's own load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_origin: Option<Box<ProcessOrigin>>,
    /// How it ended.
    pub end: Option<LeaseEnd>,
    /// When.
    pub ended_at: Option<Timestamp>,
    /// Why, in words.
    pub end_reason: Option<String>,
}

/// The name of a request for capacity that may be repeated: a live lease answers one request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestName {
    /// The addon that asks.
    pub addon_id: AddonId,
    /// The process that asks.
    pub instance_id: InstanceId,
    /// The process's key of the request.
    pub key: String,
}

impl RequestName {
    /// Makes the name of a request; `None` if it has no key or its process did not say which it is.
    pub fn of(
        addon_id: &AddonId,
        instance_id: Option<InstanceId>,
        key: Option<&String>,
    ) -> Option<Self> {
        Some(Self {
            addon_id: addon_id.clone(),
            instance_id: instance_id?,
            key: key?.clone(),
        })
    }
}

impl LeaseRecord {
    /// The name of the request that it answers, if that may be repeated.
    pub fn request_name(&self) -> Option<RequestName> {
        RequestName::of(&self.addon_id, self.instance_id, self.request_key.as_ref())
    }

    /// Whether it was granted for so many units of its own and this type.
    pub fn is_for(&self, job_type: &JobType, cost_units: u32) -> bool {
        self.own_cost == cost_units && self.job_type == *job_type
    }

    /// Whether it holds.
    pub fn is_live(&self) -> bool {
        self.end.is_none()
    }

    /// Its state's name.
    pub fn state(&self) -> LeaseState {
        match self.end {
            None => LeaseState::Active,
            Some(LeaseEnd::Expired) => LeaseState::Expired,
            Some(LeaseEnd::Completed | LeaseEnd::Released | LeaseEnd::Revoked) => {
                LeaseState::Released
            }
        }
    }

    /// What it is charged now; nothing once it ended.
    pub fn cost(&self) -> u32 {
        if !self.is_live() {
            return 0;
        }
        self.jobs
            .iter()
            .map(|job| job.cost)
            .fold(self.own_cost, u32::max)
    }

    /// The job in the worker's hand: the one that the worker named, else the first whose end is not known here. None while
    /// no job of the lease has begun. A crash of the worker counts for this job and for no other.
    ///
    /// A worker that reports begins takes the next job in hand before it has said so: then this is that job, and its
    /// `begun` is not set.
    pub fn in_hand(&self) -> Option<&LeasedJob> {
        let named = self.named_current.and_then(|id| self.job(id));
        named.or_else(|| self.jobs.first().filter(|_| self.begun))
    }

    /// The job in the worker's hand, if its begin is known: the one whose time runs.
    pub fn running(&self) -> Option<&LeasedJob> {
        self.in_hand().filter(|job| job.begun)
    }

    /// The jobs that the worker may be asked to give back: claimed, not begun, and not in hand.
    pub fn returnable(&self) -> impl DoubleEndedIterator<Item = &LeasedJob> {
        let in_hand = self.in_hand().map(|job| job.id);
        let able = self.is_live() && self.returns_unbegun;
        self.jobs
            .iter()
            .filter(move |job| able && !job.begun && Some(job.id) != in_hand)
    }

    /// Where in the list of its jobs that have not ended this one stands, if it does. They lie in the order of their
    /// positions, which the job knows: this costs little however large the batch is.
    pub fn place_of(&self, job: &JobRecord) -> Option<usize> {
        self.jobs
            .binary_search_by_key(&job.lease_position, |held| held.position)
            .ok()
            .filter(|place| self.jobs[*place].id == job.id)
    }

    /// Sets the processes that work under the lease. If others work under it than it was granted to, they may outlive the
    /// process of its worker.
    pub(crate) fn set_processes(&mut self, pids: Vec<u32>, origin: Option<Box<ProcessOrigin>>) {
        self.in_process &= pids == self.pids;
        self.pids = pids;
        self.process_origin = origin;
    }

    /// One of its jobs that have not ended.
    pub fn job(&self, id: JobId) -> Option<&LeasedJob> {
        self.jobs.iter().find(|job| job.id == id)
    }

    /// As it is shown.
    pub fn view(&self) -> LeaseView {
        LeaseView {
            lease_id: self.id,
            addon_id: self.addon_id.clone(),
            job_type: Some(self.job_type.clone()),
            state: self.state(),
            cost_units: self.cost(),
            node_id: self.node_id.clone(),
            jobs: self.jobs.iter().map(|job| job.id).collect(),
            current: self.in_hand().map(|job| job.id),
            granted_at: self.granted_at,
            expires_at: self.expires_at,
            pids: self.pids.clone(),
            reason: self.end.map(|end| match &self.end_reason {
                Some(reason) => format!("{}: {reason}", end.as_str()),
                None => end.as_str().to_owned(),
            }),
        }
    }
}

/// An idempotency key that was used. It outlives the job: it goes when keys are pruned, not when history is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// Keys belong to an addon.
    pub addon_id: AddonId,
    /// The key.
    pub key: String,
    /// What was submitted with it.
    pub fingerprint: Fingerprint,
    /// The job that it made.
    pub job_id: JobId,
    /// What was answered.
    pub state: JobState,
    /// When.
    pub created_at: Timestamp,
}

/// What a lease of the first release did not say: its first job began with its grant.
fn yes() -> bool {
    true
}

/// Intents are shared in memory and written as they are.
mod shared {
    use std::sync::Arc;

    use jobtree_protocol::Intent;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        intent: &Arc<Intent>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        intent.as_ref().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<Intent>, D::Error> {
        Intent::deserialize(deserializer).map(Arc::new)
    }
}
