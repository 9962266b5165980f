//! Each call as it goes over the wire, and answers that are refused, slow or broken.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

mod fake;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fake::{Answer, Asked, Fake};
use jobtree_client::protocol::{
    AckRequest, AddonId, BackupRequest, ClaimRequest, CompleteManyRequest, CompleteOne,
    CompleteRequest, CompleteStatus, ErrorCode, Heartbeat, HeartbeatManyRequest, InstanceId, JobId,
    JobQuery, JobState, JobType, LeaseId, LeaseRequest, LogAppend, PauseRequest, Progress,
    RedriveRequest, ReleaseRequest, ReportRequest, ScheduleId, ScheduleSpec, Scope, SignalsRequest,
    SubmitManyRequest, SubmitRequest, TokenRequest, WebhookRequest, paths,
};
use jobtree_client::{Client, ClientError, LoadQuery, Probe};
use serde_json::{Value, json};
use watchdog::Watchdog;

const JOB: &str = "019a0000-0000-7000-8000-000000000001";
const LEASE: &str = "a9c8a2a0-0000-4000-8000-000000000002";

fn job_id() -> JobId {
    JOB.parse().unwrap()
}

fn lease_id() -> LeaseId {
    LEASE.parse().unwrap()
}

fn job(state: &str) -> Value {
    json!({
        "job_id": JOB, "addon_id": "photos", "job_type": "thumbnail", "cost_units": 5, "priority": "NORMAL",
        "constraints": {}, "expected_duration_sec": null, "created_at": "2026-01-01T00:00:00Z", "state": state,
        "attempts": 0, "max_attempts": 1, "rescues": 0, "next_earliest_start_at": null, "lease_id": null,
        "node_id": null, "time_sensitive": false, "deadline_at": null, "max_runtime_sec": null, "started_at": null,
        "ended_at": null,
    })
}

fn lease() -> Value {
    json!({
        "lease_id": LEASE, "addon_id": "photos", "job_type": null, "state": "ACTIVE", "cost_units": 5,
        "node_id": "here", "granted_at": "2026-01-01T00:00:00Z", "expires_at": "2026-01-01T00:01:00Z",
    })
}

fn schedule_spec() -> ScheduleSpec {
    serde_json::from_value(json!({
        "name": "nightly", "cron": "0 3 * * *",
        "job": {"addon_id": "photos", "job_type": "thumbnail", "cost_units": 5},
    }))
    .unwrap()
}

fn schedule() -> Value {
    json!({"schedule_id": JOB, "spec": serde_json::to_value(schedule_spec()).unwrap()})
}

/// A server that answers this to everything, and a client of it that repeats nothing.
fn answering(answer: Value) -> (Fake, Client) {
    let fake = Fake::new(move |_| Answer::ok(answer.clone()));
    let client = Client::builder(fake.url())
        .patience(Duration::ZERO)
        .token("secret");
    let client = client.build().unwrap();
    (fake, client)
}

/// What was asked by one call.
fn asked<T>(answer: Value, call: impl FnOnce(&Client) -> Result<T, ClientError>) -> (T, Asked) {
    let (fake, client) = answering(answer);
    let value = call(&client).unwrap_or_else(|error| panic!("{error}: {:?}", fake.asked()));
    let mut asked = fake.asked();
    assert_eq!(asked.len(), 1);
    let asked = asked.remove(0);
    assert_eq!(asked.header("Authorization"), Some("Bearer secret"));
    assert!(asked.header("User-Agent").unwrap().starts_with("jobtree/"));
    if !asked.body.is_empty() {
        let kind = asked.header("Content-Type").unwrap();
        assert!(["application/json", "application/toml"].contains(&kind));
    }
    (value, asked)
}

fn line(method: &str, pattern: &str, id: &str) -> String {
    format!("{method} {}", paths::at(pattern, id))
}

