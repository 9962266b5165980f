//! What is asked of the core, and how it is answered. Each call carries its [`Responder`], which takes an answer of one
//! type, so an answer of the wrong kind cannot be expressed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::{
    AddonId, ApiError, ClaimAnswer, Constraints, Decision, Explain, HistoryStats, InstanceId,
    JobId, JobType, JobView, LeaseAnswer, LeaseId, LoadSample, LogPage, Priority, ProcessOrigin,
    Reason, StatusView,
};
use jobtree_queue::RequestName;
use jobtree_queue::planner::ListenScope;
use jobtree_queue::policy::Policy;
use jobtree_queue::signals::{HostSignals, Sample};
use jobtree_store::{Recorded, Written};

use super::claims::WorkerClaim;
use super::operations::{Answer, OpId};
use super::polls::{Dispatchable, Ended, Events, Log};
use super::requests::{JobAnswer, JobRequest};
use super::stats::Stats;

/// The caller's name for a call.
pub type CallId = u64;

/// An input of the core.
#[derive(Debug)]
pub enum Input {
    /// These commits were made, in this order.
    Committed(Vec<Written>),
    /// A caller asks something that the store alone cannot answer.
    Call(Call),
    /// The caller does not wait for this answer any more.
    Left(CallId),
    /// These leases were granted, and no caller took the answer.
    Untaken(Vec<LeaseId>),
    /// An operation was answered.
    Answer {
        /// The operation.
        op: OpId,
        /// The result of the operation.
        answer: Box<Answer>,
    },
    /// The machine was measured.
    Sample(Sample),
    /// The host said something of itself.
    Signals(HostSignals),
    /// Another policy is in force.
    Policy(Arc<Policy>),
    /// Take no more jobs, or take them again.
    Drain(bool),
    /// The run under a lease is to pause, or no longer.
    PauseLease(LeaseId, bool),
    /// So many programs are told of dispatches of these job types: webhooks and event streams.
    Listeners(ListenScope, u32),
    /// Run a scheduling pass now.
    Kick,
    /// Something may have been committed without a message: read the store again.
    Resync,
    /// Pauses or schedules were written.
    SettingsChanged,
    /// Another scheduler says that these jobs have changed. The message may be wrong or late, or may get lost.
    JobsChanged(Vec<JobId>),
    /// The time of [`Output::WakeAt`](super::Output::WakeAt) has come.
    Timer,
}

/// A call, with the way back to its caller.
#[derive(Debug)]
pub enum Call {
    /// Asks for jobs for a worker; the answer is empty if there were none.
    Claim(WorkerClaim, Responder<Vec<ClaimAnswer>>),
    /// Asks for one job by its id.
    Request(JobRequest, Responder<JobAnswer>),
    /// Asks for capacity without a job.
    Capacity(Box<CapacityRequest>, Responder<LeaseAnswer>),
    /// Waits for a job's end; answers with the job, ended or not.
    Ended(Ended, Duration, Responder<JobView>),
    /// Waits for dispatches to be accepted.
    Dispatchable(Dispatchable, Duration, Responder<Vec<JobView>>),
    /// Waits for events.
    Events(Events, Duration, Responder<Vec<Recorded>>),
    /// Waits for more of what a job prints.
    Log(Log, Duration, Responder<LogPage>),
    /// Reads pauses and schedules that were written; answers when they are followed.
    FollowSettings(Responder<()>),
    /// Explains why a job waits.
    Explain(JobId, Responder<Explain>),
    /// Tells the first reason why each of these jobs waits; none of those that the planner does not know.
    Reasons(Vec<JobId>, Responder<Vec<(JobId, Reason)>>),
    /// Tells how things stand.
    Status(Responder<StatusView>),
    /// Tells how busy the machine is.
    Load(Responder<LoadSample>),
    /// Tells counts and histograms.
    Stats(Responder<Stats>),
    /// Tells the last decisions, at most so many.
    Decisions(usize, Responder<Vec<Decision>>),
    /// Tells how jobs did.
    History(Responder<Vec<HistoryStats>>),
}

