//! What workers do over HTTP: claims, dispatches, leases, heartbeats, completions.

mod support;

use std::time::Duration;

use jobtree_protocol::paths;
use serde_json::{Value, json};
use support::{Client, House, NO_ID};

const INSTANCE: &str = "00000000-0000-4000-8000-000000000002";

fn state(client: &mut Client, job: &str) -> Value {
    client.get(&paths::at(paths::JOB, job)).expect(200)["state"].clone()
}

#[test]
fn a_job_is_claimed_and_completed() {
    let house = House::new();
    let mut admin = house.admin();
    let id = admin.submit("a", "t");
    let (lease, job) = admin.claim("a");
    assert_eq!(job, id);
    assert_eq!(state(&mut admin, &id), "RUNNING");
    let path = paths::at(paths::COMPLETE, &id);
    let done = json!({"lease_id": lease, "status": "DONE", "result": {"found": 3}});
    let ended = admin.post(&path, &done).expect(200);
    assert_eq!(ended, json!({"job_id": id, "state": "DONE"}));
    // A lost answer is asked for again.
    assert_eq!(admin.post(&path, &done).expect(200)["state"], "DONE");
    let job = admin.get(&paths::at(paths::JOB, &id)).expect(200);
    assert_eq!(job["result"], json!({"found": 3}));
    let other = json!({"lease_id": NO_ID, "status": "DONE"});
    let refused = admin.post(&path, &other);
    assert_eq!(refused.status, 409, "{}", refused.text());
}

#[test]
fn wrong_completions_are_refused() {
    let house = House::new();
    let mut admin = house.admin();
    admin.submit("a", "t");
    let (lease, job) = admin.claim("a");
    let path = paths::at(paths::COMPLETE, &job);
    for wrong in [
        json!({}),
        json!({"lease_id": lease}),
        json!({"lease_id": lease, "status": "GONE"}),
        json!({"lease_id": "x", "status": "DONE"}),
        json!({"lease_id": lease, "status": "DONE", "colour": "red"}),
    ] {
        admin.post(&path, &wrong).problem(400, "malformed");
    }
    let both = json!({"lease_id": lease, "status": "DONE", "error": "no"});
    admin.post(&path, &both).problem(422, "invalid");
    let stale = json!({"lease_id": NO_ID, "status": "DONE"});
    admin.post(&path, &stale).problem(409, "lease_lost");
    assert_eq!(state(&mut admin, &job), "RUNNING");
    admin
        .post(&paths::at(paths::COMPLETE, NO_ID), &stale)
        .problem(404, "not_found");
}

#[test]
fn a_claim_waits_for_a_job() {
    let house = House::new();
    let mut worker = house.admin();
    let empty = json!({"addon_id": "a", "instance_id": INSTANCE});
    assert_eq!(
        worker.post(paths::CLAIM, &empty).expect(200),
        json!({"leases": []})
    );
    let waiting = std::thread::spawn(move || worker.claim("a"));
    let id = house.admin().submit("a", "t");
    assert_eq!(waiting.join().unwrap().1, id);
}

#[test]
fn wrong_claims_are_refused() {
    let house = House::new();
    let mut admin = house.admin();
    let with = |field: &str, value: Value| {
        let mut body = json!({"addon_id": "a", "instance_id": INSTANCE});
        body[field] = value;
        body
    };
    for (body, status, code) in [
        (json!({}), 400, "malformed"),
        (json!({"addon_id": "a"}), 400, "malformed"),
        (with("addon_id", json!("")), 400, "malformed"),
        (with("max_jobs", json!(0)), 422, "invalid"),
        (with("max_jobs", json!(1001)), 422, "invalid"),
        (with("wait_sec", json!(601)), 422, "invalid"),
        (with("node_id", json!("elsewhere")), 422, "invalid"),
        (with("pids", json!([0])), 422, "invalid"),
        (with("max_leases", json!(-1)), 400, "malformed"),
    ] {
        admin.post(paths::CLAIM, &body).problem(status, code);
    }
}