#[test]
fn jobs_go_over_the_wire() {
    let _watch = Watchdog::watching("jobs over the wire");
    let submitted = json!({"job_id": JOB, "state": "QUEUED"});
    let request = SubmitRequest {
        job_id: Some(job_id()),
        ..SubmitRequest::new("photos", "thumbnail", 5)
    };
    let (answer, call) = asked(submitted.clone(), |client| client.submit(request.clone()));
    assert_eq!(answer.state, JobState::Queued);
    assert_eq!(call.line(), line("POST", paths::SUBMIT, ""));
    assert_eq!(call.json()["job_id"], JOB);
    assert_eq!(call.json()["cost_units"], 5);

    let many = SubmitManyRequest {
        jobs: vec![
            request.clone(),
            SubmitRequest::new("photos", "thumbnail", 1),
        ],
    };
    let refusal = json!({"error": {"code": "invalid", "message": "no"}});
    let answers = json!({"jobs": [submitted, refusal]});
    let (answer, call) = asked(answers, |client| client.submit_many(many));
    assert_eq!(answer.jobs.len(), 2);
    assert_eq!(call.line(), line("POST", paths::SUBMIT_MANY, ""));
    assert!(
        call.json()["jobs"][1]["job_id"].is_string(),
        "an id was drawn for it"
    );

    let (answer, call) = asked(job("RUNNING"), |client| client.job(job_id()));
    assert_eq!((answer.job_id, answer.state), (job_id(), JobState::Running));
    assert_eq!(call.line(), line("GET", paths::JOB, JOB));
    assert!(call.body.is_empty());

    let query: JobQuery = serde_json::from_value(json!({
        "state": ["QUEUED", "FAILED"], "addon_id": "photos", "job_type": "thumbnail", "tag": "a b", "text": "ü",
        "quarantined": true, "after": JOB, "limit": 7,
    }))
    .unwrap();
    let (answer, call) = asked(json!({"jobs": [job("DONE")]}), |client| client.jobs(&query));
    assert_eq!(answer.jobs.len(), 1);
    let expected = format!(
        "GET {}?state=QUEUED&state=FAILED&addon_id=photos&job_type=thumbnail&tag=a%20b&text=%C3%BC&quarantined=true&after={JOB}&limit=7",
        paths::JOBS
    );
    assert_eq!(call.line(), expected);

    let state = json!({"job_id": JOB, "state": "CANCELED"});
    let (answer, call) = asked(state.clone(), |client| {
        client.cancel(job_id(), Some("enough"))
    });
    assert_eq!(answer, JobState::Canceled);
    assert_eq!(call.line(), line("POST", paths::CANCEL, JOB));
    assert_eq!(call.json(), json!({"reason": "enough"}));

    let bulk = json!({"done": [JOB], "failed": []});
    let (answer, call) = asked(bulk.clone(), |client| {
        client.cancel_many(JobQuery::default(), None)
    });
    assert_eq!(answer.done, [job_id()]);
    assert_eq!(call.line(), line("POST", paths::CANCEL_MANY, ""));
    assert_eq!(call.json(), json!({"query": {}}));

    let (_, call) = asked(state, |client| client.retry(job_id(), None));
    assert_eq!(call.line(), line("POST", paths::RETRY, JOB));
    let request = RedriveRequest {
        job_ids: vec![job_id()],
        ..RedriveRequest::default()
    };
    let (_, call) = asked(bulk, |client| client.redrive(&request));
    assert_eq!(call.line(), line("POST", paths::REDRIVE, ""));
    assert_eq!(call.json()["job_ids"], json!([JOB]));

    let explained = json!({"job_id": JOB, "reasons": []});
    let (_, call) = asked(explained, |client| client.explain(job_id()));
    assert_eq!(call.line(), line("GET", paths::EXPLAIN, JOB));
    let event = json!({"cursor": 4, "at": "2026-01-01T00:00:00Z", "event": "DONE", "job_id": JOB});
    let (answer, call) = asked(json!({"events": [event]}), |client| {
        client.job_events(job_id(), Some(3))
    });
    assert_eq!(answer.events[0].cursor, 4);
    assert_eq!(
        call.line(),
        format!("{}?after=3", line("GET", paths::JOB_EVENTS, JOB))
    );

    let page = json!({"job_id": JOB, "text": "out", "next": 3, "ended": true});
    let (answer, call) = asked(page, |client| {
        client.log(job_id(), Some(0), Duration::from_secs(2))
    });
    assert_eq!((answer.text.as_str(), answer.next), ("out", 3));
    assert_eq!(
        call.line(),
        format!("{}?after=0&wait_sec=2", line("GET", paths::LOG, JOB))
    );
    let append = LogAppend {
        lease_id: lease_id(),
        offset: 9,
        text: "more".to_owned(),
    };
    let (answer, call) = asked(json!({"next_offset": 13}), |client| {
        client.append_log(job_id(), &append)
    });
    assert_eq!((answer.next_offset, answer.full), (13, false));
    assert_eq!(call.line(), line("POST", paths::LOG, JOB));
    assert_eq!(
        call.json(),
        json!({"lease_id": LEASE, "offset": 9, "text": "more"})
    );

    let tree = json!({
        "instance_id": LEASE, "at": "2026-01-01T00:00:00Z",
        "tree": {"job_id": JOB, "nodes": [{"depth": 0, "label": "run", "state": "Active", "age_ms": 5}]},
    });
    let (answer, call) = asked(tree, |client| client.tree(job_id()));
    assert_eq!(answer.tree.nodes[0].label, "run");
    assert_eq!(call.line(), line("GET", paths::TREE, JOB));
}

