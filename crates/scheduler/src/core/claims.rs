//! Workers that ask for jobs.
//!
//! A claim is shown to the planner as an ask. Each grant that the planner proposes for it becomes an operation; when all
//! that were proposed are answered and one was granted, the worker is answered. Until then it waits, at most as long as it
//! said.
//!
//! A worker that draws the lease's id itself may ask again after a lost answer: the store is asked for that lease
//! first. If the worker has gone when a lease is granted whose id it does not know, the lease is given back at once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::{ApiError, ClaimAnswer, ClaimRequest, InstanceId};
use jobtree_queue::planner::ClaimAsk;
use jobtree_queue::transitions::{self, Abilities, Claimed, TransitionError};
use jobtree_queue::{JobRecord, LeaseRecord};
use jobtree_store::StoreError;

use super::calls::{CallId, Responder};
use super::operations::{FindClaimed, FoundLease, GiveBack};
use super::places::Places;
use super::planted::Bug;
use super::turn::Turn;
use crate::error::told;

/// The name of a claim that waits.
pub type ClaimId = u64;

/// While the store has not been read, no worker is told that there is nothing: for so long at most.
const PATIENCE: Duration = Duration::from_secs(5);

type Caller = Responder<Vec<ClaimAnswer>>;

/// A worker's claim.
#[derive(Clone, Debug)]
pub struct WorkerClaim {
    /// The worker's words.
    pub request: ClaimRequest,
    /// The worker runs inside the process that alone has the store open.
    pub in_process: bool,
}

#[derive(Debug)]
struct Waiting {
    /// The worker; none if it has gone.
    caller: Option<Caller>,
    request: ClaimRequest,
    in_process: bool,
    until: Duration,
    granted: Vec<ClaimAnswer>,
    /// Grants that are under way.
    outstanding: u32,
    /// The error to answer with if nothing is granted.
    refused: Option<ApiError>,
    /// Its time is over: it is answered when the grants under way are, and there will be no others.
    over: bool,
}

impl Waiting {
    fn ask(&self, id: ClaimId, leases: u32) -> ClaimAsk {
        ClaimAsk {
            id,
            addon: self.request.addon_id.clone(),
            types: self.request.job_types.clone(),
            jobs: self.request.max_jobs,
            leases,
        }
    }
}

/// All claims that wait.
#[derive(Debug, Default)]
pub(super) struct Claims {
    next: ClaimId,
    waiting: BTreeMap<ClaimId, Waiting>,
    /// Claims whose lease is looked for first.
    finding: HashMap<CallId, (WorkerClaim, Caller)>,
    /// Processes that have asked, for the mistake that trusts them.
    seen: HashSet<InstanceId>,
}

impl Claims {
    /// A worker asks for jobs.
    pub(super) fn claim(
        &mut self,
        claim: WorkerClaim,
        caller: Caller,
        places: &mut Places,
        turn: &mut Turn,
    ) {
        let request = &claim.request;
        if turn.has(Bug::TrustWorkerNames) {
            self.seen.insert(request.instance_id);
        }
        let Some(lease) = request.lease_id else {
            return self.wait(claim, caller, places, turn);
        };
        let same = |claim: &&mut Waiting| claim.request.lease_id == Some(lease);
        if let Some(claim) = self.waiting.values_mut().find(same) {
            // It asks again while the first ask still waits: the first one's answer would go nowhere.
            claim.until = turn.now.mono + Duration::from_secs(request.wait_sec.into());
            if let Some(before) = claim.caller.replace(caller) {
                turn.respond(before, Ok(Vec::new()));
            }
            return;
        }
        let call = caller.call();
        self.finding.insert(call, (claim, caller));
        turn.ask(FindClaimed { lease, call });
    }

