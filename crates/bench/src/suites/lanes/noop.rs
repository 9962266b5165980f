//! Jobs that do nothing: scheduled, run, and awaited.
//!
//! All stand inside their own runtime, on one of its workers. Ours have their priority, their slot in the bounded queue,
//! their turn by the lane's order, their counters, and are children of the manager's job. tokio's are spawned.

use jobtree_lanes::{JobManager, LaneJob, Priority};

use super::{Options, manager};
use crate::harness::{Contender, Goal, Report, Role};
use crate::suites::shared::{
    Spec, end, in_our_future, in_tokio, our_runtime, repeat, tokio_runtime,
};

const TOKIO: &str = "tokio";

/// How many are scheduled before the first is awaited.
const MANY: u64 = 1000;

/// Adds a row for each priority with many at a time, and one with one at a time.
pub fn run(options: &Options, report: &mut Report) {
    for priority in Priority::ALL.into_iter().rev() {
        let name = format!("no-op, {priority}: schedule and await, {MANY} at a time");
        row(options, report, name, priority, MANY);
    }
    let name = "no-op, normal: schedule and await, one at a time";
    row(options, report, name.into(), Priority::Normal, 1);
}

fn row(options: &Options, report: &mut Report, name: String, priority: Priority, at_once: u64) {
    if !options.wants(&name) {
        return;
    }
    let workers = options.workers.unwrap_or(2);
    let (ours, tokio) = (our_runtime(workers), tokio_runtime(workers));
    let manager = manager(&ours, workers);
    let schedule = |(): &mut (), iterations| {
        let manager = manager.clone();
        let jobs = repeat(iterations, move || {
            scheduled(manager.clone(), priority, at_once)
        });
        in_our_future(&ours, jobs)
    };
    let contenders = vec![
        Contender::new("ours", Role::Ours, schedule),
        Contender::new("ours again", Role::Control, schedule),
        Contender::new(TOKIO, Role::Peer, |(), iterations| {
            in_tokio(&tokio, repeat(iterations, move || spawned(at_once)))
        }),
    ];
    let spec = Spec {
        name,
        workers,
        unit: "job",
        units: MANY,
        goal: Goal::side(TOKIO, 1.0),
    };
    spec.run(&options.plan, contenders, report);
    end(&ours);
}

/// Each gives its number; all together give their sum.
async fn scheduled(manager: JobManager, priority: Priority, at_once: u64) -> u64 {
    let mut sum = 0;
    for first in (0..MANY).step_by(at_once as usize) {
        let handles: Vec<_> = (first..first + at_once)
            .map(|value| manager.schedule(LaneJob::action(move || Ok(value)).priority(priority)))
            .collect();
        for handle in handles {
            sum += handle.await.expect("no job fails");
        }
    }
    sum
}

async fn spawned(at_once: u64) -> u64 {
    let mut sum = 0;
    for first in (0..MANY).step_by(at_once as usize) {
        let handles: Vec<_> = (first..first + at_once)
            .map(|value| tokio::spawn(async move { value }))
            .collect();
        for handle in handles {
            sum += handle.await.expect("no task fails");
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::shared::shortest;

    #[test]
    fn every_side_gets_every_value() {
        let mut report = Report::default();
        // A side that left some out would disagree with the others and panic.
        run(&shortest("no-op"), &mut report);
        assert_eq!(report.rows.len(), 6);
        assert!(report.rows.iter().all(|row| row.sides.len() == 3));
    }
}