#[test]
fn leases_go_over_the_wire() {
    let _watch = Watchdog::watching("leases over the wire");
    let claim = ClaimRequest {
        lease_id: Some(lease_id()),
        addon_id: AddonId::new("photos").unwrap(),
        job_types: vec![JobType::new("thumbnail").unwrap()],
        max_jobs: 3,
        max_leases: 1,
        wait_sec: 2,
        instance_id: InstanceId::generate(),
        node_id: None,
        pids: vec![77],
        process_origin: None,
        begins_now: None,
        returns_unbegun: false,
    };
    let granted = json!({"leases": [{"lease_id": LEASE, "ttl_sec": 30, "jobs": [job("RUNNING")]}]});
    let (answer, call) = asked(granted, |client| client.claim(&claim));
    assert_eq!(answer[0].jobs[0].job_id, job_id());
    assert_eq!(call.line(), line("POST", paths::CLAIM, ""));
    assert_eq!(call.json()["pids"], json!([77]));

    let completed = json!({"job_id": JOB, "state": "DONE"});
    let request = CompleteRequest::done(lease_id(), None);
    let (answer, call) = asked(completed.clone(), |client| {
        client.complete(job_id(), &request)
    });
    assert_eq!(answer.state, JobState::Done);
    assert_eq!(call.line(), line("POST", paths::COMPLETE, JOB));
    assert_eq!(call.json()["lease_id"], LEASE);
    assert_eq!(call.json()["status"], "DONE");

    let many = CompleteManyRequest {
        lease_id: lease_id(),
        jobs: vec![CompleteOne {
            job_id: job_id(),
            status: CompleteStatus::Failed,
            result: None,
            error: Some("no".to_owned()),
            retry: false,
            began_ms_ago: None,
            ended_ms_ago: None,
            usage: None,
        }],
        in_hand: None,
    };
    let (_, call) = asked(json!({"jobs": [completed]}), |client| {
        client.complete_many(&many)
    });
    assert_eq!(call.line(), line("POST", paths::COMPLETE_MANY, ""));
    assert_eq!(call.json()["jobs"][0]["retry"], false);

    let (answer, call) = asked(lease(), |client| {
        client.ack(job_id(), &AckRequest::default())
    });
    assert_eq!(answer.lease_id, lease_id());
    assert_eq!(call.line(), line("POST", paths::ACK, JOB));
    let addon = AddonId::new("photos").unwrap();
    let (answer, call) = asked(json!({"jobs": [job("DISPATCHING")]}), |client| {
        client.dispatchable(Some(&addon), Duration::from_secs(1))
    });
    assert_eq!(answer.len(), 1);
    let expected = format!("GET {}?addon_id=photos&wait_sec=1", paths::DISPATCHABLE);
    assert_eq!(call.line(), expected);

    let approved = json!({"approved": false, "reason": "busy", "retry_after_sec": 4});
    let (answer, call) = asked(approved, |client| {
        client.lease_request(&LeaseRequest::default())
    });
    assert_eq!((answer.approved, answer.retry_after_sec), (false, Some(4)));
    assert_eq!(call.line(), line("POST", paths::LEASE_REQUEST, ""));
    let (answer, call) = asked(json!({"leases": [lease()]}), |client| client.leases(None));
    assert_eq!(answer.leases.len(), 1);
    assert_eq!(call.line(), line("GET", paths::LEASES, ""));
    let (_, call) = asked(lease(), |client| client.lease(lease_id()));
    assert_eq!(call.line(), line("GET", paths::LEASE, LEASE));

    let renewed = json!({"advice": "slow", "ttl_sec": 30});
    let beat = Heartbeat {
        job_id: Some(job_id()),
        progress: Some(Progress {
            fraction: Some(0.5),
            message: None,
        }),
        ..Heartbeat::of(lease_id())
    };
    let (answer, call) = asked(renewed.clone(), |client| client.heartbeat(beat.clone()));
    assert_eq!(answer.ttl_sec, 30);
    assert_eq!(call.line(), line("POST", paths::HEARTBEAT, LEASE));
    let expected = json!({"job_id": JOB, "progress": {"fraction": 0.5}});
    assert_eq!(call.json(), expected, "the lease stands in the path alone");
    let beats = HeartbeatManyRequest {
        leases: vec![beat],
        worker: None,
    };
    let (answer, call) = asked(json!({"leases": [renewed]}), |client| {
        client.heartbeat_many(&beats)
    });
    assert_eq!(answer.leases.len(), 1);
    assert_eq!(call.line(), line("POST", paths::HEARTBEAT_MANY, ""));
    assert_eq!(call.json()["leases"][0]["lease_id"], LEASE);

    let report = ReportRequest {
        lease_id: lease_id(),
        job_id: None,
        progress: None,
        metrics: BTreeMap::from([("frames".to_owned(), 7.0)]),
        pids: None,
        process_origin: None,
    };
    let ((), call) = asked(json!({}), |client| client.report(report));
    assert_eq!(call.line(), line("POST", paths::REPORT, LEASE));
    assert_eq!(call.json(), json!({"metrics": {"frames": 7.0}}));
    let ((), call) = asked(json!({}), |client| {
        client.release(lease_id(), &ReleaseRequest::default())
    });
    assert_eq!(call.line(), line("POST", paths::RELEASE, LEASE));
    let ((), call) = asked(json!({}), |client| client.revoke(lease_id(), Some("mine")));
    assert_eq!(call.line(), line("POST", paths::REVOKE, LEASE));
    assert_eq!(call.json(), json!({"reason": "mine"}));
    let gone = vec![1, u32::MAX - 7];
    let ((), call) = asked(json!({}), |client| client.pid(lease_id(), gone.clone()));
    assert_eq!(call.line(), line("POST", paths::PID, LEASE));
    assert_eq!(call.json(), json!({"pids": gone}));
    let own = vec![std::process::id()];
    let ((), call) = asked(json!({}), |client| client.pid(lease_id(), own.clone()));
    let origin = serde_json::to_value(jobtree_client::process_origin(&own)).unwrap();
    assert_eq!(call.json()["pids"], json!(own));
    assert_eq!(call.json()["process_origin"], origin);
}

