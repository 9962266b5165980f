//! Workers that ask for jobs, and callers that ask for capacity.
//!
//! A claim is shown to the dispatcher as an ask. Each grant that the dispatcher proposes for it becomes an operation;
//! when all that were proposed are answered and one was granted, the worker is answered. Until then it waits, at most as
//! long as it said.
//!
//! A worker that draws the lease's id itself may ask again after a lost answer: the store is asked for that lease
//! first. If nobody listens any more when a lease is granted whose id nobody knows, it is given back at once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::{
    ApiError, ClaimAnswer, ClaimRequest, InstanceId, LeaseAnswer, LeaseAsk, LeaseId,
};
use jobtree_queue::dispatch::{ClaimAsk, Event, LeaseAsk as CapacityAsk};
use jobtree_queue::transitions::{Admit, Claimed, TransitionError};
use jobtree_queue::{JobRecord, LeaseRecord, Now};
use jobtree_store::StoreError;

use super::io::{Op, OpId, Slot, Told};
use super::{Bug, Core};
use crate::error::told;

/// While the store has not been read, nobody is told that there is nothing: for so long at most.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Claiming {
    /// Who waits; nobody any more if absent.
    slot: Option<Slot>,
    request: ClaimRequest,
    until: Duration,
    granted: Vec<ClaimAnswer>,
    /// Grants that are under way.
    outstanding: u32,
    /// The error to tell if nothing is granted.
    refused: Option<ApiError>,
    /// Its time is over: it is answered when the grants under way are, and there will be no others.
    over: bool,
}

/// All that wait.
#[derive(Debug, Default)]
pub(super) struct Claims {
    next: u64,
    waiting: BTreeMap<u64, Claiming>,
    /// Grants under way, and whose they are.
    grants: HashMap<OpId, u64>,
    /// Leases that are looked for, and for whom.
    finding: HashMap<OpId, (Slot, ClaimRequest)>,
    /// Processes that have asked.
    seen: HashSet<InstanceId>,
    /// Asks for capacity, until the dispatcher can be asked.
    capacity: Vec<(Slot, LeaseAsk, Option<InstanceId>, Vec<u32>)>,
}

/// What a grant needs of its ask.
pub(super) struct Granting {
    pub(super) lease_id: Option<LeaseId>,
    pub(super) instance_id: InstanceId,
    pub(super) pids: Vec<u32>,
}

impl Claims {
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        let waiting = self.waiting.values().filter_map(|claim| claim.slot);
        waiting.chain(self.capacity.iter().map(|(slot, ..)| *slot))
    }

    pub(super) fn next(&self) -> Option<Duration> {
        let waiting = self.waiting.values();
        let waiting = waiting.filter(|claim| claim.slot.is_some() && !claim.over);
        waiting.map(|claim| claim.until).min()
    }

    pub(super) fn granting(&self, ask: u64) -> Option<Granting> {
        let claim = self.waiting.get(&ask).filter(|it| it.slot.is_some())?;
        Some(Granting {
            lease_id: claim.request.lease_id,
            instance_id: claim.request.instance_id,
            pids: claim.request.pids.clone(),
        })
    }

    pub(super) fn began(&mut self, ask: u64, op: OpId) {
        if let Some(claim) = self.waiting.get_mut(&ask) {
            claim.outstanding += 1;
            self.grants.insert(op, ask);
        }
    }

    /// Whether a process has asked.
    pub(super) fn seen(&self, instance: InstanceId) -> bool {
        self.seen.contains(&instance)
    }

    pub(super) fn forget_finding(&mut self, op: OpId) {
        self.finding.remove(&op);
    }

    pub(super) fn ask_capacity(
        &mut self,
        slot: Slot,
        ask: LeaseAsk,
        instance: Option<InstanceId>,
        pids: Vec<u32>,
    ) {
        self.capacity.push((slot, ask, instance, pids));
    }
}

impl Core {
    /// A worker asks for jobs.
    pub(super) fn claim(&mut self, slot: Slot, request: ClaimRequest, now: Now) {
        if self.has(Bug::TrustWorkerNames) {
            self.claims.seen.insert(request.instance_id);
        }
        let Some(lease) = request.lease_id else {
            return self.ask_for_jobs(slot, request, now);
        };
        let same = |claim: &&mut Claiming| claim.request.lease_id == Some(lease);
        if let Some(claim) = self.claims.waiting.values_mut().find(same) {
            // It asks again while the first ask still waits: the first one's answer would go nowhere.
            let before = claim.slot.replace(slot);
            claim.until = now.mono + Duration::from_secs(request.wait_sec.into());
            if let Some(before) = before {
                self.reply(before, Ok(Told::Claimed(Vec::new())));
            }
            return;
        }
        let op = self.op(Op::FindLease(lease), Some(slot), now);
        self.claims.finding.insert(op, (slot, request));
    }

