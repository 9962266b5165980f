//! What goes into the core, and what comes out of it: plain values, so that a run can be written down and repeated.

use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::{
    AddonId, ApiError, ClaimAnswer, ClaimRequest, Decision, Explain, HistoryStats, InstanceId,
    JobId, JobState, JobView, Json, LeaseAnswer, LeaseAsk, LeaseId, LoadSample, LogPage,
    ScheduleId, StatusView,
};
use jobtree_queue::policy::Policy;
use jobtree_queue::signals::{HostSignals, Sample};
use jobtree_queue::transitions::{Admit, Claim, Claimed, Proof, Reserve, TimeOut, Unclaimed};
use jobtree_queue::{JobRecord, LeaseRecord, Reservation};
use jobtree_store::{
    Count, Firing, Pause, Pruned, Recorded, Retention, ScheduleRecord, Stamp, StoreError, Written,
};

use super::stats::Stats;

/// The caller's name for a reply that it waits for.
pub type Slot = u64;
/// The core's name for an operation that it asked the store for.
pub type OpId = u64;

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// These commits were made, in this order.
    Committed(Vec<Written>),
    /// Somebody asks something that the store alone cannot answer.
    Call {
        /// Where the reply goes.
        slot: Slot,
        /// What.
        call: Box<Call>,
    },
    /// Nobody waits for this reply any more.
    Left(Slot),
    /// These leases were granted, and nobody took the answer.
    Untaken(Vec<LeaseId>),
    /// What became of an operation.
    Answer {
        /// Which.
        op: OpId,
        /// How it went.
        answer: Result<Box<Answered>, StoreError>,
    },
    /// The machine was measured.
    Sample(Sample),
    /// The host said something of itself.
    Signals(HostSignals),
    /// Another policy is in force.
    Policy(Arc<Policy>),
    /// Take no more jobs, or take them again.
    Drain(bool),
    /// Look now.
    Kick,
    /// Something may have been committed that nobody told: read again.
    Doubt,
    /// Pauses or schedules were written.
    Settings,
    /// Others say that these jobs have changed. It may be wrong, late, or lost.
    Hint(Vec<JobId>),
    /// The time of [`Output::WakeAt`] has come.
    Timer,
}

/// What is asked of the core.
#[derive(Clone, Debug)]
pub enum Call {
    /// Jobs for a worker.
    Claim(ClaimRequest),
    /// Capacity without a job.
    Lease {
        /// What, checked; never a take-up.
        ask: LeaseAsk,
        /// Who.
        instance_id: Option<InstanceId>,
        /// Its processes.
        pids: Vec<u32>,
    },
    /// Something to come about.
    Wait {
        /// What.
        wait: Wait,
        /// For how long at most.
        wait_for: Duration,
    },
    /// Pauses were written: to be read, and followed from now on.
    Reread,
    /// Why a job waits.
    Explain(JobId),
    /// How things stand.
    Status,
    /// How busy the machine is.
    Load,
    /// Counts and histograms.
    Stats,
    /// What was decided last, at most so many.
    Decisions(usize),
    /// How jobs did.
    History,
}

/// What somebody waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A job that ends.
    Ended(JobId),
    /// Dispatches to be taken up, of an addon or of all.
    Dispatchable(Option<AddonId>),
    /// Events after a place, at most so many.
    Events {
        /// The place.
        after: u64,
        /// How many.
        limit: usize,
    },
    /// More of what a job prints, or its end.
    Log {
        /// Whose.
        job: JobId,
        /// After which place.
        after: u64,
    },
}

