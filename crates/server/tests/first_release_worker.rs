//! A worker of the first release works for this daemon.
//!
//! `first_release/worker.ndjson` holds what `jobtree work` of the first release said to the daemon of its own release, with the
//! answers, as a proxy between the two noted it, in the order of the answers: claims with and without batches, the processes of
//! programs, logs, progress, heartbeats with reports, completions of one job and of several, a failure for good, and a lease
//! that is given back with its job. **It is never made again and never changed**: it stands for workers on the machines of
//! people. If the test fails, the daemon is wrong.

mod support;

use jobtree_protocol::{JobState, paths};
use serde_json::{Value, json};
use support::{Client, House};

fn transcript() -> Vec<Value> {
    let lines = include_str!("first_release/worker.ndjson").lines();
    lines
        .map(|line| serde_json::from_str(line).expect("a call a line"))
        .collect()
}

/// The jobs of the transcript, as its claims were answered, in the order of their submission.
fn jobs(calls: &[Value]) -> Vec<&Value> {
    let leases = calls
        .iter()
        .filter_map(|call| call["answer"]["leases"].as_array());
    let jobs = leases
        .flatten()
        .filter_map(|lease| lease["jobs"].as_array());
    let mut jobs: Vec<&Value> = jobs.flatten().collect();
    jobs.sort_by(|a, b| a["job_id"].as_str().cmp(&b["job_id"].as_str()));
    jobs
}

/// Submits the jobs of the transcript, under their ids.
fn submit(admin: &mut Client, jobs: &[&Value]) {
    for job in jobs {
        let body = json!({
            "job_id": job["job_id"],
            "addon_id": job["addon_id"],
            "job_type": job["job_type"],
            "cost_units": job["cost_units"],
        });
        admin.post(paths::SUBMIT, &body).expect(200);
    }
}

/// Fields whose value need not be as it was: times, and what goes by them. They are there, and of the same kind: the worker
/// reads them.
const VARY: &[&str] = &["created_at", "started_at", "state", "ttl_sec"];

/// Returns `true` if a field has another value of the same kind, and may have. A job of a batch begins when its turn comes,
/// and not with the claim: until then it has no start.
fn may_vary(name: &str, found: &Value, told: &Value) -> bool {
    let same_kind = match (found, told) {
        (Value::String(found), Value::String(told)) if name.ends_with("_at") => {
            is_time(found) && is_time(told)
        }
        (Value::String(_), Value::String(_)) => true,
        (Value::Number(found), Value::Number(_)) => found.as_u64().is_some_and(|it| it > 0),
        (Value::Null, Value::String(_)) => name == "started_at",
        _ => false,
    };
    VARY.contains(&name) && same_kind
}

fn is_time(text: &str) -> bool {
    text.parse::<jiff::Timestamp>().is_ok()
}

/// Objects in which the first release refuses fields that it does not know.
const CLOSED: &[&str] = &["constraints", "backoff"];

/// Tells where an answer lacks something that the worker was told before, or has something that the worker would refuse.
fn compare(found: &Value, told: &Value, place: &str, broken: &mut Vec<String>) {
    let name = place.rsplit('.').next().unwrap_or_default();
    match (found, told) {
        (Value::Object(found), Value::Object(told)) => {
            for (name, told) in told {
                let found = found.get(name).unwrap_or(&Value::Null);
                compare(found, told, &format!("{place}.{name}"), broken);
            }
            let new = found.keys().find(|name| !told.contains_key(*name));
            if let Some(new) = new.filter(|_| CLOSED.contains(&name)) {
                broken.push(format!("{place} has a new field, {new}"));
            }
        }
        (Value::Array(found), Value::Array(told)) if found.len() == told.len() => {
            for (number, (found, told)) in found.iter().zip(told).enumerate() {
                compare(found, told, &format!("{place}[{number}]"), broken);
            }
        }
        _ if found == told || may_vary(name, found, told) => {}
        _ => broken.push(format!("{place} is {found}, and was {told}")),
    }
}

#[test]
fn a_worker_of_the_first_release_hears_from_this_daemon_what_it_heard_from_its_own() {
    let house = House::new();
    let mut admin = house.admin();
    let calls = transcript();
    let jobs = jobs(&calls);
    submit(&mut admin, &jobs);
    let mut seen = Vec::new();
    for (number, call) in calls.iter().enumerate() {
        let path = call["path"].as_str().expect("a path");
        assert_eq!(call["method"], "POST", "{path}");
        let reply = admin.post(path, &call["body"]);
        let place = format!("call {number}, {path}");
        assert_eq!(call["status"], reply.status, "{place}: {}", reply.text());
        if !call["answer"].is_null() {
            let mut broken = Vec::new();
            let answer = reply.json();
            compare(&answer, &call["answer"], "answer", &mut broken);
            assert!(broken.is_empty(), "{place}: {broken:#?}");
            states_are_known(&answer, &place);
        }
        seen.push(path);
    }
    // The transcript is whole: nothing that this test stands for was left out of it.
    for path in [paths::CLAIM, paths::HEARTBEAT_MANY, paths::COMPLETE_MANY] {
        assert!(seen.contains(&path), "{path}");
    }
    for part in ["/log", "/pid", "/release"] {
        assert!(seen.iter().any(|path| path.ends_with(part)), "{part}");
    }
    let largest = calls.iter().filter_map(|call| {
        let lease = call["answer"]["leases"].get(0)?;
        Some(lease["jobs"].as_array()?.len())
    });
    assert!(largest.max() > Some(1), "a batch");

    for job in jobs {
        let id = job["job_id"].as_str().expect("an id");
        let view = admin.get(&paths::at(paths::JOB, id)).expect(200);
        let expected = match job["job_type"].as_str() {
            Some("fails") => ("FAILED", 1),
            Some("long") => ("QUEUED", 0),
            _ => ("DONE", 1),
        };
        let ended = (view["state"].as_str(), view["attempts"].as_u64());
        assert_eq!(ended, (Some(expected.0), Some(expected.1)), "{view}");
        assert_eq!(view["rescues"], 0, "{view}");
        if job["job_type"] == "tells" {
            assert_eq!(view["result"], json!({"lines": 1}));
            assert_eq!(view["progress"]["message"], "some way");
            let log = admin.get(&paths::at(paths::LOG, id)).expect(200);
            assert_eq!(log["text"], "one line\n");
        }
    }
}

/// A state that the first release does not know would be an answer that its worker cannot read.
fn states_are_known(answer: &Value, place: &str) {
    match answer {
        Value::Object(fields) => {
            for (name, value) in fields {
                if name == "state" {
                    let state: Result<JobState, _> = serde_json::from_value(value.clone());
                    let state = state.unwrap_or_else(|error| panic!("{place}: {value}: {error}"));
                    assert!(FIRST_STATES.contains(&state), "{place}: {value}");
                }
                states_are_known(value, place);
            }
        }
        Value::Array(values) => values.iter().for_each(|it| states_are_known(it, place)),
        _ => {}
    }
}

/// The states of a job that the first release knows.
const FIRST_STATES: &[JobState] = &[
    JobState::Queued,
    JobState::Dispatching,
    JobState::Running,
    JobState::Done,
    JobState::Failed,
    JobState::Canceled,
];
