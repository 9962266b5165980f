//! One process: a scheduler, somebody who submits, and workers, who believe in their leases whatever happens to them.
//!
//! It works until its standard input ends, and submits until a line comes from there.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use jobtree_protocol::{
    ApiError, ClaimAnswer, ClaimRequest, CompleteRequest, ErrorCode, Heartbeat, JobId, JobState,
    LeaseId, NodeId, SubmitRequest,
};
use jobtree_queue::signals::Sample;
use jobtree_scheduler::{Options, Scheduler};
use jobtree_store::{PostgresOptions, Store};

use crate::support::claim;
use crate::support::quiet_machine::default_policy;

pub const DATABASE: &str = "JOBTREE_PROCESS_DATABASE";
pub const NODE: &str = "JOBTREE_PROCESS_NODE";
pub const LEDGER: &str = "JOBTREE_PROCESS_LEDGER";

pub const ADDON: &str = "visuals";
/// Concurrency keys, and how many may run at once.
pub const KEYS: [(&str, i64); 2] = [("printer", 1), ("oven", 2)];
const WORKERS: usize = 3;
/// Jobs that a process submits ahead of those that it has done.
const AHEAD: i64 = 25;

/// How the schedulers of this test are set up.
pub fn options(node: &str) -> Options {
    let mut policy = default_policy();
    policy.dispatch.lease_ttl = Duration::from_secs(2);
    Options {
        node: NodeId::new(node).expect("a name"),
        policy,
        shared: true,
        look: Duration::from_secs(1),
        // On a busy machine a worker may be late more than once, and still its job is no poison.
        quarantine_after: 1000,
        ..Options::default()
    }
}

struct Process {
    scheduler: Scheduler,
    ledger: File,
    submitting: AtomicBool,
    working: AtomicBool,
    ahead: AtomicI64,
}

pub fn live() {
    let (Ok(database), Ok(node), Some(ledger)) = (
        std::env::var(DATABASE),
        std::env::var(NODE),
        std::env::var_os(LEDGER).map(PathBuf::from),
    ) else {
        return;
    };
    let store = Store::connect(&PostgresOptions::new(database)).expect("the server is there");
    let ledger = OpenOptions::new().append(true).create(true).open(ledger);
    let process = Process {
        scheduler: Scheduler::start(store, options(&node)),
        ledger: ledger.expect("a ledger"),
        submitting: AtomicBool::new(true),
        working: AtomicBool::new(true),
        ahead: AtomicI64::new(0),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| process.measure());
        scope.spawn(|| process.submit());
        for _ in 0..WORKERS {
            scope.spawn(|| process.work());
        }
        for line in std::io::stdin().lock().lines() {
            line.expect("text");
            process.submitting.store(false, Ordering::Relaxed);
        }
        process.submitting.store(false, Ordering::Relaxed);
        process.working.store(false, Ordering::Relaxed);
    });
}

/// Calls until the store has answered. Every call here may be repeated.
fn insist<T>(mut call: impl FnMut() -> Result<T, ApiError>) -> Result<T, ApiError> {
    loop {
        match call() {
            Err(error) if error.code == ErrorCode::Unavailable => {
                std::thread::sleep(Duration::from_millis(50));
            }
            answer => return answer,
        }
    }
}

impl Process {
    /// One write a line, appended: what was told is out of this process.
    fn tell(&self, line: &str) {
        let written = (&self.ledger).write_all(format!("{line}\n").as_bytes());
        written.expect("the ledger is written");
    }

    /// The machine idles, whatever else runs on it.
    fn measure(&self) {
        while self.working.load(Ordering::Relaxed) {
            self.scheduler.sample(Sample::idle());
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    fn submit(&self) {
        for number in 0.. {
            while self.ahead.load(Ordering::Relaxed) >= AHEAD {
                std::thread::sleep(Duration::from_millis(10));
                if !self.submitting.load(Ordering::Relaxed) {
                    return;
                }
            }
            let key = KEYS.get(number % 6);
            let request = SubmitRequest {
                // The same job, however often it has to be submitted.
                job_id: Some(JobId::generate()),
                concurrency_key: key.map(|(key, _)| (*key).to_owned()),
                concurrency_limit: key.map(|(_, limit)| *limit),
                ..SubmitRequest::new(ADDON, "indexing", 5)
            };
            let answer = insist(|| self.scheduler.submit(request.clone()).wait());
            self.tell(&format!("submitted {}", answer.expect("taken").job_id));
            self.ahead.fetch_add(1, Ordering::Relaxed);
            if !self.submitting.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    fn work(&self) {
        let mut lease = LeaseId::generate();
        while self.working.load(Ordering::Relaxed) {
            let request = ClaimRequest {
                lease_id: Some(lease),
                wait_sec: 1,
                ..claim(ADDON, 1)
            };
            match self.scheduler.claim(request).wait() {
                Ok(leases) => {
                    // Nothing: the same id again, under which something may have been granted by now.
                    for granted in leases {
                        self.run(&granted);
                        lease = LeaseId::generate();
                    }
                }
                Err(error) if error.code == ErrorCode::Unavailable => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                // It was granted, and has ended before this worker heard of it.
                Err(_) => lease = LeaseId::generate(),
            }
        }
    }

    fn run(&self, granted: &ClaimAnswer) {
        let lease = granted.lease_id;
        for job in &granted.jobs {
            let job = job.job_id;
            self.tell(&format!("start {job} {lease}"));
            for _ in 0..2 {
                std::thread::sleep(Duration::from_millis(20));
                // Whatever it says, this worker goes on.
                let _ = self.scheduler.heartbeat(Heartbeat::of(lease)).wait();
            }
            let done = CompleteRequest::done(lease, None);
            match insist(|| self.scheduler.complete(job, done.clone()).wait()) {
                Ok(answer) => {
                    assert_eq!(answer.state, JobState::Done);
                    self.tell(&format!("done {job} {lease}"));
                    self.ahead.fetch_sub(1, Ordering::Relaxed);
                }
                Err(error) => self.tell(&format!("refused {job} {lease} {:?}", error.code)),
            }
        }
    }
}
