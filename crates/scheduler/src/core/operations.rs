//! What the core asks of the store. One line of the table below makes an operation: its request, and the type of its
//! result.
//!
//! A request comes back with its own result ([`Answer`]), so a result of the wrong kind cannot be expressed, and a request
//! that failed can be made again as it was: its ids were drawn before. Requests of callers carry who waits for them.
//! The engine and the simulator carry operations out by the same function, [`perform`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use jobtree_protocol::{
    JobId, JobState, Json, LeaseId, NodeId, ReleaseRequest, ScheduleId, SubmitAnswer,
};
use jobtree_queue::transitions::{self, Claimed, Proof, Unclaimed};
use jobtree_queue::{JobRecord, LeaseRecord, RequestName, Reservation};
use jobtree_store::{
    Answer as StoreAnswer, Count, Firing, Pause, Pruned, Retention, ScheduleRecord, Stamp, Store,
    StoreError,
};

use super::calls::CallId;
use super::claims::ClaimId;
use super::learning;
use super::nodes;
use super::polls::{Dispatchable, Ended, Events, Log, Poll, PollId};
use crate::error::is_refusal;

/// The number of jobs that are read at once.
pub const PAGE: usize = 1000;

/// The core's name for an operation.
pub type OpId = u64;

/// A request to the store, with the type of its result.
pub trait Request: Clone + fmt::Debug + Send + 'static {
    /// The result.
    type Output: fmt::Debug + Send + 'static;

    /// Begins it.
    fn begin(self, store: &Store, stamp: Stamp) -> StoreAnswer<Self::Output>;
}

/// What becomes of an operation that the store could not carry out (and did not refuse).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnFailure {
    /// It is asked for again, with the same ids, until the store says yes or no.
    Repeat,
    /// It is dropped: it comes again by itself, or does not matter.
    Drop,
    /// Its caller is told.
    TellCaller,
}

/// An operation under way; resolves to its answer.
pub type Performing = Pin<Box<dyn Future<Output = Answer> + Send>>;