#[test]
fn schedules_go_over_the_wire() {
    let _watch = Watchdog::watching("schedules over the wire");
    let id: ScheduleId = JOB.parse().unwrap();
    let spec = schedule_spec();
    let (answer, call) = asked(json!({"schedules": [schedule()]}), Client::schedules);
    assert_eq!(answer[0].spec.name, "nightly");
    assert_eq!(call.line(), line("GET", paths::SCHEDULES, ""));
    let (_, call) = asked(schedule(), |client| client.schedule(id));
    assert_eq!(call.line(), line("GET", paths::SCHEDULE, JOB));
    let (_, call) = asked(schedule(), |client| client.add_schedule(&spec));
    assert_eq!(call.line(), line("POST", paths::SCHEDULES, ""));
    assert_eq!(call.json()["cron"], "0 3 * * *");
    let (_, call) = asked(schedule(), |client| client.put_schedule(id, &spec));
    assert_eq!(call.line(), line("PUT", paths::SCHEDULE, JOB));
    let (_, call) = asked(schedule(), |client| client.pause_schedule(id));
    assert_eq!(call.line(), line("POST", paths::SCHEDULE_PAUSE, JOB));
    let (_, call) = asked(schedule(), |client| client.resume_schedule(id));
    assert_eq!(call.line(), line("POST", paths::SCHEDULE_RESUME, JOB));
    let ((), call) = asked(json!({}), |client| client.delete_schedule(id));
    assert_eq!(call.line(), line("DELETE", paths::SCHEDULE, JOB));
}

