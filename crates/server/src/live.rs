//! Who works here now, and what their job trees look like: as workers told it last.
//!
//! It is for people to look at, so it lives in memory alone, is bounded, and is forgotten soon after a worker falls silent.
//! Nothing is decided by it: leases are.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jobtree_protocol::{
    AddonId, ClaimRequest, FieldError, InstanceId, JobId, JobType, LiveTree, TreeView,
    WorkerReport, WorkerView,
};

/// A worker that was silent for so long is gone.
const SILENCE: Duration = Duration::from_secs(90);
/// Workers that are remembered; the one that was silent longest makes place.
const MOST_WORKERS: usize = 10_000;
/// Trees of one worker.
const MOST_TREES: usize = 256;
/// The trees of runs that are over that are kept for traces: the last ones, some megabytes at most.
const MOST_ENDED: usize = 64;

struct Seen {
    report: WorkerReport,
    at: Timestamp,
    when: Instant,
    jobs: Vec<JobId>,
}

/// Addons and types of which it is remembered who served them last.
const MOST_SERVED: usize = 1000;

/// The worker that served a type last.
#[derive(Clone, Debug)]
pub struct LastServer {
    instance: InstanceId,
    /// What it is, in words.
    pub name: String,
    /// When it called last.
    pub at: Timestamp,
}

/// Worker slots that can run jobs of one type.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    /// All of them.
    pub all: u32,
    /// Those with a job.
    pub taken: u32,
    /// The workers, in words.
    pub workers: Vec<String>,
}

/// What workers told.
#[derive(Default)]
pub struct Live {
    workers: Mutex<HashMap<InstanceId, Seen>>,
    served: Mutex<HashMap<(AddonId, Option<JobType>), LastServer>>,
    /// The last trees of jobs that their workers no longer tell of, the newest last.
    ended: Mutex<VecDeque<TreeView>>,
}

impl Live {
    fn lock(&self) -> MutexGuard<'_, HashMap<InstanceId, Seen>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is wrong with a report, if something is.
    pub fn check(report: &WorkerReport) -> Vec<FieldError> {
        let mut wrong = Vec::new();
        if report.trees.len() > MOST_TREES {
            let count = report.trees.len();
            let message = format!("has {count} entries: send {MOST_TREES} at most");
            wrong.push(FieldError::new("worker.trees", message));
        }
        for (place, tree) in report.trees.iter().enumerate().take(MOST_TREES) {
            let field = |what: &str| format!("worker.trees[{place}].{what}");
            if tree.nodes.len() > LiveTree::MOST_NODES {
                let (count, most) = (tree.nodes.len(), LiveTree::MOST_NODES);
                let message = format!(
                    "has {count} entries: send {most} at most, and count the others in left_out"
                );
                wrong.push(FieldError::new(field("nodes"), message));
            }
            let texts = |node: &jobtree_protocol::LiveNode| {
                [
                    node.label.len(),
                    node.state.len(),
                    node.waiting_for.as_ref().map_or(0, String::len),
                ]
                .into_iter()
                .max()
            };
            let longest = tree.nodes.iter().filter_map(texts).max().unwrap_or(0);
            if longest > LiveTree::LABEL_BYTES {
                let most = LiveTree::LABEL_BYTES;
                let message =
                    format!("holds a text of {longest} bytes: shorten it to {most} at most");
                wrong.push(FieldError::new(field("nodes"), message));
            }
        }
        if report.program.len() > LiveTree::LABEL_BYTES {
            let most = LiveTree::LABEL_BYTES;
            let message = format!(
                "has {} bytes: shorten it to {most} at most",
                report.program.len()
            );
            wrong.push(FieldError::new("worker.program", message));
        }
        wrong
    }

    /// A worker asked for jobs.
    pub fn claimed(&self, claim: &ClaimRequest, at: Timestamp) {
        let name = self.name_of(claim.instance_id);
        let name = name.unwrap_or_else(|| unnamed(claim.instance_id));
        self.serves(
            &claim.addon_id,
            &claim.job_types,
            claim.instance_id,
            name,
            at,
        );
    }

    fn serves(
        &self,
        addon: &AddonId,
        types: &[JobType],
        instance: InstanceId,
        name: String,
        at: Timestamp,
    ) {
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        let all = types.iter().cloned().map(Some);
        let all = all.chain(types.is_empty().then_some(None));
        for job_type in all {
            let key = (addon.clone(), job_type);
            if served.len() >= MOST_SERVED && !served.contains_key(&key) {
                let oldest = served.iter().min_by_key(|(_, server)| server.at);
                let oldest = oldest.map(|(key, _)| key.clone());
                oldest.map(|key| served.remove(&key));
            }
            let server = LastServer {
                instance,
                name: name.clone(),
                at,
            };
            served.insert(key, server);
        }
    }

