//! The specification's flow, by `curl` against a daemon with the policy that a new user gets: an addon submits, polls every
//! minute, and its workers ask for leases, renew them and report ends; with both models of how a job gets its lease. And the
//! longest wait of a served job beside any number of unserved ones.
//!
//! A program of its own: minutes pass by moving the clocks of the process.

mod support;

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jobtree_protocol::paths;
use jobtree_queue::hold::UnservedBound;
use jobtree_queue::policy::Policy;
use jobtree_queue::signals::Sample;
use jobtree_scheduler::sim::advance;
use serde_json::{Value, json};
use support::House;

/// How often the addon polls.
const POLL: u64 = 60;

/// The clocks are those of the process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Daemon {
    house: House,
    token: String,
}

impl Daemon {
    /// A daemon on a machine that has been idle for long enough to count as quiet.
    fn new() -> Self {
        let house = House::with(|options| options.scheduler.policy = Policy::default());
        let token = house.admin_token();
        let daemon = Self { house, token };
        let quiet = Policy::default().quiet.enter_after;
        daemon.pass(quiet.as_secs() + 5);
        daemon
    }

    /// Lets seconds pass, each with a sample of an idle machine and a pass of the scheduler.
    fn pass(&self, seconds: u64) {
        for _ in 0..seconds {
            advance(Duration::from_secs(1));
            let scheduler = self.house.server.scheduler();
            scheduler.sample(Sample::idle());
            scheduler.load().wait().expect("the scheduler runs");
        }
    }

    fn curl(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--config", "-"]);
        command.args(["--request", method, "--write-out", "\\n%{http_code}"]);
        if let Some(body) = &body {
            command.args(["--header", "content-type: application/json"]);
            command.args(["--data", &body.to_string()]);
        }
        command.arg(format!("{}{path}", self.house.server.url()));
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut curl = pipes.spawn().expect("curl is installed");
        // Not as an argument, which other users of the machine could read.
        let header = format!("header = \"authorization: Bearer {}\"\n", self.token);
        let mut config = curl.stdin.take().unwrap();
        config.write_all(header.as_bytes()).unwrap();
        drop(config);
        let output = curl.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        let body = serde_json::from_str(body).unwrap_or(Value::Null);
        (status.parse().unwrap(), body)
    }

