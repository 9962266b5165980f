//! The invariants, looked at from outside: what the store holds is followed commit by commit.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use jobtree_protocol::{
    AddonId, EventKind, JobId, JobState, LeaseAnswer, LeaseId, NodeId, OnDependencyFailure,
};
use jobtree_queue::{JobRecord, LeaseEnd, LeaseRecord, RequestName};
use jobtree_store::Written;

use super::node::QUARANTINE;
use super::served_waits::is_unserved;
use super::world::PAUSED;
use crate::core::{Admit, Claim, Op, Reserve};

/// Something that does not hold.
pub(super) type Broken = String;

fn is_active(job: &JobRecord) -> bool {
    matches!(job.state, JobState::Dispatching | JobState::Running)
}

/// A job starts when its time has come, and what it depends on is done.
fn check_start(
    before: &JobRecord,
    job: &JobRecord,
    wall: Timestamp,
    jobs: &BTreeMap<JobId, Arc<JobRecord>>,
) -> Result<(), Broken> {
    if before.state != JobState::Queued || !is_active(job) {
        return Ok(());
    }
    let id = job.id;
    if let Some(time) = before.not_before.filter(|time| *time > wall) {
        return Err(format!("job {id} starts at {wall}, before its time {time}"));
    }
    if job.intent.on_dependency_failure == OnDependencyFailure::Run {
        return Ok(());
    }
    let done = |id: &&JobId| {
        let state = jobs.get(*id).map(|job| job.state);
        state == Some(JobState::Done)
    };
    match job.intent.depends_on.iter().find(|it| !done(it)) {
        None => Ok(()),
        Some(other) => Err(format!("job {id} starts, and {other} is not done")),
    }
}

/// A job that failed waits for as long as its backoff says.
fn check_backoff(before: &JobRecord, job: &JobRecord, now: Timestamp) -> Result<(), Broken> {
    if job.state != JobState::Queued || job.attempts <= before.attempts {
        return Ok(());
    }
    let backoff = &job.intent.backoff;
    let growth = backoff.factor.powi(job.attempts as i32 - 1);
    let full = (backoff.initial_sec * growth).min(backoff.max_sec);
    let least = full * (1.0 - backoff.jitter);
    let waits = job
        .not_before
        .map_or(0.0, |time| time.duration_since(now).as_secs_f64());
    if waits < least - 0.01 || waits > full + 0.01 {
        let (id, attempts) = (job.id, job.attempts);
        return Err(format!(
            "job {id} waits {waits} s after attempt {attempts}, and not {least} to {full} s"
        ));
    }
    Ok(())
}

/// What the store holds, as its commits told.
#[derive(Default)]
pub(super) struct Shadow {
    pub(super) jobs: BTreeMap<JobId, Arc<JobRecord>>,
    live: BTreeMap<LeaseId, LeaseRecord>,
    used_ids: HashSet<LeaseId>,
    /// Jobs that are dispatched or run.
    active: BTreeSet<JobId>,
    /// Jobs that wait for their turn.
    pub(super) waiting: BTreeSet<JobId>,
    /// Acknowledged as submitted.
    pub(super) submitted: BTreeSet<JobId>,
    /// Acknowledged as done.
    pub(super) done: BTreeSet<JobId>,
    /// For each lease of capacity the request that it was granted for.
    pub(super) requested: HashMap<LeaseId, RequestName>,
    /// For each job the leases that it ran under.
    pub(super) granted: HashMap<JobId, HashSet<LeaseId>>,
    pub(super) expired: u64,
    pub(super) redrives: u64,
    pub(super) retries: u64,
    /// Jobs that have not ended, by addon and unique key.
    unique: HashMap<(AddonId, String), BTreeSet<JobId>>,
    /// Leases that were taken away: their workers hear of it with their next renewal, and may run on until then.
    pub(super) revoked: HashSet<LeaseId>,
}