#[test]
fn what_is_looked_at_goes_over_the_wire() {
    let _watch = Watchdog::watching("looking over the wire");
    let status =
        json!({"at": "2026-01-01T00:00:00Z", "nodes": [], "jobs": {"QUEUED": 3}, "addons": {}});
    let (answer, call) = asked(status, Client::status);
    assert_eq!(answer.jobs[&JobState::Queued], 3);
    assert_eq!(call.line(), line("GET", paths::STATUS, ""));
    let took = json!({"count": 2, "sum_sec": 0.5, "up_to": [{"sec": 1.0, "count": 2}]});
    let stats = json!({
        "events": {"DONE": 2}, "denials": {}, "waited": took, "ran": took,
        "lost_proposals": 0, "store_failures": 0, "reads": 1,
    });
    let (answer, call) = asked(stats, Client::stats);
    assert_eq!((answer.events["DONE"], answer.ran.up_to[0].count), (2, 2));
    assert_eq!(call.line(), line("GET", paths::STATS, ""));
    let history = json!({"history": [{"addon_id": "photos", "ended": 4}]});
    let (answer, call) = asked(history, Client::history);
    assert_eq!(answer[0].ended, 4);
    assert_eq!(call.line(), line("GET", paths::HISTORY, ""));
    let (answer, call) = asked(json!({"decisions": []}), |client| client.decisions(Some(5)));
    assert!(answer.is_empty());
    assert_eq!(call.line(), format!("GET {}?limit=5", paths::DECISIONS));
    let sample = json!({"at": "2026-01-01T00:00:00Z", "busy": 1.5, "state": "QUIET", "capacity": 90, "used": 5});
    let (answer, call) = asked(json!({"samples": [sample]}), |client| {
        client.load(&LoadQuery::default())
    });
    assert_eq!(answer[0].capacity, 90);
    assert_eq!(call.line(), line("GET", paths::LOAD, ""));
    let worker =
        json!({"instance_id": LEASE, "addon_id": "photos", "seen_at": "2026-01-01T00:00:00Z"});
    let (answer, call) = asked(json!({"workers": [worker]}), Client::workers);
    assert_eq!(answer[0].report.addon_id.as_str(), "photos");
    assert_eq!(call.line(), line("GET", paths::WORKERS, ""));
    let (answer, call) = asked(json!({}), Client::health);
    assert_eq!((answer, call.path.as_str()), (Probe::Well, paths::HEALTH));
    let (answer, call) = asked(json!({"openapi": "3.1.0"}), Client::openapi);
    assert_eq!(answer["openapi"], "3.1.0");
    assert_eq!(call.path, paths::OPENAPI);

    let fake = Fake::new(|asked| match asked.path.as_str() {
        paths::METRICS => Answer::Text(200, "jobtree_jobs 3\n".to_owned()),
        paths::POLICY => Answer::Text(200, "[quiet]\n".to_owned()),
        _ => Answer::problem(503, "unavailable", "the disk is full"),
    });
    let client = Client::new(fake.url()).unwrap();
    assert_eq!(client.metrics().unwrap(), "jobtree_jobs 3\n");
    assert_eq!(client.policy().unwrap(), "[quiet]\n");
    assert_eq!(
        client.ready().unwrap(),
        Probe::Unwell("the disk is full".to_owned())
    );
}

