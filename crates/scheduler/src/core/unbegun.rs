//! Jobs that a worker holds and has not begun, while another worker has nothing to do.
//!
//! A worker takes a batch and runs it one job after the other. When another worker's claim waits and no job of the type waits
//! in the queue, the holder is asked to give back a fair part of what it has not begun: half, from the end. Only workers that
//! declared that they return jobs are asked, one ask a lease until it is answered, and one for each idle worker at a time.
//! The jobs stay where they are until their worker has confirmed; then they wait again, and the planner grants them.
//!
//! Nothing is asked in the first moment after a grant: a batch of short jobs is done before its worker hears of it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use jobtree_protocol::{AddonId, ClaimRequest, InstanceId, JobId, JobType, LeaseId};
use jobtree_queue::LeaseRecord;
use jobtree_queue::planner::LeaseAsk;

use super::claims::ClaimId;
use super::operations::AskBack;
use super::places::Places;
use super::turn::Turn;

/// How long a lease is left alone after it was granted or answered an ask.
const SETTLES: Duration = Duration::from_secs(1);
/// The most jobs that are asked for at once.
const MOST: usize = 64;
/// The most leases that are considered for one claim in a pass.
const TRIES: usize = 8;

type Kind = (AddonId, JobType);

/// The stage of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is left alone until then.
    Settling(Duration),
    /// It may be asked.
    Ready,
    /// It was asked, for this worker; the operation may be under way.
    Asked {
        worker: Option<InstanceId>,
        under_way: bool,
    },
}

/// A lease with jobs that its worker has not begun and would give back.
#[derive(Debug)]
struct Holding {
    kind: Kind,
    instance: Option<InstanceId>,
    terms: LeaseAsk,
    count: usize,
    /// The last of them, the last one first.
    tail: Vec<JobId>,
    stage: Stage,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Unbegun {
    holdings: HashMap<LeaseId, Holding>,
    settling: BTreeSet<(Duration, LeaseId)>,
    /// Leases that may be asked, by what they hold; the one with most jobs last.
    ready: BTreeMap<Kind, BTreeSet<(usize, LeaseId)>>,
    /// Workers for which a lease was asked that has not answered.
    asked_for: HashSet<InstanceId>,
}

impl Unbegun {
    /// Takes a lease of this node as it is now. Jobs with a concurrency key stay with their worker: they could not run
    /// beside it.
    pub(super) fn put(&mut self, lease: &LeaseRecord, has_key: bool, now: Duration) {
        let count = if has_key {
            0
        } else {
            returnable(lease).count()
        };
        if count == 0 {
            return self.remove(lease.id);
        }
        let stage = match self.holdings.get(&lease.id).map(|holding| holding.stage) {
            Some(stage @ Stage::Asked { under_way, .. })
                if under_way || !lease.asked_back.is_empty() =>
            {
                stage
            }
            _ if !lease.asked_back.is_empty() => Stage::Asked {
                worker: None,
                under_way: false,
            },
            Some(stage @ (Stage::Settling(_) | Stage::Ready)) => stage,
            Some(Stage::Asked { .. }) | None => Stage::Settling(now + SETTLES),
        };
        self.remove(lease.id);
        let holding = Holding {
            kind: (lease.addon_id.clone(), lease.job_type.clone()),
            instance: lease.instance_id,
            terms: LeaseAsk {
                addon: lease.addon_id.clone(),
                cost: lease.cost(),
                priority: lease.priority,
                constraints: lease.constraints,
                expected_duration: None,
            },
            count,
            tail: returnable(lease).rev().take(MOST).collect(),
            stage,
        };
        self.insert(lease.id, holding);
    }

    fn insert(&mut self, id: LeaseId, holding: Holding) {
        match holding.stage {
            Stage::Settling(until) => {
                self.settling.insert((until, id));
            }
            Stage::Ready => {
                let ready = self.ready.entry(holding.kind.clone()).or_default();
                ready.insert((holding.count, id));
            }
            Stage::Asked { worker, .. } => self.asked_for.extend(worker),
        }
        self.holdings.insert(id, holding);
    }

