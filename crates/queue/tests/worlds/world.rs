//! A world around the real planner: a store that accepts, workers that take as long as they are told, a machine that
//! is as busy as it is told; all in virtual time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::{AddonId, JobId, JobType, LeaseId, NodeId};
use jobtree_queue::Now;
use jobtree_queue::admission::Verdict;
use jobtree_queue::candidate::Candidate;
use jobtree_queue::ledger::Holder;
use jobtree_queue::planner::{Effect, Event, ListenScope, LiveLease, Outcome, Planner};
use jobtree_queue::policy::Policy;
use jobtree_queue::signals::Sample;

use super::{busy, noon, secs};

/// An addon's name.
pub fn addon(name: &str) -> AddonId {
    AddonId::new(name).unwrap()
}

/// A type's name.
pub fn kind(name: &str) -> JobType {
    JobType::new(name).unwrap()
}

#[derive(Clone)]
pub struct World {
    pub planner: Planner,
    pub now: Now,
    /// How busy the machine is measured to be.
    pub level: f64,
    /// IO pressure, percent.
    pub psi_io: Option<f64>,
    /// How often it is measured.
    pub every: Duration,
    /// What started, in order.
    pub started: Vec<(JobId, Now)>,
    pub denials: Vec<(JobId, Verdict)>,
    pub at_risk: Vec<(JobId, Now)>,
    /// Reserved jobs, and until when each may be accepted.
    pub reserved: Vec<(JobId, Duration)>,
    pub returned: Vec<JobId>,
    /// Whether reservations are accepted.
    pub workers: bool,
    /// Every job's candidate and how long it really takes.
    pub jobs: HashMap<JobId, (Candidate, Duration)>,
    running: BTreeMap<(Duration, LeaseId), Vec<JobId>>,
    wake: Option<Duration>,
    sampled: Duration,
    counter: u64,
}

impl World {
    /// A machine that has been idle for long enough to be QUIET, with somebody who accepts all reservations.
    pub fn new(policy: Arc<Policy>) -> World {
        let mut world = World::unserved(policy);
        world.workers = true;
        world.listen(1);
        world
    }

    /// Such a machine where nobody serves anything.
    pub fn unserved(policy: Arc<Policy>) -> World {
        let node = NodeId::new("here").unwrap();
        let now = noon();
        let mut world = World {
            planner: Planner::new(policy, node, ["ssd".to_owned()], now),
            now,
            level: 0.0,
            psi_io: None,
            every: secs(2),
            started: Vec::new(),
            denials: Vec::new(),
            at_risk: Vec::new(),
            reserved: Vec::new(),
            returned: Vec::new(),
            workers: false,
            jobs: HashMap::new(),
            running: BTreeMap::new(),
            wake: None,
            sampled: now.mono,
            counter: 0,
        };
        world.run(secs(120));
        world
    }

    /// So many listen for reservations of all addons from now on.
    pub fn listen(&mut self, listeners: u32) {
        let scope = ListenScope::default();
        self.step(Event::Listening { scope, listeners });
    }

    /// Somebody polls for reservations of an addon.
    pub fn poll(&mut self, name: &str) {
        let addon = Some(addon(name));
        self.step(Event::Polled { addon });
    }

    /// A job that is not submitted yet; it really takes so long, and says nothing of that.
    pub fn job(&mut self, name: &str, cost: u32, takes: Duration) -> Candidate {
        self.counter += 1;
        let mut random = [0; 10];
        random[2..].copy_from_slice(&self.counter.to_be_bytes());
        let id = JobId::from_parts(self.now.wall, random);
        let candidate = Candidate::new(id, addon(name), kind("work"), cost, self.now.wall);
        self.jobs.insert(id, (candidate.clone(), takes));
        candidate
    }

    pub fn submit(&mut self, candidates: impl IntoIterator<Item = Candidate>) {
        let candidates: Vec<Candidate> = candidates.into_iter().collect();
        for candidate in &candidates {
            self.jobs.get_mut(&candidate.id).unwrap().0 = candidate.clone();
        }
        self.step(Event::Submitted(candidates));
    }

    /// Submits so many alike, a millisecond apart.
    pub fn flood(&mut self, name: &str, count: usize, cost: u32, takes: Duration) -> Vec<JobId> {
        let jobs: Vec<Candidate> = (0..count)
            .map(|index| {
                let mut job = self.job(name, cost, takes);
                let apart = Duration::from_millis(index as u64);
                job.enqueued_at = self.now.wall.checked_add(apart).unwrap();
                job
            })
            .collect();
        let ids = jobs.iter().map(|job| job.id).collect();
        self.submit(jobs);
        ids
    }

