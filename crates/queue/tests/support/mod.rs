//! A store of a few maps, and what the tests of transitions share.

#![allow(dead_code, reason = "each test program uses its own part of this")]

#[path = "../../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::{
    AddonId, CompleteRequest, Event, Heartbeat, HeartbeatAnswer, InstanceId, Intent, JobId,
    JobState, LeaseId, Limits, NodeId, SubmitRequest,
};
use jobtree_queue::Now;
use jobtree_queue::record::{JobRecord, KeyRecord, LeaseRecord};
use jobtree_queue::transitions::{
    self as t, Abilities, Changes, Claim, Context, Outcome, Proposed, Rules, Submit,
    TransitionError,
};
pub use watchdog::Watchdog;

/// Watches the calling test, which the thread is named after.
pub fn watch() -> Watchdog {
    Watchdog::watching(std::thread::current().name().unwrap_or("main"))
}

pub fn addon(name: &str) -> AddonId {
    AddonId::new(name).unwrap()
}

pub fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

pub fn checked(request: SubmitRequest) -> Intent {
    request.validate(&Limits::default()).unwrap()
}

pub fn simple() -> SubmitRequest {
    SubmitRequest::new("visuals", "indexing", 30)
}

/// What the shipped worker declares for a lease that waits for its turn.
pub const UNBEGUN: Abilities = Abilities {
    reports_begin: true,
    begins_now: false,
    returns_unbegun: true,
    in_process: false,
};

/// Everything that a store would hold.
pub struct World {
    pub jobs: BTreeMap<JobId, Arc<JobRecord>>,
    pub leases: BTreeMap<LeaseId, LeaseRecord>,
    pub keys: BTreeMap<(AddonId, String), KeyRecord>,
    pub events: Vec<Event>,
    pub now: Now,
    pub rules: Rules,
    drawn: u128,
}

impl World {
    pub fn new() -> Self {
        Self {
            jobs: BTreeMap::new(),
            leases: BTreeMap::new(),
            keys: BTreeMap::new(),
            events: Vec::new(),
            now: Now {
                wall: "2026-01-01T00:00:00Z".parse().unwrap(),
                mono: Duration::from_secs(1000),
            },
            rules: Rules::default(),
            drawn: 0,
        }
    }

    pub fn pass(&mut self, seconds: u64) {
        self.now = self.now.after(Duration::from_secs(seconds));
    }

    pub fn random(&mut self) -> [u8; 16] {
        self.drawn += 1;
        self.drawn.to_be_bytes()
    }

    pub fn job_id(&mut self) -> JobId {
        let random = self.random();
        JobId::from_parts(self.now.wall, random[6..].try_into().unwrap())
    }

    pub fn lease_id(&mut self) -> LeaseId {
        LeaseId::from_random(self.random())
    }

    pub fn instance(&mut self) -> InstanceId {
        InstanceId::from_random(self.random())
    }

