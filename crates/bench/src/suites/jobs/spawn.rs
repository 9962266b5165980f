//! A job that somebody runs: spawned, run by a worker, joined. A thousand at a time, as a scope would have them.
//!
//! Both sides stand inside their own runtime, on one of its workers, as a program that spawns does.

use std::time::{Duration, Instant};

use jobtree_runtime::nursery;

use super::create::TokioParent;
use super::{Options, PEER, Spec, end, our_runtime, tokio_runtime};
use crate::harness::{Contender, Goal, Report, Role, timed};
use crate::suites::shared::{in_our_task, in_tokio};

pub const NAME: &str = "spawned child: spawn, run, join";

/// How many jobs one scope has.
const JOBS: u64 = 1000;

/// Adds a row for each number of workers.
pub fn run(options: &Options, report: &mut Report) {
    for workers in options.worker_counts() {
        add(options, report, workers, None);
    }
}

/// Adds the row on so many workers.
pub fn add(options: &Options, report: &mut Report, workers: usize, goal: Option<Goal>) {
    if !options.wants(NAME) {
        return;
    }
    let ours = our_runtime(workers);
    let tokio = tokio_runtime(workers);
    let in_our_scopes = |(): &mut (), iterations| {
        in_our_task(&ours, move || {
            timed(&mut (), iterations, |()| our_scope(JOBS))
        })
    };
    let spec = Spec {
        name: NAME.into(),
        workers,
        unit: "job",
        units: JOBS,
        goal,
    };
    spec.run(
        &options.plan,
        vec![
            Contender::new("ours", Role::Ours, in_our_scopes),
            Contender::new("ours again", Role::Control, in_our_scopes),
            Contender::new(PEER, Role::Peer, |(), n| in_tokio_scopes(&tokio, n)),
        ],
        report,
    );
    end(&ours);
}

/// Spawns so many jobs in a scope of their own, and joins them all; gives the sum of their values.
pub fn our_scope(jobs: u64) -> u64 {
    let sum = nursery(|scope| {
        let handles: Vec<_> = (0..jobs)
            .map(|value| scope.spawn(move || Ok(value)))
            .collect();
        let mut sum = 0;
        for handle in handles {
            sum += handle.join()?;
        }
        Ok(sum)
    });
    sum.expect("no job fails")
}

fn in_tokio_scopes(runtime: &tokio::runtime::Runtime, iterations: u64) -> (Duration, u64) {
    let measurement = async move {
        let mut sum = 0;
        let start = Instant::now();
        for _ in 0..iterations {
            sum = tokio_scope().await;
        }
        (start.elapsed(), sum)
    };
    in_tokio(runtime, measurement)
}

/// A scope of tokio's parts: each task is cancelled with the scope and waited for by it, and its handle gives its value.
async fn tokio_scope() -> u64 {
    let parent = TokioParent::new();
    let handles: Vec<_> = (0..JOBS)
        .map(|value| {
            let cancelled = parent.token.child_token();
            parent.tracker.spawn(async move {
                // What a task keeps to be able to look whether it was cancelled.
                let _cancelled = cancelled;
                value
            })
        })
        .collect();
    let mut sum = 0;
    for handle in handles {
        sum += handle.await.expect("no task fails");
    }
    parent.tracker.close();
    parent.tracker.wait().await;
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_get_every_value() {
        let expected = JOBS * (JOBS - 1) / 2;
        let ours = our_runtime(2);
        assert_eq!(in_our_task(&ours, || our_scope(JOBS)), expected);
        end(&ours);
        assert_eq!(in_tokio_scopes(&tokio_runtime(2), 2).1, expected);
    }
}