    /// Returns the worker that called last for jobs of a type, if one has since the daemon's start.
    pub fn last_server(&self, addon: &AddonId, job_type: &JobType) -> Option<LastServer> {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = [Some(job_type.clone()), None].map(|job_type| (addon.clone(), job_type));
        let servers = keys.iter().filter_map(|key| served.get(key));
        let mut last = servers.max_by_key(|server| server.at).cloned()?;
        drop(served);
        // It may have told its name since.
        if let Some(name) = self.name_of(last.instance) {
            last.name = name;
        }
        Some(last)
    }

    /// Returns the slots of workers that run jobs of a type, as they were told last.
    pub fn slots(&self, addon: &AddonId, job_type: &JobType) -> Slots {
        let mut slots = Slots::default();
        for worker in self.workers(Some(addon)) {
            let report = &worker.report;
            if !report.job_types.is_empty() && !report.job_types.contains(job_type) {
                continue;
            }
            slots.all += report.slots;
            slots.taken += report
                .slots
                .min(u32::try_from(worker.jobs.len()).unwrap_or(u32::MAX));
            slots.workers.push(described(report));
        }
        slots
    }

    /// Returns when a worker told of itself last.
    pub fn seen_at(&self, instance: InstanceId) -> Option<Timestamp> {
        self.lock().get(&instance).map(|seen| seen.at)
    }

    /// Returns what a worker is, in words, if it told.
    pub fn name_of(&self, instance: InstanceId) -> Option<String> {
        self.lock()
            .get(&instance)
            .map(|seen| described(&seen.report))
    }

    /// A worker told how it does. `jobs` are those that it renewed leases for.
    pub fn see(&self, report: WorkerReport, jobs: Vec<JobId>, at: Timestamp) {
        let when = Instant::now();
        let name = described(&report);
        self.serves(
            &report.addon_id,
            &report.job_types,
            report.instance_id,
            name,
            at,
        );
        let mut workers = self.lock();
        if workers.len() >= MOST_WORKERS && !workers.contains_key(&report.instance_id) {
            forget_silent(&mut workers, when);
            let oldest = workers.iter().min_by_key(|(_, seen)| seen.when);
            let oldest = oldest
                .map(|(id, _)| *id)
                .filter(|_| workers.len() >= MOST_WORKERS);
            oldest.map(|id| workers.remove(&id));
        }
        let seen = Seen {
            at,
            when,
            jobs,
            report,
        };
        let still: HashSet<JobId> = seen.report.trees.iter().map(|tree| tree.job_id).collect();
        let Some(before) = workers.insert(seen.report.instance_id, seen) else {
            return;
        };
        drop(workers);
        let over = before.report.trees.into_iter();
        let over = over.filter(|tree| !still.contains(&tree.job_id));
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.extend(over.map(|tree| TreeView {
            instance_id: before.report.instance_id,
            at: before.at,
            tree,
        }));
        let too_many = ended.len().saturating_sub(MOST_ENDED);
        ended.drain(..too_many);
    }

    /// Who works here, of one addon or of all, by addon and start. Their trees are left out.
    pub fn workers(&self, addon: Option<&AddonId>) -> Vec<WorkerView> {
        let mut workers = self.lock();
        forget_silent(&mut workers, Instant::now());
        let of_addon = |seen: &&Seen| addon.is_none_or(|addon| seen.report.addon_id == *addon);
        let mut views: Vec<WorkerView> = workers
            .values()
            .filter(of_addon)
            .map(|seen| WorkerView {
                report: WorkerReport {
                    trees: Vec::new(),
                    ..seen.report.clone()
                },
                seen_at: seen.at,
                jobs: seen.jobs.clone(),
            })
            .collect();
        views.sort_by(|a, b| {
            let key = |view: &WorkerView| (view.report.addon_id.clone(), view.report.instance_id);
            key(a).cmp(&key(b))
        });
        views
    }

    /// Returns the tree under a job as it was told last, also after the run is over, as long as it is kept.
    pub fn last_tree(&self, job: JobId) -> Option<TreeView> {
        self.tree(job).or_else(|| {
            let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            let mut newest = ended.iter().rev();
            newest.find(|view| view.tree.job_id == job).cloned()
        })
    }

