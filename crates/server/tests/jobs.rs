//! Jobs over HTTP: submitted, looked at, listed, stopped, brought back; with good input and bad.

mod support;

use jobtree_protocol::{Scope, paths};
use serde_json::{Value, json};
use support::{Client, House, JSON, NO_ID};

/// The example of the queue's specification, to the letter but for the time, which lies behind us.
const EXAMPLE: &str = r#"{
  "addon_id": "visuals",
  "job_type": "indexing",
  "cost_units": 30,
  "priority": "NORMAL",
  "constraints": {"cpu_heavy": true, "disk_write_heavy": false, "network_heavy": false},
  "expected_duration_sec": 120,

  "payload": {"path": "/some/dir"},
  "time_sensitive": false,
  "earliest_start_at": "2025-12-28T23:00:00Z"
}"#;

fn cancel(client: &mut Client, id: &str) -> Value {
    client.poke(&paths::at(paths::CANCEL, id)).expect(200)
}

/// A job that failed.
fn dead_letter(client: &mut Client) -> String {
    client.submit("a", "t");
    let (lease, job) = client.claim("a");
    let body = json!({"lease_id": lease, "status": "FAILED", "error": "no"});
    let ended = client.post(&paths::at(paths::COMPLETE, &job), &body);
    assert_eq!(ended.expect(200)["state"], "FAILED");
    job
}

#[test]
fn the_example_is_answered_as_written_down() {
    let house = House::new();
    let mut admin = house.admin();
    let reply = admin.request("POST", paths::SUBMIT, JSON, EXAMPLE.as_bytes());
    let answer = reply.expect(200);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let id = answer["job_id"].as_str().unwrap();
    assert_eq!(answer, json!({"job_id": id, "state": "QUEUED"}));

    let job = admin.get(&paths::at(paths::JOB, id)).expect(200);
    let shown = [
        ("job_id", json!(id)),
        ("addon_id", json!("visuals")),
        ("job_type", json!("indexing")),
        ("cost_units", json!(30)),
        ("priority", json!("NORMAL")),
        ("expected_duration_sec", json!(120)),
        ("state", json!("QUEUED")),
        ("attempts", json!(0)),
        ("next_earliest_start_at", json!("2025-12-28T23:00:00Z")),
        ("lease_id", json!(null)),
        ("payload", json!({"path": "/some/dir"})),
        ("time_sensitive", json!(false)),
        ("deadline_at", json!(null)),
        ("max_runtime_sec", json!(null)),
        ("tags", json!([])),
    ];
    for (field, value) in shown {
        assert_eq!(job[field], value, "{field}");
    }
    assert_eq!(job["constraints"]["cpu_heavy"], true);

    let list = admin.get(&format!("{}?state=QUEUED&limit=50", paths::JOBS));
    assert_eq!(list.expect(200)["jobs"][0]["job_id"], json!(id));
    let canceled = cancel(&mut admin, id);
    assert_eq!(canceled, json!({"job_id": id, "state": "CANCELED"}));
}

