//! The sum over a binary tree in memory: a fork costs little beside a cache miss, and much beside none.

use std::sync::Arc;

use crate::harness::SplitMix64;
use crate::sides::on_every_side;

/// A node, allocated by itself as in a program that grew its tree over time.
///
/// At each node a coin decides which child is built first. Sides differ in which child they visit first (chili begins
/// with the second closure); with one order of building throughout, whoever visits in the order of the addresses
/// would run up to twice as fast for no merit of its own.
#[derive(Debug)]
pub struct Node {
    value: u64,
    left: Option<Box<Node>>,
    right: Option<Box<Node>>,
}

impl Node {
    /// A full tree of that many levels.
    pub fn full(levels: u32, rng: &mut SplitMix64) -> Self {
        let below = levels - 1;
        let child = |rng: &mut SplitMix64| (below > 0).then(|| Box::new(Self::full(below, rng)));
        Self::with_children(rng, child, child)
    }

    /// A tree of exactly `nodes` nodes in a lopsided shape, the same for the same seed.
    ///
    /// A node gives the share u³ of the nodes below it to one child, u drawn evenly from 0..1, and the rest to the
    /// other; a coin decides which side gets which. On average three quarters go to one side, often nearly all.
    pub fn unbalanced(nodes: usize, rng: &mut SplitMix64) -> Self {
        let below = nodes - 1;
        let small = (rng.unit().powi(3) * (below + 1) as f64) as usize;
        let large = below - small;
        let (left, right) = if rng.coin() {
            (small, large)
        } else {
            (large, small)
        };
        let child = |nodes| {
            move |rng: &mut SplitMix64| (nodes > 0).then(|| Box::new(Self::unbalanced(nodes, rng)))
        };
        Self::with_children(rng, child(left), child(right))
    }

    fn with_children(
        rng: &mut SplitMix64,
        left: impl FnOnce(&mut SplitMix64) -> Option<Box<Self>>,
        right: impl FnOnce(&mut SplitMix64) -> Option<Box<Self>>,
    ) -> Self {
        if rng.coin() {
            let left = left(rng);
            Self {
                value: 1,
                left,
                right: right(rng),
            }
        } else {
            let right = right(rng);
            Self {
                value: 1,
                left: left(rng),
                right,
            }
        }
    }

    #[cfg(test)]
    fn depth(&self) -> usize {
        let depth = |child: &Option<Box<Self>>| child.as_deref().map_or(0, Self::depth);
        1 + depth(&self.left).max(depth(&self.right))
    }
}

on_every_side! {
    input Arc<Node>;

    fn run(context, input: &mut Arc<Node>) -> u64 {
        sum(context, input)
    }

    fn sum(context, node: &Node) -> u64 {
        let (left, right) = join(
            context,
            |context| node.left.as_deref().map_or(0, |child| sum(context, child)),
            |context| node.right.as_deref().map_or(0, |child| sum(context, child)),
        );
        node.value + left + right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_tree_has_two_to_the_levels_less_one_nodes() {
        assert_eq!(
            sequential::run((), &mut Arc::new(Node::full(10, &mut SplitMix64::new(1)))),
            1023
        );
    }

    #[test]
    fn an_unbalanced_tree_has_the_nodes_asked_for_and_is_far_from_flat() {
        let tree = Node::unbalanced(100_000, &mut SplitMix64::new(1));
        let depth = tree.depth();
        assert_eq!(sequential::run((), &mut Arc::new(tree)), 100_000);
        // A balanced one would have 17 levels; one of thousands would test the stack instead.
        assert!((34..1000).contains(&depth), "{depth} levels");
    }
}
