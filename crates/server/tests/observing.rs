//! Workers, their trees, what jobs printed, and the numbers, over a real socket.

mod support;

use jobtree_protocol::{Scope, paths};
use serde_json::{Value, json};
use support::{House, NO_ID};

const INSTANCE: &str = "00000000-0000-4000-8000-000000000001";

fn report(addon: &str, job: &str) -> Value {
    json!({
        "instance_id": INSTANCE,
        "addon_id": addon,
        "slots": 2,
        "pool": {"threads": 2, "tasks": 7},
        "trees": [{"job_id": job, "nodes": [
            {"depth": 0, "label": "index", "state": "Active", "age_ms": 12},
            {"depth": 1, "label": "nursery", "state": "Active", "age_ms": 9, "waiting_for": "children"},
        ]}],
    })
}

#[test]
fn a_worker_tells_of_itself_with_its_heartbeats() {
    let house = House::new();
    let mut admin = house.admin();
    let job = admin.submit("photos", "index");
    admin
        .get(&paths::at(paths::TREE, &job))
        .problem(404, "not_found");
    let (lease, claimed) = admin.claim("photos");
    assert_eq!(claimed, job);
    let beat = json!({"leases": [{"lease_id": lease}], "worker": report("photos", &job)});
    let answer = admin.post(paths::HEARTBEAT_MANY, &beat).expect(200);
    assert_eq!(answer["leases"][0]["advice"], "continue");

    let workers = admin.get(paths::WORKERS).expect(200);
    let worker = &workers["workers"][0];
    assert_eq!(worker["instance_id"], INSTANCE);
    assert_eq!(worker["pool"]["tasks"], 7);
    assert_eq!(worker["jobs"], json!([job]));
    assert!(
        worker.get("trees").is_none(),
        "they are asked for one by one"
    );
    let tree = admin.get(&paths::at(paths::TREE, &job)).expect(200);
    assert_eq!(tree["instance_id"], INSTANCE);
    assert_eq!(tree["tree"]["nodes"][1]["label"], "nursery");
    // The trace has the run, its lease, what happened, and the jobs below.
    let trace = admin.get(&paths::at(paths::JOB_TRACE, &job)).expect(200);
    let events = trace["traceEvents"].as_array().unwrap();
    let named = |kind: &str| -> Vec<&str> {
        let found = events.iter().filter(|it| it["ph"] == kind);
        found.filter_map(|it| it["name"].as_str()).collect()
    };
    for name in ["QUEUED", "lease 1", "index", "nursery"] {
        assert!(named("X").contains(&name), "{name}: {trace}");
    }
    for name in ["SUBMITTED", "RUNNING"] {
        assert!(named("i").contains(&name), "{name}: {trace}");
    }
    assert_eq!(trace["otherData"]["job_id"], job);

    let mut mail = house.addon("mail", &[Scope::Read]);
    assert_eq!(mail.get(paths::WORKERS).expect(200)["workers"], json!([]));
    for path in [paths::TREE, paths::JOB_TRACE] {
        mail.get(&paths::at(path, &job)).problem(404, "not_found");
    }
}

#[test]
fn a_report_that_is_too_large_is_refused_and_one_of_another_addon_too() {
    let house = House::new();
    let mut admin = house.admin();
    let job = admin.submit("photos", "index");
    let mut large = report("photos", &job);
    let node = large["trees"][0]["nodes"][0].clone();
    large["trees"][0]["nodes"] = vec![node; 201].into();
    let beat = json!({"leases": [], "worker": large});
    let problem = admin
        .post(paths::HEARTBEAT_MANY, &beat)
        .problem(422, "invalid");
    assert_eq!(problem["fields"][0]["field"], "worker.trees[0].nodes");

    let mut mail = house.addon("mail", &[Scope::Lease]);
    let beat = json!({"leases": [], "worker": report("photos", &job)});
    mail.post(paths::HEARTBEAT_MANY, &beat)
        .problem(403, "forbidden");
}

#[test]
fn what_a_job_printed_is_kept_and_followed() {
    let house = House::new();
    let mut admin = house.admin();
    admin.submit("photos", "index");
    let (lease, job) = admin.claim("photos");
    let path = paths::at(paths::LOG, &job);
    let append =
        |offset: u64, text: &str| json!({"lease_id": lease, "offset": offset, "text": text});
    let first = admin.post(&path, &append(0, "one\n")).expect(200);
    assert_eq!(first["next_offset"], 4);
    // Repeated after a lost answer, and with more.
    admin.post(&path, &append(0, "one\ntwo\n")).expect(200);
    let page = admin.get(&path).expect(200);
    assert_eq!(page["text"], "one\ntwo\n");
    assert_eq!(page["ended"], false);

    // Whoever follows waits for more.
    let next = page["next"].as_u64().unwrap();
    let mut reader = house.admin();
    let waiting = {
        let path = format!("{path}?after={next}&wait_sec=60");
        std::thread::spawn(move || reader.get(&path).expect(200))
    };
    admin.post(&path, &append(8, "three\n")).expect(200);
    assert_eq!(waiting.join().unwrap()["text"], "three\n");

    let done = json!({"lease_id": lease, "status": "DONE"});
    admin
        .post(&paths::at(paths::COMPLETE, &job), &done)
        .expect(200);
    let page = admin.get(&path).expect(200);
    assert_eq!(
        (&page["text"], &page["ended"]),
        (&json!("one\ntwo\nthree\n"), &json!(true))
    );
    admin
        .post(&path, &append(14, "late"))
        .problem(409, "lease_lost");
    admin
        .get(&paths::at(paths::LOG, NO_ID))
        .problem(404, "not_found");
    admin
        .get(&format!("{path}?after=-1"))
        .problem(400, "malformed");
    let mut mail = house.addon("mail", &[Scope::Read, Scope::Lease]);
    mail.get(&path).problem(404, "not_found");
    mail.post(&path, &append(0, "x")).problem(404, "not_found");
}

#[test]
fn the_numbers_are_for_prometheus() {
    let house = House::new();
    let mut admin = house.admin();
    admin.submit("photos", "index");
    let (lease, job) = admin.claim("photos");
    let done = json!({"lease_id": lease, "status": "DONE"});
    admin
        .post(&paths::at(paths::COMPLETE, &job), &done)
        .expect(200);
    admin.submit("photos", "index");
    let page = admin.get(paths::METRICS);
    assert_eq!(page.status, 200);
    assert!(
        page.header("content-type")
            .unwrap()
            .starts_with("text/plain; version=0.0.4")
    );
    let text = page.text();
    for line in [
        "jobtree_jobs{state=\"QUEUED\"} 1",
        "jobtree_jobs{state=\"DONE\"} 1",
        "jobtree_addon_jobs{addon=\"photos\",state=\"QUEUED\"} 1",
        "jobtree_events_total{event=\"SUBMITTED\"} 2",
        "jobtree_run_seconds_count 1",
        "jobtree_wait_seconds_count 1",
        "jobtree_event_streams 0",
    ] {
        assert!(
            text.lines().any(|it| it == line),
            "{line} is not in\n{text}"
        );
    }
    // Every series has its help and its type.
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let base = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .unwrap_or(name);
        assert!(
            text.contains(&format!("# TYPE {base} ")) || text.contains(&format!("# TYPE {name} ")),
            "{name}"
        );
    }
    let mut photos = house.addon("photos", &[Scope::Read]);
    photos.get(paths::METRICS).problem(403, "forbidden");
}
