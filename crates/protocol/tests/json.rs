//! The JSON to the letter: what is read, what is written, what is refused.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::collections::{BTreeMap, BTreeSet};

use jobtree_protocol::{
    AckRequest, AddonId, Advice, ApiError, Backoff, ClaimRequest, CompleteAnswer,
    CompleteManyRequest, CompleteRequest, CompleteStatus, Constraints, Each, ErrorCode, Event,
    EventKind, FieldError, Heartbeat, HeartbeatAnswer, JobId, JobList, JobQuery, JobState, JobType,
    JobView, Json, Late, LeaseAnswer, LeaseId, LeaseRequest, LeaseState, Limits,
    OnDependencyFailure, Priority, ReleaseRequest, ScheduleSpec, StatusView, SubmitAnswer,
    SubmitManyAnswer, SubmitRequest,
};
use serde_json::{Value, json};
use watchdog::Watchdog;

fn watch() -> Watchdog {
    Watchdog::watching(std::thread::current().name().unwrap_or("main"))
}

const JOB: &str = "0193e4a0-7b1c-7def-8123-456789abcdef";
const LEASE: &str = "6f1ed002-ab59-4d53-9b5c-1d1c6d8f8a3e";

fn job_id() -> JobId {
    JOB.parse().unwrap()
}

fn lease_id() -> LeaseId {
    LEASE.parse().unwrap()
}