    /// The tree under a job, as it was told last.
    pub fn tree(&self, job: JobId) -> Option<TreeView> {
        let workers = self.lock();
        let told = workers.values().filter_map(|seen| {
            let tree = seen.report.trees.iter().find(|tree| tree.job_id == job)?;
            Some((seen, tree))
        });
        // The job may have moved on to another worker: the newest counts.
        let (seen, tree) = told.max_by_key(|(seen, _)| seen.when)?;
        (seen.when.elapsed() < SILENCE).then(|| TreeView {
            instance_id: seen.report.instance_id,
            at: seen.at,
            tree: tree.clone(),
        })
    }
}

/// Returns what a worker is, in words.
fn described(report: &WorkerReport) -> String {
    let name = match report.program.is_empty() {
        true => unnamed(report.instance_id),
        false => report.program.clone(),
    };
    match report.pid {
        Some(pid) => format!("{name}, process {pid}"),
        None => name,
    }
}

/// Returns the words for a worker that told nothing of itself.
pub fn unnamed(instance: InstanceId) -> String {
    let id = instance.to_string();
    format!("worker {}", &id[id.len().saturating_sub(8)..])
}

fn forget_silent(workers: &mut HashMap<InstanceId, Seen>, now: Instant) {
    workers.retain(|_, seen| now.duration_since(seen.when) < SILENCE);
}

#[cfg(test)]
mod tests {
    use jobtree_protocol::LiveNode;

    use super::*;

    fn report(addon: &str, job: JobId, nodes: usize) -> WorkerReport {
        let node = LiveNode {
            depth: 0,
            label: "run".to_owned(),
            state: "Active".to_owned(),
            age_ms: 1,
            waiting_for: None,
        };
        WorkerReport {
            instance_id: InstanceId::generate(),
            addon_id: AddonId::new(addon).unwrap(),
            job_types: Vec::new(),
            node_id: None,
            pid: None,
            program: String::new(),
            slots: 1,
            draining: false,
            pool: None,
            trees: vec![LiveTree {
                job_id: job,
                nodes: vec![node; nodes],
                left_out: 0,
            }],
        }
    }

    #[test]
    fn a_worker_is_shown_without_its_trees_and_a_tree_by_its_job() {
        let (live, job) = (Live::default(), JobId::generate());
        live.see(report("photos", job, 3), vec![job], Timestamp::now());
        live.see(
            report("mail", JobId::generate(), 1),
            Vec::new(),
            Timestamp::now(),
        );

        let photos = AddonId::new("photos").unwrap();
        let workers = live.workers(Some(&photos));
        assert_eq!(workers.len(), 1);
        assert_eq!(workers[0].jobs, [job]);
        assert!(workers[0].report.trees.is_empty());
        assert_eq!(live.workers(None).len(), 2);
        assert_eq!(live.tree(job).unwrap().tree.nodes.len(), 3);
        assert!(live.tree(JobId::generate()).is_none());
    }

    #[test]
    fn the_tree_of_a_run_that_is_over_is_kept_for_a_while() {
        let (live, job) = (Live::default(), JobId::generate());
        let first = report("photos", job, 3);
        let next = |job: JobId| WorkerReport {
            instance_id: first.instance_id,
            ..report("photos", job, 1)
        };
        live.see(first.clone(), vec![job], Timestamp::now());
        assert_eq!(live.last_tree(job).unwrap().tree.nodes.len(), 3);
        live.see(next(JobId::generate()), Vec::new(), Timestamp::now());
        assert!(live.tree(job).is_none(), "it does not run");
        assert_eq!(live.last_tree(job).unwrap().tree.nodes.len(), 3);
        for _ in 0..MOST_ENDED {
            live.see(next(JobId::generate()), Vec::new(), Timestamp::now());
        }
        assert!(live.last_tree(job).is_none(), "others have taken its place");
    }

    #[test]
    fn what_is_too_large_is_named() {
        let mut large = report("photos", JobId::generate(), LiveTree::MOST_NODES + 1);
        large.trees[0].nodes[0].label = "x".repeat(LiveTree::LABEL_BYTES + 1);
        let wrong = Live::check(&large);
        let fields: Vec<&str> = wrong.iter().map(|wrong| wrong.field.as_str()).collect();
        assert_eq!(fields, ["worker.trees[0].nodes", "worker.trees[0].nodes"]);
        assert!(Live::check(&report("photos", JobId::generate(), 3)).is_empty());
    }
}
