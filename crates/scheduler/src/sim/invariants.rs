//! The invariants that need more than the store: workers, cores and clocks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::{JobId, JobQuery};
use jobtree_queue::ledger::Holder;
use jobtree_queue::policy::CostPolicy;
use jobtree_queue::{LeaseEnd, LeaseRecord};

use super::check::Broken;
use super::world::World;
use crate::core::Op;

/// A machine that has just woken, and a timer, may be late by this.
const WAKING: Duration = Duration::from_millis(200);
/// So long a failing store may keep a scheduler from reading it: repetitions wait for seconds.
const UNANSWERED: Duration = Duration::from_secs(12);

impl World {
    /// Nobody runs what somebody else runs, as far as both believe.
    pub(super) fn check_runs(&self) -> Result<(), Broken> {
        let mut running: BTreeMap<JobId, usize> = BTreeMap::new();
        for (index, worker) in self.workers.iter().enumerate() {
            if self.nodes[worker.node].asleep_until > self.time {
                continue;
            }
            if let Some((job, lease)) = worker.runs(self.time)
                && !self.shadow.revoked.contains(&lease)
                && let Some(other) = running.insert(job, index)
            {
                return Err(format!(
                    "job {job} is run by workers {other} and {index}, and both may believe they hold it"
                ));
            }
        }
        Ok(())
    }

    /// No lease runs out before its worker's own clock says so.
    pub(super) fn check_ends(&self, written: &[jobtree_store::Written]) -> Result<(), Broken> {
        let leases = written.iter().flat_map(|it| &it.changes.leases);
        for lease in leases.filter(|lease| lease.end == Some(LeaseEnd::Expired)) {
            for (index, worker) in self.workers.iter().enumerate() {
                let believes = worker.believes(lease.id, self.time);
                if believes {
                    let id = lease.id;
                    return Err(format!(
                        "lease {id} ran out, and worker {index} may believe that it holds it"
                    ));
                }
            }
        }
        Ok(())
    }

    /// A lease that runs out has held for its whole term, from the commit of its grant or of its last renewal.
    pub(super) fn check_terms(&mut self, written: &[jobtree_store::Written]) -> Result<(), Broken> {
        for lease in written.iter().flat_map(|it| &it.changes.leases) {
            if lease.is_live() {
                let term = self.terms.entry(lease.id).or_insert((0, self.time));
                if term.0 != lease.renewals {
                    *term = (lease.renewals, self.time);
                }
                continue;
            }
            let Some((_, since)) = self.terms.remove(&lease.id) else {
                continue;
            };
            let held = self.time - since;
            if lease.end == Some(LeaseEnd::Expired) && held.as_secs() < u64::from(lease.ttl_sec) {
                let (id, term) = (lease.id, lease.ttl_sec);
                return Err(format!(
                    "lease {id} ran out before its term of {term} s: it held for {held:?}"
                ));
            }
        }
        Ok(())
    }

    /// Each waiting job has a next moment in every scheduler that runs. What others write to a shared store a scheduler
    /// hears of when it looks again at the latest, which must be soon.
    pub(super) fn check_moments(&mut self) -> Result<(), Broken> {
        for index in 0..self.nodes.len() {
            if !std::mem::take(&mut self.touched[index]) {
                continue;
            }
            let node = &self.nodes[index];
            let Some(core) = node.core.as_ref().filter(|core| !core.is_reading()) else {
                continue;
            };
            // What has just come, or comes when the machine has just woken, is looked at in a moment.
            if node.has_news() || node.asleep_until + WAKING > self.time {
                continue;
            }
            let now = node.now(self.time).mono;
            let soon = |at: &Duration| *at + WAKING >= now && *at <= now + node.options.look;
            let looks = node.options.shared && core.next_reading().as_ref().is_some_and(soon);
            let lost = |job: &&JobId| !looks && !core.has_next_step(**job);
            if let Some(job) = self.shadow.waiting.iter().find(lost) {
                return Err(format!(
                    "job {job} waits, and nothing will look at it on n{index}"
                ));
            }
        }
        Ok(())
    }

    /// A scheduler has heard of every waiting job after it has looked a few times.
    pub(super) fn check_heard(&mut self, index: usize) -> Result<(), Broken> {
        let time = self.time;
        let node = &mut self.nodes[index];
        let Some(core) = node.core.as_ref() else {
            return Ok(());
        };
        if node.asleep_until.max(node.stalled_until) + WAKING > time {
            // It cannot hear of anything.
            node.unheard.clear();
            return Ok(());
        }
        let waiting = &self.shadow.waiting;
        let unknown = |job: &JobId| !core.has_next_step(*job);
        node.unheard
            .retain(|job, _| waiting.contains(job) && unknown(job));
        for job in waiting.iter().filter(|job| unknown(job)) {
            node.unheard.entry(*job).or_insert(time);
        }
        let bound = node.options.look * 3 + UNANSWERED;
        let lost = node
            .unheard
            .iter()
            .find(|(_, since)| **since + bound < time);
        match lost {
            None => Ok(()),
            Some((job, since)) => Err(format!(
                "job {job} waits, and nothing will look at it on n{index}: it has not heard of it for {:?}",
                time - *since
            )),
        }
    }

