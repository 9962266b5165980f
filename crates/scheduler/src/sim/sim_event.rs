//! What happens in a simulation, and what is said in it.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use jobtree_protocol::{
    AddonId, ApiError, ClaimAnswer, CompleteAnswer, HeartbeatAnswer, JobId, JobView, LeaseAnswer,
    LeaseId, SubmitAnswer,
};
use jobtree_queue::LeaseRecord;
use jobtree_store::StoreError;

use super::system::{Arrival, Ready};
use crate::core::{Answer, Call, CallId, OpId};

/// What happens.
#[derive(Debug)]
pub(super) enum SimEvent {
    /// A core's timer.
    Wake(usize, u64),
    /// A port serves something.
    Serve(usize, u64),
    /// An answer of the store reaches its core.
    Answer(usize, u64, OpId, Box<Answer>),
    /// A worker's call reaches a core: its node, that node's life, the call and its id, the worker and its turn.
    Call(usize, u64, Box<Call>, CallId, usize, u64),
    /// Somebody left who waited for a reply.
    Left(usize, u64, CallId),
    /// A reply of a core reaches a worker.
    Reply(usize, u64, Box<Result<Reply, ApiError>>),
    /// An answer of a store reaches whoever called.
    Back(From, Box<Result<Out, StoreError>>),
    /// A worker acts.
    Act(usize, u64),
    /// Something is submitted, for the first time or again.
    Submit(usize),
    /// Somebody stops a job.
    Cancel,
    /// An operator does something.
    Operate,
    /// A machine is measured.
    Sample(usize),
    /// Something happens to a machine.
    Machine(usize),
    /// A scheduler is started.
    Start(usize),
    /// A hint among schedulers.
    Hint(usize, Vec<JobId>),
    /// A rescuer writes what it read before.
    Blind(usize, u64, super::stale_rescue::Rescue),
    /// Nothing goes wrong from now on.
    Calm,
    /// A process with a real worker is started.
    StartProcess(usize),
    /// A process that was asked to end is gone.
    EndProcess(usize),
    /// Something happens to a process.
    ProcessTrouble(usize),
    /// Jobs that have not begun are asked back for an idle worker.
    AskBack,
    /// A call of a real worker reaches a scheduler.
    Arrive(usize, Box<Arrival>),
    /// An answer reaches a real worker.
    Deliver(usize, Box<Ready>),
    /// A real worker does not wait for an answer any more.
    CallOver(u64),
    /// A real worker hears that something happened to a lease.
    Poke(usize, LeaseId),
}

impl SimEvent {
    /// Which kind it is, and whom it concerns.
    pub(super) fn kind(&self) -> (u64, usize) {
        match self {
            Self::Wake(node, _) => (1, *node),
            Self::Serve(node, _) => (2, *node),
            Self::Answer(node, ..) => (3, *node),
            Self::Call(node, ..) => (4, *node),
            Self::Left(node, ..) => (5, *node),
            Self::Reply(worker, ..) => (6, *worker),
            Self::Back(..) => (7, 0),
            Self::Act(worker, _) => (8, *worker),
            Self::Submit(place) => (9, *place),
            Self::Cancel => (10, 0),
            Self::Sample(node) => (11, *node),
            Self::Machine(node) => (12, *node),
            Self::Start(node) => (13, *node),
            Self::Hint(node, _) => (14, *node),
            Self::Calm => (15, 0),
            Self::Blind(node, ..) => (16, *node),
            Self::Operate => (17, 0),
            Self::StartProcess(place) => (18, *place),
            Self::EndProcess(place) => (19, *place),
            Self::ProcessTrouble(place) => (20, *place),
            Self::Arrive(node, _) => (21, *node),
            Self::Deliver(place, _) => (22, *place),
            Self::CallOver(call) => (23, *call as usize),
            Self::Poke(place, _) => (24, *place),
            Self::AskBack => (25, 0),
        }
    }
}

/// The answer of a core, as it is sent to the caller.
#[derive(Debug)]
pub(super) enum Reply {
    Claimed(Vec<ClaimAnswer>),
    Capacity(LeaseAnswer),
    Dispatchable(Vec<JobView>),
    Followed(()),
}

/// Who called the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// A worker, in this turn, having sent it then.
    Worker(usize, u64, Duration),
    /// Whoever submits this.
    Submitter(usize),
    /// Somebody whom the answer does not concern: a doubled message, a canceller.
    Nobody,
    /// Somebody who must be refused; what it was about.
    Liar(&'static str),
    /// An operator, whom the scheduler follows.
    Operator,
}

/// What a call of the store gave.
#[derive(Debug)]
pub(super) enum Out {
    Submitted(SubmitAnswer),
    Beat(HeartbeatAnswer),
    Completed(CompleteAnswer),
    /// With whether the lease was there before.
    TakenUp(Box<LeaseRecord>, bool),
    Paused(AddonId),
    Scheduled,
    Done,
}

pub(super) type Calling = Pin<Box<dyn Future<Output = Result<Out, StoreError>> + Send>>;