impl Shadow {
    /// Takes what a command wrote; with what the time is, if all go by it.
    pub(super) fn take(
        &mut self,
        written: &[Written],
        wall: Option<Timestamp>,
    ) -> Result<(), Broken> {
        for Written { changes, now } in written {
            for event in &changes.events {
                match event.kind {
                    EventKind::Redriven => self.redrives += 1,
                    EventKind::RetryScheduled => self.retries += 1,
                    _ => {}
                }
                let said = event.reason.as_ref().is_some_and(|it| !it.is_empty());
                if event.kind == EventKind::Denied && !said {
                    return Err(format!("a denial without a reason: {event:?}"));
                }
                let timed_out = event.job_id.filter(|_| event.kind == EventKind::Timeout);
                let timed_out = timed_out.filter(|_| event.attempt.is_some());
                let record = timed_out.and_then(|job| self.jobs.get(&job));
                if let Some(job) = record.filter(|job| !job.has_begun()) {
                    let (id, stage) = (job.id, job.stage());
                    return Err(format!("job {id} was timed out, and was {stage:?}"));
                }
                if event.kind == EventKind::LeaseExpired && event.job_id.is_none() {
                    self.expired += 1;
                }
            }
            for job in &changes.jobs {
                if let Some(before) = self.jobs.get(&job.id) {
                    check_start(before, job, wall.unwrap_or(now.wall), &self.jobs)?;
                    check_backoff(before, job, now.wall)?;
                }
                self.put_job(job)?;
            }
            for lease in &changes.leases {
                self.put_lease(lease)?;
            }
        }
        self.check_leases()?;
        self.check_keys()
    }

    /// Returns the leases that hold.
    pub(super) fn live(&self) -> &BTreeMap<LeaseId, LeaseRecord> {
        &self.live
    }

    /// Returns the jobs that are reserved for a node.
    pub(super) fn reserved<'a>(&'a self, node: &'a NodeId) -> impl Iterator<Item = JobId> + 'a {
        let active = self.active.iter().copied();
        active.filter(move |job| self.is_reserved(job, node))
    }

    /// Returns the jobs that are reserved or run.
    pub(super) fn active(&self) -> impl Iterator<Item = &JobRecord> {
        let active = self.active.iter().filter_map(|id| self.jobs.get(id));
        active.map(|job| &**job)
    }

    /// Returns the jobs that wait for their turn, or are reserved and not accepted.
    pub(super) fn unheld(&self) -> impl Iterator<Item = &JobRecord> {
        let reserved = self.active().filter(|job| job.is_reserved());
        let waiting = self.waiting.iter().filter_map(|id| self.jobs.get(id));
        waiting.map(|job| &**job).chain(reserved)
    }

    fn put_job(&mut self, job: &Arc<JobRecord>) -> Result<(), Broken> {
        let id = job.id;
        if let Some(before) = self.jobs.get(&id) {
            if job.revision <= before.revision {
                return Err(format!(
                    "job {id} went from revision {} to {}",
                    before.revision, job.revision
                ));
            }
            if before.state == JobState::Done {
                return Err(format!("job {id} was DONE and is {} now", job.state));
            }
        }
        if job.rescues > QUARANTINE {
            return Err(format!(
                "job {id} was rescued {} times, and is quarantined at {QUARANTINE}",
                job.rescues
            ));
        }
        if let Some(lease) = job.lease_id {
            self.granted.entry(id).or_default().insert(lease);
        }
        let set = |set: &mut BTreeSet<JobId>, is: bool| {
            if is {
                set.insert(id);
            } else {
                set.remove(&id);
            }
        };
        set(&mut self.active, is_active(job));
        let waits = job.state == JobState::Queued && job.waiting_for.is_empty();
        set(&mut self.waiting, waits);
        self.jobs.insert(id, Arc::clone(job));
        self.check_unique(job)
    }

    /// One job that has not ended for each unique key.
    fn check_unique(&mut self, job: &JobRecord) -> Result<(), Broken> {
        let Some(unique) = &job.intent.unique_key else {
            return Ok(());
        };
        let name = (job.intent.addon_id.clone(), unique.clone());
        let holders = self.unique.entry(name).or_default();
        if job.state.is_ended() {
            holders.remove(&job.id);
        } else {
            holders.insert(job.id);
        }
        if holders.len() > 1 {
            let addon = &job.intent.addon_id;
            return Err(format!(
                "{} jobs of {addon} are unique as {unique}: {holders:?}",
                holders.len()
            ));
        }
        Ok(())
    }