    fn wait(&mut self, claim: WorkerClaim, caller: Caller, places: &mut Places, turn: &Turn) {
        let WorkerClaim {
            request,
            in_process,
        } = claim;
        let id = self.next;
        self.next += 1;
        let claim = Waiting {
            caller: Some(caller),
            until: turn.now.mono + Duration::from_secs(request.wait_sec.into()),
            request,
            in_process,
            granted: Vec::new(),
            outstanding: 0,
            refused: None,
            over: false,
        };
        places.claim(claim.ask(id, claim.request.max_leases));
        self.waiting.insert(id, claim);
    }

    /// The lease that a claim names was looked for.
    pub(super) fn found(
        &mut self,
        call: CallId,
        found: Result<FoundLease, StoreError>,
        places: &mut Places,
        turn: &mut Turn,
    ) {
        let Some((claim, caller)) = self.finding.remove(&call) else {
            return;
        };
        match found {
            Ok(None) => self.wait(claim, caller, places, turn),
            Ok(Some((lease, jobs))) => {
                let lease_id = lease.id;
                let answer = match lease.end {
                    None => Ok(vec![answer_of(&lease, &jobs)]),
                    Some(end) => Err(ApiError::from(&TransitionError::LeaseEnded {
                        lease_id,
                        end,
                    })),
                };
                turn.respond(caller, answer);
            }
            Err(error) => turn.respond(caller, Err(told(&error))),
        }
    }

    /// The caller does not wait for its answer any more.
    pub(super) fn leave(&mut self, call: CallId, places: &mut Places) {
        self.finding.remove(&call);
        let left = |claim: &Waiting| claim.caller.as_ref().is_some_and(|it| it.call() == call);
        let found = self.waiting.iter().find(|(_, claim)| left(claim));
        let Some(id) = found.map(|(id, _)| *id) else {
            return;
        };
        places.end_claim(id);
        if let Some(claim) = self.waiting.get_mut(&id) {
            claim.caller = None;
        }
        self.forget_left(id);
    }

    /// Forgets a claim whose worker has gone and for which nothing is under way.
    fn forget_left(&mut self, id: ClaimId) {
        let claim = self.waiting.get(&id);
        if claim.is_some_and(|claim| claim.caller.is_none() && claim.outstanding == 0) {
            self.waiting.remove(&id);
        }
    }

    /// Makes the command of a grant that the planner proposes. None if the claim has ended.
    pub(super) fn begin_grant(
        &mut self,
        id: ClaimId,
        reason: String,
        turn: &mut Turn,
    ) -> Option<transitions::Claim> {
        let drawn = turn.rng.lease_id();
        let claim = self.waiting.get_mut(&id);
        let claim = claim.filter(|claim| claim.caller.is_some())?;
        let before = claim.granted.len() + claim.outstanding as usize;
        claim.outstanding += 1;
        Some(transitions::Claim {
            lease_id: claim.request.lease_id.unwrap_or(drawn),
            node_id: turn.config.node.clone(),
            instance_id: Some(claim.request.instance_id),
            pids: claim.request.pids.clone(),
            process_origin: claim.request.process_origin.clone(),
            reason,
            worker: Abilities {
                in_process: claim.in_process,
                ..Abilities::of(&claim.request, before)
            },
        })
    }

    /// A grant was made.
    pub(super) fn granted(&mut self, id: ClaimId, claimed: &Claimed, turn: &mut Turn) {
        let Some(claim) = self.waiting.get_mut(&id) else {
            return;
        };
        claim.outstanding -= 1;
        if claim.caller.is_some() {
            claim.granted.push(answer_of(&claimed.lease, &claimed.jobs));
            return;
        }
        let known_to_worker = claim.request.lease_id.is_some();
        self.forget_left(id);
        if !known_to_worker {
            let lease = claimed.lease.id;
            turn.ask(GiveBack { lease });
        }
    }

