//! How this worker does, as it tells whoever grants its leases.

use jobtree_protocol::{JobId, LiveNode, LiveTree, PoolReport, WorkerReport};
use jobtree_runtime::{Job, pool_stats};

use crate::worker::Shared;

/// Of all trees together; each has its own limit, too.
const MOST_NODES: usize = 2000;

/// Must be called in a job of the runtime whose pool is told of.
pub(crate) fn report(shared: &Shared) -> WorkerReport {
    let setup = &shared.setup;
    let mut room = MOST_NODES;
    let mut trees = Vec::new();
    for (id, run) in shared.own.runs() {
        if room == 0 {
            break;
        }
        let tree = live_tree(id, &run, room.min(LiveTree::MOST_NODES));
        room -= tree.nodes.len();
        trees.push(tree);
    }
    WorkerReport {
        instance_id: shared.instance,
        addon_id: setup.addon.clone(),
        job_types: setup.types.clone(),
        node_id: None,
        pid: Some(std::process::id()),
        program: cut(setup.program.clone()),
        slots: u32::try_from(setup.concurrency).unwrap_or(u32::MAX),
        draining: shared.is_stopping(),
        pool: Some(pool()),
        trees,
    }
}

fn pool() -> PoolReport {
    let stats = pool_stats();
    let asleep = |one: &&jobtree_runtime::WorkerStats| one.sleeps > one.wakes;
    let sleeping = stats.workers.iter().filter(asleep).count();
    let total = stats.total();
    PoolReport {
        threads: u32::try_from(stats.workers.len()).unwrap_or(u32::MAX),
        sleeping: u32::try_from(sleeping).unwrap_or(u32::MAX),
        tasks: total.executed,
        steals: total.stolen,
        wakes: total.wakes,
    }
}

/// A run and what is below it, each before those below it, up to a limit.
fn live_tree(job_id: JobId, run: &Job, most: usize) -> LiveTree {
    let mut nodes = Vec::new();
    let mut to_visit = vec![(0, run.clone())];
    while let Some((depth, job)) = to_visit.pop() {
        if nodes.len() == most {
            to_visit.push((depth, job));
            break;
        }
        nodes.push(LiveNode {
            depth,
            label: cut(job.label()),
            state: job.state().to_string(),
            age_ms: u64::try_from(job.age().as_millis()).unwrap_or(u64::MAX),
            waiting_for: job.waiting_for().map(|what| cut(what.to_string())),
        });
        let children = job.children().into_iter().rev();
        to_visit.extend(children.map(|child| (depth + 1, child)));
    }
    LiveTree {
        job_id,
        nodes,
        left_out: to_visit.len() as u64,
    }
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(LiveTree::LABEL_BYTES));
    text
}