#[test]
fn a_stopping_server_tells_those_who_wait() {
    // A claim that has not arrived when the server stops finds a closed connection: then it is tried again, later.
    for pause in [1, 10, 100, 1000, 10_000] {
        let house = House::new();
        let mut worker = house.admin();
        worker.get(paths::STATUS).expect(200);
        let body = json!({"addon_id": "a", "instance_id": INSTANCE, "wait_sec": 600});
        let waiting = std::thread::spawn(move || worker.try_post(paths::CLAIM, &body));
        std::thread::sleep(Duration::from_millis(pause));
        house.server.stop();
        if let Some(told) = waiting.join().unwrap() {
            told.problem(503, "unavailable");
            return;
        }
    }
    panic!("nobody was told");
}

#[test]
fn a_batch_runs_under_one_lease() {
    let house = House::new();
    let mut admin = house.admin();
    for _ in 0..3 {
        admin.submit("a", "t");
    }
    let body = json!({"addon_id": "a", "instance_id": INSTANCE, "max_jobs": 3, "wait_sec": 30});
    let mut taken = Vec::new();
    let mut leases = Vec::new();
    while taken.len() < 3 {
        let answer = admin.post(paths::CLAIM, &body).expect(200);
        for lease in answer["leases"].as_array().unwrap() {
            leases.push(lease["lease_id"].clone());
            for job in lease["jobs"].as_array().unwrap() {
                taken.push((lease["lease_id"].clone(), job["job_id"].clone()));
            }
        }
    }
    let lease = leases[0].clone();
    let mut jobs: Vec<_> = taken
        .iter()
        .filter(|(of, _)| *of == lease)
        .map(|(_, job)| json!({"job_id": job, "status": "DONE"}))
        .collect();
    let count = jobs.len();
    jobs.push(json!({"job_id": NO_ID, "status": "DONE"}));
    let body = json!({"lease_id": lease, "jobs": jobs});
    let answer = admin.post(paths::COMPLETE_MANY, &body).expect(200);
    for place in 0..count {
        assert_eq!(answer["jobs"][place]["state"], "DONE");
    }
    assert_eq!(answer["jobs"][count]["error"]["code"], "not_found");
    admin
        .post(paths::COMPLETE_MANY, &json!({"jobs": []}))
        .problem(400, "malformed");
}

#[test]
fn a_dispatch_is_polled_for_and_acknowledged() {
    let house = House::new();
    let mut admin = house.admin();
    let id = admin.submit("a", "t");
    let path = format!("{}?addon_id=a&wait_sec=60", paths::DISPATCHABLE);
    let waiting = admin.get(&path).expect(200);
    assert_eq!(waiting["jobs"][0]["job_id"], json!(id));
    assert_eq!(waiting["jobs"][0]["state"], "DISPATCHING");
    let none = admin.get(&format!("{}?addon_id=b", paths::DISPATCHABLE));
    assert_eq!(none.expect(200), json!({"jobs": []}));
    let lease = admin.poke(&paths::at(paths::ACK, &id)).expect(200);
    assert_eq!(lease["state"], "ACTIVE");
    assert_eq!(lease["jobs"], json!([id]));
    assert_eq!(state(&mut admin, &id), "RUNNING");
    // It is taken up already.
    let again = admin.poke(&paths::at(paths::ACK, &id));
    assert_eq!(again.problem(409, "wrong_state")["state"], "RUNNING");
    for wrong in ["?addon_id=", "?wait_sec=-1", "?x=1"] {
        admin
            .get(&format!("{}{wrong}", paths::DISPATCHABLE))
            .problem(400, "malformed");
    }
}

#[test]
fn a_dispatch_is_taken_up_by_a_lease_request() {
    let house = House::new();
    let mut admin = house.admin();
    let id = admin.submit("a", "t");
    admin
        .get(&format!("{}?wait_sec=60", paths::DISPATCHABLE))
        .expect(200);
    let answer = admin
        .post(paths::LEASE_REQUEST, &json!({"job_id": id}))
        .expect(200);
    assert_eq!(answer["approved"], true);
    let lease = answer["lease_id"].as_str().unwrap();
    let shown = admin.get(&paths::at(paths::LEASE, lease)).expect(200);
    assert_eq!(shown["jobs"], json!([id]));
    let refused = admin.post(paths::LEASE_REQUEST, &json!({"job_id": NO_ID}));
    refused.problem(404, "not_found");
}

