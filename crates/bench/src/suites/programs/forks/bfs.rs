//! The distance of each node of a graph from the first: breadth first, all nodes of a distance at the same time.

use std::sync::atomic::{AtomicU32, Ordering};

use jobtree::par;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use crate::suites::programs::inputs::{Graph, digest, graph};
use crate::suites::programs::program::{Program, Scale};

pub struct Input {
    graph: Graph,
}

const UNSEEN: u32 = u32::MAX;

pub fn program(scale: Scale) -> Program<Input> {
    let nodes = scale.pick(100_000, 1000);
    let graph = graph(nodes, 5);
    Program::new("node", nodes, Input { graph })
        .sequential(sequential)
        .ours(ours)
        .rayon(by_rayon)
}

/// Notes the distance of `node`; `false` if it was seen before.
fn sees(distances: &[AtomicU32], node: u32, distance: u32) -> bool {
    distances[node as usize]
        .compare_exchange(UNSEEN, distance, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok()
}

fn unseen(nodes: usize) -> Vec<AtomicU32> {
    (0..nodes).map(|_| AtomicU32::new(UNSEEN)).collect()
}

fn sequential(input: &mut Input) -> u64 {
    let graph = &input.graph;
    let mut distances = vec![UNSEEN; graph.len()];
    distances[0] = 0;
    let (mut nodes, mut distance) = (vec![0], 0);
    while !nodes.is_empty() {
        distance += 1;
        let mut next = Vec::new();
        for node in &nodes {
            for neighbour in &graph[*node as usize] {
                let known = &mut distances[*neighbour as usize];
                if *known == UNSEEN {
                    *known = distance;
                    next.push(*neighbour);
                }
            }
        }
        nodes = next;
    }
    digest(distances.into_iter().map(u64::from))
}

fn ours(input: &mut Input) -> u64 {
    let graph = &input.graph;
    let distances = unseen(graph.len());
    sees(&distances, 0, 0);
    let (mut nodes, mut distance) = (vec![0], 0);
    while !nodes.is_empty() {
        distance += 1;
        nodes = par::over(&nodes)
            .flat_map(|node: &u32| graph[*node as usize].iter().copied())
            .filter(|node| sees(&distances, *node, distance))
            .collect();
    }
    digest(distances.into_iter().map(|d| d.into_inner().into()))
}

fn by_rayon(input: &mut Input) -> u64 {
    let graph = &input.graph;
    let distances = unseen(graph.len());
    sees(&distances, 0, 0);
    let (mut nodes, mut distance) = (vec![0], 0);
    while !nodes.is_empty() {
        distance += 1;
        nodes = nodes
            .par_iter()
            .flat_map_iter(|node: &u32| graph[*node as usize].iter().copied())
            .filter(|node| sees(&distances, *node, distance))
            .collect();
    }
    digest(distances.into_iter().map(|d| d.into_inner().into()))
}
