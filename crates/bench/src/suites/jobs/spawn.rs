//! A job that somebody runs: spawned, run by a worker, joined. A thousand at a time, as a scope would have them.
//!
//! Both sides stand inside their own runtime, on one of its workers, as a program that spawns does.

use std::time::{Duration, Instant};

use jobtree_runtime::{Runtime, nursery};

use super::create::TokioParent;
use super::{Options, PEER, Spec, end, our_runtime, tokio_runtime};
use crate::harness::{Contender, Report, Role, timed};

pub const NAME: &str = "spawned child: spawn, run, join";

/// How many jobs one scope has.
const JOBS: u64 = 1000;

/// Adds a row for each number of workers.
pub fn run(options: &Options, report: &mut Report) {
    if !options.wants(NAME) {
        return;
    }
    for workers in options.worker_counts() {
        let ours = our_runtime(workers);
        let tokio = tokio_runtime(workers);
        let spec = Spec {
            name: NAME.into(),
            workers,
            unit: "job",
            units: JOBS,
            goal: None,
        };
        spec.run(
            &options.plan,
            vec![
                Contender::new("ours", Role::Ours, |(), n| in_our_scopes(&ours, n)),
                Contender::new("ours again", Role::Control, |(), n| in_our_scopes(&ours, n)),
                Contender::new(PEER, Role::Peer, |(), n| in_tokio_scopes(&tokio, n)),
            ],
            report,
        );
        end(&ours);
    }
}

fn in_our_scopes(runtime: &Runtime, iterations: u64) -> (Duration, u64) {
    runtime
        .spawn(move || Ok(timed(&mut (), iterations, |()| our_scope())))
        .join()
        .expect("nobody cancels the measurement")
}

fn our_scope() -> u64 {
    let sum = nursery(|scope| {
        let handles: Vec<_> = (0..JOBS)
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
    // Else it would run on the calling thread, beside the workers.
    let on_a_worker = runtime.spawn(measurement);
    runtime
        .block_on(on_a_worker)
        .expect("nobody aborts the measurement")
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
        assert_eq!(in_our_scopes(&ours, 2).1, expected);
        end(&ours);
        assert_eq!(in_tokio_scopes(&tokio_runtime(2), 2).1, expected);
    }
}