    fn ask_for_jobs(&mut self, slot: Slot, request: ClaimRequest, now: Now) {
        let id = self.claims.next;
        self.claims.next += 1;
        self.events
            .push(Event::Claim(ask_of(id, &request, request.max_leases)));
        self.claims.waiting.insert(
            id,
            Claiming {
                slot: Some(slot),
                until: now.mono + Duration::from_secs(request.wait_sec.into()),
                request,
                granted: Vec::new(),
                outstanding: 0,
                refused: None,
                over: false,
            },
        );
    }

    /// A lease was looked for. Whether that was for a claim.
    pub(super) fn found_for_claim(
        &mut self,
        op: OpId,
        found: Option<&(LeaseRecord, Vec<Arc<JobRecord>>)>,
        now: Now,
    ) -> bool {
        let Some((slot, request)) = self.claims.finding.remove(&op) else {
            return false;
        };
        match found {
            None => self.ask_for_jobs(slot, request, now),
            Some((lease, jobs)) => {
                let reply = match lease.end {
                    None => Ok(Told::Claimed(vec![answer_of(lease, jobs)])),
                    Some(end) => {
                        let lease_id = lease.id;
                        Err(ApiError::from(&TransitionError::LeaseEnded {
                            lease_id,
                            end,
                        }))
                    }
                };
                self.reply(slot, reply);
            }
        }
        true
    }

    /// Nobody waits for this answer any more.
    pub(super) fn leave_claim(&mut self, slot: Slot) {
        self.claims.capacity.retain(|(other, ..)| *other != slot);
        self.claims.finding.retain(|_, (other, _)| *other != slot);
        let left = |claim: &Claiming| claim.slot == Some(slot);
        let found = self.claims.waiting.iter().find(|(_, claim)| left(claim));
        let Some(id) = found.map(|(id, _)| *id) else {
            return;
        };
        self.events.push(Event::ClaimEnded(id));
        if let Some(claim) = self.claims.waiting.get_mut(&id) {
            claim.slot = None;
            if claim.outstanding == 0 {
                self.claims.waiting.remove(&id);
            }
        }
    }

    /// A grant was made.
    pub(super) fn claim_granted(&mut self, op: OpId, claimed: &Claimed, now: Now) {
        let Some(ask) = self.claims.grants.remove(&op) else {
            return;
        };
        let Some(claim) = self.claims.waiting.get_mut(&ask) else {
            return;
        };
        claim.outstanding -= 1;
        if claim.slot.is_some() {
            claim.granted.push(answer_of(&claimed.lease, &claimed.jobs));
            return;
        }
        let known_to_worker = claim.request.lease_id.is_some();
        if claim.outstanding == 0 {
            self.claims.waiting.remove(&ask);
        }
        if !known_to_worker {
            self.op(Op::GiveBack(claimed.lease.id), None, now);
        }
    }

    /// A grant was refused: the worker waits on.
    pub(super) fn claim_lost(&mut self, op: OpId, error: &StoreError) {
        let Some(ask) = self.claims.grants.remove(&op) else {
            return;
        };
        let Some(claim) = self.claims.waiting.get_mut(&ask) else {
            return;
        };
        claim.outstanding -= 1;
        if claim.slot.is_none() {
            if claim.outstanding == 0 {
                self.claims.waiting.remove(&ask);
            }
            return;
        }
        if let StoreError::Refused(why) = error
            && matches!(**why, TransitionError::LeaseEnded { .. })
        {
            // The id that the worker drew is used up: no other job will do.
            claim.refused = Some(told(error));
            self.events.push(Event::ClaimEnded(ask));
            return;
        }
        if claim.over {
            return;
        }
        let open = claim.request.max_leases - claim.granted.len() as u32 - claim.outstanding;
        let again = ask_of(ask, &claim.request, open);
        self.events.push(Event::Claim(again));
    }