#[test]
fn a_request_for_capacity_that_is_repeated_has_one_lease() {
    let house = House::new();
    let mut admin = house.admin();
    let body = |key: &str, node: Option<&str>| {
        json!({
            "addon_id": "a", "job_type": "t", "cost_units": 60, "node_id": node,
            "instance_id": NO_ID, "request_key": key,
        })
    };
    let first = admin
        .post(paths::LEASE_REQUEST, &body("first", None))
        .expect(200);
    assert_eq!(first["approved"], true, "{first}");
    let again = admin
        .post(paths::LEASE_REQUEST, &body("first", None))
        .expect(200);
    assert_eq!(again["lease_id"], first["lease_id"]);
    let list = admin.get(paths::LEASES).expect(200);
    assert_eq!(list["leases"].as_array().unwrap().len(), 1);
    let other = admin
        .post(paths::LEASE_REQUEST, &body("second", None))
        .expect(200);
    assert_eq!(other["approved"], false);
    let elsewhere = admin.post(paths::LEASE_REQUEST, &body("third", Some("elsewhere")));
    let problem = elsewhere.problem(422, "invalid");
    assert_eq!(problem["fields"][0]["field"], "node_id", "{problem}");
    let mut larger = body("first", None);
    larger["cost_units"] = json!(70);
    let conflict = admin.post(paths::LEASE_REQUEST, &larger);
    conflict.problem(409, "conflict");
}

#[test]
fn capacity_alone_is_leased_until_there_is_none() {
    let house = House::new();
    let mut admin = house.admin();
    let body = json!({
        "addon_id": "a", "job_type": "t", "cost_units": 60, "priority": "normal",
        "constraints": {"cpu_heavy": true}, "expected_duration_sec": 5,
    });
    let first = admin.post(paths::LEASE_REQUEST, &body).expect(200);
    assert_eq!(first["approved"], true, "{first}");
    assert!(first["limits"]["ttl_sec"].as_u64().unwrap() > 0);
    let second = admin.post(paths::LEASE_REQUEST, &body).expect(200);
    assert_eq!(second["approved"], false);
    assert_eq!(second["lease_id"], json!(null));
    assert!(second["retry_after_sec"].as_u64().unwrap() > 0);
    let reason = second["reason"].as_str().unwrap();
    assert_eq!(
        reason,
        "Capacity exceeded: used=60, requested=60, capacity=100"
    );

    let list = admin.get(paths::LEASES).expect(200);
    assert_eq!(list["leases"][0]["lease_id"], first["lease_id"]);
    assert_eq!(first["granted_units"], 60);
    assert_eq!(first["expires_at"], list["leases"][0]["expires_at"]);
    let numbers = (&first["numbers"]["used"], &first["numbers"]["capacity"]);
    assert_eq!(numbers, (&json!(60), &json!(100)));
    assert_eq!(
        admin
            .get(&format!("{}?addon_id=b", paths::LEASES))
            .expect(200)["leases"],
        json!([])
    );
    let lease = first["lease_id"].as_str().unwrap();
    let released = admin.poke(&paths::at(paths::RELEASE, lease));
    assert_eq!(released.status, 204, "{}", released.text());
    let shown = admin.get(&paths::at(paths::LEASE, lease)).expect(200);
    assert_eq!(shown["state"], "RELEASED");
    assert_eq!(
        admin.post(paths::LEASE_REQUEST, &body).expect(200)["approved"],
        true
    );
    for (wrong, status, code) in [
        (json!({}), 422, "invalid"),
        (
            json!({"addon_id": "a", "job_type": "t", "cost_units": 101}),
            422,
            "invalid",
        ),
        (
            json!({"addon_id": "a", "job_type": "t", "cost_units": "1"}),
            400,
            "malformed",
        ),
    ] {
        admin
            .post(paths::LEASE_REQUEST, &wrong)
            .problem(status, code);
    }
}

