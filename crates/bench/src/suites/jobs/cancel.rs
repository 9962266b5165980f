//! Cancelling a parent with many children: each of them is told, and nobody is told twice.
//!
//! The price should be a constant for each child, however many there are. That cannot be seen by comparing a thousand
//! children with a hundred thousand as they come: the thousand lie in the cache, the others do not, and the difference
//! of the two memories, a factor of three and more, hides what the code does. So the hundred thousand are compared with
//! as many that hang on a hundred parents, made in the same order in the same memory: only the number of siblings
//! differs. A cost that grew with the logarithm of it would be 1.67 times as large, a quadratic one a hundred times. The
//! goal is below both, with room for noise. What the caches do is shown beside it.

use jobtree_tree::{Body, Cause, Job, JobState, Tree};
use tokio_util::sync::CancellationToken;

use super::create::attach;
use super::{Options, PEER, Spec, with_less_time};
use crate::harness::{Contender, Goal, Report, Role, timed_between};

const FEW: Size = Size {
    parents: 1,
    children: 1000,
};
const MANY: Size = Size {
    parents: 1,
    children: 100_000,
};
/// The parents that share the many among them.
const GROUPS: u64 = 100;

const GROUPED: &str = "in 100 groups";
const CACHED: &str = "in cache";

/// What one iteration cancels.
#[derive(Clone, Copy)]
struct Size {
    parents: u64,
    /// Of each.
    children: u64,
}

impl Size {
    fn total(self) -> u64 {
        self.parents * self.children
    }

    /// The same children under more parents.
    fn in_groups(self, parents: u64) -> Self {
        Self {
            parents,
            children: self.children / parents,
        }
    }
}

/// Adds a row for each size.
pub fn run(options: &Options, report: &mut Report) {
    few(options, report, FEW);
    many(options, report, MANY);
}

fn name(size: Size) -> String {
    format!("cancel of a parent with {} children", size.children)
}

fn few(options: &Options, report: &mut Report, size: Size) {
    let name = name(size);
    if !options.wants(&name) {
        return;
    }
    Spec::on_one_thread(name, "child", size.total()).run(
        &with_less_time(&options.plan),
        vec![
            ours("ours", Role::Ours, size, 1),
            ours("ours again", Role::Control, size, 1),
            tokio(size),
        ],
        report,
    );
}

fn many(options: &Options, report: &mut Report, size: Size) {
    let name = name(size);
    if !options.wants(&name) {
        return;
    }
    let group = Size {
        parents: 1,
        ..size.in_groups(GROUPS)
    };
    Spec::on_one_thread(name, "child", size.total())
        .goal(Goal::side(GROUPED, 1.5))
        .run(
            &options.plan,
            vec![
                ours("ours", Role::Ours, size, 1),
                ours("ours again", Role::Control, size, 1),
                ours(GROUPED, Role::Variant, size.in_groups(GROUPS), 1),
                ours(CACHED, Role::Variant, group, GROUPS),
                tokio(size),
            ],
            report,
        );
}

/// A side of ours that makes and cancels `size` so many `times` in each iteration.
fn ours<'a>(name: &'static str, role: Role, size: Size, times: u64) -> Contender<'a, ()> {
    let tree = Tree::new();
    Contender::new(name, role, move |(), iterations| {
        let prepare = || Family::under(tree.root(), size);
        let (time, cancelled) =
            timed_between(iterations * times, prepare, Family::cancel, Family::settle);
        (time, cancelled * times)
    })
}

fn tokio<'a>(size: Size) -> Contender<'a, ()> {
    Contender::new(PEER, Role::Peer, move |(), iterations| {
        let prepare = || TokioFamily::new(size);
        timed_between(
            iterations,
            prepare,
            TokioFamily::cancel,
            TokioFamily::settle,
        )
    })
}

/// Parents and their children, none of which does anything.
struct Family {
    parents: Vec<(Job, Body)>,
    children: Vec<(Job, Body)>,
}

impl Family {
    fn under(root: &Job, size: Size) -> Self {
        let parents: Vec<_> = (0..size.parents).map(|_| attach(root)).collect();
        let children = parents
            .iter()
            .flat_map(|(parent, _)| (0..size.children).map(|_| attach(parent)))
            .collect();
        Self { parents, children }
    }

    fn cancel(&mut self) {
        for (parent, _) in &self.parents {
            parent.cancel(Cause::Explicit);
        }
    }

    /// How many children were told; all of them, or there is nothing to compare.
    fn settle(self) -> u64 {
        let told = self
            .children
            .iter()
            .filter(|(child, _)| child.state() == JobState::Cancelling)
            .count();
        assert_eq!(told, self.children.len(), "a child was not told");
        told as u64
    }
}

/// The same of tokens.
struct TokioFamily {
    parents: Vec<CancellationToken>,
    children: Vec<CancellationToken>,
}

impl TokioFamily {
    fn new(size: Size) -> Self {
        let parents: Vec<_> = (0..size.parents)
            .map(|_| CancellationToken::new())
            .collect();
        let children = parents
            .iter()
            .flat_map(|parent| (0..size.children).map(|_| parent.child_token()))
            .collect();
        Self { parents, children }
    }

    fn cancel(&mut self) {
        for parent in &self.parents {
            parent.cancel();
        }
    }

    fn settle(self) -> u64 {
        let told = self
            .children
            .iter()
            .filter(|child| child.is_cancelled())
            .count();
        assert_eq!(told, self.children.len(), "a token was not told");
        told as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::shared::shortest;

    #[test]
    fn all_sides_cancel_the_same_number_of_children() {
        let size = Size {
            parents: 1,
            children: 1000,
        };
        let mut report = Report::default();
        let options = shortest("cancel");
        few(&options, &mut report, size);
        many(&options, &mut report, size);
        let judged: Vec<_> = report.rows.iter().map(|row| row.judged()).collect();
        let against: Vec<_> = judged.iter().flatten().map(|ratio| ratio.against).collect();
        assert_eq!(against, [PEER, GROUPED]);
    }

    #[test]
    #[should_panic(expected = "a child was not told")]
    fn a_child_that_was_not_told_is_found() {
        let tree = Tree::new();
        Family::under(tree.root(), FEW).settle();
    }

    #[test]
    fn groups_have_the_same_children_in_all() {
        let grouped = MANY.in_groups(GROUPS);
        assert_eq!((grouped.total(), grouped.children), (MANY.total(), 1000));
    }
}