    /// A grant was refused: the worker waits on.
    pub(super) fn grant_refused(&mut self, id: ClaimId, error: &StoreError, places: &mut Places) {
        let Some(claim) = self.waiting.get_mut(&id) else {
            return;
        };
        claim.outstanding -= 1;
        if claim.caller.is_none() {
            return self.forget_left(id);
        }
        if let StoreError::Refused(why) = error
            && matches!(**why, TransitionError::LeaseEnded { .. })
        {
            // The id that the worker drew is used up: no other job will do.
            claim.refused = Some(told(error));
            return places.end_claim(id);
        }
        if !claim.over {
            let open = claim.request.max_leases - claim.granted.len() as u32 - claim.outstanding;
            places.claim(claim.ask(id, open));
        }
    }

    /// Returns the claims of workers that have nothing to do: they got nothing in the pass that was just made, and would begin
    /// a job at once.
    pub(super) fn idle(&self) -> impl Iterator<Item = (ClaimId, &ClaimRequest)> {
        let idle = |claim: &Waiting| {
            let waits = claim.caller.is_some() && !claim.over && claim.refused.is_none();
            let nothing = claim.outstanding == 0 && claim.granted.is_empty();
            waits && nothing && claim.request.begins_now != Some(0)
        };
        let waiting = self.waiting.iter();
        let idle = waiting.filter(move |(_, claim)| idle(claim));
        idle.map(|(id, claim)| (*id, &claim.request))
    }

    /// Answers claims that have something, or have waited long enough. `ready` says whether the store has been read.
    pub(super) fn answer(&mut self, ready: bool, places: &mut Places, turn: &mut Turn) {
        let now = turn.now.mono;
        let patience = if ready { Duration::ZERO } else { PATIENCE };
        let mut answered = Vec::new();
        for (id, claim) in &mut self.waiting {
            let complete = claim.outstanding == 0 && !claim.granted.is_empty();
            let patient = claim.until + patience > now;
            if claim.caller.is_none() || (!complete && claim.refused.is_none() && patient) {
                continue;
            }
            if claim.outstanding > 0 && claim.refused.is_none() {
                // Grants under way are this worker's: to answer without them would be to grant them to no one.
                if !std::mem::replace(&mut claim.over, true) {
                    places.end_claim(*id);
                }
            } else {
                answered.push(*id);
            }
        }
        for id in answered {
            places.end_claim(id);
            let Some(claim) = self.waiting.get_mut(&id) else {
                continue;
            };
            let granted = std::mem::take(&mut claim.granted);
            let refused = claim.refused.take();
            if let Some(caller) = claim.caller.take() {
                let leases = granted.iter().map(|lease| lease.lease_id).collect();
                let answer = match refused {
                    Some(error) if granted.is_empty() => Err(error),
                    _ => Ok(granted),
                };
                turn.deliver(caller.grant(answer, leases));
            }
            self.forget_left(id);
        }
    }

    pub(super) fn next_end(&self) -> Option<Duration> {
        let waiting = self.waiting.values();
        let waiting = waiting.filter(|claim| claim.caller.is_some() && !claim.over);
        waiting.map(|claim| claim.until).min()
    }

    pub(super) fn has_seen(&self, instance: InstanceId) -> bool {
        self.seen.contains(&instance)
    }

    pub(super) fn refuse_all(&mut self, error: &ApiError, turn: &mut Turn) {
        let waiting = std::mem::take(&mut self.waiting).into_values();
        let waiting = waiting.filter_map(|claim| claim.caller);
        let finding = std::mem::take(&mut self.finding).into_values();
        for caller in waiting.chain(finding.map(|(_, caller)| caller)) {
            turn.respond(caller, Err(error.clone()));
        }
    }
}

fn answer_of(lease: &LeaseRecord, jobs: &[Arc<JobRecord>]) -> ClaimAnswer {
    ClaimAnswer {
        lease_id: lease.id,
        ttl_sec: lease.ttl_sec,
        jobs: jobs.iter().map(|job| job.view(Some(lease))).collect(),
    }
}