#[test]
fn what_operators_do_goes_over_the_wire() {
    let _watch = Watchdog::watching("operating over the wire");
    let ((), call) = asked(json!({}), |client| {
        client.signals(&SignalsRequest::default())
    });
    assert_eq!(call.line(), line("POST", paths::SIGNALS, ""));
    let ((), call) = asked(json!({}), |client| client.put_policy("[quiet]\n"));
    assert_eq!(call.line(), line("PUT", paths::POLICY, ""));
    assert_eq!(call.header("Content-Type"), Some("application/toml"));
    assert_eq!(call.body, b"[quiet]\n");
    let ((), call) = asked(json!({"valid": true}), |client| {
        client.validate_policy("x = 1")
    });
    assert_eq!(call.line(), line("POST", paths::POLICY_VALIDATE, ""));
    let preview = json!({"jobs": 3, "present": {"started": 3, "never_started": 0, "average_wait_sec": 1.5}, "given": {"started": 0, "never_started": 3}});
    let (told, call) = asked(preview, |client| client.preview_policy("[quiet]\n"));
    assert_eq!(call.line(), line("POST", paths::POLICY_PREVIEW, ""));
    assert_eq!((told.present.started, told.given.never_started), (3, 3));
    let ((), call) = asked(json!({"draining": true}), |client| client.drain(true));
    assert_eq!(call.line(), line("POST", paths::DRAIN, ""));
    assert_eq!(call.json(), json!({"draining": true}));
    let copy = json!({"path": "/x/backups/a.db", "bytes": 4096, "last_event": 7, "at": "2026-01-01T00:00:00Z"});
    let request = BackupRequest::default();
    let (answer, call) = asked(copy, |client| client.backup(&request));
    assert_eq!(answer.bytes, 4096);
    assert_eq!(call.line(), line("POST", paths::BACKUP, ""));
    let ((), call) = asked(json!({}), Client::kick);
    assert_eq!(call.line(), line("POST", paths::KICK, ""));
    let pause = PauseRequest {
        addon_id: AddonId::new("photos").unwrap(),
        job_type: None,
        reason: None,
    };
    let ((), call) = asked(json!({}), |client| client.pause(&pause));
    assert_eq!(call.line(), line("POST", paths::PAUSE, ""));
    let (answer, call) = asked(json!({"resumed": true}), |client| client.resume(&pause));
    assert!(answer);
    assert_eq!(call.line(), line("POST", paths::RESUME, ""));
    let paused = json!({"pauses": [{"addon_id": "photos", "since": "2026-01-01T00:00:00Z"}]});
    let (answer, call) = asked(paused, Client::pauses);
    assert_eq!(answer[0].addon_id.as_str(), "photos");
    assert_eq!(call.line(), line("GET", paths::PAUSES, ""));

    let webhook = json!({
        "webhook_id": JOB, "url": "http://there", "addon_id": null, "events": ["DONE"],
        "created_at": "2026-01-01T00:00:00Z", "delivered": 1, "given_up": 0,
    });
    let request = WebhookRequest {
        url: "http://there".to_owned(),
        addon_id: None,
        events: Vec::new(),
        secret: "0123456789abcdef".to_owned(),
    };
    let (_, call) = asked(webhook.clone(), |client| client.add_webhook(&request));
    assert_eq!(call.line(), line("POST", paths::WEBHOOKS, ""));
    let (answer, call) = asked(json!({"webhooks": [webhook]}), Client::webhooks);
    assert_eq!(call.line(), line("GET", paths::WEBHOOKS, ""));
    let ((), call) = asked(json!({}), |client| {
        client.delete_webhook(answer[0].webhook_id)
    });
    assert_eq!(call.line(), line("DELETE", paths::WEBHOOK, JOB));

    let token = json!({
        "token_id": JOB, "name": "ci", "addon_id": null, "scopes": ["read"], "created_at": "2026-01-01T00:00:00Z",
        "expires_at": null,
    });
    let mut new = token.clone();
    new["token"] = json!("jt_secret");
    let request = TokenRequest {
        name: "ci".to_owned(),
        addon_id: None,
        scopes: vec![Scope::Read],
        expires_at: None,
    };
    let (answer, call) = asked(new, |client| client.add_token(&request));
    assert_eq!(answer.token, "jt_secret");
    assert_eq!(call.line(), line("POST", paths::TOKENS, ""));
    let (answer, call) = asked(json!({"tokens": [token]}), Client::tokens);
    assert_eq!(call.line(), line("GET", paths::TOKENS, ""));
    let ((), call) = asked(json!({}), |client| client.delete_token(answer[0].token_id));
    assert_eq!(call.line(), line("DELETE", paths::TOKEN, JOB));
}

