//! Callers that ask for capacity without a job.
//!
//! The planner decides when it knows all that happened. What it approves is granted by the store, and answered then, with
//! the numbers of that instant.
//!
//! A request with a key may be repeated: the store is asked first for the lease that answers it, and callers that repeat it
//! while it is under way wait for the same answer. The store looks again in the transaction that grants, for requests that
//! come to another scheduler. Its lease is not given back if its caller has gone: the caller may ask again.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jobtree_protocol::{ApiError, LeaseAnswer, LeaseId};
use jobtree_queue::planner::LeaseAsk;
use jobtree_queue::transitions::{self, TransitionError};
use jobtree_queue::{LeaseRecord, RequestName};
use jobtree_store::StoreError;

use super::calls::{CallId, CapacityRequest, Responder};
use super::journal::Journal;
use super::leases::Leases;
use super::operations::{Admit, FindRequested};
use super::places::Places;
use super::planted::Bug;
use super::requests::answer_of;
use super::turn::Turn;
use crate::error::told;

/// The reason of an answer that was given before.
const REPEATED: &str = "the request was approved before";

type Caller = Responder<LeaseAnswer>;

#[derive(Debug)]
struct UnderWay {
    request: CapacityRequest,
    name: Option<RequestName>,
    /// The caller, and those that repeat its request.
    callers: Vec<Caller>,
    stage: Stage,
}

/// The progress of a request.
#[derive(Debug)]
enum Stage {
    /// The lease that answers it already is looked for.
    Finding,
    /// It is to be decided.
    Asking,
    /// Its lease is being granted; with the answer if it is.
    Granting(LeaseAnswer),
    /// It has a lease, and is to be answered.
    Granted(LeaseAnswer, Box<LeaseRecord>),
}

/// All requests for capacity that are not answered, each under the name of its first call.
#[derive(Debug, Default)]
pub(super) struct Capacity {
    // What is iterated is ordered: a run must not depend on how a table is hashed.
    under_way: BTreeMap<CallId, UnderWay>,
    by_name: HashMap<RequestName, CallId>,
}

impl Capacity {
    pub(super) fn ask(&mut self, request: CapacityRequest, caller: Caller, turn: &mut Turn) {
        let name = request.name().filter(|_| !turn.has(Bug::DoubledCapacity));
        let call = caller.call();
        let mut stage = Stage::Asking;
        if let Some(name) = &name {
            let before = self.by_name.get(name);
            if let Some(before) = before.and_then(|call| self.under_way.get_mut(call)) {
                if is_same(&before.request, &request) {
                    before.callers.push(caller);
                } else {
                    turn.respond(caller, Err(under_way(&name.key)));
                }
                return;
            }
            self.by_name.insert(name.clone(), call);
            let name = name.clone();
            turn.ask(FindRequested { name, call });
            stage = Stage::Finding;
        }
        let request = UnderWay {
            request,
            name,
            callers: vec![caller],
            stage,
        };
        self.under_way.insert(call, request);
    }

    /// A caller does not wait any more. What is not decided yet is dropped with its last one.
    pub(super) fn leave(&mut self, call: CallId) {
        let mut left = None;
        for (id, request) in &mut self.under_way {
            if let Stage::Finding | Stage::Asking = request.stage {
                request.callers.retain(|caller| caller.call() != call);
                left = left.or(request.callers.is_empty().then_some(*id));
            }
        }
        if let Some(left) = left {
            self.take(left);
        }
    }

    fn take(&mut self, call: CallId) -> Option<UnderWay> {
        let request = self.under_way.remove(&call)?;
        if let Some(name) = &request.name {
            self.by_name.remove(name);
        }
        Some(request)
    }

    /// The lease that answers a request already was looked for.
    pub(super) fn found(
        &mut self,
        call: CallId,
        found: Result<Option<LeaseRecord>, StoreError>,
        turn: &mut Turn,
    ) {
        let Some(request) = self.under_way.get_mut(&call) else {
            return;
        };
        match found {
            Ok(None) => request.stage = Stage::Asking,
            Ok(Some(lease))
                if lease.is_for(&request.request.job_type, request.request.cost_units) =>
            {
                request.stage = Stage::Granted(repeated(), Box::new(lease));
            }
            Ok(Some(lease)) => {
                let conflict = TransitionError::RequestConflict {
                    key: request.request.request_key.clone().unwrap_or_default(),
                    lease_id: lease.id,
                };
                self.refuse(call, &ApiError::from(&conflict), turn);
            }
            Err(error) => self.refuse(call, &told(&error), turn),
        }
    }

    /// Decides on what was asked for, and answers what was granted: the planner knows all that happened by now.
    pub(super) fn decide(
        &mut self,
        places: &mut Places,
        leases: &mut Leases,
        journal: &mut Journal,
        turn: &mut Turn,
    ) {
        let mut answered = Vec::new();
        for (call, request) in &mut self.under_way {
            match &mut request.stage {
                Stage::Finding | Stage::Granting(_) => {}
                Stage::Granted(answer, lease) => {
                    places.describe_grant(answer, lease, turn.now);
                    answered.push((*call, answer.clone()));
                }
                Stage::Asking => {
                    let lease_id = turn.rng.lease_id();
                    let asked = ask_of(&request.request);
                    let verdict = places.decide_capacity(lease_id, &asked, turn.now);
                    let addon = request.request.addon_id.clone();
                    let decision = verdict.to_log(turn.now.wall, None, addon);
                    let answer = answer_of(&verdict, decision.retry_after_sec);
                    journal.remember(decision);
                    if let Some(block) = &verdict.denied {
                        journal.count_denial(block.code());
                        answered.push((*call, answer));
                        continue;
                    }
                    leases.begin_grant(lease_id);
                    let command = command_of(&request.request, lease_id, &answer.reason, turn);
                    let command = Box::new(command);
                    request.stage = Stage::Granting(answer);
                    let call = *call;
                    turn.ask(Admit { command, call });
                }
            }
        }
        for (call, answer) in answered {
            let Some(request) = self.take(call) else {
                continue;
            };
            let given_back = request.name.is_none().then_some(answer.lease_id).flatten();
            for caller in request.callers {
                let leases = given_back.into_iter().collect();
                turn.deliver(caller.grant(Ok(answer.clone()), leases));
            }
        }
    }