#[test]
fn a_lease_is_renewed_and_reported_under() {
    let house = House::new();
    let mut admin = house.admin();
    admin.submit("a", "t");
    let (lease, job) = admin.claim("a");
    let beat = paths::at(paths::HEARTBEAT, &lease);
    let answer = admin.poke(&beat).expect(200);
    assert_eq!(answer["advice"], "continue");
    assert!(answer["ttl_sec"].as_u64().unwrap() > 0);
    let progress = json!({"progress": {"fraction": 0.25, "message": "a quarter"}});
    admin.post(&beat, &progress).expect(200);
    let shown = admin.get(&paths::at(paths::JOB, &job)).expect(200);
    assert_eq!(shown["progress"], progress["progress"]);

    let report = paths::at(paths::REPORT, &lease);
    let told = json!({"progress": {"fraction": 0.5}, "metrics": {"files": 12.0}});
    assert_eq!(admin.post(&report, &told).status, 204);
    let shown = admin.get(&paths::at(paths::JOB, &job)).expect(200);
    assert_eq!(shown["metrics"]["files"], 12.0);
    let pid = paths::at(paths::PID, &lease);
    assert_eq!(admin.post(&pid, &json!({"pids": [4242]})).status, 204);
    let shown = admin.get(&paths::at(paths::LEASE, &lease)).expect(200);
    assert_eq!(shown["pids"], json!([4242]));

    admin.poke(&paths::at(paths::CANCEL, &job)).expect(200);
    let answer = admin.poke(&beat).expect(200);
    assert_eq!(answer["advice"], "cancel");
    assert_eq!(answer["cancel"], json!([job]));

    for (path, wrong, status, code) in [
        (&beat, json!({"lease_id": lease}), 400, "malformed"),
        (
            &beat,
            json!({"progress": {"fraction": 1.5}}),
            422,
            "invalid",
        ),
        (&report, json!({"metrics": {"": 1.0}}), 422, "invalid"),
        (&report, json!({"metrics": {"x": "y"}}), 400, "malformed"),
        (&pid, json!({}), 400, "malformed"),
        (&pid, json!({"pids": [0]}), 422, "invalid"),
        (&pid, json!({"pids": [-1]}), 400, "malformed"),
    ] {
        admin.post(path, &wrong).problem(status, code);
    }
}

#[test]
fn many_leases_are_renewed_at_once() {
    let house = House::new();
    let mut admin = house.admin();
    admin.submit("a", "t");
    let (lease, job) = admin.claim("a");
    let body = json!({
        "leases": [{"lease_id": lease}, {"lease_id": NO_ID}],
        "worker": {
            "instance_id": INSTANCE, "addon_id": "a", "program": "a test",
            "trees": [
                {"job_id": job, "nodes": [{"depth": 0, "label": "run", "state": "Active", "age_ms": 7}]},
                {"job_id": NO_ID, "nodes": []},
            ],
        },
    });
    let answer = admin.post(paths::HEARTBEAT_MANY, &body).expect(200);
    assert_eq!(answer["leases"][0]["advice"], "continue");
    assert_eq!(answer["leases"][1]["error"]["code"], "not_found");
    assert_eq!(
        admin.post(paths::HEARTBEAT_MANY, &json!({})).expect(200)["leases"],
        json!([])
    );
    let too_many = json!({"leases": vec![json!({"lease_id": lease}); 1001]});
    admin
        .post(paths::HEARTBEAT_MANY, &too_many)
        .problem(422, "invalid");
    admin
        .post(paths::HEARTBEAT_MANY, &json!({"worker": {}}))
        .problem(400, "malformed");
}