    /// Answers claims that have something, or have waited long enough.
    pub(super) fn answer_claims(&mut self, now: Now) {
        let patient = |claim: &Claiming| {
            let until = if self.ready {
                claim.until
            } else {
                claim.until + PATIENCE
            };
            until > now.mono
        };
        let over: Vec<u64> = self
            .claims
            .waiting
            .iter()
            .filter(|(_, claim)| claim.slot.is_some())
            .filter(|(_, claim)| {
                let has_all = claim.outstanding == 0 && !claim.granted.is_empty();
                has_all || claim.refused.is_some() || !patient(claim)
            })
            .map(|(id, _)| *id)
            .collect();
        // Grants under way are this worker's: to answer without them would be to grant them to nobody.
        let (under_way, over): (Vec<u64>, Vec<u64>) = over.into_iter().partition(|id| {
            let claim = &self.claims.waiting[id];
            claim.outstanding > 0 && claim.refused.is_none()
        });
        let shown = self.events.is_empty();
        for id in under_way {
            if let Some(claim) = self.claims.waiting.get_mut(&id)
                && !std::mem::replace(&mut claim.over, true)
            {
                self.events.push(Event::ClaimEnded(id));
            }
        }
        let over: Vec<u64> = over
            .into_iter()
            .filter_map(|id| Some((id, self.claims.waiting.get(&id)?)))
            // What was just shown is decided in the dispatcher's next step.
            .filter(|(_, claim)| {
                shown || !claim.granted.is_empty() || claim.refused.is_some() || !self.ready
            })
            .map(|(id, _)| id)
            .collect();
        for id in over {
            self.events.push(Event::ClaimEnded(id));
            let Some(claim) = self.claims.waiting.get_mut(&id) else {
                continue;
            };
            let granted = std::mem::take(&mut claim.granted);
            let slot = claim.slot.take();
            let refused = claim.refused.take();
            if claim.outstanding == 0 {
                self.claims.waiting.remove(&id);
            }
            if let Some(slot) = slot {
                let reply = match refused {
                    Some(error) if granted.is_empty() => Err(error),
                    _ => Ok(Told::Claimed(granted)),
                };
                self.reply(slot, reply);
            }
        }
    }

    /// Decides on asks for capacity: the dispatcher knows all that happened by now.
    pub(super) fn decide_leases(&mut self, now: Now) {
        for (slot, ask, instance_id, pids) in std::mem::take(&mut self.claims.capacity) {
            let LeaseAsk::Capacity {
                addon_id,
                job_type,
                cost_units,
                priority,
                constraints,
                expected_duration_sec,
            } = ask
            else {
                continue;
            };
            let lease_id = self.dice.lease_id();
            let asked = CapacityAsk {
                addon: addon_id.clone(),
                cost: cost_units,
                priority,
                constraints,
                expected_duration: expected_duration_sec
                    .map(|seconds| Duration::from_secs(seconds.into())),
            };
            let verdict = self.dispatcher.lease(lease_id, &asked, now);
            let decision = verdict.to_log(now.wall, None, addon_id.clone());
            let answer = LeaseAnswer {
                approved: verdict.approved(),
                lease_id: None,
                retry_after_sec: decision.retry_after_sec,
                limits: verdict.limits.clone(),
                reason: verdict.reason(),
                numbers: verdict.numbers.clone(),
            };
            self.remember(decision);
            if !verdict.approved() {
                let code = verdict.denied.as_ref().map_or("", |block| block.code());
                *self.stats.denials.entry(code.to_owned()).or_default() += 1;
                self.reply(slot, Ok(Told::Lease(answer)));
                continue;
            }
            self.granting.insert(lease_id);
            let command = Admit {
                lease_id,
                addon_id,
                job_type,
                cost_units,
                priority,
                constraints,
                expected_duration_sec,
                node_id: self.node.clone(),
                instance_id,
                pids,
                reason: answer.reason.clone(),
            };
            let op = self.op(Op::Admit(command), Some(slot), now);
            if let Some(flight) = self.flights.get_mut(&op) {
                flight.lease = Some(answer);
            }
        }
    }
}

fn ask_of(id: u64, request: &ClaimRequest, leases: u32) -> ClaimAsk {
    ClaimAsk {
        id,
        addon: request.addon_id.clone(),
        types: request.job_types.clone(),
        jobs: request.max_jobs,
        leases,
    }
}

fn answer_of(lease: &LeaseRecord, jobs: &[Arc<JobRecord>]) -> ClaimAnswer {
    ClaimAnswer {
        lease_id: lease.id,
        ttl_sec: lease.ttl_sec,
        jobs: jobs.iter().map(|job| job.view(Some(lease))).collect(),
    }
}
