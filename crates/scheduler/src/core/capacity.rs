//! Callers that ask for capacity without a job.
//!
//! The planner decides when it knows all that happened. What it approves is granted by the store, and answered then.

use std::collections::HashMap;
use std::time::Duration;

use jobtree_protocol::{ApiError, LeaseAnswer, LeaseId};
use jobtree_queue::LeaseRecord;
use jobtree_queue::planner::LeaseAsk;
use jobtree_queue::transitions;
use jobtree_store::StoreError;

use super::calls::{CallId, CapacityRequest, Responder};
use super::journal::Journal;
use super::leases::Leases;
use super::operations::Admit;
use super::places::Places;
use super::turn::Turn;
use crate::error::told;

type Caller = Responder<LeaseAnswer>;

/// All callers that ask for capacity.
#[derive(Debug, Default)]
pub(super) struct Capacity {
    /// Those that are not decided on yet.
    asking: Vec<(CapacityRequest, Caller)>,
    /// Those whose lease is being granted, with the answer if it is.
    granting: HashMap<CallId, (LeaseAnswer, Caller)>,
}

impl Capacity {
    pub(super) fn ask(&mut self, request: CapacityRequest, caller: Caller) {
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
            let lease_id = request.lease_id.unwrap_or_else(|| turn.rng.lease_id());
            let verdict = places.decide_capacity(lease_id, &ask_of(&request), turn.now);
            let decision = verdict.to_log(turn.now.wall, None, request.addon_id.clone());
            let answer = LeaseAnswer {
                approved: verdict.approved(),
                lease_id: None,
                retry_after_sec: decision.retry_after_sec,
                limits: verdict.limits.clone(),
                reason: verdict.reason(),
                numbers: verdict.numbers.clone(),
            };
            journal.remember(decision);
            if let Some(block) = &verdict.denied {
                journal.count_denial(block.code());
                turn.respond(caller, Ok(answer));
                continue;
            }
            leases.begin_grant(lease_id);
            let command = command_of(request, lease_id, &answer.reason, turn);
            let call = caller.call();
            self.granting.insert(call, (answer, caller));
            turn.ask(Admit { command, call });
        }
    }

    /// A lease was granted.
    pub(super) fn granted(&mut self, call: CallId, lease: &LeaseRecord, turn: &mut Turn) {
        if let Some((mut answer, caller)) = self.granting.remove(&call) {
            answer.lease_id = Some(lease.id);
            turn.deliver(caller.grant(Ok(answer), vec![lease.id]));
        }
    }

    /// A grant was refused.
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

fn ask_of(request: &CapacityRequest) -> LeaseAsk {
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    LeaseAsk {
        addon: request.addon_id.clone(),
        cost: request.cost_units,
        priority: request.priority,
        constraints: request.constraints,
        expected_duration: request.expected_duration_sec.map(seconds),
    }
}

fn command_of(
    request: CapacityRequest,
    lease_id: LeaseId,
    reason: &str,
    turn: &Turn,
) -> transitions::Admit {
    transitions::Admit {
        lease_id,
        addon_id: request.addon_id,
        job_type: request.job_type,
        cost_units: request.cost_units,
        priority: request.priority,
        constraints: request.constraints,
        expected_duration_sec: request.expected_duration_sec,
        node_id: turn.config.node.clone(),
        instance_id: request.instance_id,
        pids: request.pids,
        process_origin: request.process_origin,
        reason: reason.to_owned(),
    }
}
