//! From a submission to a worker that waits for it, on a machine that does nothing else; and what a sync of the same disk
//! takes in the same run, since nothing can be promised faster than that.

use std::fs::File;
use std::io::Write;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use jobtree_protocol::{ClaimedLeases, paths};

use super::daemon::{Daemon, claim, completion, job};
use crate::harness::{Fact, Report, quantile};
use crate::suites::Options;

const NAME: &str = "submit to start";

pub fn run(options: &Options, report: &mut Report) {
    if !options.wants(NAME) {
        return;
    }
    eprintln!("  {NAME}");
    let count = if options.quick { 200 } else { 2000 };
    let daemon = Daemon::start();
    let (syncs, starts) = measure(&daemon, count);
    let p99 = |figures: &[f64]| quantile(figures, 0.99);
    let facts = [
        ("p50", quantile(&starts, 0.5), "µs", None),
        ("p99", p99(&starts), "µs", None),
        ("p99 of a sync in the same run", p99(&syncs), "µs", None),
        (
            "p99 / p99 of a sync",
            p99(&starts) / p99(&syncs),
            "times",
            Some(5.0),
        ),
    ];
    for (what, value, unit, at_most) in facts {
        report.facts.push(Fact {
            name: format!("{NAME}: {what}"),
            value,
            unit,
            at_most,
        });
    }
}

/// In turns: a sync, and a job from its submission until a worker has it.
fn measure(daemon: &Daemon, count: usize) -> (Vec<f64>, Vec<f64>) {
    let mut file = File::create(daemon.file("synced")).expect("a file");
    let (took, taken) = mpsc::channel::<Instant>();
    let (go, going) = mpsc::channel::<()>();
    let mut worker = daemon.caller();
    let working = thread::spawn(move || {
        while going.recv().is_ok() {
            let body = serde_json::to_string(&claim(1, 30)).expect("JSON");
            let answer = worker.call("POST", paths::CLAIM, &body);
            took.send(Instant::now()).expect("somebody measures");
            let ClaimedLeases { leases } = serde_json::from_slice(&answer).expect("leases");
            for lease in &leases {
                let body = serde_json::to_string(&completion(lease)).expect("JSON");
                worker.call("POST", paths::COMPLETE_MANY, &body);
            }
        }
    });
    let mut caller = daemon.caller();
    let body = serde_json::to_string(&job()).expect("JSON");
    let request = caller.request("POST", paths::SUBMIT, &body);
    let (mut syncs, mut starts) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let begun = Instant::now();
        file.write_all(&[7; 4096]).expect("room on the disk");
        file.sync_data().expect("a disk");
        syncs.push(begun.elapsed().as_secs_f64() * 1e6);

        go.send(()).expect("it works");
        // The worker should be waiting when the job comes: that is what is measured.
        thread::sleep(std::time::Duration::from_millis(2));
        let begun = Instant::now();
        caller.send(&request);
        caller.answer();
        let taken = taken.recv().expect("it works");
        starts.push(taken.saturating_duration_since(begun).as_secs_f64() * 1e6);
    }
    drop(go);
    working.join().expect("it ends");
    (syncs, starts)
}
