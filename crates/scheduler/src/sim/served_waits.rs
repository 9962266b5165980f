//! The invariant of waits: what jobs of types that no worker serves add to the wait of a served job is no more than
//! [`UnservedBound`] says, however many they are, how urgent and how large.
//!
//! A wait is that of a job at a node where a claim for it waits. It is measured from outside, by what the store holds and by
//! the claims that were sent, and goes on while nothing but unserved jobs can be the reason for it:
//!
//! - the job waits for units alone: its time has come, its addon is not paused, no served job has its key; it is in the
//!   queue, or on probe at another node;
//! - the node is up, its machine lets such jobs start, and no other served job is in use there or on its way: whichever job
//!   is next has the whole machine;
//! - nothing went wrong of late, at any node: no command failed, no store stood still, no scheduler was killed, no machine
//!   slept, nothing was paused or resumed.
//!
//! Otherwise it begins anew. So the work of served jobs, faults and load do not count, and need not be part of the bound.

use std::collections::BTreeMap;
use std::time::Duration;

use jobtree_protocol::{AddonId, JobId, JobType};
use jobtree_queue::JobRecord;
use jobtree_queue::deadline::Waiver;
use jobtree_queue::hold::UnservedBound;

use super::check::Broken;
use super::world::World;
use crate::core::{Call, CallId, Op};

/// The time after something went wrong at which waits are measured again: what failed is repeated, and other nodes are heard.
const SETTLED: Duration = Duration::from_secs(10);
/// The time that a scheduler and its store take to return a reservation whose time is over.
const RETURNED: Duration = Duration::from_millis(500);
/// The longest time between two samples.
const SAMPLED: Duration = Duration::from_millis(1_100);
/// The time that a reading takes, with its answers.
const READ: Duration = Duration::from_millis(500);

/// The first letter of types that no worker serves.
const UNSERVED: char = 'x';

/// Returns `true` if no worker serves jobs of a type.
pub(super) fn is_unserved(job_type: &JobType) -> bool {
    job_type.as_str().starts_with(UNSERVED)
}

/// A claim that waits.
#[derive(Debug)]
struct Waiting {
    addon: AddonId,
    /// The types that are claimed; all, if there are none.
    types: Vec<JobType>,
}

impl Waiting {
    fn wants(&self, job: &JobRecord) -> bool {
        let intent = &job.intent;
        let listed = self.types.is_empty() || self.types.contains(&intent.job_type);
        listed && self.addon == intent.addon_id
    }
}

/// Waits, and the claims that wait.
#[derive(Default)]
pub(super) struct ServedWaits {
    claims: BTreeMap<(usize, CallId), Waiting>,
    /// The beginning of each job's wait at each node.
    since: BTreeMap<(usize, JobId), Duration>,
    /// The earliest beginning of a wait that counts.
    settled: Duration,
}

impl ServedWaits {
    /// A call reaches a node.
    pub(super) fn called(&mut self, node: usize, id: CallId, call: &Call) {
        if let Call::Claim(claim, _) = call {
            let request = &claim.request;
            let waiting = Waiting {
                addon: request.addon_id.clone(),
                types: request.job_types.clone(),
            };
            self.claims.insert((node, id), waiting);
        }
    }

    /// A call is answered, or its caller has gone.
    pub(super) fn call_ended(&mut self, node: usize, id: CallId) {
        self.claims.remove(&(node, id));
    }

    /// A scheduler was killed, and with it the calls that wait there.
    pub(super) fn killed(&mut self, node: usize) {
        self.claims.retain(|(of, _), _| *of != node);
    }

    /// Notes that what went wrong is over then: no wait counts that began before.
    pub(super) fn disturbed(&mut self, until: Duration) {
        self.settled = self.settled.max(until + SETTLED);
        self.since.clear();
    }
}