    fn take(&mut self, id: LeaseId) -> Option<Holding> {
        let holding = self.holdings.remove(&id)?;
        match holding.stage {
            Stage::Settling(until) => {
                self.settling.remove(&(until, id));
            }
            Stage::Ready => {
                if let Some(ready) = self.ready.get_mut(&holding.kind) {
                    ready.remove(&(holding.count, id));
                    if ready.is_empty() {
                        self.ready.remove(&holding.kind);
                    }
                }
            }
            Stage::Asked { worker, .. } => {
                if let Some(worker) = worker {
                    self.asked_for.remove(&worker);
                }
            }
        }
        Some(holding)
    }

    /// Forgets a lease that has ended, or has nothing to give back.
    pub(super) fn remove(&mut self, id: LeaseId) {
        self.take(id);
    }

    fn restage(&mut self, id: LeaseId, stage: Stage) {
        if let Some(holding) = self.take(id) {
            self.insert(id, Holding { stage, ..holding });
        }
    }

    /// Returns when a lease may be asked that is left alone now.
    pub(super) fn next(&self) -> Option<Duration> {
        self.settling.first().map(|(until, _)| *until)
    }

    /// Lets leases be asked that were left alone for long enough. Returns `true` if any may be asked.
    pub(super) fn ripen(&mut self, now: Duration) -> bool {
        while let Some((until, id)) = self.settling.first().copied() {
            if until > now {
                break;
            }
            self.restage(id, Stage::Ready);
        }
        !self.ready.is_empty()
    }

    /// Asks a lease for jobs that a waiting claim could begin, if the planner has none for it and would let one start.
    pub(super) fn ask_for(
        &mut self,
        claim: ClaimId,
        request: &ClaimRequest,
        places: &mut Places,
        turn: &mut Turn,
    ) {
        if self.asked_for.contains(&request.instance_id) {
            return;
        }
        let Some(lease) = self.find(claim, request, places, turn) else {
            return;
        };
        let Some(holding) = self.holdings.get(&lease) else {
            return;
        };
        let wanted = request.max_jobs.saturating_mul(request.max_leases).max(1);
        let part = holding.count.div_ceil(2).min(wanted as usize);
        let jobs = holding.tail.iter().take(part).copied().collect();
        let stage = Stage::Asked {
            worker: Some(request.instance_id),
            under_way: true,
        };
        self.restage(lease, stage);
        turn.ask(AskBack { lease, jobs });
    }

    fn find(
        &self,
        claim: ClaimId,
        request: &ClaimRequest,
        places: &mut Places,
        turn: &Turn,
    ) -> Option<LeaseId> {
        let wants = |kind: &Kind| {
            let types = &request.job_types;
            kind.0 == request.addon_id && (types.is_empty() || types.contains(&kind.1))
        };
        let kinds = self.ready.iter().filter(|(kind, _)| wants(kind));
        let leases = kinds.flat_map(|(_, leases)| leases.iter().rev());
        let mut leases = leases.take(TRIES).filter_map(|(_, id)| {
            let holding = self.holdings.get(id)?;
            let other = holding.instance != Some(request.instance_id);
            other.then_some((*id, holding))
        });
        let mut could_begin = |holding: &Holding| {
            let (job_type, terms) = (&holding.kind.1, &holding.terms);
            places.lacks_jobs(claim, job_type, terms, turn.now)
        };
        let found = leases.find(|(_, holding)| could_begin(holding));
        found.map(|(id, _)| id)
    }