impl Call {
    /// Answers with an error.
    pub(super) fn refuse(self, error: ApiError) -> Response {
        match self {
            Call::Claim(_, caller) => caller.answer(Err(error)),
            Call::Request(_, caller) => caller.answer(Err(error)),
            Call::Capacity(_, caller) => caller.answer(Err(error)),
            Call::Ended(_, _, caller) => caller.answer(Err(error)),
            Call::Dispatchable(_, _, caller) => caller.answer(Err(error)),
            Call::Events(_, _, caller) => caller.answer(Err(error)),
            Call::Log(_, _, caller) => caller.answer(Err(error)),
            Call::FollowSettings(caller) => caller.answer(Err(error)),
            Call::Explain(_, caller) => caller.answer(Err(error)),
            Call::Reasons(_, caller) => caller.answer(Err(error)),
            Call::Status(caller) => caller.answer(Err(error)),
            Call::Load(caller) => caller.answer(Err(error)),
            Call::Stats(caller) => caller.answer(Err(error)),
            Call::Decisions(_, caller) => caller.answer(Err(error)),
            Call::History(caller) => caller.answer(Err(error)),
        }
    }
}

/// A checked request for capacity without a job.
#[derive(Clone, Debug)]
pub struct CapacityRequest {
    /// The addon that asks.
    pub addon_id: AddonId,
    /// The type of work that the capacity is for.
    pub job_type: JobType,
    /// The units.
    pub cost_units: u32,
    /// The priority of the request.
    pub priority: Priority,
    /// The resources that the work uses heavily.
    pub constraints: Constraints,
    /// The expected duration of the lease.
    pub expected_duration_sec: Option<u32>,
    /// The process that asks.
    pub instance_id: Option<InstanceId>,
    /// The process's key of the request, if it may repeat it.
    pub request_key: Option<String>,
    /// Its processes.
    pub pids: Vec<u32>,
    /// The origin of these processes, to recognise them by.
    pub process_origin: Option<Box<ProcessOrigin>>,
}

impl CapacityRequest {
    /// Returns the name of the request, if it may be repeated.
    pub fn name(&self) -> Option<RequestName> {
        RequestName::of(&self.addon_id, self.instance_id, self.request_key.as_ref())
    }
}

type Deliver<T> = Box<dyn FnOnce(Result<T, ApiError>) -> Result<(), Result<T, ApiError>> + Send>;

/// The way back to one caller.
pub struct Responder<T> {
    call: CallId,
    send: Deliver<T>,
}

impl<T: Send + 'static> Responder<T> {
    /// Makes one that answers by `send`, which gives the answer back if the caller has gone.
    pub fn new(
        call: CallId,
        send: impl FnOnce(Result<T, ApiError>) -> Result<(), Result<T, ApiError>> + Send + 'static,
    ) -> Self {
        Self {
            call,
            send: Box::new(send),
        }
    }

    /// Returns the call that it answers.
    pub fn call(&self) -> CallId {
        self.call
    }

    /// Pairs the answer with its way.
    pub(super) fn answer(self, answer: Result<T, ApiError>) -> Response {
        self.grant(answer, Vec::new())
    }

    /// Pairs an answer that grants leases with its way.
    pub(super) fn grant(self, answer: Result<T, ApiError>, leases: Vec<LeaseId>) -> Response {
        let send = self.send;
        Response {
            call: self.call,
            deliver: Box::new(move || match send(answer) {
                Ok(()) => Vec::new(),
                Err(_) => leases,
            }),
        }
    }
}

impl<T> fmt::Debug for Responder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {}", self.call)
    }
}

/// An answer on its way to its caller.
pub struct Response {
    call: CallId,
    deliver: Box<dyn FnOnce() -> Vec<LeaseId> + Send>,
}

impl Response {
    /// Returns the call that it answers.
    pub fn call(&self) -> CallId {
        self.call
    }

    /// Delivers the answer. Returns the leases that it granted if the caller has gone.
    #[must_use = "leases that no caller took are given back"]
    pub fn deliver(self) -> Vec<LeaseId> {
        (self.deliver)()
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "answer to call {}", self.call)
    }
}