    /// What a scheduler counts as in use is what the store says is in use on its node, whichever node's callers change that; but
    /// for what is on its way, and for as long as it takes to hear of it.
    pub(super) fn check_counts(&mut self, index: usize) -> Result<(), Broken> {
        let time = self.time;
        let node = &mut self.nodes[index];
        let Some(core) = node.core.as_ref() else {
            return Ok(());
        };
        let resting = node.asleep_until.max(node.stalled_until) + WAKING > time;
        if resting || core.is_starting() {
            node.miscounted.clear();
            return Ok(());
        }
        let here = &node.options.node;
        let mut in_store: BTreeSet<Holder> = self.shadow.reserved(here).map(Holder::Job).collect();
        let leases = self.shadow.live().values();
        let leases = leases.filter(|lease| lease.node_id == *here);
        in_store.extend(leases.map(|lease| Holder::Lease(lease.id)));
        let counted: BTreeSet<Holder> = core.planner().holders().collect();
        let mut wrong: BTreeSet<Holder> =
            counted.symmetric_difference(&in_store).copied().collect();
        for op in node.asked.values() {
            match op {
                Op::Reserve(op) => drop(wrong.remove(&Holder::Job(op.job))),
                Op::Claim(op) => {
                    wrong.remove(&Holder::Lease(op.command.lease_id));
                    wrong.retain(|it| !matches!(it, Holder::Job(job) if op.jobs.contains(job)));
                }
                Op::Admit(op) => drop(wrong.remove(&Holder::Lease(op.command.lease_id))),
                _ => {}
            }
        }
        node.miscounted.retain(|holder, _| wrong.contains(holder));
        for holder in wrong {
            node.miscounted.entry(holder).or_insert(time);
        }
        let bound = node.options.look * 3 + UNANSWERED;
        let mut lost = node.miscounted.iter();
        let lost = lost.find(|(_, since)| **since + bound < time);
        match lost {
            None => Ok(()),
            Some((holder, since)) => {
                let counts = if counted.contains(holder) {
                    "counts"
                } else {
                    "does not count"
                };
                Err(format!(
                    "n{index} {counts} {holder:?} for {:?}, and the store says otherwise",
                    time - *since
                ))
            }
        }
    }

    /// Nothing runs and nothing is about to: nothing is in use on any node, and no concurrency key is held.
    pub(super) fn check_idle(&self) -> Result<(), Broken> {
        let live = self.shadow.live().len();
        for (index, node) in self.nodes.iter().enumerate() {
            let Some(core) = node.core.as_ref() else {
                continue;
            };
            let (used, keys) = (core.planner().used(), core.planner().keys_held());
            if live > 0 || used > 0 || keys > 0 {
                return Err(format!(
                    "everything is idle, and n{index} counts {used} units and {keys} keys; {live} leases are live"
                ));
            }
        }
        Ok(())
    }

    /// Nothing is granted above the capacity that is known. The store knows what jobs declare; where costs are learnt, they
    /// are charged half of that at least.
    pub(super) fn check_capacity(&mut self, node: usize) -> Result<(), Broken> {
        let this = &self.nodes[node];
        let Some(core) = this.core.as_ref() else {
            return Ok(());
        };
        let view = core.planner().view(this.now(self.time));
        let admission = core.planner().admission();
        let capacity = admission.capacity(&view, Default::default());
        let used = self.shadow.used(&this.options.node, this.asked.values());
        let least = match this.policy.cost.learn {
            true => f64::from(used) * CostPolicy::LEAST,
            false => f64::from(used),
        };
        if least > f64::from(capacity) {
            return Err(format!(
                "{} units are granted on n{node}, and {capacity} are known; the dispatcher counts {}",
                used,
                core.planner().used()
            ));
        }
        self.report.overbooked += u64::from(used > capacity);
        Ok(())
    }

    /// Schedulers that read the store again and again at the same moment make a stampede.
    pub(super) fn note_read(&mut self, node: usize) -> Result<(), Broken> {
        self.reads[node] = Some(self.time);
        let near = |at: &Option<Duration>| {
            at.is_some_and(|at| self.time.abs_diff(at) < Duration::from_millis(5))
        };
        let all = self.reads.len() > 1 && self.reads.iter().all(near);
        self.together += u32::from(all);
        if self.together > 3 {
            return Err("all schedulers read the store at the same moments".to_owned());
        }
        Ok(())
    }

    /// What is in the store after a power cut is what there is.
    pub(super) fn start_over(&mut self) {
        let (jobs, leases) = self.look();
        self.shadow.rebuild(jobs, leases);
        let schedules = self.peek.schedules().wait().expect("memory answers");
        self.calendar.forget(&schedules);
    }

    fn look(&self) -> (Vec<Arc<jobtree_queue::JobRecord>>, Vec<LeaseRecord>) {
        let read = self.peek.read(|tables| {
            let jobs = tables.list(&JobQuery::default(), usize::MAX - 1)?.jobs;
            Ok((jobs, tables.live_leases()?))
        });
        read.wait().expect("memory answers")
    }

    pub(super) fn check_kept(&self) -> Result<(), Broken> {
        let (jobs, _) = self.look();
        let there = jobs.iter().map(|job| (job.id, job.state)).collect();
        self.shadow.check_kept(&there)?;
        // One job for each submission, however often it was sent.
        let jobs: Vec<_> = jobs
            .iter()
            .filter(|job| job.intent.schedule_id.is_none())
            .collect();
        let keys: std::collections::BTreeSet<_> = jobs
            .iter()
            .filter_map(|job| job.intent.idempotency_key.as_deref())
            .collect();
        if keys.len() != jobs.len() {
            return Err(format!(
                "one key, several jobs: {} jobs of {} submissions",
                jobs.len(),
                keys.len()
            ));
        }
        Ok(())
    }
}