    /// An ask was answered: the worker hears of it, or there was nothing to ask for.
    pub(super) fn asked(&mut self, lease: LeaseId, jobs: usize, now: Duration) {
        let Some(Stage::Asked { worker, .. }) = self.holdings.get(&lease).map(|it| it.stage) else {
            return;
        };
        let stage = match jobs {
            0 => Stage::Settling(now + SETTLES),
            _ => Stage::Asked {
                worker,
                under_way: false,
            },
        };
        self.restage(lease, stage);
    }
}

fn returnable(lease: &LeaseRecord) -> impl DoubleEndedIterator<Item = JobId> + '_ {
    let jobs = lease.returnable().filter(|job| !job.cancel);
    jobs.map(|job| job.id)
}

#[cfg(test)]
mod tests {
    use jobtree_queue::record::LeasedJob;

    use super::*;

    fn lease(number: u8, unbegun: usize) -> LeaseRecord {
        let at = "2026-01-01T00:00:00Z".parse().unwrap();
        let job = |position: usize| LeasedJob {
            id: JobId::from_random([position as u8; 16]),
            position: position as u32,
            cost: 1,
            max_runtime_sec: None,
            cancel: false,
            begun: position == 0,
        };
        LeaseRecord {
            id: LeaseId::from_random([number; 16]),
            revision: 1,
            addon_id: "a".parse().unwrap(),
            job_type: "t".parse().unwrap(),
            node_id: "n".parse().unwrap(),
            instance_id: Some(InstanceId::from_random([number; 16])),
            request_key: None,
            priority: Default::default(),
            constraints: Default::default(),
            expected_duration_sec: None,
            own_cost: 0,
            ttl_sec: 30,
            granted_at: at,
            renewed_at: at,
            renewals: 0,
            expires_at: at,
            jobs: (0..=unbegun).map(job).collect(),
            named_current: None,
            current_since: at,
            reports_begin: true,
            returns_unbegun: true,
            begun: true,
            asked_back: Vec::new(),
            in_process: false,
            pids: Vec::new(),
            process_origin: None,
            end: None,
            ended_at: None,
            end_reason: None,
        }
    }

    const NOW: Duration = Duration::from_secs(100);
    const LATER: Duration = Duration::from_secs(200);

    #[test]
    fn a_lease_is_left_alone_at_first_and_while_it_is_asked() {
        let mut room = Unbegun::default();
        let mut lease = lease(1, 4);
        room.put(&lease, false, NOW);
        assert!(!room.ripen(NOW), "its jobs may be short");
        let ready = room.next().unwrap();
        assert!(room.ripen(ready) && room.next().is_none());
        // Each change of the lease leaves it where it is.
        lease.jobs.remove(0);
        lease.jobs[0].begun = true;
        room.put(&lease, false, ready);
        assert!(room.ripen(ready));
        lease.asked_back = vec![lease.jobs[3].id];
        room.put(&lease, false, ready);
        assert!(!room.ripen(LATER), "it was asked, and has not answered");
        lease.asked_back.clear();
        lease.jobs.pop();
        room.put(&lease, false, LATER);
        assert!(!room.ripen(LATER) && room.ripen(LATER + SETTLES));
    }

    #[test]
    fn what_cannot_be_asked_is_not_remembered() {
        let mut room = Unbegun::default();
        room.put(&lease(1, 0), false, NOW);
        room.put(&lease(2, 3), true, NOW);
        let keeps = LeaseRecord {
            returns_unbegun: false,
            ..lease(3, 3)
        };
        room.put(&keeps, false, NOW);
        assert!(room.holdings.is_empty() && room.next().is_none());
        // Nothing is left of a lease that has ended, however far it was.
        for stage in 0..3 {
            let mut lease = lease(stage, 3);
            room.put(&lease, false, NOW);
            if stage > 0 {
                room.ripen(LATER);
            }
            if stage > 1 {
                lease.asked_back = vec![lease.jobs[2].id];
                room.put(&lease, false, LATER);
            }
            room.remove(lease.id);
            assert!(room.holdings.is_empty() && room.settling.is_empty());
            assert!(room.ready.is_empty() && room.asked_for.is_empty());
        }
    }
}