#[test]
fn pages_are_asked_for_as_they_are_taken() {
    let _watch = Watchdog::watching("pages");
    let fake = Fake::new(|asked| {
        Answer::ok(if asked.path.contains("after=") {
            json!({"jobs": [job("DONE")]})
        } else {
            json!({"jobs": [job("QUEUED"), job("RUNNING")], "next": JOB})
        })
    });
    let client = Client::new(fake.url()).unwrap();
    let mut jobs = client.all_jobs(JobQuery::default());
    assert!(jobs.next().is_some());
    assert_eq!(
        fake.asked().len(),
        1,
        "the second page is not asked for yet"
    );
    let states: Vec<_> = jobs.map(|job| job.unwrap().state).collect();
    assert_eq!(states, [JobState::Running, JobState::Done]);
    assert_eq!(fake.asked().len(), 2);
    assert_eq!(fake.connections(), 1, "the connection is kept");
}

#[test]
fn waiting_for_a_job_asks_until_it_has_ended() {
    let _watch = Watchdog::watching("waiting for a job");
    let times = AtomicUsize::new(0);
    let fake = Fake::new(move |_| match times.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => Answer::ok(job("RUNNING")),
        _ => Answer::ok(job("DONE")),
    });
    let client = Client::new(fake.url()).unwrap();
    let ended = client
        .wait_for(job_id(), Duration::from_secs(3600))
        .unwrap();
    assert_eq!(ended.state, JobState::Done);
    let asked = fake.asked();
    assert_eq!(asked.len(), 3);
    assert!(
        asked
            .iter()
            .all(|asked| asked.path.ends_with("wait_sec=25"))
    );
    let still = client.wait_for(job_id(), Duration::ZERO).unwrap();
    assert_eq!(still.state, JobState::Done);
    assert!(fake.asked()[3].path.ends_with("wait_sec=0"));
}

#[test]
fn a_refusal_says_why() {
    let _watch = Watchdog::watching("a refusal");
    let fake = Fake::new(|_| {
        Answer::Json(
            409,
            json!({
                "type": "urn:jobtree:problem:wrong_state", "title": "Conflict", "status": 409, "code": "wrong_state",
                "detail": "the job is DONE: nothing is left to cancel", "state": "DONE", "lease_id": LEASE,
                "fields": [{"field": "reason", "message": "is long"}], "more": "than we know",
            }),
        )
    });
    let client = Client::new(fake.url()).unwrap();
    let error = client.cancel(job_id(), None).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::WrongState));
    assert_eq!(
        error.to_string(),
        "the job is DONE: nothing is left to cancel"
    );
    let ClientError::Refused { status, error } = error else {
        panic!("{error:?}")
    };
    assert_eq!((status, error.state), (409, Some(JobState::Done)));
    assert_eq!((error.lease_id, error.fields.len()), (Some(lease_id()), 1));
    assert_eq!(fake.asked().len(), 1, "asking again would not help");
}

