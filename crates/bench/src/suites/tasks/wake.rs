//! How long it takes until a task that waits goes on, when a thread outside of the runtime ends its wait.
//!
//! The runtime is left alone long enough to fall asleep, so this is the wake of a worker and the switch to the task. All
//! sides wait for the same one-shot channel, tokio's, whose receiver is a future for any executor.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use jobtree_runtime::{Runtime, block_on};
use tokio::sync::oneshot;

use super::{Options, TOKIO, workers};
use crate::harness::{Plan, Report, Role, Rounds, Row, Tolerance, quantile};
use crate::suites::shared::{end, our_runtime, tokio_runtime};

const NAME: &str = "wake of a task from outside";

/// How long the runtime is left alone before each wake. Both fall asleep within a fraction of it.
const PAUSE: Duration = Duration::from_millis(5);

const FUTURE: &str = "future";

const SIDES: [(&str, Role); 4] = [
    ("ours", Role::Ours),
    ("ours again", Role::Control),
    (FUTURE, Role::Variant),
    (TOKIO, Role::Peer),
];

/// Adds a row for the median and one for the slowest hundredth.
pub fn run(options: &Options, report: &mut Report) {
    if !options.wants(NAME) {
        return;
    }
    let workers = workers(options);
    eprintln!("  {NAME}");
    let (ours, tokio) = (our_runtime(workers), tokio_runtime(workers));
    // A hundredth is only to be seen in some hundred samples, at 5 ms each.
    let (rounds, samples) = if options.quick { (5, 40) } else { (9, 200) };
    let plan = Plan {
        rounds,
        ..options.plan.clone()
    };
    let mut slowest = vec![Vec::new(); SIDES.len()];
    let typical = Rounds::take(&plan, SIDES.len(), |side| {
        let sample = || match SIDES[side].0 {
            TOKIO => wake_tokio(&tokio),
            FUTURE => wake_our_future(&ours),
            _ => wake_our_task(&ours),
        };
        let times: Vec<f64> = (0..samples).map(|_| sample()).collect();
        slowest[side].push(quantile(&times, 0.99));
        quantile(&times, 0.5)
    });
    end(&ours);
    let slowest = Rounds::from_figures(slowest);
    for (name, rounds) in [("p50", &typical), ("p99", &slowest)] {
        let name = format!("{NAME}, {name}");
        let tolerance = Tolerance::ShownOnly;
        let row = Row::new(name, workers, "wake", None, &SIDES, rounds, tolerance);
        report.rows.push(row);
    }
}

/// What is sent to a task: the moment it was.
type Posted = oneshot::Receiver<Instant>;

/// Where it answers: how long that took.
type Answer = mpsc::SyncSender<Duration>;

/// Has a task begin to wait, lets the runtime fall asleep, wakes the task, and gives the nanoseconds until it ran.
fn sample(spawn: impl FnOnce(Posted, Answer)) -> f64 {
    let (post, posted) = oneshot::channel();
    let (answer, answers) = mpsc::sync_channel(1);
    spawn(posted, answer);
    thread::sleep(PAUSE);
    post.send(Instant::now()).expect("the task waits");
    let taken = answers.recv().expect("the task answers");
    taken.as_nanos() as f64
}

fn wake_our_task(runtime: &Runtime) -> f64 {
    sample(|posted, answer| {
        let task = runtime.spawn(move || {
            let posted = block_on(posted)??;
            Ok(answer.send(posted.elapsed())?)
        });
        drop(task);
    })
}

fn wake_our_future(runtime: &Runtime) -> f64 {
    sample(|posted, answer| {
        let task = runtime.spawn_future(async move {
            let posted = posted.await?;
            Ok(answer.send(posted.elapsed())?)
        });
        drop(task);
    })
}

fn wake_tokio(runtime: &tokio::runtime::Runtime) -> f64 {
    sample(|posted, answer| {
        let task = runtime.spawn(async move {
            let posted = posted.await.expect("the one outside sends");
            answer.send(posted.elapsed()).expect("it waits for that");
        });
        drop(task);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_side_is_woken() {
        let (ours, tokio) = (our_runtime(2), tokio_runtime(2));
        for wake in [wake_our_task, wake_our_future] {
            assert!(wake(&ours) > 0.0);
        }
        assert!(wake_tokio(&tokio) > 0.0);
        end(&ours);
    }
}
