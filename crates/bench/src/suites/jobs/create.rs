//! A job's whole life in the tree and nothing else: made under a parent, ended, freed. Nobody runs it.

use std::hint::black_box;

use jobtree_tree::{Body, BodyResult, Job, JobOptions, Tree};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Options, PEER, Spec};
use crate::harness::{Contender, Goal, Report, Role, timed};

pub const NAME: &str = "attached child: create and end";

/// How many jobs one iteration makes.
const JOBS: u64 = 1000;

/// Adds the row.
pub fn run(options: &Options, report: &mut Report) {
    if !options.wants(NAME) {
        return;
    }
    let (first, second, tokio) = (OurParent::new(), OurParent::new(), TokioParent::new());
    let side = |parent: OurParent| {
        move |(): &mut (), iterations| {
            timed(&mut (), iterations, |()| parent.make_and_end_children(JOBS))
        }
    };
    Spec::on_one_thread(NAME, "job", JOBS)
        .goal(Goal::better_peer(0.25))
        .run(
            &options.plan,
            vec![
                Contender::new("ours", Role::Ours, side(first)),
                Contender::new("ours again", Role::Control, side(second)),
                Contender::new(PEER, Role::Peer, move |(), iterations| {
                    timed(&mut (), iterations, |()| tokio.make_and_drop_children(JOBS))
                }),
            ],
            report,
        );
}

/// A job to attach children to, which is no root: a root is a supervisor, and most parents are not.
pub struct OurParent {
    pub job: Job,
    _body: Body,
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "it is there for the jobs to be in")
    )]
    tree: Tree,
}

impl OurParent {
    pub fn new() -> Self {
        let tree = Tree::new();
        let (job, body) = attach(tree.root());
        Self {
            job,
            _body: body,
            tree,
        }
    }

    /// Makes and ends children one by one; gives how many.
    pub fn make_and_end_children(&self, count: u64) -> u64 {
        for _ in 0..count {
            let (job, body) = attach(black_box(&self.job));
            body.end(BodyResult::Value);
            drop(black_box(job));
        }
        count
    }

    /// How many jobs there are and were below the root.
    #[cfg(test)]
    fn jobs_made(&self) -> u64 {
        self.tree.counters().created
    }
}

/// Makes a running job under `parent`.
pub fn attach(parent: &Job) -> (Job, Body) {
    match parent.attach(JobOptions::new().started()) {
        Ok(attached) => attached,
        Err(ended) => unreachable!("the parent runs as long as it is measured: {ended}"),
    }
}

/// tokio's two halves of a parent: who waits, and who cancels.
pub struct TokioParent {
    pub tracker: TaskTracker,
    pub token: CancellationToken,
}

impl TokioParent {
    pub fn new() -> Self {
        Self {
            tracker: TaskTracker::new(),
            token: CancellationToken::new(),
        }
    }

    /// Makes and drops the two halves of a child one by one; gives how many.
    pub fn make_and_drop_children(&self, count: u64) -> u64 {
        for _ in 0..count {
            let child = black_box(&self.token).child_token();
            let tracked = black_box(&self.tracker).token();
            drop(black_box(child));
            drop(black_box(tracked));
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_child_is_made_and_none_is_left() {
        let parent = OurParent::new();
        let before = parent.jobs_made();
        assert_eq!(parent.make_and_end_children(10), 10);
        assert_eq!(parent.jobs_made() - before, 10);
        assert!(parent.job.children().is_empty());
        assert!(!parent.job.is_cancelled());
    }

    #[test]
    fn tokios_children_are_gone_too() {
        let parent = TokioParent::new();
        assert_eq!(parent.make_and_drop_children(10), 10);
        assert!(parent.tracker.is_empty());
    }
}
