//! How fast a store is, roughly: `cargo run --release -p jobtree-store --example smoke [file]`, by default in the folder for
//! temporary files. Figures for comparison are made by the benchmarks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jobtree_protocol::{CompleteRequest, JobId, Json, LeaseId, Limits, NodeId, SubmitRequest};
use jobtree_queue::Now;
use jobtree_queue::transitions::{Abilities, Claim};
use jobtree_store::{SqliteOptions, Stamp, Store, Submission};

fn stamp() -> Stamp {
    Stamp {
        now: Now {
            wall: jiff::Timestamp::now(),
            mono: Duration::ZERO,
        },
        roll: 1,
        rules: Arc::default(),
    }
}

fn submission() -> Submission {
    let request = SubmitRequest {
        payload: Some(Json::of(&"/some/folder/with/a/file.jpg").expect("JSON")),
        ..SubmitRequest::new("visuals", "indexing", 3)
    };
    Submission::new(request.validate(&Limits::default()).expect("valid"))
}

/// What this process has used of the processors so far; nothing where there is no `/proc`.
fn used() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks: u64 = stat
        .split(' ')
        .skip(13)
        .take(2)
        .filter_map(|ticks| ticks.parse::<u64>().ok())
        .sum();
    Duration::from_millis(ticks * 10)
}

struct Phase {
    begun: Instant,
    used: Duration,
}

impl Phase {
    fn begin() -> Self {
        Self {
            begun: Instant::now(),
            used: used(),
        }
    }

    fn report(self, what: &str, jobs: usize) {
        let rate = jobs as f64 / self.begun.elapsed().as_secs_f64();
        let each = (used() - self.used).as_secs_f64() * 1e6 / jobs as f64;
        println!("{what}: {rate:.0}/s, {each:.1} µs of a processor each");
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given = std::env::args().nth(1).map(PathBuf::from);
    let folder = std::env::temp_dir().join(format!("jobtree-smoke-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let path = given.unwrap_or_else(|| folder.join("smoke.db"));
    let measured = measure(&path);
    std::fs::remove_dir_all(&folder)?;
    measured
}

fn measure(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::open(&SqliteOptions::new(path))?;
    for callers in [1, 16, 64] {
        let each = if callers == 1 { 500 } else { 30_000 / callers };
        let phase = Phase::begin();
        std::thread::scope(|scope| {
            for _ in 0..callers {
                scope.spawn(|| {
                    for _ in 0..each {
                        store.submit(stamp(), submission()).wait().expect("taken");
                    }
                });
            }
        });
        phase.report(&format!("submit by {callers}"), each * callers);
    }
    let phase = Phase::begin();
    let mut jobs: Vec<JobId> = Vec::new();
    for _ in 0..100 {
        let batch: Vec<Submission> = (0..1000).map(|_| submission()).collect();
        let answers = store.submit_many(stamp(), batch).wait()?;
        jobs.extend(answers.into_iter().flatten().map(|answer| answer.job_id));
    }
    phase.report("submit 1000 at once", jobs.len());
    let phase = Phase::begin();
    let mut pending = std::collections::VecDeque::new();
    for batch in jobs.chunks(500) {
        let lease_id = LeaseId::generate();
        let command = Claim {
            lease_id,
            node_id: NodeId::new("here")?,
            instance_id: None,
            pids: Vec::new(),
            process_origin: None,
            reason: "room".into(),
            worker: Abilities::default(),
        };
        let claimed = store.claim(stamp(), batch.to_vec(), command).wait()?;
        let requests = claimed
            .jobs
            .iter()
            .map(|job| (job.id, CompleteRequest::done(lease_id, None)));
        // The next claim need not wait for these answers.
        pending.push_back(store.complete_many(stamp(), requests.collect()));
        if pending.len() > 2 {
            let answers = pending.pop_front().expect("there are three").wait()?;
            assert!(answers.iter().all(Result::is_ok));
        }
    }
    for answers in pending {
        answers.wait()?;
    }
    phase.report("claim and complete 500 at once", jobs.len());
    Ok(())
}