    fn get(&self, path: &str) -> Value {
        let (status, answer) = self.curl("GET", path, None);
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    fn post(&self, path: &str, body: Value) -> Value {
        let (status, answer) = self.curl("POST", path, Some(body));
        assert!((200..300).contains(&status), "{path}: {status} {answer}");
        answer
    }

    /// The specification's example, without its start time.
    fn submit(&self) -> String {
        let answer = self.post(
            paths::SUBMIT,
            json!({
                "addon_id": "visuals", "job_type": "indexing", "cost_units": 30, "priority": "NORMAL",
                "constraints": {"cpu_heavy": true, "disk_write_heavy": false, "network_heavy": false},
                "expected_duration_sec": 120, "payload": {"path": "/some/dir"}, "time_sensitive": false,
            }),
        );
        assert_eq!(answer["state"], "QUEUED");
        text(&answer["job_id"])
    }

    fn job(&self, id: &str) -> Value {
        self.get(&paths::at(paths::JOB, id))
    }

    /// The jobs that are dispatched to the addon.
    fn poll(&self) -> Vec<String> {
        let answer = self.get(&format!("{}?addon_id=visuals", paths::DISPATCHABLE));
        let jobs = answer["jobs"].as_array().unwrap().iter();
        jobs.map(|job| text(&job["job_id"])).collect()
    }

    fn complete(&self, job: &str, lease: &str) {
        let path = paths::at(paths::COMPLETE, job);
        let answer = self.post(&path, json!({"lease_id": lease, "status": "DONE"}));
        assert_eq!(answer["state"], "DONE");
        assert_eq!(self.job(job)["state"], "DONE");
    }

    fn is_unserved(&self, job: &str) -> bool {
        let reasons = self.get(&paths::at(paths::EXPLAIN, job))["reasons"].clone();
        let mut reasons = reasons.as_array().unwrap().iter();
        reasons.any(|reason| reason["code"] == "unserved")
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

#[test]
fn an_addon_that_polls_every_minute_goes_through_flow_a() {
    let _alone = alone();
    let daemon = Daemon::new();
    for round in 0..4 {
        // 1. The addon submits an intent.
        let job = daemon.submit();
        // 2. and 3. It polls, and what may start is dispatched by then, or in the same call.
        assert_eq!(daemon.poll(), [job.as_str()], "round {round}");
        let shown = daemon.job(&job);
        assert_eq!(shown["state"], "DISPATCHING");
        // 4. and 5. It starts a worker, which asks for the lease.
        let request = json!({"job_id": job, "instance_id": support::NO_ID});
        let answer = daemon.post(paths::LEASE_REQUEST, request);
        assert_eq!(answer["approved"], true, "{answer}");
        let lease = text(&answer["lease_id"]);
        // 6. The job runs, under that lease.
        let shown = daemon.job(&job);
        assert_eq!(
            (&shown["state"], &shown["lease_id"]),
            (&json!("RUNNING"), &json!(lease))
        );
        // 7. The worker renews it for longer than it holds by itself.
        for _ in 0..POLL / 10 {
            daemon.pass(10);
            let beat = daemon.post(&paths::at(paths::HEARTBEAT, &lease), json!({}));
            assert_eq!(beat["cancel"], json!([]));
        }
        assert_eq!(daemon.job(&job)["state"], "RUNNING");
        // 8. The addon reports the end; the lease goes with its last job, and may be released all the same.
        daemon.complete(&job, &lease);
        daemon.post(&paths::at(paths::RELEASE, &lease), json!({}));
    }
}

#[test]
fn a_type_that_is_polled_every_minute_is_served_for_three() {
    let _alone = alone();
    let daemon = Daemon::new();
    for _ in 0..3 {
        assert_eq!(daemon.poll(), Vec::<String>::new());
        daemon.pass(POLL);
    }
    daemon.poll();
    // What is submitted between two polls is reserved at once, and in the answer of the next poll.
    daemon.pass(POLL / 2 + 5);
    let job = daemon.submit();
    daemon.pass(1);
    assert_eq!(daemon.job(&job)["state"], "DISPATCHING");
    daemon.pass(POLL / 2 - 6);
    assert_eq!(daemon.poll(), [job.as_str()]);
    let lease = daemon.post(&paths::at(paths::ACK, &job), json!({}));
    daemon.complete(&job, &text(&lease["lease_id"]));
    // Without a poll for three intervals the addon has gone.
    daemon.pass(3 * POLL + 5);
    let jobs = [daemon.submit(), daemon.submit()];
    daemon.pass(1);
    // One may be out, to try whether the addon is back.
    let waiting = jobs.iter().find(|job| daemon.job(job)["state"] == "QUEUED");
    assert!(daemon.is_unserved(waiting.expect("two are not tried at once")));
}

/// Model 8.1: a worker asks for a lease before heavy work, and takes the job up under it.
#[test]
fn a_job_is_taken_up_under_a_lease_that_its_worker_asked_for() {
    let _alone = alone();
    let daemon = Daemon::new();
    let job = daemon.submit();
    assert_eq!(daemon.poll(), [job.as_str()]);
    // The ramp adds only so much between two samples, and both the reservation and the lease hold units until the job is
    // taken up.
    daemon.pass(1);
    let request = json!({
        "addon_id": "visuals", "job_type": "indexing", "cost_units": 30,
        "instance_id": support::NO_ID, "request_key": job,
    });
    let answer = daemon.post(paths::LEASE_REQUEST, request.clone());
    assert_eq!(answer["approved"], true, "{answer}");
    let lease = text(&answer["lease_id"]);
    let again = daemon.post(paths::LEASE_REQUEST, request);
    assert_eq!(again["lease_id"], json!(lease), "the answer got lost");
    let taken = daemon.post(&paths::at(paths::ACK, &job), json!({"lease_id": lease}));
    assert_eq!(taken["lease_id"], json!(lease));
    let shown = daemon.job(&job);
    assert_eq!(
        (&shown["state"], &shown["lease_id"]),
        (&json!("RUNNING"), &json!(lease))
    );
    daemon.complete(&job, &lease);
    // The lease was asked for by itself, and holds until it is released.
    let held = daemon.get(&paths::at(paths::LEASE, &lease));
    assert_eq!(held["state"], "ACTIVE");
    daemon.post(&paths::at(paths::RELEASE, &lease), json!({}));
    let held = daemon.get(&paths::at(paths::LEASE, &lease));
    assert_eq!(held["state"], "RELEASED");
}

/// Model 8.2: the dispatch grants the lease, in one call.
#[test]
fn a_claim_gives_a_job_and_its_lease_at_once() {
    let _alone = alone();
    let daemon = Daemon::new();
    let job = daemon.submit();
    let claim = json!({"addon_id": "visuals", "instance_id": support::NO_ID});
    let answer = daemon.post(paths::CLAIM, claim);
    let granted = &answer["leases"][0];
    assert_eq!(granted["jobs"][0]["job_id"], json!(job), "{answer}");
    assert_eq!(granted["jobs"][0]["state"], "RUNNING");
    let lease = text(&granted["lease_id"]);
    daemon.pass(20);
    daemon.post(&paths::at(paths::HEARTBEAT, &lease), json!({}));
    daemon.pass(20);
    assert_eq!(daemon.job(&job)["state"], "RUNNING");
    daemon.complete(&job, &lease);
}

/// The bound on a served job's wait beside unserved ones, in seconds, by the default policy.
fn bound() -> u64 {
    let policy = Policy::default();
    let bound = UnservedBound {
        take_up: policy.dispatch.take_up,
        returned_after: policy.dispatch.tick,
        sampled_every: Duration::from_secs(1),
        shares_key: false,
        hears_after: Duration::ZERO,
    };
    bound.wait().expect("there is one").as_secs()
}

/// A daemon with urgent jobs of many types that no caller serves, each as large as the machine.
fn crowded() -> Daemon {
    let daemon = Daemon::new();
    let unserved: Vec<Value> = (0..60)
        .map(|kind| {
            json!({
                "addon_id": format!("absent-{}", kind % 6), "job_type": format!("t{kind}"),
                "cost_units": 100, "priority": "HIGH",
            })
        })
        .collect();
    daemon.post(paths::SUBMIT_MANY, json!({"jobs": unserved}));
    daemon
}

/// Submits a served job after each of these pauses, and claims each second until its worker has it. Returns the waits in
/// seconds; the last one is not over if it is longer than the bound. `each_second` is called before each claim.
fn waits(daemon: &Daemon, pauses: &[u64], each_second: impl Fn(u64)) -> Vec<u64> {
    let mut waits = Vec::new();
    for pause in pauses {
        daemon.pass(*pause);
        let job = daemon.submit();
        let claim = json!({"addon_id": "visuals", "instance_id": support::NO_ID});
        let mut waited = 0;
        let lease = loop {
            each_second(waited);
            let answer = daemon.post(paths::CLAIM, claim.clone());
            if let Some(granted) = answer["leases"].as_array().unwrap().first() {
                break text(&granted["lease_id"]);
            }
            if waited > bound() {
                waits.push(waited);
                return waits;
            }
            daemon.pass(1);
            waited += 1;
        };
        waits.push(waited);
        daemon.complete(&job, &lease);
    }
    waits
}

#[test]
fn a_served_job_waits_no_longer_than_the_bound_beside_unserved_ones() {
    let _alone = alone();
    let daemon = crowded();
    // Whenever it comes: before any of them is tried, while one is, and in between.
    let waits = waits(&daemon, &[1, 7, 20, 31, 45, 2, 16, 29], |_| ());
    let (longest, bound) = (*waits.iter().max().unwrap(), bound());
    assert!(longest <= bound, "{waits:?}, and the bound is {bound} s");
    assert!(
        longest * 4 > bound,
        "{waits:?} say nothing of a bound of {bound} s"
    );
}

/// What the test above would see if capacity were held for jobs that no caller accepts: here a caller polls for them, so they
/// count as served, and accepts none.
#[test]
fn a_served_job_waits_longer_than_the_bound_if_capacity_is_held_in_vain() {
    let _alone = alone();
    let daemon = crowded();
    let poll = |waited: u64| {
        if waited.is_multiple_of(10) {
            daemon.get(paths::DISPATCHABLE);
        }
    };
    let waits = waits(&daemon, &[1, 7, 20, 31, 45], poll);
    let longest = *waits.iter().max().unwrap();
    assert!(longest > bound(), "{waits:?}");
}