    pub fn step(&mut self, event: Event) {
        let effects = self.planner.step(event, self.now);
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        let mut wake = None;
        for effect in effects {
            match effect {
                Effect::Reserve {
                    job,
                    until,
                    verdict,
                    ..
                } => {
                    self.check(&verdict);
                    self.reserved.push((job, until.mono));
                    self.step(Event::Answered {
                        job,
                        outcome: Outcome::Accepted(None),
                    });
                    if self.workers {
                        let lease = self.lease(&[job]);
                        self.step(Event::Accepted { job, lease });
                    }
                }
                Effect::Grant { jobs, verdict, .. } => {
                    self.check(&verdict);
                    let ids: Vec<JobId> = jobs.iter().map(|(id, _)| *id).collect();
                    let lease = self.lease(&ids);
                    self.step(Event::Answered {
                        job: ids[0],
                        outcome: Outcome::Accepted(Some(lease)),
                    });
                }
                Effect::Accept { job, .. } => {
                    let lease = self.lease(&[job]);
                    let outcome = Outcome::Accepted(Some(lease));
                    self.step(Event::Answered { job, outcome });
                }
                Effect::ReturnUnclaimed { job } => {
                    self.returned.push(job);
                    self.step(Event::Returned { job, revision: 1 });
                }
                Effect::WriteDenial { job, verdict } => self.denials.push((job, verdict)),
                Effect::AtRisk { job, .. } => self.at_risk.push((job, self.now)),
                Effect::StateChanged { .. } => {}
                Effect::WakeAt(at) => wake = Some(at.mono),
            }
        }
        if wake.is_some() {
            self.wake = wake;
        }
        assert!(
            self.planner.waiting() == 0 || self.wake.is_some(),
            "a job waits without a wake-up"
        );
    }

    /// No grant above the capacity that was known.
    fn check(&self, verdict: &Verdict) {
        let numbers = &verdict.numbers;
        assert!(
            numbers.used + numbers.requested <= numbers.capacity,
            "{numbers:?}"
        );
    }

    fn lease(&mut self, jobs: &[JobId]) -> LeaseId {
        self.counter += 1;
        let lease = LeaseId::from_random((u128::from(self.counter)).to_be_bytes());
        let takes: Duration = jobs.iter().map(|job| self.jobs[job].1).sum();
        self.started.extend(jobs.iter().map(|job| (*job, self.now)));
        self.running
            .insert((self.now.mono + takes, lease), jobs.to_vec());
        lease
    }

    pub fn measure(&mut self) {
        let sample = Sample {
            psi_io: self.psi_io,
            ..busy(self.level)
        };
        self.step(Event::Sample(sample));
    }

    /// Enters a lease that lasts until it is freed.
    pub fn occupy(&mut self, name: &str, units: u32) -> LeaseId {
        self.counter += 1;
        let lease = LeaseId::from_random(u128::from(self.counter).to_be_bytes());
        let (addon, key, ends_in) = (addon(name), None, None);
        self.step(Event::Leased(LiveLease {
            lease,
            addon,
            units,
            job_type: None,
            key,
            ends_in,
        }));
        lease
    }

    /// Lets time pass.
    pub fn run(&mut self, lasting: Duration) {
        let end = self.now.mono + lasting;
        loop {
            let next_end = self.running.keys().next().map(|(at, _)| *at);
            let times = [next_end, Some(self.sampled + self.every), self.wake];
            let next = times
                .into_iter()
                .flatten()
                .min()
                .unwrap()
                .max(self.now.mono);
            if next > end {
                self.now = self.now.after(end - self.now.mono);
                return;
            }
            self.now = self.now.after(next - self.now.mono);
            if next_end == Some(next) {
                let ((_, lease), _) = self.running.pop_first().unwrap();
                self.step(Event::Freed(Holder::Lease(lease)));
            } else if self.sampled + self.every == next {
                self.sampled = next;
                self.measure();
            } else {
                self.wake = None;
                self.step(Event::Timer);
            }
        }
    }

    /// Runs until a job has started, and says when; panics if that takes longer than `limit`.
    pub fn run_until_started(&mut self, job: JobId, limit: Duration) -> Now {
        let end = self.now.mono + limit;
        while self.now.mono < end {
            if let Some(at) = self.started_at(job) {
                return at;
            }
            self.run(secs(1));
        }
        self.started_at(job)
            .unwrap_or_else(|| panic!("did not start within {limit:?}"))
    }

    pub fn started_at(&self, job: JobId) -> Option<Now> {
        self.started
            .iter()
            .find(|(id, _)| *id == job)
            .map(|(_, at)| *at)
    }

    /// Who started, by addon, in order.
    pub fn addons(&self) -> Vec<String> {
        self.started
            .iter()
            .map(|(job, _)| self.jobs[job].0.addon.to_string())
            .collect()
    }

    /// Units that were started for an addon.
    pub fn units(&self, name: &str) -> u32 {
        let jobs = self.started.iter().map(|(job, _)| &self.jobs[job].0);
        jobs.filter(|job| job.addon.as_str() == name)
            .map(|job| job.cost)
            .sum()
    }
}