#[test]
fn what_is_no_daemon_is_told_apart() {
    let _watch = Watchdog::watching("no daemon");
    let protocol = |answer: fn() -> Answer| {
        let fake = Fake::new(move |_| answer());
        let client = Client::new(fake.url()).unwrap();
        let error = client.status().unwrap_err();
        assert!(matches!(error, ClientError::Protocol { .. }), "{error:?}");
        assert!(error.to_string().contains("no jobtree daemon"), "{error}");
    };
    protocol(|| Answer::Text(200, "<html>".to_owned()));
    protocol(|| Answer::Text(502, "bad gateway".to_owned()));
    protocol(|| {
        Answer::Raw(b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n".to_vec())
    });
    protocol(|| Answer::Raw(b"SSH-2.0-whatever\r\n\r\n".to_vec()));
}

#[test]
fn nobody_at_the_address_is_said_with_a_hint() {
    let _watch = Watchdog::watching("nobody there");
    let addr = {
        let fake = Fake::new(|_| Answer::Nothing);
        fake.addr()
    };
    let client = Client::builder(format!("http://{addr}")).patience(Duration::ZERO);
    let error = client.build().unwrap().status().unwrap_err();
    assert!(
        matches!(error, ClientError::Unreachable { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("jobtree serve"), "{error}");
}

#[test]
fn a_silent_daemon_is_given_up_in_time() {
    let _watch = Watchdog::watching("a silent daemon");
    let fake = Fake::new(|_| Answer::Silence);
    let client = Client::builder(fake.url()).timeout(Duration::from_millis(50));
    let client = client.build().unwrap();
    let error = client.status().unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error:?}");
    // Half an answer is none either.
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{\"at\"".to_vec();
    let fake = Fake::new(move |_| Answer::Raw(head.clone()));
    let client = Client::builder(fake.url()).patience(Duration::ZERO);
    assert!(client.build().unwrap().status().is_err());
}

#[test]
fn a_submission_is_repeated_as_the_same_job_when_the_connection_breaks() {
    let _watch = Watchdog::watching("repeated");
    let times = AtomicUsize::new(0);
    let fake = Fake::new(move |_| match times.fetch_add(1, Ordering::SeqCst) {
        0 => Answer::Nothing,
        1 => Answer::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{".to_vec()),
        2 => Answer::problem(503, "unavailable", "starting"),
        _ => Answer::ok(json!({"job_id": JOB, "state": "QUEUED"})),
    });
    let client = Client::builder(fake.url()).patience(Duration::from_secs(3600));
    let client = client.build().unwrap();
    client
        .submit(SubmitRequest::new("photos", "thumbnail", 5))
        .unwrap();
    let asked = fake.asked();
    assert_eq!(asked.len(), 4);
    let first = asked[0].json();
    assert!(first["job_id"].is_string());
    assert!(
        asked.iter().all(|asked| asked.json() == first),
        "the same each time"
    );
}

#[test]
fn what_cannot_be_repeated_safely_is_asked_once() {
    let _watch = Watchdog::watching("not repeated");
    let fake = Fake::new(|_| Answer::Nothing);
    let client = Client::builder(fake.url()).patience(Duration::from_secs(3600));
    let client = client.build().unwrap();
    assert!(client.retry(job_id(), None).is_err());
    assert!(client.add_schedule(&schedule_spec()).is_err());
    let claim = ClaimRequest {
        lease_id: None,
        addon_id: AddonId::new("photos").unwrap(),
        job_types: Vec::new(),
        max_jobs: 1,
        max_leases: 2,
        wait_sec: 0,
        instance_id: InstanceId::generate(),
        node_id: None,
        pids: Vec::new(),
        process_origin: None,
        begins_now: None,
        returns_unbegun: false,
    };
    assert!(client.claim(&claim).is_err());
    assert_eq!(fake.asked().len(), 3);
}

#[test]
fn a_daemon_that_comes_back_is_found_by_those_who_wait() {
    let _watch = Watchdog::watching("a daemon that comes back");
    let first = Fake::new(|_| Answer::ok(job("RUNNING")));
    let addr = first.addr();
    let client = Client::builder(first.url()).patience(Duration::from_secs(3600));
    let client = client.build().unwrap();
    client.job(job_id()).unwrap();
    drop(first);
    let looking = std::thread::spawn(move || client.job(job_id()));
    // It has probably tried in vain by now; whether or not, it must find the second.
    let second: Arc<Mutex<Option<Fake>>> = Arc::default();
    *second.lock().unwrap() = Some(Fake::at(addr, |_| Answer::ok(job("DONE"))));
    assert_eq!(looking.join().unwrap().unwrap().state, JobState::Done);
}