macro_rules! operations {
    ($($(#[doc = $doc:literal])+ $name:ident($request:ty) or $failure:ident;)+) => {
        /// An operation of the store.
        #[derive(Clone, Debug)]
        pub enum Op {
            $($(#[doc = $doc])+ $name($request),)+
        }

        /// An operation with what became of it.
        #[derive(Debug)]
        pub enum Answer {
            $($(#[doc = $doc])+ $name($request, Result<<$request as Request>::Output, StoreError>),)+
        }

        /// Begins an operation.
        pub fn perform(store: &Store, stamp: Stamp, op: Op) -> Performing {
            match op {
                $(Op::$name(request) => {
                    let answer = request.clone().begin(store, stamp);
                    Box::pin(async move { Answer::$name(request, answer.await) })
                })+
            }
        }

        impl Answer {
            /// Returns the error of an operation that the store could not carry out, and did not refuse.
            pub(super) fn failure(&self) -> Option<&StoreError> {
                let error = match self {
                    $(Answer::$name(_, result) => result.as_ref().err(),)+
                };
                error.filter(|error| !is_refusal(error))
            }

            pub(super) fn on_failure(&self) -> OnFailure {
                match self {
                    $(Answer::$name(..) => OnFailure::$failure,)+
                }
            }

            /// Returns the operation, to be asked for again.
            pub(super) fn into_op(self) -> Op {
                match self {
                    $(Answer::$name(request, _) => Op::$name(request),)+
                }
            }
        }

        $(impl From<$request> for Op {
            fn from(request: $request) -> Op {
                Op::$name(request)
            }
        })+
    };
}

operations! {
    /// Reserves a place for a job.
    Reserve(Reserve) or Repeat;
    /// Grants a lease for jobs.
    Claim(Claim) or Repeat;
    /// Grants a lease of capacity.
    Admit(Admit) or Repeat;
    /// Returns a dispatch to the queue that was not accepted.
    Return(Return) or Repeat;
    /// Ends a lease that was not renewed.
    Expire(Expire) or Repeat;
    /// Ends a run that took too long.
    TimeOut(TimeOut) or Repeat;
    /// Notes why a job is not admitted.
    Deny(Deny) or Drop;
    /// Notes that a deadline is at risk.
    MarkAtRisk(MarkAtRisk) or Drop;
    /// Fails a job that waited beyond its deadline.
    MissDeadline(MissDeadline) or Repeat;
    /// Gives a lease back whose answer no caller took.
    GiveBack(GiveBack) or Repeat;
    /// Asks a worker to give back jobs that it has not begun.
    AskBack(AskBack) or TellCaller;
    /// Fires a schedule.
    Fire(Box<Firing>) or Repeat;
    /// Forgets old rows.
    Prune(Prune) or Drop;
    /// Remembers something across restarts.
    PutNote(PutNote) or Drop;
    /// Writes that the load state of this node has changed.
    TellLoadState(TellLoadState) or Drop;
    /// Reads all that is live.
    ReadLive(ReadLive) or Repeat;
    /// Reads what was remembered.
    ReadNotes(ReadNotes) or Repeat;
    /// Reads how other machines describe themselves.
    ReadNodes(ReadNodes) or Drop;
    /// Reads a page of what waits.
    ReadQueued(ReadQueued) or Repeat;
    /// Reads some jobs.
    ReadJobs(ReadJobs) or Repeat;
    /// Reads a job to say why it waits.
    ReadExplained(ReadExplained) or TellCaller;
    /// Reads leases that changed elsewhere, or whose end was refused.
    ReadLeases(ReadLeases) or Repeat;
    /// Reads the lease that a claim names.
    FindClaimed(FindClaimed) or TellCaller;
    /// Reads the lease that answers a request for capacity.
    FindRequested(FindRequested) or TellCaller;
    /// Reads for a poll of a job's end.
    PollEnded(PollRead<Ended>) or TellCaller;
    /// Reads for a poll of dispatches.
    PollDispatchable(PollRead<Dispatchable>) or TellCaller;
    /// Reads for a poll of events.
    PollEvents(PollRead<Events>) or TellCaller;
    /// Reads for a poll of a log.
    PollLog(PollRead<Log>) or TellCaller;
    /// Counts jobs for a status.
    CountJobs(CountJobs) or TellCaller;
}

/// See [`Op::Reserve`].
#[derive(Clone, Debug)]
pub struct Reserve {
    /// The job.
    pub job: JobId,
    /// The place.
    pub command: transitions::Reserve,
}

impl Request for Reserve {
    type Output = Reservation;

    fn begin(self, store: &Store, stamp: Stamp) -> StoreAnswer<Reservation> {
        store.reserve(stamp, self.job, self.command)
    }
}

/// See [`Op::Claim`].
#[derive(Clone, Debug)]
pub struct Claim {
    /// The jobs, in the order in which they are to be run.
    pub jobs: Vec<JobId>,
    /// The lease.
    pub command: transitions::Claim,
    /// The caller that it is for.
    pub grant_for: GrantFor,
}

/// The caller that a lease for jobs is granted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantFor {
    /// A claim that waits.
    Claim(ClaimId),
    /// A request for one job by its id.
    Request(CallId),
}

impl Request for Claim {
    type Output = Claimed;

    fn begin(self, store: &Store, stamp: Stamp) -> StoreAnswer<Claimed> {
        store.claim(stamp, self.jobs, self.command)
    }
}

/// See [`Op::Admit`].
#[derive(Clone, Debug)]
pub struct Admit {
    /// The lease.
    pub command: Box<transitions::Admit>,
    /// The call that it answers.
    pub call: CallId,
}

impl Request for Admit {
    type Output = LeaseRecord;

    fn begin(self, store: &Store, stamp: Stamp) -> StoreAnswer<LeaseRecord> {
        store.admit(stamp, *self.command)
    }
}

/// See [`Op::Return`].
#[derive(Clone, Debug)]
pub struct Return {
    /// The job.
    pub job: JobId,
    /// Its reservation.
    pub reservation: LeaseId,
    /// The reason.
    pub why: Unclaimed,
}

impl Request for Return {
    type Output = JobState;

    fn begin(self, store: &Store, stamp: Stamp) -> StoreAnswer<JobState> {
        store.return_unclaimed(stamp, self.job, self.reservation, self.why)
    }
}

/// See [`Op::Expire`].
#[derive(Clone, Debug)]
pub struct Expire {
    /// The lease.
    pub lease: LeaseId,
    /// The clock that says so.
    pub proof: Proof,
}

impl Request for Expire {
    type Output = ();

    fn begin(self, store: &Store, stamp: Stamp) -> StoreAnswer<()> {
        store.expire(stamp, self.lease, self.proof)
    }
}

/// See [`Op::TimeOut`].
#[derive(Clone, Debug)]
pub struct TimeOut {
    /// The lease.
    pub lease: LeaseId,
    /// The run.
    pub command: transitions::TimeOut,
}

impl Request for TimeOut {
    type Output = JobState;

    fn begin(self, store: &Store, stamp: Stamp) -> StoreAnswer<JobState> {
        store.time_out(stamp, self.lease, self.command)
    }
}

/// See [`Op::Deny`].
#[derive(Clone, Debug)]
pub struct Deny {
    /// The job.
    pub job: JobId,
    /// The reason, for programs.
    pub code: String,
    /// The reason, for people.
    pub reason: String,
}

impl Request for Deny {
    type Output = ();

    fn begin(self, store: &Store, stamp: Stamp) -> StoreAnswer<()> {
        store.deny(stamp, self.job, self.code, self.reason)
    }
}

/// See [`Op::MarkAtRisk`].
#[derive(Clone, Debug)]
pub struct MarkAtRisk {
    /// The job.
    pub job: JobId,
    /// The time by which the job is late.
    pub reason: String,
}

impl Request for MarkAtRisk {
    type Output = ();

    fn begin(self, store: &Store, stamp: Stamp) -> StoreAnswer<()> {
        store.mark_at_risk(stamp, self.job, self.reason)
    }
}

/// See [`Op::MissDeadline`].
#[derive(Clone, Debug)]
pub struct MissDeadline {
    /// The job.
    pub job: JobId,
}

impl Request for MissDeadline {
    type Output = JobState;

    fn begin(self, store: &Store, stamp: Stamp) -> StoreAnswer<JobState> {
        store.miss_deadline(stamp, self.job)
    }
}

/// See [`Op::GiveBack`].
#[derive(Clone, Debug)]
pub struct GiveBack {
    /// The lease.
    pub lease: LeaseId,
}

impl Request for GiveBack {
    type Output = ();

    fn begin(self, store: &Store, stamp: Stamp) -> StoreAnswer<()> {
        let request = ReleaseRequest {
            return_jobs: true,
            reason: Some("its worker did not take the answer".to_owned()),
            ..ReleaseRequest::default()
        };
        store.release(stamp, self.lease, request)
    }
}

/// See [`Op::AskBack`].
#[derive(Clone, Debug)]
pub struct AskBack {
    /// The lease.
    pub lease: LeaseId,
    /// Jobs of it.
    pub jobs: Vec<JobId>,
}

impl Request for AskBack {
    /// Those that are asked for.
    type Output = Vec<JobId>;

    fn begin(self, store: &Store, stamp: Stamp) -> StoreAnswer<Self::Output> {
        store.ask_back(stamp, self.lease, self.jobs)
    }
}

impl Request for Box<Firing> {
    type Output = Option<SubmitAnswer>;

    fn begin(self, store: &Store, stamp: Stamp) -> StoreAnswer<Self::Output> {
        store.fire(stamp, *self)
    }
}

/// See [`Op::Prune`].
#[derive(Clone, Debug)]
pub struct Prune {
    /// The age from which rows are pruned.
    pub retention: Retention,
    /// The most rows of each kind.
    pub limit: usize,
}

impl Request for Prune {
    type Output = Pruned;

    fn begin(self, store: &Store, stamp: Stamp) -> StoreAnswer<Pruned> {
        store.prune(stamp, self.retention, self.limit)
    }
}

/// See [`Op::PutNote`].
#[derive(Clone, Debug)]
pub struct PutNote {
    /// The name.
    pub name: String,
    /// The value; none to forget it.
    pub value: Option<Json>,
}

impl Request for PutNote {
    type Output = ();

    fn begin(self, store: &Store, stamp: Stamp) -> StoreAnswer<()> {
        store.put_note(stamp, self.name, self.value)
    }
}

/// See [`Op::TellLoadState`].
#[derive(Clone, Debug)]
pub struct TellLoadState {
    /// The node.
    pub node: NodeId,
    /// What it was, what it is, and by which signals.
    pub reason: String,
}

impl Request for TellLoadState {
    type Output = ();

    fn begin(self, store: &Store, stamp: Stamp) -> StoreAnswer<()> {
        store.tell_load_state(stamp, self.node, self.reason)
    }
}

/// See [`Op::ReadLive`].
#[derive(Clone, Copy, Debug)]
pub struct ReadLive;

/// All that is live, of one snapshot.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// Leases that hold.
    pub leases: Vec<LeaseRecord>,
    /// Those whose worker has ended with the process that owned the store before this one.
    pub orphaned: Vec<LeaseId>,
    /// Their jobs.
    pub held: Vec<Arc<JobRecord>>,
    /// Jobs that wait for a worker to accept them.
    pub dispatching: Vec<Arc<JobRecord>>,
    /// The paused addons and types.
    pub pauses: Vec<Pause>,
    /// Schedules.
    pub schedules: Vec<ScheduleRecord>,
}

impl Request for ReadLive {
    type Output = Live;

    fn begin(self, store: &Store, _: Stamp) -> StoreAnswer<Live> {
        let orphaned = store.orphaned_leases().to_vec();
        store.read(move |tables| {
            let leases = tables.live_leases()?;
            let jobs = leases.iter().flat_map(|lease| &lease.jobs);
            let ids: Vec<_> = jobs.map(|job| job.id).collect();
            Ok(Live {
                held: tables.jobs(&ids)?,
                leases,
                orphaned,
                dispatching: tables.dispatching()?,
                pauses: tables.pauses()?,
                schedules: tables.schedules()?,
            })
        })
    }
}

/// See [`Op::ReadNotes`].
#[derive(Clone, Copy, Debug)]
pub struct ReadNotes;

impl Request for ReadNotes {
    type Output = Vec<(String, Json)>;

    fn begin(self, store: &Store, _: Stamp) -> StoreAnswer<Self::Output> {
        store.read(|tables| tables.notes(learning::PREFIX))
    }
}

/// See [`Op::ReadNodes`].
#[derive(Clone, Copy, Debug)]
pub struct ReadNodes;

impl Request for ReadNodes {
    type Output = Vec<(String, Json)>;

    fn begin(self, store: &Store, _: Stamp) -> StoreAnswer<Self::Output> {
        store.read(|tables| tables.notes(nodes::PREFIX))
    }
}

/// See [`Op::ReadQueued`].
#[derive(Clone, Copy, Debug)]
pub struct ReadQueued {
    /// The job after which the page begins.
    pub after: Option<JobId>,
}

impl Request for ReadQueued {
    /// With fewer than [`PAGE`] it was the last page.
    type Output = Vec<Arc<JobRecord>>;

    fn begin(self, store: &Store, _: Stamp) -> StoreAnswer<Self::Output> {
        store.read(move |tables| tables.queued(self.after, PAGE))
    }
}

/// See [`Op::ReadJobs`].
#[derive(Clone, Debug)]
pub struct ReadJobs {
    /// The jobs.
    pub jobs: Arc<[JobId]>,
}

impl ReadJobs {
    pub(super) fn one(job: JobId) -> Self {
        Self {
            jobs: Arc::new([job]),
        }
    }
}

impl Request for ReadJobs {
    /// The jobs that exist.
    type Output = Vec<Arc<JobRecord>>;

    fn begin(self, store: &Store, _: Stamp) -> StoreAnswer<Self::Output> {
        store.read(move |tables| tables.jobs(&self.jobs))
    }
}

/// See [`Op::ReadExplained`].
#[derive(Clone, Copy, Debug)]
pub struct ReadExplained {
    /// The job.
    pub job: JobId,
    /// The call that asks.
    pub call: CallId,
}

impl Request for ReadExplained {
    type Output = Option<Arc<JobRecord>>;

    fn begin(self, store: &Store, _: Stamp) -> StoreAnswer<Self::Output> {
        store.read(move |tables| Ok(tables.jobs(&[self.job])?.pop()))
    }
}

/// See [`Op::ReadLeases`].
#[derive(Clone, Debug)]
pub struct ReadLeases {
    /// The leases.
    pub leases: Arc<[LeaseId]>,
}

/// A lease and its jobs, in their order.
pub type FoundLease = Option<(LeaseRecord, Vec<Arc<JobRecord>>)>;

impl Request for ReadLeases {
    /// What is there of each, in their order.
    type Output = Vec<FoundLease>;

    fn begin(self, store: &Store, _: Stamp) -> StoreAnswer<Self::Output> {
        store.read(move |tables| {
            let found = self.leases.iter().map(|id| found_lease(tables, *id));
            found.collect()
        })
    }
}

/// See [`Op::FindClaimed`].
#[derive(Clone, Copy, Debug)]
pub struct FindClaimed {
    /// The lease.
    pub lease: LeaseId,
    /// The call that names it.
    pub call: CallId,
}

impl Request for FindClaimed {
    type Output = FoundLease;

    fn begin(self, store: &Store, _: Stamp) -> StoreAnswer<FoundLease> {
        find_lease(store, self.lease)
    }
}

/// See [`Op::FindRequested`].
#[derive(Clone, Debug)]
pub struct FindRequested {
    /// The request.
    pub name: RequestName,
    /// The call that repeats it, perhaps.
    pub call: CallId,
}

impl Request for FindRequested {
    type Output = Option<LeaseRecord>;

    fn begin(self, store: &Store, _: Stamp) -> StoreAnswer<Self::Output> {
        store.read(move |tables| match tables.requested_lease(&self.name)? {
            Some(id) => tables.lease(id),
            None => Ok(None),
        })
    }
}

fn find_lease(store: &Store, id: LeaseId) -> StoreAnswer<FoundLease> {
    store.read(move |tables| found_lease(tables, id))
}

fn found_lease(
    tables: &mut dyn jobtree_store::Reading,
    id: LeaseId,
) -> Result<FoundLease, StoreError> {
    let Some(lease) = tables.lease(id)? else {
        return Ok(None);
    };
    let ids: Vec<_> = lease.jobs.iter().map(|job| job.id).collect();
    let mut jobs = tables.jobs(&ids)?;
    jobs.sort_by_key(|job| job.lease_position);
    Ok(Some((lease, jobs)))
}

/// A reading for a long poll.
#[derive(Clone, Debug)]
pub struct PollRead<P> {
    /// The poll's name.
    pub id: PollId,
    /// The condition that the poll waits for.
    pub poll: P,
}

impl<P: Poll> Request for PollRead<P> {
    type Output = P::Answer;

    fn begin(self, store: &Store, _: Stamp) -> StoreAnswer<P::Answer> {
        store.read(move |tables| self.poll.read(tables))
    }
}

/// See [`Op::CountJobs`].
#[derive(Clone, Copy, Debug)]
pub struct CountJobs {
    /// The call that asks.
    pub call: CallId,
}

impl Request for CountJobs {
    /// Counts by addon and state.
    type Output = Vec<Count>;

    fn begin(self, store: &Store, _: Stamp) -> StoreAnswer<Self::Output> {
        store.counts(true)
    }
}

impl Op {
    /// Returns what the operation shows of jobs and leases as they were some time ago.
    pub(super) fn reading(&self) -> Option<Reading> {
        match self {
            Op::ReadLive(_) | Op::ReadQueued(_) => Some(Reading::Everything),
            Op::ReadJobs(request) => Some(Reading::Jobs(Arc::clone(&request.jobs))),
            Op::ReadExplained(request) => Some(Reading::Jobs(Arc::new([request.job]))),
            Op::ReadLeases(_) => Some(Reading::Leases),
            _ => None,
        }
    }

    /// Returns the schedule that the operation fires.
    pub(super) fn fires(&self) -> Option<ScheduleId> {
        match self {
            Op::Fire(firing) => Some(firing.schedule_id),
            _ => None,
        }
    }
}

/// A reading of jobs or leases: what is committed after it began is newer than what it shows.
#[derive(Clone, Debug)]
pub(super) enum Reading {
    /// All that is live or waits.
    Everything,
    /// Some jobs.
    #[cfg_attr(not(feature = "sim"), allow(dead_code))]
    Jobs(Arc<[JobId]>),
    /// Some leases.
    Leases,
}