    pub fn cx(&self) -> Context<'_> {
        Context {
            now: self.now,
            roll: 7,
            rules: &self.rules,
        }
    }

    pub fn job(&self, id: JobId) -> &JobRecord {
        &self.jobs[&id]
    }

    pub fn lease(&self, id: LeaseId) -> &LeaseRecord {
        &self.leases[&id]
    }

    pub fn state(&self, id: JobId) -> JobState {
        self.jobs[&id].state
    }

    /// The records of a lease's jobs.
    pub fn jobs_of(&self, lease: LeaseId) -> Vec<Arc<JobRecord>> {
        self.lease(lease)
            .jobs
            .iter()
            .map(|leased| self.jobs[&leased.id].clone())
            .collect()
    }

    /// Finds the record of a job, as a store does for a transition.
    pub fn record(&self) -> impl Fn(JobId) -> Option<Arc<JobRecord>> + '_ {
        |id| self.jobs.get(&id).cloned()
    }

    /// Renews a lease by a heartbeat, with the records that it needs.
    pub fn beat(&mut self, beat: Heartbeat) -> Result<HeartbeatAnswer, TransitionError> {
        self.beat_under(beat, t::LoadAdvice::default())
    }

    pub fn beat_under(
        &mut self,
        beat: Heartbeat,
        load: t::LoadAdvice,
    ) -> Result<HeartbeatAnswer, TransitionError> {
        let done = self.apply(|w| {
            let lease = w.lease(beat.lease_id);
            let needed = t::heartbeat_needs(lease, &beat);
            let jobs: Vec<_> = needed.iter().map(|id| w.jobs[id].clone()).collect();
            t::heartbeat(&w.cx(), lease, &jobs, beat, load)
        });
        done.map(|(answer, _)| answer)
    }

    /// The lease that a job is held under.
    pub fn lease_of(&self, job: JobId) -> Option<&LeaseRecord> {
        self.jobs[&job].lease_id.map(|id| &self.leases[&id])
    }

    /// Writes what a transition says, compared and swapped on revisions, and tells dependents of ends.
    pub fn commit(&mut self, changes: Changes) {
        for job in changes.jobs {
            let before = self.jobs.get(&job.id).map_or(0, |known| known.revision);
            assert_eq!(job.revision, before + 1, "{job:?}");
            self.jobs.insert(job.id, job);
        }
        for lease in changes.leases {
            let before = self.leases.get(&lease.id).map_or(0, |known| known.revision);
            assert_eq!(lease.revision, before + 1, "{lease:?}");
            self.leases.insert(lease.id, lease);
        }
        for key in changes.keys {
            let known = self
                .keys
                .insert((key.addon_id.clone(), key.key.clone()), key);
            assert_eq!(known, None);
        }
        self.events.extend(changes.events);
        for (ended, how) in changes.ended {
            let waiting: Vec<JobId> = self
                .jobs
                .values()
                .filter(|job| job.waiting_for.contains(&ended))
                .map(|job| job.id)
                .collect();
            for id in waiting {
                self.apply(|w| t::dependency_ended(&w.cx(), w.job(id), ended, how))
                    .unwrap();
            }
        }
    }

    /// Runs a transition and writes what it says. A repeated one must say nothing.
    pub fn apply<A>(
        &mut self,
        transition: impl FnOnce(&Self) -> Outcome<A>,
    ) -> Result<(A, bool), TransitionError> {
        let done = transition(self)?;
        if done.repeated {
            assert!(done.changes.is_empty(), "{:?}", done.changes);
        }
        self.commit(done.changes);
        Ok((done.answer, done.repeated))
    }

    /// What the store knows of dependencies.
    pub fn states(&self, ids: &[JobId]) -> Vec<(JobId, Option<JobState>)> {
        ids.iter()
            .map(|id| (*id, self.jobs.get(id).map(|job| job.state)))
            .collect()
    }

    pub fn unique_holder(&self, intent: &Intent) -> Option<&Arc<JobRecord>> {
        let key = intent.unique_key.as_ref()?;
        self.jobs.values().find(|job| {
            !job.state.is_ended()
                && job.intent.unique_key.as_ref() == Some(key)
                && job.intent.addon_id == intent.addon_id
                && job.intent.job_type == intent.job_type
        })
    }

    pub fn try_submit(
        &mut self,
        request: SubmitRequest,
    ) -> Result<(jobtree_protocol::SubmitAnswer, bool), TransitionError> {
        let id = request.job_id.unwrap_or_else(|| self.job_id());
        let intent = checked(request);
        self.apply(|w| {
            let key = intent
                .idempotency_key
                .clone()
                .map(|key| (intent.addon_id.clone(), key));
            let submit = Submit {
                id,
                same_id: w.jobs.get(&id).map(|job| &**job),
                same_key: key.and_then(|key| w.keys.get(&key)),
                same_unique: w.unique_holder(&intent).map(|job| (job.id, job.state)),
                dependencies: &w.states(&intent.depends_on),
                intent,
            };
            t::submit(&w.cx(), submit)
        })
    }

    pub fn submit(&mut self, request: SubmitRequest) -> JobId {
        self.try_submit(request).unwrap().0.job_id
    }

    /// Live leases and reservations that hold a job's concurrency key.
    pub fn key_holders(&self, job: &JobRecord) -> u32 {
        let Some(key) = &job.intent.concurrency_key else {
            return 0;
        };
        let same = |other: &JobRecord| {
            other.intent.addon_id == job.intent.addon_id
                && other.intent.concurrency_key.as_ref() == Some(key)
        };
        let reserved = self
            .jobs
            .values()
            .filter(|other| other.reservation.is_some() && same(other))
            .count();
        let leased = self
            .leases
            .values()
            .filter(|lease| lease.jobs.iter().any(|leased| same(&self.jobs[&leased.id])));
        u32::try_from(reserved + leased.count()).unwrap()
    }

    pub fn try_claim(&mut self, jobs: &[JobId]) -> Result<(t::Claimed, bool), TransitionError> {
        self.try_claim_by(Abilities::default(), jobs)
    }

    pub fn try_claim_by(
        &mut self,
        worker: Abilities,
        jobs: &[JobId],
    ) -> Result<(t::Claimed, bool), TransitionError> {
        let lease_id = self.lease_id();
        let claim = Claim {
            lease_id,
            node_id: node("here"),
            instance_id: None,
            pids: Vec::new(),
            process_origin: None,
            reason: "admitted".into(),
            worker,
        };
        self.apply(|w| {
            let propose = |id: &JobId| Proposed {
                job: w.job(*id),
                key_holders: w.key_holders(w.job(*id)),
            };
            let proposed: Vec<Proposed<'_>> = jobs.iter().map(propose).collect();
            t::claim(&w.cx(), &proposed, None, claim)
        })
    }

    pub fn claim(&mut self, jobs: &[JobId]) -> LeaseId {
        let claimed = self.try_claim(jobs).unwrap().0;
        assert_eq!(claimed.skipped, []);
        claimed.lease.id
    }

    /// Claims for a worker that reports begins and has not begun the first.
    pub fn claim_unbegun(&mut self, jobs: &[JobId]) -> LeaseId {
        self.claim_by(UNBEGUN, jobs)
    }

    pub fn claim_by(&mut self, worker: Abilities, jobs: &[JobId]) -> LeaseId {
        let claimed = self.try_claim_by(worker, jobs).unwrap().0;
        assert_eq!(claimed.skipped, []);
        claimed.lease.id
    }

    pub fn complete(
        &mut self,
        job: JobId,
        request: &CompleteRequest,
    ) -> Result<JobState, TransitionError> {
        let done =
            self.apply(|w| t::complete(&w.cx(), w.job(job), w.lease_of(job), request, w.record()));
        done.map(|(answer, _)| answer.state)
    }

    pub fn expire(&mut self, lease: LeaseId) {
        let proof = t::Proof::Seen {
            revision: self.lease(lease).revision,
        };
        self.apply(|w| t::expire(&w.cx(), w.lease(lease), &w.jobs_of(lease), proof))
            .unwrap();
    }

    /// The events of a job that a store would keep.
    pub fn trail(&self, job: JobId) -> Vec<Event> {
        self.events
            .iter()
            .filter(|event| event.job_id == Some(job) && event.kind.is_kept())
            .cloned()
            .collect()
    }

    pub fn kinds(&self, job: JobId) -> Vec<&'static str> {
        self.trail(job)
            .iter()
            .map(|event| event.kind.as_str())
            .collect()
    }

    /// Units in use: leases and reservations.
    pub fn used(&self) -> u32 {
        let reserved = self
            .jobs
            .values()
            .filter(|job| job.reservation.is_some())
            .map(|job| job.cost());
        self.leases
            .values()
            .map(LeaseRecord::cost)
            .chain(reserved)
            .sum()
    }
}
