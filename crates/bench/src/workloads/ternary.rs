//! The sum over a tree with three children a node: one join of three a node.

use std::sync::Arc;

use crate::harness::SplitMix64;
use crate::sides::on_every_side;

/// A node with all its three children, or none.
#[derive(Debug)]
pub struct Node {
    value: u64,
    children: Option<Box<[Node; 3]>>,
}

impl Node {
    /// A full tree of that many levels. A node's children are built in a random order, for the reason that
    /// [`tree::Node`](super::tree::Node) gives.
    pub fn full(levels: u32, rng: &mut SplitMix64) -> Self {
        if levels == 1 {
            return Self {
                value: 1,
                children: None,
            };
        }
        let mut children = [const { None }; 3];
        let mut order = [0, 1, 2];
        rng.shuffle(&mut order);
        for place in order {
            children[place] = Some(Self::full(levels - 1, rng));
        }
        let children = children.map(|child| child.expect("the order names each place once"));
        Self {
            value: 1,
            children: Some(Box::new(children)),
        }
    }
}

/// How many nodes a full tree has.
pub fn nodes(levels: u32) -> u64 {
    (3u64.pow(levels) - 1) / 2
}

on_every_side! {
    input Arc<Node>;

    fn run(context, input: &mut Arc<Node>) -> u64 {
        sum(context, input)
    }

    fn sum(context, node: &Node) -> u64 {
        let Some(children) = node.children.as_deref() else {
            return node.value;
        };
        let [a, b, c] = children;
        let (a, b, c) = join3(
            context,
            |context| sum(context, a),
            |context| sum(context, b),
            |context| sum(context, c),
        );
        node.value + a + b + c
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_counts_the_nodes() {
        assert_eq!(nodes(3), 13);
        assert_eq!(
            sequential::run((), &mut Arc::new(Node::full(8, &mut SplitMix64::new(1)))),
            nodes(8)
        );
    }
}
