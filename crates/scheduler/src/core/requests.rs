//! Callers that ask for one job by its id: `lease/request` with a `job_id`, and `ack`, for a job that still waits.
//!
//! The planner decides when it knows all that happened. A job that may start now is granted in the same call, and its
//! caller is answered when the store has written the lease; otherwise the answer says why it waits and when to ask again.

use std::collections::HashMap;

use jobtree_protocol::{
    ApiError, ErrorCode, InstanceId, JobId, LeaseAnswer, LeaseId, ProcessOrigin,
};
use jobtree_queue::LeaseRecord;
use jobtree_queue::admission::Verdict;
use jobtree_queue::planner::Requested;
use jobtree_queue::transitions::{self, Abilities};
use jobtree_store::StoreError;

use super::calls::{CallId, Responder};
use super::journal::Journal;
use super::leases::Leases;
use super::operations::{Claim, GrantFor};
use super::places::Places;
use super::turn::Turn;
use crate::error::told;

/// A request for one job.
#[derive(Clone, Debug)]
pub struct JobRequest {
    /// The job.
    pub job: JobId,
    /// The process that asks.
    pub instance_id: Option<InstanceId>,
    /// Its processes.
    pub pids: Vec<u32>,
    /// The origin of these processes, to recognise them by.
    pub process_origin: Option<Box<ProcessOrigin>>,
}

/// The answer to a request for one job.
#[derive(Clone, Debug)]
pub enum JobAnswer {
    /// The job runs under this lease.
    Granted(Box<LeaseRecord>, LeaseAnswer),
    /// The job waits on.
    Denied(LeaseAnswer),
}

type Caller = Responder<JobAnswer>;

/// All requests that are not answered.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Those that are not decided on yet.
    asking: Vec<(JobRequest, Caller)>,
    /// Those whose lease is being granted, with the answer if it is.
    granting: HashMap<CallId, (LeaseAnswer, Caller)>,
}

impl Requests {
    pub(super) fn ask(&mut self, request: JobRequest, caller: Caller) {
        self.asking.push((request, caller));
    }

    pub(super) fn leave(&mut self, call: CallId) {
        self.asking.retain(|(_, caller)| caller.call() != call);
    }

    /// Decides on what was asked for: the planner knows all that happened by now.
    pub(super) fn decide(
        &mut self,
        places: &mut Places,
        leases: &mut Leases,
        journal: &mut Journal,
        turn: &mut Turn,
    ) {
        for (request, caller) in std::mem::take(&mut self.asking) {
            let job = request.job;
            let addon = places.planner().addon_of(job).cloned();
            let (Some(requested), Some(addon)) = (places.request(job, turn.now), addon) else {
                turn.respond(caller, Err(not_waiting(job)));
                continue;
            };
            let verdict = requested.verdict();
            let decision = verdict.to_log(turn.now.wall, Some(job), addon);
            let answer = answer_of(verdict, decision.retry_after_sec);
            journal.remember(decision);
            if let Requested::Denied(verdict) = &requested {
                journal.count_denial(verdict.denied.as_ref().map_or("", |block| block.code()));
                turn.respond(caller, Ok(JobAnswer::Denied(answer)));
                continue;
            }
            let command = transitions::Claim {
                lease_id: turn.rng.lease_id(),
                node_id: turn.config.node.clone(),
                instance_id: request.instance_id,
                pids: request.pids,
                process_origin: request.process_origin,
                reason: answer.reason.clone(),
                worker: Abilities::default(),
            };
            let call = caller.call();
            places.propose(&[job]);
            leases.begin_grant(command.lease_id);
            self.granting.insert(call, (answer, caller));
            turn.ask(Claim {
                jobs: vec![job],
                command,
                grant_for: GrantFor::Request(call),
            });
        }
    }

    /// A lease was granted.
    pub(super) fn granted(
        &mut self,
        call: CallId,
        lease: &LeaseRecord,
        places: &Places,
        turn: &mut Turn,
    ) {
        if let Some((mut answer, caller)) = self.granting.remove(&call) {
            places.describe_grant(&mut answer, lease, turn.now);
            let leases: Vec<LeaseId> = vec![lease.id];
            let granted = JobAnswer::Granted(Box::new(lease.clone()), answer);
            turn.deliver(caller.grant(Ok(granted), leases));
        }
    }

    /// A grant was refused: the job is not as it was.
    pub(super) fn grant_refused(&mut self, call: CallId, error: &StoreError, turn: &mut Turn) {
        if let Some((_, caller)) = self.granting.remove(&call) {
            turn.respond(caller, Err(told(error)));
        }
    }

    pub(super) fn refuse_all(&mut self, error: &ApiError, turn: &mut Turn) {
        let asking = std::mem::take(&mut self.asking).into_iter();
        let granting = std::mem::take(&mut self.granting).into_values();
        let callers = asking.map(|(_, caller)| caller);
        for caller in callers.chain(granting.map(|(_, caller)| caller)) {
            turn.respond(caller, Err(error.clone()));
        }
    }
}

/// Makes the answer of a verdict, before a lease is granted.
pub(super) fn answer_of(verdict: &Verdict, retry_after_sec: Option<u32>) -> LeaseAnswer {
    LeaseAnswer {
        approved: verdict.approved(),
        lease_id: None,
        granted_units: None,
        expires_at: None,
        retry_after_sec,
        limits: verdict.limits.clone(),
        reason: verdict.reason(),
        numbers: verdict.numbers.clone(),
    }
}

fn not_waiting(job: JobId) -> ApiError {
    let message = format!(
        "job {job} does not wait for a worker of this scheduler: read its state, and ask again if it is QUEUED"
    );
    ApiError::new(ErrorCode::WrongState, message)
}
