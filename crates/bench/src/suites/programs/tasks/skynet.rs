//! A tree of tasks, ten below each, whose leaves compute a little: each node adds up what is below it.

use std::pin::Pin;

use jobtree::{BoxError, nursery};
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use crate::suites::programs::inputs::{SMALL_JOB, work};
use crate::suites::programs::program::{Program, Scale};

const CHILDREN: u64 = 10;

pub struct Input {
    leaves: u64,
}

pub fn program(scale: Scale) -> Program<Input> {
    let leaves = scale.pick(10_000, 100);
    Program::new("leaf", leaves as usize, Input { leaves })
        .sequential(|input| sequential(0, input.leaves))
        .our_jobs(|runtime, input| {
            let leaves = input.leaves;
            let root = runtime.nursery(|n| Ok(n.spawn(move || ours(0, leaves)).join()?));
            root.expect("no job fails")
        })
        .tokio(|runtime, input| runtime.block_on(by_tokio(0, input.leaves)))
        .rayon(|input| by_rayon(0, input.leaves))
}

/// The first leaf below each child of a node with `leaves` leaves from `first` on.
fn below(first: u64, leaves: u64) -> impl Iterator<Item = u64> {
    (0..CHILDREN).map(move |child| first + child * (leaves / CHILDREN))
}

fn sequential(first: u64, leaves: u64) -> u64 {
    if leaves == 1 {
        return work(first, SMALL_JOB);
    }
    let values = below(first, leaves).map(|first| sequential(first, leaves / CHILDREN));
    values.fold(0, u64::wrapping_add)
}

fn ours(first: u64, leaves: u64) -> Result<u64, BoxError> {
    if leaves == 1 {
        return Ok(work(first, SMALL_JOB));
    }
    let sum = nursery(|n| {
        let children: Vec<_> = below(first, leaves)
            .map(|first| n.spawn(move || ours(first, leaves / CHILDREN)))
            .collect();
        let mut sum = 0_u64;
        for child in children {
            sum = sum.wrapping_add(child.join()?);
        }
        Ok(sum)
    })?;
    Ok(sum)
}

fn by_tokio(first: u64, leaves: u64) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(async move {
        if leaves == 1 {
            return work(first, SMALL_JOB);
        }
        let children: Vec<_> = below(first, leaves)
            .map(|first| tokio::spawn(by_tokio(first, leaves / CHILDREN)))
            .collect();
        let mut sum = 0_u64;
        for child in children {
            sum = sum.wrapping_add(child.await.expect("no task fails"));
        }
        sum
    })
}

fn by_rayon(first: u64, leaves: u64) -> u64 {
    if leaves == 1 {
        return work(first, SMALL_JOB);
    }
    (0..CHILDREN)
        .into_par_iter()
        .map(|child| by_rayon(first + child * (leaves / CHILDREN), leaves / CHILDREN))
        .reduce(|| 0, u64::wrapping_add)
}