impl World {
    /// Checks that no served job waits for unserved ones for longer than the bound.
    pub(super) fn check_served_waits(&mut self) -> Result<(), Broken> {
        if self.scenario.unserved == 0 || self.time < self.served_waits.settled {
            return Ok(());
        }
        let mut since = BTreeMap::new();
        for node in 0..self.nodes.len() {
            if self.served_waits.claims.keys().all(|(of, _)| *of != node)
                || !self.is_free_of_served(node)
            {
                continue;
            }
            for job in self.shadow.unheld() {
                if self.is_kept_waiting(node, job) {
                    let before = self.served_waits.since.get(&(node, job.id)).copied();
                    since.insert((node, job.id), before.unwrap_or(self.time));
                }
            }
        }
        self.served_waits.since = since;
        for ((node, job), since) in &self.served_waits.since {
            let (waited, bound) = (self.time - *since, self.served_bound(*node, *job));
            let report = &mut self.report;
            let (longest, of) = report.longest_served_wait;
            if waited.as_secs_f64() * of.as_secs_f64()
                >= longest.as_secs_f64() * bound.as_secs_f64()
            {
                report.longest_served_wait = (waited, bound);
            }
            if waited > bound {
                return Err(format!(
                    "job {job} of a served type waits at n{node} for {waited:?}, for nothing but units of unserved jobs; \
                     the bound is {bound:?}"
                ));
            }
        }
        Ok(())
    }

    /// Returns what unserved jobs may add to a job's wait at a node.
    fn served_bound(&self, node: usize, job: JobId) -> Duration {
        let options = &self.nodes[node].options;
        let keyed = |job: &JobRecord| job.intent.concurrency_key.is_some();
        let bound = UnservedBound {
            take_up: self.scenario.policy.dispatch.take_up,
            returned_after: RETURNED,
            sampled_every: SAMPLED,
            shares_key: self.scenario.named_claims
                && self.shadow.jobs.get(&job).is_some_and(|job| keyed(job)),
            hears_after: match options.shared {
                true => options.look + READ,
                false => Duration::ZERO,
            },
        };
        bound
            .wait()
            .expect("nodes hear in less than a take-up time")
    }

    /// Returns `true` if a node runs, and nothing of a served type is in use there or on its way.
    fn is_free_of_served(&self, index: usize) -> bool {
        let node = &self.nodes[index];
        let here = &node.options.node;
        let runs = node.core.as_ref().is_some_and(|core| !core.is_starting());
        let unserved = |job: &JobId| {
            let job = self.shadow.jobs.get(job);
            job.is_some_and(|job| is_unserved(&job.intent.job_type))
        };
        let proposes = |op: &Op| match op {
            Op::Reserve(op) => !unserved(&op.job),
            Op::Claim(_) | Op::Admit(_) => true,
            _ => false,
        };
        runs && self
            .shadow
            .live()
            .values()
            .all(|lease| lease.node_id != *here)
            && self.shadow.reserved(here).all(|job| unserved(&job))
            && !node.asked.values().any(proposes)
    }

    /// Returns `true` if a job that no worker has waits at a node, where a claim for it waits, for nothing but units.
    fn is_kept_waiting(&self, index: usize, job: &JobRecord) -> bool {
        let node = &self.nodes[index];
        let intent = &job.intent;
        let mut claims = self.served_waits.claims.iter();
        if is_unserved(&intent.job_type)
            || self.shadow.is_reserved(&job.id, &node.options.node)
            || !claims.any(|((of, _), claim)| *of == index && claim.wants(job))
        {
            return false;
        }
        let now = node.now(self.time);
        let is_due = job.not_before.is_none_or(|at| at <= now.wall);
        let has_key = |other: &JobRecord| {
            !is_unserved(&other.intent.job_type)
                && other.id != job.id
                && other.intent.addon_id == intent.addon_id
                && other.intent.concurrency_key == intent.concurrency_key
        };
        let keyed = intent.concurrency_key.is_some();
        if !is_due
            || self.is_paused(&intent.addon_id)
            || (keyed && self.shadow.active().any(has_key))
        {
            return false;
        }
        let Some(core) = node.core.as_ref() else {
            return false;
        };
        let view = core.planner().view(now);
        let admission = core.planner().admission();
        let constraints = intent.constraints;
        admission.gate(&view, Waiver::None, constraints).is_none()
            && job.cost() <= admission.capacity(&view, constraints)
    }
}