#[test]
fn a_submission_that_is_wrong_is_refused_with_what_to_do() {
    let house = House::new();
    let mut admin = house.admin();
    let good = json!({"addon_id": "a", "job_type": "t", "cost_units": 1});
    let with = |field: &str, value: Value| {
        let mut body = good.clone();
        body[field] = value;
        body
    };
    let cases: &[(Value, u16, &str, &str)] = &[
        (json!({}), 422, "invalid", "addon_id"),
        (json!([]), 400, "malformed", ""),
        (json!(null), 400, "malformed", ""),
        (with("addon_id", json!("a/b")), 422, "invalid", "addon_id"),
        (with("addon_id", json!(7)), 400, "malformed", ""),
        (with("job_type", json!("")), 422, "invalid", "job_type"),
        (with("cost_units", json!(0)), 422, "invalid", "cost_units"),
        (with("cost_units", json!(101)), 422, "invalid", "cost_units"),
        (with("cost_units", json!(1.5)), 400, "malformed", ""),
        (with("priority", json!("URGENT")), 400, "malformed", ""),
        (with("unknown", json!(1)), 400, "malformed", ""),
        (
            with("max_attempts", json!(0)),
            422,
            "invalid",
            "max_attempts",
        ),
        (with("deadline_at", json!("soon")), 400, "malformed", ""),
        (with("late", json!("fail")), 422, "invalid", "late"),
        (with("tags", json!(["\u{7}"])), 422, "invalid", "tags[0]"),
        (
            with("depends_on", json!([NO_ID])),
            422,
            "invalid",
            "depends_on[0]",
        ),
        (
            with("job_id", json!("00000000-0000-4000-8000-000000000001")),
            422,
            "invalid",
            "job_id",
        ),
    ];
    for (body, status, code, field) in cases {
        let problem = admin.post(paths::SUBMIT, body).problem(*status, code);
        if !field.is_empty() {
            assert_eq!(problem["fields"][0]["field"], *field, "{body}: {problem}");
        }
    }
    let texts: &[&[u8]] = &[
        b"",
        b"{",
        b"{\"addon_id\":\"\xff\"}",
        b"{}{}",
        b"{\"a\":1,\"a\":1}",
    ];
    for text in texts {
        let refused = admin.request("POST", paths::SUBMIT, JSON, text);
        refused.problem(400, "malformed");
    }
    for kind in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
    ] {
        let refused = admin.request("POST", paths::SUBMIT, kind, EXAMPLE.as_bytes());
        refused.problem(415, "malformed");
    }
    let spelled = Some("Application/JSON ; charset=utf-8");
    admin
        .request("POST", paths::SUBMIT, spelled, EXAMPLE.as_bytes())
        .expect(200);
    assert_eq!(
        admin.get(paths::JOBS).expect(200)["jobs"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn repeating_is_safe_with_a_key() {
    let house = House::new();
    let mut admin = house.admin();
    let body = json!({"addon_id": "a", "job_type": "t", "cost_units": 1, "idempotency_key": "k"});
    let first = admin.post(paths::SUBMIT, &body).expect(200);
    let second = admin.post(paths::SUBMIT, &body).expect(200);
    assert_eq!(second["job_id"], first["job_id"]);
    assert_eq!(second["duplicate"], true);
    let mut other = body;
    other["cost_units"] = json!(2);
    admin.post(paths::SUBMIT, &other).problem(409, "conflict");
}

#[test]
fn many_are_submitted_at_once_each_answered_for_itself() {
    let house = House::new();
    let mut admin = house.admin();
    let jobs = json!([
        {"addon_id": "a", "job_type": "t", "cost_units": 1},
        {"addon_id": "a", "job_type": "t", "cost_units": 1000},
        {"addon_id": "b", "job_type": "t", "cost_units": 2},
    ]);
    let answer = admin
        .post(paths::SUBMIT_MANY, &json!({"jobs": jobs}))
        .expect(200);
    assert_eq!(answer["jobs"][0]["state"], "QUEUED");
    assert_eq!(answer["jobs"][1]["error"]["code"], "invalid");
    assert_eq!(answer["jobs"][2]["state"], "QUEUED");
    assert_eq!(
        admin
            .post(paths::SUBMIT_MANY, &json!({"jobs": []}))
            .expect(200)["jobs"],
        json!([])
    );
    let one = json!({"addon_id": "a", "job_type": "t", "cost_units": 1});
    let too_many = json!({"jobs": vec![one; 1001]});
    let problem = admin
        .post(paths::SUBMIT_MANY, &too_many)
        .problem(422, "invalid");
    assert_eq!(problem["fields"][0]["field"], "jobs");
    admin
        .post(paths::SUBMIT_MANY, &json!({}))
        .problem(400, "malformed");
}

#[test]
fn a_list_is_filtered_and_paged() {
    let house = House::new();
    let mut admin = house.admin();
    let mut ids = Vec::new();
    for number in 0..5 {
        let body = json!({"addon_id": "a", "job_type": "t", "cost_units": 1, "tags": [format!("n{}", number % 2)]});
        ids.push(admin.post(paths::SUBMIT, &body).expect(200)["job_id"].clone());
    }
    admin.submit("b", "u");
    cancel(&mut admin, ids[0].as_str().unwrap());
    let mut count = |query: &str| {
        let list = admin.get(&format!("{}?{query}", paths::JOBS)).expect(200);
        list["jobs"].as_array().unwrap().len()
    };
    let counts = [
        ("", 6),
        ("state=QUEUED", 5),
        ("state=queued&state=CANCELED", 6),
        ("state=QUEUED,CANCELED", 6),
        ("addon_id=a", 5),
        ("addon_id=nobody", 0),
        ("job_type=u", 1),
        ("tag=n0", 3),
        ("tag=n%30", 3),
        ("quarantined=true", 0),
        ("quarantined=false&addon_id=b", 1),
    ];
    for (query, expected) in counts {
        assert_eq!(count(query), expected, "{query}");
    }
    let mut seen = Vec::new();
    let mut next = String::new();
    loop {
        let page = admin
            .get(&format!("{}?addon_id=a&limit=2{next}", paths::JOBS))
            .expect(200);
        let jobs = page["jobs"].as_array().unwrap();
        assert!(jobs.len() <= 2);
        seen.extend(jobs.iter().map(|job| job["job_id"].clone()));
        match page["next"].as_str() {
            Some(after) => next = format!("&after={after}"),
            None => break,
        }
    }
    assert_eq!(seen, ids);
    for wrong in [
        "state=SLEEPING",
        "limit=0",
        "limit=501",
        "limit=many",
        "limit=1&limit=2",
        "after=x",
        "addon_id=a/b",
        "addon_id=",
        "quarantined=maybe",
        "colour=red",
        "tag=%ff",
    ] {
        let refused = admin.get(&format!("{}?{wrong}", paths::JOBS));
        refused.problem(400, "malformed");
    }
}

#[test]
fn what_does_not_exist_is_not_found_and_what_is_no_id_is_said_to_be_none() {
    let house = House::new();
    let mut admin = house.admin();
    let gets = [paths::JOB, paths::EXPLAIN, paths::JOB_EVENTS];
    let posts = [paths::CANCEL, paths::RETRY, paths::ACK];
    for pattern in gets {
        admin
            .get(&paths::at(pattern, NO_ID))
            .problem(404, "not_found");
        admin
            .get(&paths::at(pattern, "x"))
            .problem(400, "malformed");
    }
    for pattern in posts {
        admin
            .poke(&paths::at(pattern, NO_ID))
            .problem(404, "not_found");
        admin
            .poke(&paths::at(pattern, "x"))
            .problem(400, "malformed");
    }
    // One thing has one name.
    let simple = NO_ID.replace('-', "");
    admin
        .get(&paths::at(paths::JOB, simple))
        .problem(400, "malformed");
    let id = admin.submit("a", "t");
    admin.get(&paths::at(paths::JOB, &id)).expect(200);
    for wrong in ["?wait_sec=601", "?wait_sec=x", "?other=1"] {
        let refused = admin.get(&(paths::at(paths::JOB, &id) + wrong));
        refused.problem(400, "malformed");
    }
}

#[test]
fn somebody_waits_for_a_jobs_end() {
    let house = House::new();
    let mut admin = house.admin();
    let id = admin.submit("a", "t");
    let path = paths::at(paths::JOB, &id) + "?wait_sec=600";
    let mut waiting = house.admin();
    let waited = std::thread::spawn(move || waiting.get(&path).expect(200));
    cancel(&mut admin, &id);
    assert_eq!(waited.join().unwrap()["state"], "CANCELED");
    // One that has ended is not waited for.
    let path = paths::at(paths::JOB, &id) + "?wait_sec=600";
    assert_eq!(admin.get(&path).expect(200)["state"], "CANCELED");
}

#[test]
fn cancelling_says_what_became_of_it() {
    let house = House::new();
    let mut admin = house.admin();
    admin.submit("a", "t");
    let (_, running) = admin.claim("a");
    let path = paths::at(paths::CANCEL, &running);
    let asked = admin
        .post(&path, &json!({"reason": "no longer needed"}))
        .expect(200);
    assert_eq!(asked["state"], "RUNNING");
    let job = admin.get(&paths::at(paths::JOB, &running)).expect(200);
    assert_eq!(job["cancel_requested"], true);
    for wrong in [json!({"why": "x"}), json!({"reason": 7}), json!([])] {
        admin.post(&path, &wrong).problem(400, "malformed");
    }
    for wrong in ["a\u{0}b".to_owned(), "x".repeat(1025)] {
        let problem = admin
            .post(&path, &json!({"reason": wrong}))
            .problem(422, "invalid");
        assert_eq!(problem["fields"][0]["field"], "reason");
    }
    let ended = dead_letter(&mut admin);
    let refused = admin.poke(&paths::at(paths::CANCEL, &ended));
    assert_eq!(refused.problem(409, "wrong_state")["state"], "FAILED");
}

#[test]
fn many_are_cancelled_by_a_query() {
    let house = House::new();
    let mut admin = house.admin();
    for addon in ["a", "a", "b"] {
        admin.submit(addon, "t");
    }
    let body = json!({"query": {"addon_id": "a"}, "reason": "enough"});
    let answer = admin.post(paths::CANCEL_MANY, &body).expect(200);
    assert_eq!(answer["done"].as_array().unwrap().len(), 2);
    assert_eq!(answer["failed"], json!([]));
    let left = admin
        .get(&format!("{}?state=QUEUED", paths::JOBS))
        .expect(200);
    assert_eq!(left["jobs"].as_array().unwrap().len(), 1);
    admin
        .post(paths::CANCEL_MANY, &json!({}))
        .problem(400, "malformed");
    let unknown = json!({"query": {"colour": "red"}});
    admin
        .post(paths::CANCEL_MANY, &unknown)
        .problem(400, "malformed");
}

#[test]
fn dead_letters_come_back() {
    let house = House::new();
    let mut admin = house.admin();
    let first = dead_letter(&mut admin);
    let back = admin.poke(&paths::at(paths::RETRY, &first)).expect(200);
    assert_eq!(back, json!({"job_id": first, "state": "QUEUED"}));
    cancel(&mut admin, &first);

    let second = dead_letter(&mut admin);
    let body = json!({"job_ids": [second, NO_ID], "reason": "mended"});
    let answer = admin.post(paths::REDRIVE, &body).expect(200);
    assert_eq!(answer["done"], json!([second]));
    assert_eq!(answer["failed"][0]["error"]["code"], "not_found");
    cancel(&mut admin, &second);

    let third = dead_letter(&mut admin);
    let answer = admin.post(
        paths::REDRIVE,
        &json!({"query": {"addon_id": "a", "state": ["FAILED"]}}),
    );
    assert_eq!(answer.expect(200)["done"], json!([third]));
    for wrong in [json!({}), json!({"job_ids": [NO_ID], "query": {}})] {
        admin.post(paths::REDRIVE, &wrong).problem(422, "invalid");
    }
    admin
        .post(paths::REDRIVE, &json!({"job_ids": ["x"]}))
        .problem(400, "malformed");
}

#[test]
fn a_job_says_why_it_waits_and_what_happened() {
    let house = House::new();
    let mut admin = house.admin();
    let later = json!({"addon_id": "a", "job_type": "t", "cost_units": 1, "earliest_start_at": "2999-01-01T00:00:00Z"});
    let id = admin.post(paths::SUBMIT, &later).expect(200)["job_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let why = admin.get(&paths::at(paths::EXPLAIN, &id)).expect(200);
    assert_eq!(why["job_id"], json!(id));
    assert!(!why["reasons"].as_array().unwrap().is_empty(), "{why}");
    // Its wait is ended by hand.
    assert_eq!(
        admin.poke(&paths::at(paths::RETRY, &id)).expect(200)["state"],
        "QUEUED"
    );
    cancel(&mut admin, &id);
    let path = paths::at(paths::JOB_EVENTS, &id);
    let trail = admin.get(&path).expect(200);
    let kinds: Vec<_> = trail["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["event"].clone())
        .collect();
    assert_eq!(kinds.first(), Some(&json!("SUBMITTED")));
    assert_eq!(kinds.last(), Some(&json!("CANCELED")));
    let first = admin.get(&format!("{path}?limit=1")).expect(200);
    let next = first["next"].as_u64().unwrap();
    assert_eq!(first["events"][0]["cursor"], next);
    let rest = admin.get(&format!("{path}?after={next}")).expect(200);
    assert_eq!(rest["events"].as_array().unwrap().len(), kinds.len() - 1);
    assert_eq!(rest.get("next"), None);
    admin
        .get(&format!("{path}?after=-1"))
        .problem(400, "malformed");
}

#[test]
fn a_job_is_a_part_of_the_trace_that_its_submission_names() {
    const ONE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const OTHER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-00";
    let house = House::new();
    let submit = |headers: &[&str], body: &Value| {
        let mut admin = house.admin();
        for header in headers {
            admin = admin.header("traceparent", header);
        }
        let answer = admin.post(paths::SUBMIT, body).expect(200);
        let id = answer["job_id"].as_str().unwrap();
        let job = admin.get(&paths::at(paths::JOB, id)).expect(200);
        job["traceparent"].clone()
    };
    let job = json!({"addon_id": "a", "job_type": "t", "cost_units": 1});
    let mut named = job.clone();
    named["traceparent"] = json!(OTHER);
    assert_eq!(submit(&[], &job), json!(null));
    assert_eq!(submit(&[ONE], &job), json!(ONE));
    assert_eq!(submit(&[ONE], &named), json!(OTHER), "the body counts");
    assert_eq!(submit(&[], &named), json!(OTHER));
    // What is no trace, or more than one, is as good as none in a header.
    assert_eq!(submit(&["00-0-0-0"], &job), json!(null));
    assert_eq!(submit(&[ONE, OTHER], &job), json!(null));
    // In a body it is an error.
    named["traceparent"] = json!("00-0-0-0");
    let mut admin = house.admin().header("traceparent", ONE);
    let refused = admin.post(paths::SUBMIT, &named);
    refused.problem(422, "invalid");
    assert!(refused.text().contains("traceparent"), "{}", refused.text());
    // All of many are steps of one.
    let many = json!({"jobs": [job, job]});
    let answer = admin.post(paths::SUBMIT_MANY, &many).expect(200);
    for answer in answer["jobs"].as_array().unwrap() {
        let id = answer["job_id"].as_str().unwrap();
        let job = admin.get(&paths::at(paths::JOB, id)).expect(200);
        assert_eq!(job["traceparent"], ONE);
    }
}

#[test]
fn a_delay_with_a_key_means_the_first_job_however_late_it_comes_again() {
    let house = House::new();
    let mut admin = house.admin();
    let body = |delay: i64| {
        json!({"addon_id": "a", "job_type": "t", "cost_units": 1, "idempotency_key": "k", "earliest_start_in_sec": delay,
            "deadline_in_sec": delay * 2})
    };
    let first = admin.post(paths::SUBMIT, &body(18_000)).expect(200);
    let again = admin.post(paths::SUBMIT, &body(18_000)).expect(200);
    assert_eq!(again["job_id"], first["job_id"]);
    assert_eq!(again["duplicate"], true);
    let id = first["job_id"].as_str().unwrap();
    let job = admin.get(&paths::at(paths::JOB, id)).expect(200);
    assert!(job["next_earliest_start_at"].is_string() && job["deadline_at"].is_string());

    // Another job is another body, and a delay is checked like any field.
    let mut other = body(18_000);
    other["cost_units"] = json!(2);
    admin.post(paths::SUBMIT, &other).problem(409, "conflict");
    let mut twice = body(18_000);
    twice["deadline_at"] = json!("2999-01-01T00:00:00Z");
    for (wrong, field) in [
        (body(-1), "earliest_start_in_sec"),
        (twice, "deadline_in_sec"),
    ] {
        let told = admin.post(paths::SUBMIT, &wrong).problem(422, "invalid");
        assert_eq!(told["fields"][0]["field"], field, "{told}");
    }
    let many = json!({"jobs": [body(18_000), body(-1)]});
    let answers = admin.post(paths::SUBMIT_MANY, &many).expect(200);
    assert_eq!(answers["jobs"][0]["job_id"], first["job_id"], "{answers}");
    assert!(answers["jobs"][1]["error"].is_object(), "{answers}");
    // A schedule submits at times of its own.
    let schedule = json!({"name": "n", "cron": "0 3 * * *", "job": body(5)});
    admin
        .post(paths::SCHEDULES, &schedule)
        .problem(422, "invalid");
}

#[test]
fn a_repeated_submission_is_answered_with_the_state_that_the_job_has_now() {
    let house = House::new();
    let mut admin = house.admin();
    let body = json!({"addon_id": "a", "job_type": "t", "cost_units": 1, "idempotency_key": "k"});
    let first = admin.post(paths::SUBMIT, &body).expect(200);
    assert_eq!(first["state"], "QUEUED");
    cancel(&mut admin, first["job_id"].as_str().unwrap());
    let again = admin.post(paths::SUBMIT, &body).expect(200);
    assert_eq!(
        (&again["state"], &again["duplicate"]),
        (&json!("CANCELED"), &json!(true))
    );
    let many = admin
        .post(paths::SUBMIT_MANY, &json!({"jobs": [body]}))
        .expect(200);
    assert_eq!(many["jobs"][0]["state"], "CANCELED", "{many}");
}

#[test]
fn a_running_job_that_is_cancelled_keeps_the_reason() {
    let house = House::new();
    let mut admin = house.admin();
    admin.submit("a", "t");
    let (lease, job) = admin.claim("a");
    let reason = json!({"reason": "no longer wanted"});
    admin
        .post(&paths::at(paths::CANCEL, &job), &reason)
        .expect(200);
    let stopped = json!({"lease_id": lease, "status": "FAILED", "error": "canceled while it ran"});
    let ended = admin
        .post(&paths::at(paths::COMPLETE, &job), &stopped)
        .expect(200);
    assert_eq!(ended["state"], "CANCELED");
    let view = admin.get(&paths::at(paths::JOB, &job)).expect(200);
    assert_eq!(view["last_error"], "no longer wanted", "{view}");
}

#[test]
fn a_field_that_cannot_be_read_is_named() {
    let house = House::new();
    let mut admin = house.admin();
    let body =
        json!({"addon_id": "a", "job_type": "t", "cost_units": 1, "earliest_start_at": "tomorrow"});
    let told = admin.post(paths::SUBMIT, &body).problem(400, "malformed");
    assert_eq!(told["fields"][0]["field"], "earliest_start_at", "{told}");
    let detail = told["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("earliest_start_at: \"tomorrow\" is not a time"),
        "{detail}"
    );
}

#[test]
fn what_does_not_exist_is_told_before_what_is_wrong_with_the_body() {
    let house = House::new();
    let mut admin = house.admin();
    let wrong = json!({"status": "PERHAPS", "reason": 7});
    for path in [paths::COMPLETE, paths::CANCEL, paths::RETRY, paths::LOG] {
        admin
            .post(&paths::at(path, NO_ID), &wrong)
            .problem(404, "not_found");
    }
    let id = admin.submit("a", "t");
    admin
        .post(&paths::at(paths::CANCEL, &id), &wrong)
        .problem(400, "malformed");
    let long = json!({"reason": "x".repeat(10_000)});
    admin
        .post(&paths::at(paths::CANCEL, NO_ID), &long)
        .problem(404, "not_found");
    admin
        .post(&paths::at(paths::CANCEL, &id), &long)
        .problem(422, "invalid");
}

#[test]
fn recent_jobs_are_the_newest_first_and_those_of_the_caller() {
    let house = House::new();
    let mut admin = house.admin();
    let ids: Vec<String> = ["a", "b", "a"].map(|addon| admin.submit(addon, "t")).into();
    let list = |client: &mut Client, query: &str| {
        let list = client.get(&format!("{}{query}", paths::RECENT)).expect(200);
        let jobs = list["jobs"].as_array().unwrap();
        let ids = jobs
            .iter()
            .map(|job| job["job_id"].as_str().unwrap().to_owned());
        ids.collect::<Vec<_>>()
    };
    let newest = vec![ids[2].clone(), ids[1].clone(), ids[0].clone()];
    assert_eq!(list(&mut admin, ""), newest);
    assert_eq!(list(&mut admin, "?limit=1"), newest[..1]);
    assert_eq!(list(&mut admin, "?addon_id=b"), newest[1..2]);
    assert_eq!(
        list(&mut admin, &format!("?id={}", &ids[1][28..])),
        newest[1..2]
    );
    let mut own = house.addon("a", &[Scope::Read]);
    assert_eq!(list(&mut own, ""), [ids[2].clone(), ids[0].clone()]);
    assert_eq!(list(&mut own, &format!("?id={}", &ids[1][28..])), [""; 0]);
    assert_eq!(list(&mut own, "?addon_id=b"), [""; 0]);
    for query in ["?id=x", "?id=", "?after=1", "?limit=0"] {
        admin
            .get(&format!("{}{query}", paths::RECENT))
            .problem(400, "malformed");
    }
    let rights = own.get(paths::CURRENT_TOKEN).expect(200);
    assert_eq!(rights, json!({"addon_id": "a", "scopes": ["read"]}));
    house
        .nobody()
        .get(paths::CURRENT_TOKEN)
        .problem(401, "unauthorized");
}

#[test]
fn recent_jobs_come_in_pages_that_new_jobs_do_not_move() {
    let house = House::new();
    let mut admin = house.admin();
    let submit = |client: &mut Client, count: usize| {
        let jobs = vec![json!({"addon_id": "a", "job_type": "t", "cost_units": 1}); count];
        let answer = client.post(paths::SUBMIT_MANY, &json!({"jobs": jobs}));
        let jobs = answer.expect(200)["jobs"].clone();
        let ids = jobs.as_array().unwrap().iter();
        ids.map(|job| job["job_id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let mut expected = submit(&mut admin, 520);
    admin.submit("other", "t");
    expected.reverse();
    let (mut found, mut before) = (Vec::new(), String::new());
    loop {
        let query = format!("?addon_id=a&limit=200{before}");
        let page = admin.get(&format!("{}{query}", paths::RECENT)).expect(200);
        let ids = page["jobs"].as_array().unwrap().iter();
        found.extend(ids.map(|job| job["job_id"].as_str().unwrap().to_owned()));
        // Jobs that come between two pages.
        submit(&mut admin, 30);
        let Some(next) = page["next"].as_str() else {
            break;
        };
        before = format!("&before={next}");
    }
    assert_eq!(found.len(), 520);
    assert_eq!(found, expected);
    let whole = format!("{}?addon_id=other&limit=1", paths::RECENT);
    assert_eq!(admin.get(&whole).expect(200)["next"], json!(null));
    let nothing = format!("{}?before={NO_ID}", paths::RECENT);
    assert_eq!(admin.get(&nothing).expect(200)["jobs"], json!([]));
    admin
        .get(&format!("{}?before=x", paths::RECENT))
        .problem(400, "malformed");
}

#[test]
fn failures_are_found_by_the_time_of_their_end_however_long_ago_they_were_submitted() {
    let house = House::new();
    let mut admin = house.admin();
    let early = admin.submit("slow", "t");
    let (lease, job) = admin.claim("slow");
    assert_eq!(job, early);
    let before = dead_letter(&mut admin);
    let since = admin.get(&paths::at(paths::JOB, &before)).expect(200)["ended_at"].clone();
    let since: jiff::Timestamp = since.as_str().unwrap().parse().unwrap();
    let since = since + jiff::SignedDuration::from_micros(1);
    let body = json!({"lease_id": lease, "status": "FAILED", "error": "no"});
    admin
        .post(&paths::at(paths::COMPLETE, &early), &body)
        .expect(200);
    for path in [paths::RECENT, paths::JOBS] {
        let list = |client: &mut Client, query: &str| {
            let list = client.get(&format!("{path}?state=FAILED{query}"));
            let jobs = list.expect(200)["jobs"].as_array().unwrap().clone();
            jobs.into_iter()
                .map(|job| job["job_id"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let lately = format!("&ended_since={since}");
        assert_eq!(list(&mut admin, &lately), [early.as_str()], "{path}");
        assert_eq!(list(&mut admin, "").len(), 2, "{path}");
        admin
            .get(&format!("{path}?ended_since=soon"))
            .problem(400, "malformed");
    }
}

#[test]
fn waits_and_places_beyond_their_bounds_are_refused() {
    let house = House::new();
    let mut admin = house.admin();
    let id = admin.submit("a", "t");
    let log = paths::at(paths::LOG, &id);
    for query in [
        "wait_sec=601",
        "after=0&wait_sec=601",
        "after=18446744073709551616",
        "after=-1",
    ] {
        let told = admin
            .get(&format!("{log}?{query}"))
            .problem(400, "malformed");
        let detail = told["detail"].as_str().unwrap();
        let (name, _) = query.rsplit('&').next().unwrap().split_once('=').unwrap();
        assert!(detail.starts_with(name), "{query}: {detail}");
    }
    admin
        .get(&format!("{log}?after=18446744073709551615"))
        .expect(200);
}

/// The action when it has ended.
fn ended(client: &mut support::Client, id: &str) -> Value {
    loop {
        let view = client.get(&paths::at(paths::BULK_ACTION, id)).expect(200);
        if view["state"] == "ENDED" {
            return view;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn an_action_on_many_jobs_is_about_those_that_were_counted() {
    let house = House::new();
    let mut admin = house.admin();
    let jobs: Vec<_> = (0..5).map(|_| admin.submit("photos", "t")).collect();
    let theirs = admin.submit("music", "t");
    let mut photos = house.addon("photos", &[Scope::Cancel, Scope::Read]);
    // Narrowed to what the token sees, and nothing has happened yet.
    let request = json!({"action": "cancel", "query": {}, "reason": "not needed"});
    let made = photos.post(paths::BULK, &request).expect(201);
    assert_eq!(
        (&made["count"], &made["state"]),
        (&json!(5), &json!("READY"))
    );
    assert_eq!(made["query"]["addon_id"], "photos");
    assert_eq!(photos.get(paths::BULK).expect(200)["actions"], json!([]));
    // One ends meanwhile, and one comes.
    admin.poke(&paths::at(paths::CANCEL, &jobs[0])).expect(200);
    let late = admin.submit("photos", "t");
    let id = made["bulk_id"].as_str().unwrap();
    let start = paths::at(paths::BULK_START, id);
    assert_eq!(photos.poke(&start).expect(200)["state"], "RUNNING");
    photos.poke(&start).problem(409, "conflict");
    let over = ended(&mut photos, id);
    let counts = ["count", "done", "skipped", "failed"].map(|field| over[field].as_u64().unwrap());
    assert_eq!(counts, [5, 4, 1, 0]);
    for job in &jobs {
        assert_eq!(
            admin.get(&paths::at(paths::JOB, job)).expect(200)["state"],
            "CANCELED"
        );
    }
    for job in [&theirs, &late] {
        assert_ne!(
            admin.get(&paths::at(paths::JOB, job)).expect(200)["state"],
            "CANCELED"
        );
    }
    let view = admin.get(&paths::at(paths::JOB, &jobs[1])).expect(200);
    assert_eq!(view["last_error"], "not needed");
    assert_eq!(
        photos.get(paths::BULK).expect(200)["actions"][0]["bulk_id"],
        id
    );
    // It is nobody else's, and a token that only reads starts nothing.
    let mut music = house.addon("music", &[Scope::Cancel, Scope::Read]);
    for path in [paths::BULK_START, paths::BULK_STOP] {
        music.poke(&paths::at(path, id)).problem(404, "not_found");
    }
    music
        .get(&paths::at(paths::BULK_ACTION, id))
        .problem(404, "not_found");
    assert_eq!(music.get(paths::BULK).expect(200)["actions"], json!([]));
    let asked = json!({"action": "cancel", "query": {"addon_id": "photos"}});
    music.post(paths::BULK, &asked).problem(403, "forbidden");
    let mut reader = house.addon("photos", &[Scope::Read]);
    reader.post(paths::BULK, &request).problem(403, "forbidden");

    // Back again, those that a retry does something to; and what is stopped does nothing.
    let retry = json!({"action": "retry", "query": {"addon_id": "photos"}});
    let made = admin.post(paths::BULK, &retry).expect(201);
    assert_eq!(made["count"], 5);
    let stopped = admin.post(paths::BULK, &retry).expect(201);
    let stop = paths::at(paths::BULK_STOP, stopped["bulk_id"].as_str().unwrap());
    assert_eq!(admin.poke(&stop).expect(200)["state"], "STOPPED");
    let start = paths::at(paths::BULK_START, stopped["bulk_id"].as_str().unwrap());
    admin.poke(&start).problem(409, "conflict");
    let id = made["bulk_id"].as_str().unwrap();
    admin.poke(&paths::at(paths::BULK_START, id)).expect(200);
    assert_eq!(ended(&mut admin, id)["done"], 5);
    let none = json!({"action": "cancel", "query": {"state": ["DONE"]}});
    assert_eq!(admin.post(paths::BULK, &none).expect(201)["count"], 0);
}