    /// A lease was granted.
    pub(super) fn granted(&mut self, call: CallId, lease: LeaseRecord) {
        if let Some(request) = self.under_way.get_mut(&call)
            && let Stage::Granting(answer) = &request.stage
        {
            request.stage = Stage::Granted(answer.clone(), Box::new(lease));
        }
    }

    /// A grant was refused.
    pub(super) fn grant_refused(&mut self, call: CallId, error: &StoreError, turn: &mut Turn) {
        self.refuse(call, &told(error), turn);
    }

    fn refuse(&mut self, call: CallId, error: &ApiError, turn: &mut Turn) {
        for caller in self.take(call).into_iter().flat_map(|it| it.callers) {
            turn.respond(caller, Err(error.clone()));
        }
    }

    pub(super) fn refuse_all(&mut self, error: &ApiError, turn: &mut Turn) {
        let all: Vec<CallId> = self.under_way.keys().copied().collect();
        for call in all {
            self.refuse(call, error, turn);
        }
    }
}

/// Returns `true` if two requests of one name ask for the same.
fn is_same(before: &CapacityRequest, again: &CapacityRequest) -> bool {
    before.job_type == again.job_type && before.cost_units == again.cost_units
}

fn under_way(key: &str) -> ApiError {
    let message = format!(
        "request key {key:?} is being used for other units or another type: draw a new key for another lease"
    );
    ApiError::new(jobtree_protocol::ErrorCode::Conflict, message)
}

/// Returns the answer to a request that was approved before, but for its lease and numbers.
fn repeated() -> LeaseAnswer {
    LeaseAnswer {
        approved: true,
        lease_id: None,
        granted_units: None,
        expires_at: None,
        retry_after_sec: None,
        limits: Default::default(),
        reason: REPEATED.to_owned(),
        numbers: Default::default(),
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
    request: &CapacityRequest,
    lease_id: LeaseId,
    reason: &str,
    turn: &Turn,
) -> transitions::Admit {
    let request = request.clone();
    let doubled = turn.has(Bug::DoubledCapacity);
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
        request_key: request.request_key.filter(|_| !doubled),
        pids: request.pids,
        process_origin: request.process_origin,
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jobtree_protocol::InstanceId;
    use jobtree_queue::policy::Policy;
    use jobtree_queue::signals::Sample;
    use jobtree_queue::{Now, planner};

    use super::super::turn::{Config, Output};
    use super::*;
    use crate::options::Options;

    /// Returns the leases that are given back since their caller had gone when it was answered.
    fn given_back(request_key: Option<&str>) -> (LeaseId, Vec<LeaseId>) {
        let now = Now {
            wall: "2026-01-01T00:00:00Z".parse().unwrap(),
            mono: Duration::from_secs(100),
        };
        let mut policy = Policy::default();
        policy.busy.ignore = true;
        let config = Config::new(&Options::default(), Arc::new(policy));
        let mut turn = Turn::new(config, 7, now);
        let (mut places, mut leases) = (Places::new(&turn), Leases::new(&turn));
        let (mut capacity, mut journal) = (Capacity::default(), Journal::default());
        places.tell(planner::Event::Sample(Sample::idle()));
        places.pass(&turn);
        let request = CapacityRequest {
            addon_id: "a".parse().unwrap(),
            job_type: "t".parse().unwrap(),
            cost_units: 5,
            priority: Default::default(),
            constraints: Default::default(),
            expected_duration_sec: None,
            instance_id: Some(InstanceId::from_random([7; 16])),
            request_key: request_key.map(str::to_owned),
            pids: Vec::new(),
            process_origin: None,
        };
        let has_gone = Responder::new(1, Err);
        capacity.ask(request.clone(), has_gone, &mut turn);
        capacity.found(1, Ok(None), &mut turn);
        capacity.decide(&mut places, &mut leases, &mut journal, &mut turn);
        let command = command_of(&request, turn.rng.lease_id(), "", &turn);
        let cx = transitions::Context {
            now: turn.now,
            roll: 0,
            rules: &turn.config.rules,
        };
        let lease = transitions::admit(&cx, None, command).unwrap().answer;
        let id = lease.id;
        capacity.granted(1, lease);
        turn.take_outputs();
        capacity.decide(&mut places, &mut leases, &mut journal, &mut turn);
        let responses = turn
            .take_outputs()
            .into_iter()
            .filter_map(|output| match output {
                Output::Respond(response) => Some(response),
                Output::Op { .. } | Output::WakeAt(_) => None,
            });
        (
            id,
            responses.flat_map(|response| response.deliver()).collect(),
        )
    }

    #[test]
    fn a_lease_is_given_back_unless_its_caller_may_ask_again() {
        let (lease, given_back_leases) = given_back(None);
        assert_eq!(given_back_leases, [lease]);
        assert_eq!(given_back(Some("a")).1, []);
    }
}