    fn put_lease(&mut self, lease: &LeaseRecord) -> Result<(), Broken> {
        let new = self.used_ids.insert(lease.id);
        if lease.revision == 1 && !new {
            return Err(format!("lease {} was granted twice", lease.id));
        }
        if lease.revision == 1 {
            self.check_request(lease)?;
        }
        if lease.is_live() {
            self.live.insert(lease.id, lease.clone());
        } else {
            self.live.remove(&lease.id);
        }
        if lease.end == Some(LeaseEnd::Revoked) {
            self.revoked.insert(lease.id);
        }
        Ok(())
    }

    /// One live lease for each request for capacity, however often it is repeated.
    fn check_request(&self, lease: &LeaseRecord) -> Result<(), Broken> {
        let Some(name) = self.requested.get(&lease.id) else {
            return Ok(());
        };
        let of_same = |other: &&LeaseId| self.requested.get(other) == Some(name);
        match self.live.keys().find(of_same) {
            None => Ok(()),
            Some(other) => Err(format!(
                "request {} has two live leases: {other} and {}",
                name.key, lease.id
            )),
        }
    }

    /// A denial says why and when to ask again; an approval gives the lease of its request, and what that holds.
    pub(super) fn check_capacity_answer(
        &self,
        answer: &LeaseAnswer,
        requested: Option<RequestName>,
    ) -> Result<(), Broken> {
        let Some(id) = answer.lease_id.filter(|_| answer.approved) else {
            let silent = answer.reason.is_empty() || answer.retry_after_sec.is_none();
            return match silent {
                true => Err(format!("a denial without a reason or a time: {answer:?}")),
                false => Ok(()),
            };
        };
        if requested.is_some() && self.requested.get(&id) != requested.as_ref() {
            return Err(format!(
                "request {requested:?} got another one's lease {id}"
            ));
        }
        match self.live.get(&id) {
            Some(lease) if answer.granted_units != Some(lease.cost()) => {
                Err(format!("lease {id} holds other units than {answer:?}"))
            }
            _ => Ok(()),
        }
    }

    /// One live lease a job, and a job for each that says so.
    fn check_leases(&self) -> Result<(), Broken> {
        let mut holders: HashMap<JobId, LeaseId> = HashMap::new();
        for lease in self.live.values() {
            for job in &lease.jobs {
                if let Some(other) = holders.insert(job.id, lease.id) {
                    let id = job.id;
                    return Err(format!(
                        "job {id} has two live leases: {other} and {}",
                        lease.id
                    ));
                }
            }
        }
        for id in &self.active {
            let Some(job) = self.jobs.get(id) else {
                continue;
            };
            if job.is_held() && holders.get(id).copied() != job.lease_id {
                return Err(format!(
                    "job {id} runs under {:?}, and is held by {:?}",
                    job.lease_id,
                    holders.get(id)
                ));
            }
        }
        Ok(())
    }

    fn check_keys(&self) -> Result<(), Broken> {
        let mut holders: HashMap<(&str, &str), (HashSet<LeaseId>, u32)> = HashMap::new();
        for id in &self.active {
            let Some(job) = self.jobs.get(id) else {
                continue;
            };
            let Some(key) = job.intent.concurrency_key.as_deref() else {
                continue;
            };
            let holder = job.lease_id.unwrap_or(LeaseId(id.0));
            let entry = holders
                .entry((job.intent.addon_id.as_str(), key))
                .or_insert_with(|| (HashSet::new(), 0));
            entry.0.insert(holder);
            entry.1 = entry.1.max(job.intent.concurrency_limit);
        }
        for ((addon, key), (held, limit)) in holders {
            if held.len() as u32 > limit {
                return Err(format!(
                    "key {key} of {addon} is held {} times, and {limit} are allowed",
                    held.len()
                ));
            }
        }
        Ok(())
    }

