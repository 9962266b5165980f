//! How long a sleeping worker takes to run what an outside thread spawns.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::{Options, workers};
use crate::harness::{Plan, Report, Role, Rounds, Row, Tolerance, quantile};

const NAME: &str = "wake of a sleeping worker";

/// How long the pool is left alone before each spawn. Every pool here falls asleep within a fraction of it.
const PAUSE: Duration = Duration::from_millis(5);

const SIDES: [(&str, Role); 3] = [
    ("ours", Role::Ours),
    ("ours again", Role::Control),
    ("rayon", Role::Peer),
];

/// Adds a row for the median and one for the slowest hundredth.
pub fn run(options: &Options, report: &mut Report) {
    if !options.wants(NAME) {
        return;
    }
    let workers = workers(options);
    eprintln!("  {NAME}");
    let ours = jobtree_pool::Pool::builder()
        .workers(workers)
        .build()
        .expect("our pool starts");
    let rayon = rayon::ThreadPoolBuilder::new()
        .num_threads(workers)
        .build()
        .expect("rayon's pool starts");
    // A hundredth is only to be seen in some hundred samples, at 5 ms each.
    let (rounds, samples) = if options.quick { (5, 40) } else { (9, 200) };
    let plan = Plan {
        rounds,
        ..options.plan.clone()
    };

    let mut slowest = vec![Vec::new(); SIDES.len()];
    let typical = Rounds::take(&plan, SIDES.len(), |side| {
        let times: Vec<f64> = (0..samples)
            .map(|_| match SIDES[side].0 {
                "rayon" => sample(|job| rayon.spawn(job)),
                _ => sample(|job| ours.spawn(job)),
            })
            .collect();
        slowest[side].push(quantile(&times, 0.99));
        quantile(&times, 0.5)
    });
    let slowest = Rounds::from_figures(slowest);
    for (name, rounds) in [("p50", &typical), ("p99", &slowest)] {
        let name = format!("{NAME}, {name}");
        report.rows.push(Row::new(
            name,
            workers,
            "wake",
            None,
            &SIDES,
            rounds,
            Tolerance::ShownOnly,
        ));
    }
}

/// Lets the pool fall asleep, spawns, and gives the nanoseconds until the job runs.
fn sample(spawn: impl FnOnce(Box<dyn FnOnce() + Send>)) -> f64 {
    let (answer, answers) = mpsc::sync_channel(1);
    thread::sleep(PAUSE);
    let posted = Instant::now();
    spawn(Box::new(move || {
        let taken = posted.elapsed();
        let _ = answer.send(taken);
    }));
    let taken = answers.recv().expect("a spawned job runs");
    taken.as_nanos() as f64
}
