//! The sum over a binary tree that is not balanced, with a little work at each node. It forks at every node: nobody knows how
//! much is below.

use crate::suites::programs::inputs::{rng, work};
use crate::suites::programs::program::{Program, Scale};

pub struct Node {
    value: u64,
    left: Option<Box<Node>>,
    right: Option<Box<Node>>,
}

pub struct Input {
    root: Option<Box<Node>>,
}

/// About 50 ns.
const STEPS: u32 = 35;

pub fn program(scale: Scale) -> Program<Input> {
    let nodes = scale.pick(100_000, 1000);
    let mut rng = rng();
    let mut tree = |nodes| -> Option<Box<Node>> {
        fn grow(nodes: usize, below: &mut impl FnMut(usize) -> usize) -> Option<Box<Node>> {
            let rest = nodes.checked_sub(1)?;
            let on_the_left = below(rest + 1);
            Some(Box::new(Node {
                value: rest as u64,
                left: grow(on_the_left, below),
                right: grow(rest - on_the_left, below),
            }))
        }
        grow(nodes, &mut |bound| rng.below(bound))
    };
    let root = tree(nodes);
    Program::new("node", nodes, Input { root })
        .sequential(|input| sequential(input.root.as_deref()))
        .ours(|input| ours(input.root.as_deref()))
        .rayon(|input| by_rayon(input.root.as_deref()))
        .chili(|scope, input| by_chili(scope, input.root.as_deref()))
}

fn at(node: &Node) -> u64 {
    work(node.value, STEPS)
}

fn sequential(node: Option<&Node>) -> u64 {
    let Some(node) = node else { return 0 };
    let (left, right) = (
        sequential(node.left.as_deref()),
        sequential(node.right.as_deref()),
    );
    at(node).wrapping_add(left).wrapping_add(right)
}

fn ours(node: Option<&Node>) -> u64 {
    let Some(node) = node else { return 0 };
    let (left, right) = jobtree::join(
        || ours(node.left.as_deref()),
        || ours(node.right.as_deref()),
    );
    at(node).wrapping_add(left).wrapping_add(right)
}

fn by_rayon(node: Option<&Node>) -> u64 {
    let Some(node) = node else { return 0 };
    let (left, right) = rayon::join(
        || by_rayon(node.left.as_deref()),
        || by_rayon(node.right.as_deref()),
    );
    at(node).wrapping_add(left).wrapping_add(right)
}

fn by_chili(scope: &mut chili::Scope<'_>, node: Option<&Node>) -> u64 {
    let Some(node) = node else { return 0 };
    let (left, right) = scope.join(
        |scope| by_chili(scope, node.left.as_deref()),
        |scope| by_chili(scope, node.right.as_deref()),
    );
    at(node).wrapping_add(left).wrapping_add(right)
}