    /// Returns a live lease with jobs that its worker can give back, and these.
    pub(super) fn returnable(&self) -> Option<(LeaseId, Vec<JobId>)> {
        let mut leases = self.live.values().filter(|lease| lease.returns_unbegun);
        leases.find_map(|lease| {
            let jobs: Vec<_> = lease.returnable().map(|job| job.id).collect();
            (!jobs.is_empty()).then_some((lease.id, jobs))
        })
    }

    /// Returns `true` if a job is reserved for a node.
    pub(super) fn is_reserved(&self, id: &JobId, node: &NodeId) -> bool {
        let known = self.jobs.get(id).and_then(|job| job.reservation.as_ref());
        known.is_some_and(|place| place.node_id == *node)
    }

    /// Units in use on a node by what the store holds and by proposals under way there.
    pub(super) fn used<'a>(&self, node: &NodeId, ops: impl Iterator<Item = &'a Op>) -> u32 {
        let leases = self.live.values().filter(|lease| lease.node_id == *node);
        let leased: u32 = leases.map(LeaseRecord::cost).sum();
        let reserved: u32 = self
            .active
            .iter()
            .filter_map(|id| self.jobs.get(id))
            .filter(|job| {
                let place = job.reservation.as_ref();
                place.is_some_and(|place| place.node_id == *node)
            })
            .map(|job| job.cost())
            .sum();
        let cost = |id: &JobId| self.jobs.get(id).map_or(0, |job| job.cost());
        let proposed: u32 = ops
            .map(|op| match op {
                Op::Reserve(Reserve { job, command }) => {
                    let known = self.jobs.get(job).and_then(|job| job.reservation.as_ref());
                    let there = known.is_some_and(|place| place.id == command.reservation_id);
                    if there { 0 } else { cost(job) }
                }
                Op::Claim(Claim { jobs, command, .. })
                    if !self.used_ids.contains(&command.lease_id) =>
                {
                    // What is reserved here becomes the lease, and is counted already.
                    let jobs = jobs.iter().filter(|id| !self.is_reserved(id, node));
                    jobs.map(cost).max().unwrap_or(0)
                }
                Op::Admit(Admit { command, .. }) if !self.used_ids.contains(&command.lease_id) => {
                    command.cost_units
                }
                _ => 0,
            })
            .sum();
        leased + reserved + proposed
    }

    /// What was acknowledged is there, in the store itself.
    pub(super) fn check_kept(&self, there: &BTreeMap<JobId, JobState>) -> Result<(), Broken> {
        for id in &self.submitted {
            if !there.contains_key(id) {
                return Err(format!("job {id} was acknowledged and is lost"));
            }
        }
        for id in &self.done {
            if there.get(id) != Some(&JobState::Done) {
                return Err(format!(
                    "job {id} was acknowledged as DONE and is {:?}",
                    there.get(id)
                ));
            }
        }
        Ok(())
    }

    /// Acknowledged jobs that have not ended.
    pub(super) fn unfinished(&self) -> Vec<JobId> {
        self.submitted
            .iter()
            .copied()
            .filter(|id| {
                let ends = |job: &Arc<JobRecord>| {
                    job.state.is_ended()
                        || job.intent.addon_id.as_str() == PAUSED
                        || is_unserved(&job.intent.job_type)
                };
                !self.jobs.get(id).is_some_and(ends)
            })
            .collect()
    }

    /// Forgets what is not there any more, after a power cut.
    pub(super) fn rebuild(&mut self, jobs: Vec<Arc<JobRecord>>, leases: Vec<LeaseRecord>) {
        self.jobs.clear();
        self.live.clear();
        self.active.clear();
        self.waiting.clear();
        self.unique.clear();
        for job in jobs {
            // What is read now is what there is: nothing to compare with.
            let _ = self.put_job(&job);
        }
        for lease in leases {
            self.used_ids.insert(lease.id);
            self.live.insert(lease.id, lease);
        }
    }
}
