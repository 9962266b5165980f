//! A tree of tasks, ten below each, down to a million leaves with a number each; every one of them gives the sum of what
//! is below it. Known as skynet.
//!
//! It is the usual one: each node spawns its ten, then asks them one after the other. Ours open a scope in each node.

use std::array;
use std::pin::Pin;

use jobtree_runtime::{BoxError, future, nursery};

use super::may::{May, in_may};
use super::{Options, TOKIO, workers};
use crate::harness::{Contender, Plan, Report, Role, timed};
use crate::servant::Service;
use crate::suites::shared::{
    Spec, end, in_our_future, in_our_task, in_tokio, our_runtime, repeat, tokio_runtime,
};

const NAME: &str = "skynet";

/// How many are below each node.
const CHILDREN: u64 = 10;

const LEAVES: u64 = 1_000_000;
const LEAVES_IN_A_HURRY: u64 = 100_000;
/// may keeps a stack and two mappings for each task that has begun: of a larger tree too many of them wait.
const LEAVES_FOR_MAY: u64 = 10_000;

pub const MAY: &[Service] = &[Service {
    name: "skynet",
    run: |iterations| in_may(move || timed(&mut (), iterations, |()| may_node(0, LEAVES_FOR_MAY))),
}];

/// Adds a row for the large tree and one for a small one, in which may takes part.
pub fn run(options: &Options, report: &mut Report) {
    let large = if options.quick {
        LEAVES_IN_A_HURRY
    } else {
        LEAVES
    };
    for leaves in [large, LEAVES_FOR_MAY] {
        row(options, report, leaves);
    }
}

fn row(options: &Options, report: &mut Report, leaves: u64) {
    let name = format!("{NAME}, {leaves} leaves");
    if !options.wants(&name) {
        return;
    }
    let workers = workers(options);
    let (ours, tokio) = (our_runtime(workers), tokio_runtime(workers));
    let may = (leaves == LEAVES_FOR_MAY).then(|| May::start(workers));
    let of_tasks = |(): &mut (), iterations| {
        in_our_task(&ours, move || {
            timed(&mut (), iterations, |()| {
                our_node(0, leaves).expect("no job fails")
            })
        })
    };
    let mut contenders = vec![
        Contender::new("ours", Role::Ours, of_tasks),
        Contender::new("ours again", Role::Control, of_tasks),
        Contender::new("futures", Role::Variant, |(), iterations| {
            let tree = move || async move { our_future(0, leaves).await.expect("no job fails") };
            in_our_future(&ours, repeat(iterations, tree))
        }),
        Contender::new(TOKIO, Role::Peer, |(), iterations| {
            in_tokio(&tokio, repeat(iterations, move || tokio_node(0, leaves)))
        }),
    ];
    contenders.extend(may.as_ref().and_then(|may| may.contender(MAY[0].name)));
    let spec = Spec {
        name,
        workers,
        unit: "leaf",
        units: leaves,
        goal: None,
    };
    let plan = Plan {
        rounds: options.plan.rounds.min(9),
        ..options.plan.clone()
    };
    spec.run(&plan, contenders, report);
    end(&ours);
}

/// The first number below each child of a node.
fn children(first: u64, leaves: u64) -> [u64; CHILDREN as usize] {
    array::from_fn(|child| first + child as u64 * (leaves / CHILDREN))
}

fn our_node(first: u64, leaves: u64) -> Result<u64, BoxError> {
    if leaves == 1 {
        return Ok(first);
    }
    let sum = nursery(|scope| {
        let below = leaves / CHILDREN;
        let spawn = |first| scope.spawn(move || our_node(first, below));
        let mut sum = 0;
        for child in children(first, leaves).map(spawn) {
            sum += child.join()?;
        }
        Ok(sum)
    });
    Ok(sum?)
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A future that spawns its like has to be boxed, on both sides.
fn our_future(first: u64, leaves: u64) -> Boxed<Result<u64, BoxError>> {
    Box::pin(async move {
        if leaves == 1 {
            return Ok(first);
        }
        let sum = future::nursery(async move |scope| {
            let spawn = |first| scope.spawn_future(our_future(first, leaves / CHILDREN));
            let mut sum = 0;
            for child in children(first, leaves).map(spawn) {
                sum += child.await?;
            }
            Ok(sum)
        });
        Ok(sum.await?)
    })
}

fn tokio_node(first: u64, leaves: u64) -> Boxed<u64> {
    Box::pin(async move {
        if leaves == 1 {
            return first;
        }
        let spawn = |first| tokio::spawn(tokio_node(first, leaves / CHILDREN));
        let mut sum = 0;
        for child in children(first, leaves).map(spawn) {
            sum += child.await.expect("no task fails");
        }
        sum
    })
}

fn may_node(first: u64, leaves: u64) -> u64 {
    if leaves == 1 {
        return first;
    }
    let spawn = |first| may::go!(move || may_node(first, leaves / CHILDREN));
    let sums = children(first, leaves).map(spawn);
    let sums = sums
        .into_iter()
        .map(|child| child.join().expect("no task fails"));
    sums.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_side_comes_to_the_same_sum() {
        let (leaves, expected) = (1000, 1000 * 999 / 2);
        let ours = our_runtime(2);
        assert_eq!(
            in_our_task(&ours, move || our_node(0, leaves).unwrap()),
            expected
        );
        let future = async move { our_future(0, leaves).await.unwrap() };
        assert_eq!(in_our_future(&ours, future), expected);
        end(&ours);
        assert_eq!(in_tokio(&tokio_runtime(2), tokio_node(0, leaves)), expected);
        assert_eq!(in_may(move || may_node(0, leaves)), expected);
    }
}