/// What is replied to a [`Call`].
#[derive(Clone, Debug)]
pub enum Told {
    /// To a claim; empty if there was nothing.
    Claimed(Vec<ClaimAnswer>),
    /// To an ask for capacity.
    Lease(LeaseAnswer),
    /// To a wait for a job's end: as it is, ended or not.
    Job(Box<JobView>),
    /// To a wait for dispatches.
    Jobs(Vec<JobView>),
    /// To a wait for events.
    Events(Vec<Recorded>),
    /// To a wait for more of a log.
    Log(Box<LogPage>),
    /// It is followed from now on.
    Reread,
    /// Why a job waits.
    Explain(Explain),
    /// How things stand.
    Status(Box<StatusView>),
    /// How busy the machine is.
    Load(Box<LoadSample>),
    /// Counts and histograms.
    Stats(Box<Stats>),
    /// What was decided.
    Decisions(Vec<Decision>),
    /// How jobs did.
    History(Vec<HistoryStats>),
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Output {
    /// Ask the store, and bring the answer.
    Op {
        /// Its name.
        id: OpId,
        /// What the command is given.
        stamp: Stamp,
        /// What.
        op: Op,
    },
    /// Answer a caller.
    Reply {
        /// Which.
        slot: Slot,
        /// With this.
        reply: Result<Told, ApiError>,
    },
    /// Come back then at the latest, by the monotonic clock.
    WakeAt(Duration),
}

/// What the core asks of the store. Every command may be repeated: its ids were drawn before.
#[derive(Clone, Debug)]
pub enum Op {
    /// Reserve a place for a job.
    Reserve(JobId, Reserve),
    /// Grant a lease for jobs.
    Claim(Vec<JobId>, Claim),
    /// Grant a lease of capacity.
    Admit(Admit),
    /// A dispatch was not taken up, or is wanted back.
    Return {
        /// The job.
        job: JobId,
        /// Its reservation.
        reservation: LeaseId,
        /// Why.
        why: Unclaimed,
    },
    /// A lease was not renewed.
    Expire(LeaseId, Proof),
    /// A run took too long.
    TimeOut(LeaseId, TimeOut),
    /// Note why a job is not admitted.
    Deny {
        /// The job.
        job: JobId,
        /// For programs.
        code: String,
        /// For people.
        reason: String,
    },
    /// Note that a deadline is at risk.
    AtRisk(JobId, String),
    /// Fail a job that waited too long.
    MissDeadline(JobId),
    /// Give a lease back that nobody took.
    GiveBack(LeaseId),
    /// Fire a schedule.
    Fire(Box<Firing>),
    /// Forget old things.
    Prune(Retention, usize),
    /// Remember something.
    Note(String, Json),
    /// Read all that is live.
    ReadLive,
    /// Read what was noted.
    ReadNotes,
    /// Read a page of what waits.
    ReadQueued(Option<JobId>),
    /// Read these jobs.
    Look(Vec<JobId>),
    /// Read a lease and its jobs.
    FindLease(LeaseId),
    /// Read what somebody waits for.
    ReadWait(Wait),
    /// Count jobs.
    Count,
}

/// What the store answered.
#[derive(Clone, Debug)]
pub enum Answered {
    /// A place is reserved.
    Reserved(Reservation),
    /// A lease is granted for jobs.
    Claimed(Claimed),
    /// A lease is granted.
    Admitted(LeaseRecord),
    /// It is done.
    Done,
    /// A schedule fired, or had been fired.
    Fired,
    /// Old things were forgotten.
    Pruned(Pruned),
    /// All that is live.
    Live(Live),
    /// What was noted.
    Notes(Vec<(String, Json)>),
    /// A page of what waits; with fewer than [`PAGE`] it was the last.
    Queued(Vec<Arc<JobRecord>>),
    /// Jobs, those of them that exist.
    Looked(Vec<Arc<JobRecord>>),
    /// A lease and its jobs.
    Found(Option<(LeaseRecord, Vec<Arc<JobRecord>>)>),
    /// What somebody waits for.
    Waited(Waited),
    /// How many jobs there are, by addon and state.
    Counted(Vec<Count>),
}

/// What was found for a [`Wait`].
#[derive(Clone, Debug)]
pub enum Waited {
    /// A job.
    Job(JobState, Box<JobView>),
    /// Dispatches.
    Jobs(Vec<JobView>),
    /// Events.
    Events(Vec<Recorded>),
    /// A part of a log.
    Log(Box<LogPage>),
}

/// All that is live, of one snapshot.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// Leases that hold.
    pub leases: Vec<LeaseRecord>,
    /// Their jobs.
    pub running: Vec<Arc<JobRecord>>,
    /// Jobs that wait to be taken up.
    pub dispatching: Vec<Arc<JobRecord>>,
    /// What is paused.
    pub pauses: Vec<Pause>,
    /// Schedules.
    pub schedules: Vec<ScheduleRecord>,
}

/// Jobs that are read at once.
pub const PAGE: usize = 1000;

impl Op {
    /// Whether it may be dropped when the store fails: it is only read or noted, and comes again by itself.
    pub(crate) fn is_optional(&self) -> bool {
        matches!(
            self,
            Op::Deny { .. } | Op::AtRisk(..) | Op::Prune(..) | Op::Note(..)
        )
    }

    /// Whether its answer shows jobs as they were some time ago.
    pub(crate) fn reads_jobs(&self) -> bool {
        matches!(self, Op::ReadLive | Op::ReadQueued(_) | Op::Look(_))
    }

    /// Schedules that it fires.
    pub(crate) fn fires(&self) -> Option<ScheduleId> {
        match self {
            Op::Fire(firing) => Some(firing.schedule_id),
            _ => None,
        }
    }
}
