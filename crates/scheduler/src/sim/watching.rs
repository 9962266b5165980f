//! The invariants that need more than the store: workers, cores and clocks.

use std::collections::BTreeMap;
use std::time::Duration;

use jobtree_protocol::{JobId, JobQuery};
use jobtree_queue::{LeaseEnd, LeaseRecord};

use super::check::Broken;
use super::world::World;

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

    /// Each waiting job has a next moment, in every scheduler that hears of everything.
    pub(super) fn check_moments(&self) -> Result<(), Broken> {
        if self.nodes.len() > 1 {
            return Ok(());
        }
        let Some(core) = self.nodes[0].core.as_ref() else {
            return Ok(());
        };
        if self.nodes[0].has_news() {
            return Ok(());
        }
        for job in &self.shadow.waiting {
            if !core.has_next_moment(*job) {
                return Err(format!("job {job} waits, and nothing will look at it"));
            }
        }
        Ok(())
    }

    /// Nothing is granted above the capacity that is known.
    pub(super) fn check_capacity(&mut self, node: usize) -> Result<(), Broken> {
        let this = &self.nodes[node];
        let Some(core) = this.core.as_ref() else {
            return Ok(());
        };
        let view = core.dispatcher().view(this.now(self.time));
        let admission = core.dispatcher().admission();
        let capacity = admission.capacity(&view, Default::default());
        let used = self.shadow.used(&this.options.node, this.asked.values());
        if used > capacity {
            return Err(format!(
                "{} units are granted on n{node}, and {capacity} are known; the dispatcher counts {}",
                used,
                core.dispatcher().used()
            ));
        }
        Ok(())
    }

    /// Schedulers that read the store again and again at the same moment make a stampede.
    pub(super) fn note_read(&mut self, node: usize) -> Result<(), Broken> {
        self.reads[node] = self.time;
        let near = |at: &Duration| self.time.abs_diff(*at) < Duration::from_millis(5);
        let all = self.reads.len() > 1 && self.reads.iter().all(near);
        self.together += u32::from(all);
        if self.together > 3 {
            return Err("all schedulers read the store at the same moments".to_owned());
        }
        Ok(())
    }

    pub(super) fn look(&self) -> (Vec<jobtree_queue::JobRecord>, Vec<LeaseRecord>) {
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
        let keys: std::collections::BTreeSet<_> = jobs
            .iter()
            .filter_map(|job| job.intent.idempotency_key.as_deref())
            .collect();
        if keys.len() != jobs.len() {
            return Err(format!("{} jobs of {} submissions", jobs.len(), keys.len()));
        }
        Ok(())
    }
}