#[test]
fn a_lease_is_given_back_or_taken_away() {
    let house = House::new();
    let mut admin = house.admin();
    admin.submit("a", "t");
    let (lease, job) = admin.claim("a");
    let release = paths::at(paths::RELEASE, &lease);
    admin.poke(&release).problem(409, "wrong_state");
    let given = admin.post(&release, &json!({"return_jobs": true, "reason": "tired"}));
    assert_eq!(given.status, 204, "{}", given.text());
    assert_eq!(state(&mut admin, &job), "QUEUED");

    let (lease, _) = admin.claim("a");
    let taken = admin.poke(&paths::at(paths::REVOKE, &lease));
    assert_eq!(taken.status, 204, "{}", taken.text());
    let late = admin.poke(&paths::at(paths::HEARTBEAT, &lease));
    late.problem(409, "lease_lost");
    for pattern in [paths::HEARTBEAT, paths::RELEASE, paths::REVOKE] {
        admin
            .poke(&paths::at(pattern, NO_ID))
            .problem(404, "not_found");
        admin
            .poke(&paths::at(pattern, "x"))
            .problem(400, "malformed");
    }
    admin
        .get(&paths::at(paths::LEASE, NO_ID))
        .problem(404, "not_found");
    admin
        .get(&format!("{}?limit=0", paths::LEASES))
        .problem(400, "malformed");
}

#[test]
fn a_run_counts_as_paused_when_its_worker_says_that_it_stands_still() {
    let house = House::new();
    let mut admin = house.admin();
    let id = admin.submit("a", "t");
    let (lease, _) = admin.claim("a");
    let beat = paths::at(paths::HEARTBEAT, &lease);
    let explain = paths::at(paths::EXPLAIN, &id);
    let reason = |admin: &mut Client| admin.get(&explain).expect(200)["reasons"][0].clone();
    let pause = json!({"reason": "the disk is needed"});
    admin
        .post(&paths::at(paths::JOB_PAUSE, &id), &pause)
        .expect(200);
    let asked = reason(&mut admin);
    assert_eq!(asked["code"], "run_paused");
    assert_eq!(
        asked["message"],
        "The job is asked to pause by the admin of this machine: the disk is needed; its worker has not said that it stands still"
    );
    // Twice is once.
    admin
        .post(&paths::at(paths::JOB_PAUSE, &id), &json!({}))
        .expect(200);
    let told = admin.post(&beat, &json!({"job_id": id})).expect(200);
    assert_eq!(
        (&told["paused"], &told["advice"]),
        (&json!(true), &json!("checkpoint"))
    );
    assert_eq!(
        reason(&mut admin)["message"],
        asked["message"],
        "asked is not done"
    );
    admin
        .post(&beat, &json!({"job_id": id, "paused": true}))
        .expect(200);
    let paused = reason(&mut admin);
    assert_eq!(
        paused["message"],
        "The run of the job is paused by the admin of this machine: the disk is needed"
    );
    assert!(
        paused["since"].as_str() > asked["since"].as_str(),
        "{paused}"
    );
    // By the call that many leases are renewed with, too.
    let many = json!({"leases": [{"lease_id": lease, "job_id": id, "paused": true}]});
    let told = admin.post(paths::HEARTBEAT_MANY, &many).expect(200);
    assert_eq!(told["leases"][0]["paused"], true, "{told}");
    admin
        .post(&paths::at(paths::JOB_RESUME, &id), &json!({}))
        .expect(200);
    let told = admin.post(&beat, &json!({"job_id": id})).expect(200);
    assert_eq!(told["paused"], Value::Null, "{told}");
    assert_eq!(reason(&mut admin), Value::Null);
    let events = admin.get(&paths::at(paths::JOB_EVENTS, &id)).expect(200);
    let told: Vec<_> = events["events"].as_array().unwrap().iter().collect();
    let told: Vec<_> = told
        .iter()
        .filter(|event| ["PAUSED", "RESUMED"].contains(&event["event"].as_str().unwrap()))
        .map(|event| event["reason"].as_str().unwrap())
        .collect();
    assert_eq!(
        told,
        [
            "by the admin of this machine: the disk is needed",
            "by the admin of this machine"
        ]
    );
    let long = json!({"reason": "x".repeat(100_000)});
    admin
        .post(&paths::at(paths::JOB_PAUSE, &id), &long)
        .problem(422, "invalid");
}