fn view() -> JobView {
    JobView {
        job_id: job_id(),
        addon_id: AddonId::new("visuals").unwrap(),
        job_type: JobType::new("indexing").unwrap(),
        cost_units: 30,
        priority: Priority::Normal,
        constraints: Constraints {
            cpu_heavy: true,
            ..Constraints::default()
        },
        expected_duration_sec: Some(120),
        created_at: "2025-12-28T22:00:00Z".parse().unwrap(),
        state: JobState::Running,
        attempts: 0,
        max_attempts: 1,
        rescues: 0,
        next_earliest_start_at: Some("2025-12-28T23:00:00Z".parse().unwrap()),
        lease_id: Some(lease_id()),
        position: None,
        node_id: None,
        dispatch_until: None,
        payload: Some(Json::from_text(r#"{"path": "/some/dir"}"#.into()).unwrap()),
        time_sensitive: false,
        start: jobtree_protocol::Start::WhenQuiet,
        deadline_at: None,
        deadline_at_risk: false,
        max_runtime_sec: None,
        tags: vec!["nightly".into()],
        pids: Vec::new(),
        waiting_for: Vec::new(),
        progress: None,
        metrics: BTreeMap::new(),
        result: None,
        last_error: None,
        cancel_requested: false,
        quarantined: false,
        started_at: None,
        ended_at: None,
        schedule_id: None,
        traceparent: None,
        earliest_start_at: None,
        late: Late::Run,
        backoff: Backoff::default(),
        idempotency_key: None,
        unique_key: None,
        concurrency_key: None,
        concurrency_limit: None,
        depends_on: Vec::new(),
        on_dependency_failure: OnDependencyFailure::Cancel,
        required_node: None,
        required_labels: Vec::new(),
    }
}

#[test]
fn a_submission_as_it_is_documented() {
    let _watch = watch();
    let text = r#"{
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
    let request: SubmitRequest = serde_json::from_str(text).unwrap();
    let intent = request.validate(&Limits::default()).unwrap();
    assert_eq!(intent.addon_id.as_str(), "visuals");
    assert_eq!(
        intent.payload.unwrap().text(),
        r#"{"path": "/some/dir"}"#,
        "as it came"
    );
    assert_eq!(
        intent.earliest_start_at.unwrap().to_string(),
        "2025-12-28T23:00:00Z"
    );
    assert!(intent.constraints.cpu_heavy && !intent.constraints.memory_heavy);
    assert_eq!((intent.max_attempts, intent.concurrency_limit), (1, 1));

    let answer = SubmitAnswer {
        job_id: job_id(),
        state: JobState::Queued,
        duplicate: false,
    };
    assert_eq!(
        serde_json::to_string(&answer).unwrap(),
        format!(r#"{{"job_id":"{JOB}","state":"QUEUED"}}"#)
    );
}

#[test]
fn a_job_as_it_is_shown() {
    let _watch = watch();
    let expected = json!({
        "job_id": JOB,
        "addon_id": "visuals",
        "job_type": "indexing",
        "cost_units": 30,
        "priority": "NORMAL",
        "constraints": {"cpu_heavy": true, "disk_write_heavy": false, "network_heavy": false, "memory_heavy": false},
        "expected_duration_sec": 120,
        "created_at": "2025-12-28T22:00:00Z",
        "state": "RUNNING",
        "attempts": 0,
        "max_attempts": 1,
        "rescues": 0,
        "next_earliest_start_at": "2025-12-28T23:00:00Z",
        "lease_id": LEASE,
        "node_id": null,
        "payload": {"path": "/some/dir"},
        "time_sensitive": false,
        "deadline_at": null,
        "deadline_at_risk": false,
        "max_runtime_sec": null,
        "tags": ["nightly"],
        "cancel_requested": false,
        "quarantined": false,
        "started_at": null,
        "ended_at": null,
    });
    assert_eq!(serde_json::to_value(view()).unwrap(), expected);
    let text = serde_json::to_string(&view()).unwrap();
    assert_eq!(serde_json::from_str::<JobView>(&text).unwrap(), view());
}

#[test]
fn names_of_states_events_and_the_like() {
    let _watch = watch();
    let written = |value: Value| value.as_str().unwrap().to_owned();
    for state in JobState::ALL {
        assert_eq!(
            written(serde_json::to_value(state).unwrap()),
            state.as_str()
        );
        assert_eq!(
            state.as_str().to_lowercase().parse::<JobState>().unwrap(),
            state
        );
    }
    for kind in EventKind::ALL {
        assert_eq!(written(serde_json::to_value(kind).unwrap()), kind.as_str());
    }
    let states = JobState::ALL.map(JobState::as_str);
    assert_eq!(
        states,
        [
            "QUEUED",
            "DISPATCHING",
            "RUNNING",
            "DONE",
            "FAILED",
            "CANCELED"
        ]
    );
    let kinds: Vec<&str> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
    let expected = "SUBMITTED ADMITTED DENIED DISPATCHING RUNNING DONE FAILED CANCELED TIMEOUT RETRY_SCHEDULED QUARANTINED \
                    DEADLINE_AT_RISK LEASE_GRANTED LEASE_EXPIRED LEASE_RELEASED LEASE_REVOKED CANCEL_REQUESTED RETURNED \
                    PROGRESS REDRIVEN HASTENED DEPENDENCY_ENDED PAUSED RESUMED LOG LOAD_STATE EDITED";
    // Stores may keep a kind's place: this list only ever grows at its end.
    assert_eq!(kinds.join(" "), expected);
    let leases = [
        LeaseState::Active,
        LeaseState::Expired,
        LeaseState::Released,
    ];
    assert_eq!(
        serde_json::to_value(leases).unwrap(),
        json!(["ACTIVE", "EXPIRED", "RELEASED"])
    );
    let advice = [
        Advice::Continue,
        Advice::Slow,
        Advice::Checkpoint,
        Advice::Yield,
        Advice::Drain,
        Advice::Cancel,
    ];
    let names = json!(["continue", "slow", "checkpoint", "yield", "drain", "cancel"]);
    assert_eq!(serde_json::to_value(advice).unwrap(), names);
}

#[test]
fn priorities_in_either_case() {
    let _watch = watch();
    for (text, priority) in [
        ("\"low\"", Priority::Low),
        ("\"Normal\"", Priority::Normal),
        ("\"HIGH\"", Priority::High),
    ] {
        assert_eq!(serde_json::from_str::<Priority>(text).unwrap(), priority);
        assert_eq!(serde_json::to_value(priority).unwrap(), priority.as_str());
    }
    let error = serde_json::from_str::<Priority>("\"URGENT\"")
        .unwrap_err()
        .to_string();
    assert!(error.contains("write LOW, NORMAL or HIGH"), "{error}");
}

/// Each request, with a field that it does not know.
#[test]
fn requests_name_fields_that_they_do_not_know() {
    let _watch = watch();
    fn refuses<T: serde::de::DeserializeOwned>(mut body: Value) {
        assert!(serde_json::from_value::<T>(body.clone()).is_ok(), "{body}");
        body["prioritty"] = json!("HIGH");
        let error = serde_json::from_value::<T>(body)
            .err()
            .unwrap_or_else(|| panic!("{}", std::any::type_name::<T>()));
        let told = ApiError::malformed(&error);
        assert_eq!(told.code, ErrorCode::Malformed);
        assert!(
            told.message.contains("unknown field `prioritty`, expected"),
            "{}",
            told.message
        );
    }
    refuses::<SubmitRequest>(json!({"addon_id": "a"}));
    refuses::<LeaseRequest>(json!({"addon_id": "a"}));
    refuses::<ClaimRequest>(json!({"addon_id": "a", "instance_id": LEASE}));
    refuses::<AckRequest>(json!({}));
    refuses::<Heartbeat>(json!({"lease_id": LEASE}));
    refuses::<CompleteRequest>(json!({"lease_id": LEASE, "status": "DONE"}));
    refuses::<ReleaseRequest>(json!({}));
    refuses::<JobQuery>(json!({"state": ["QUEUED"]}));
    refuses::<ScheduleSpec>(json!({"name": "n", "cron": "0 0 * * *", "job": {"addon_id": "a"}}));
    let nested = json!({"constraints": {"gpu_heavy": true}});
    let error = serde_json::from_value::<SubmitRequest>(nested)
        .unwrap_err()
        .to_string();
    assert!(error.contains("gpu_heavy"), "{error}");
}

/// The first release refuses fields that it does not know: what is not said must not be written.
#[test]
fn what_the_first_release_does_not_know_is_left_out_unless_it_is_said() {
    let _watch = watch();
    const NEW: [&str; 7] = [
        "begins_now",
        "returns_unbegun",
        "began_ms_ago",
        "ended_ms_ago",
        "given_back",
        "give_back",
        "in_hand",
    ];
    let lease_id: jobtree_protocol::LeaseId = LEASE.parse().unwrap();
    let instance_id = serde_json::from_value(json!(LEASE)).unwrap();
    let claim = ClaimRequest::one_job("a".parse().unwrap(), instance_id);
    let complete = CompleteRequest::done(lease_id, None);
    let many = jobtree_protocol::CompleteManyRequest {
        lease_id,
        jobs: Vec::new(),
        in_hand: None,
    };
    let written = [
        serde_json::to_string(&claim).unwrap(),
        serde_json::to_string(&Heartbeat::of(lease_id)).unwrap(),
        serde_json::to_string(&complete).unwrap(),
        serde_json::to_string(&many).unwrap(),
    ];
    for text in written {
        let new: Vec<_> = NEW.iter().filter(|name| text.contains(**name)).collect();
        assert!(new.is_empty(), "{new:?} in {text}");
    }
    // Which of many is in hand is said once.
    let one = |job_id| jobtree_protocol::CompleteOne {
        job_id,
        status: jobtree_protocol::CompleteStatus::Done,
        result: None,
        error: None,
        retry: true,
        began_ms_ago: Some(20),
        ended_ms_ago: Some(10),
        usage: None,
    };
    let in_hand = Some(jobtree_protocol::InHand {
        job_id: job_id(),
        began_ms_ago: 5,
    });
    let many = jobtree_protocol::CompleteManyRequest {
        lease_id,
        jobs: vec![one(job_id()), one(job_id())],
        in_hand,
    };
    let said: Vec<_> = many.each().map(|(_, request)| request.in_hand).collect();
    assert_eq!(said, [None, in_hand]);
}

#[test]
fn answers_may_gain_fields() {
    let _watch = watch();
    fn tolerates<T: serde::de::DeserializeOwned + serde::Serialize>(value: &T) {
        let mut body = serde_json::to_value(value).unwrap();
        body["from_the_future"] = json!({"much": ["more"]});
        assert!(
            serde_json::from_value::<T>(body).is_ok(),
            "{}",
            std::any::type_name::<T>()
        );
    }
    tolerates(&view());
    tolerates(&JobList {
        jobs: vec![view()],
        next: Some(job_id()),
    });
    tolerates(&SubmitAnswer {
        job_id: job_id(),
        state: JobState::Queued,
        duplicate: true,
    });
    tolerates(&HeartbeatAnswer {
        advice: Advice::Yield,
        ttl_sec: 30,
        cancel: vec![job_id()],
        give_back: vec![job_id()],
        paused: true,
    });
    tolerates(&CompleteAnswer {
        job_id: job_id(),
        state: JobState::Done,
        next_earliest_start_at: None,
    });
    tolerates(&ApiError::invalid(vec![FieldError::new(
        "tags", "is wrong",
    )]));
    let status = r#"{"at": "2025-12-28T22:00:00Z", "nodes": [], "jobs": {"QUEUED": 3}, "addons": {"visuals": {}}}"#;
    let status: StatusView = serde_json::from_str(status).unwrap();
    assert_eq!(status.jobs[&JobState::Queued], 3);
    tolerates(&status);
}

#[test]
fn a_lease_answer_and_a_completion() {
    let _watch = watch();
    let denied = r#"{
        "approved": false, "lease_id": null, "retry_after_sec": 15, "limits": {"ttl_sec": 30},
        "reason": "Capacity exceeded: used=80, requested=30, capacity=100"
    }"#;
    let denied: LeaseAnswer = serde_json::from_str(denied).unwrap();
    assert!(!denied.approved && denied.retry_after_sec == Some(15));
    let written = serde_json::to_value(&denied).unwrap();
    let keys: BTreeSet<&str> = written
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        keys,
        [
            "approved",
            "lease_id",
            "limits",
            "numbers",
            "reason",
            "retry_after_sec"
        ]
        .into()
    );

    let text = format!(r#"{{"lease_id": "{LEASE}", "status": "FAILED", "error": "disk full"}}"#);
    let failed: CompleteRequest = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (failed.status, failed.retry),
        (CompleteStatus::Failed, true)
    );
    let text = format!(
        r#"{{"lease_id": "{LEASE}", "status": "done", "result": {{"pages": 7}}, "retry": false}}"#
    );
    let done: CompleteRequest = serde_json::from_str(&text).unwrap();
    assert_eq!(
        done.result
            .unwrap()
            .read::<BTreeMap<String, u32>>()
            .unwrap()["pages"],
        7
    );
}

#[test]
fn an_event_as_it_is_kept() {
    let _watch = watch();
    let event = Event {
        job_id: Some(job_id()),
        at: "2025-12-28T22:00:00.123456Z".parse().unwrap(),
        kind: EventKind::RetryScheduled,
        state: Some(JobState::Queued),
        lease_id: None,
        node_id: None,
        attempt: Some(1),
        revision: Some(4),
        reason: Some("disk full".into()),
    };
    let expected = format!(
        r#"{{"job_id":"{JOB}","at":"2025-12-28T22:00:00.123456Z","event":"RETRY_SCHEDULED","state":"QUEUED","attempt":1,"revision":4,"reason":"disk full"}}"#
    );
    assert_eq!(serde_json::to_string(&event).unwrap(), expected);
    assert_eq!(serde_json::from_str::<Event>(&expected).unwrap(), event);
}

#[test]
fn an_error_as_it_is_told() {
    let _watch = watch();
    let mut error = ApiError::new(ErrorCode::WrongState, "job is DONE");
    error.state = Some(JobState::Done);
    let expected = json!({"code": "wrong_state", "message": "job is DONE", "state": "DONE"});
    assert_eq!(serde_json::to_value(&error).unwrap(), expected);
}

#[test]
fn job_ids_sort_by_their_time() {
    let _watch = watch();
    let id = |time: &str, random| JobId::from_parts(time.parse().unwrap(), [random; 10]);
    let (early, late) = (
        id("2026-01-01T00:00:00Z", 255),
        id("2026-01-01T00:00:00.001Z", 0),
    );
    assert!(early < late);
    assert_eq!(
        (
            early.0.get_version_num(),
            JobId::generate().0.get_version_num()
        ),
        (7, 7)
    );
}

#[test]
fn each_of_many_has_the_answer_it_would_have_had_alone() {
    let _watch = watch();
    let done = SubmitAnswer {
        job_id: job_id(),
        state: JobState::Queued,
        duplicate: false,
    };
    let refused = Each::Refused {
        error: ApiError::new(ErrorCode::Conflict, "used"),
    };
    let answer = SubmitManyAnswer {
        jobs: vec![Each::Done(done), refused],
    };
    let expected = json!({"jobs": [
        {"job_id": JOB, "state": "QUEUED"},
        {"error": {"code": "conflict", "message": "used"}},
    ]});
    let written = serde_json::to_string(&answer).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), expected);
    assert_eq!(
        serde_json::from_str::<SubmitManyAnswer>(&written).unwrap(),
        answer
    );

    let text = format!(
        r#"{{"lease_id": "{LEASE}", "jobs": [{{"job_id": "{JOB}", "status": "DONE", "result": [1]}}]}}"#
    );
    let many: CompleteManyRequest = serde_json::from_str(&text).unwrap();
    let each: Vec<_> = many.each().collect();
    let result = Some(Json::from_text("[1]".into()).unwrap());
    assert_eq!(
        each,
        [(job_id(), CompleteRequest::done(lease_id(), result))]
    );
}
