//! A worker in a simulation: its heartbeats, fences and waits go by the clock of the simulation, and its order by the seed.

use std::sync::mpsc;
use std::time::Duration;

use jobtree_runtime::sim::{self, Report};
use jobtree_runtime::{nursery, sleep};

use super::desk::{Desk, Said, job};
use super::watchdog::Watchdog;

const MINUTE: Duration = Duration::from_secs(60);

/// Runs a job of a minute under a lease of half a minute, which is renewed or not. Returns how long the job ran, with
/// what was said.
fn run(seed: u64, renewed: bool) -> Report<(Duration, Vec<Said>)> {
    sim::Runtime::new(seed).run(|rt| {
        let (desk, said) = if renewed {
            Desk::friendly()
        } else {
            Desk::open(|_| None)
        };
        let (tell, ran) = mpsc::channel();
        let worker = desk.worker().on(rt).concurrency(1);
        let worker = worker.handle("rest", move |(), _| {
            let began = sim::elapsed();
            let rested = nursery(|n| {
                n.launch(|| Ok(sleep(MINUTE)?));
                n.launch(|| Ok(sleep(MINUTE / 2)?));
                Ok(())
            });
            tell.send(sim::elapsed().unwrap() - began.unwrap())?;
            Ok(rested?)
        });
        let worker = worker.start()?;
        desk.offer(vec![job("rest", "null")]);
        sleep(MINUTE * 2)?;
        worker.stop();
        worker.join();
        Ok((ran.try_recv()?, said.try_iter().collect()))
    })
}

#[test]
fn heartbeats_go_by_the_clock_of_the_simulation() {
    let _watch = Watchdog::watching("simulated heartbeats");
    let (ran, said) = run(1, true).outcome.unwrap();
    assert_eq!(ran, MINUTE);
    let beats = said.iter().filter(|it| matches!(it, Said::Beat(_))).count();
    assert!(
        (6..10).contains(&beats),
        "each ten seconds, not {beats} times"
    );
    assert!(said.iter().any(|it| matches!(it, Said::Completed(..))));
}

#[test]
fn a_lease_that_is_not_renewed_ends_its_job_before_the_lease_ends_in_the_simulation_too() {
    let _watch = Watchdog::watching("a simulated fence");
    for seed in 0..20 {
        // What was done is told once more, to the scheduler that does not answer: it may know better.
        let (ran, _) = run(seed, false).outcome.unwrap();
        assert_eq!(ran, Duration::from_secs(25), "five sixths of the TTL");
    }
}

#[test]
fn a_seed_decides_all_that_a_worker_does() {
    let _watch = Watchdog::watching("a worker's seeds");
    let hash = |seed| {
        let report = run(seed, true);
        assert!(report.outcome.is_ok());
        report.trace_hash
    };
    assert_eq!(hash(7), hash(7));
    assert!((0..5).any(|seed| hash(seed) != hash(7)));
}
