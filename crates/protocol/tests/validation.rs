//! What is refused, and the one message for it.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use jobtree_protocol::{
    Backoff, ClaimRequest, CompleteRequest, FieldError, Heartbeat, InstanceId, Intent, JobId, Json,
    Late, LeaseAsk, LeaseId, LeaseRequest, Limits, ProcessOrigin, Progress, ReportRequest,
    ScheduleSpec, SubmitRequest,
};
use watchdog::Watchdog;

fn watch() -> Watchdog {
    Watchdog::watching(std::thread::current().name().unwrap_or("main"))
}

fn good() -> SubmitRequest {
    SubmitRequest::new("visuals", "indexing", 30)
}

fn check(request: SubmitRequest) -> Result<Intent, Vec<FieldError>> {
    request.validate(&Limits::default())
}

/// The one message of a request with one thing wrong.
fn message(request: SubmitRequest) -> String {
    let wrong = check(request).unwrap_err();
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    wrong[0].to_string()
}

fn nested(depth: usize) -> Json {
    Json::from_text(format!("{}{}", "[".repeat(depth), "]".repeat(depth))).unwrap()
}

#[test]
fn each_field_gets_its_own_message() {
    let _watch = watch();
    let own = JobId::generate();
    let key = |length| Some("k".repeat(length));
    let cases: Vec<(SubmitRequest, &str)> = vec![
        (
            SubmitRequest {
                addon_id: String::new(),
                ..good()
            },
            "addon_id: is missing: write 1 to 128 letters",
        ),
        (
            SubmitRequest {
                addon_id: "a b".into(),
                ..good()
            },
            "addon_id: holds ' ': write letters, digits",
        ),
        (
            SubmitRequest {
                job_type: "x".repeat(129),
                ..good()
            },
            "job_type: has 129 bytes: shorten it to 128 at most",
        ),
        (
            SubmitRequest {
                traceparent: Some("00-abc".into()),
                ..good()
            },
            "traceparent: does not have 55 characters: write 00-<32 hex digits>-",
        ),
        (
            SubmitRequest {
                cost_units: 0,
                ..good()
            },
            "cost_units: is 0: write a whole number from 1 to 100",
        ),
        (
            SubmitRequest {
                cost_units: -5,
                ..good()
            },
            "cost_units: is -5: write",
        ),
        (
            SubmitRequest {
                cost_units: 101,
                ..good()
            },
            "cost_units: is 101: write",
        ),
        (
            SubmitRequest {
                expected_duration_sec: Some(0),
                ..good()
            },
            "expected_duration_sec: is 0: write",
        ),
        (
            SubmitRequest {
                max_runtime_sec: Some(i64::MAX),
                ..good()
            },
            "max_runtime_sec: is 9223372036854775807: write",
        ),
        (
            SubmitRequest {
                tags: vec!["t".into(); 33],
                ..good()
            },
            "tags: has 33 entries: write 32 at most",
        ),
        (
            SubmitRequest {
                tags: vec!["ok".into(), String::new()],
                ..good()
            },
            "tags[1]: is empty: write something",
        ),
        (
            SubmitRequest {
                tags: vec!["t".repeat(129)],
                ..good()
            },
            "tags[0]: has 129 bytes: shorten it to 128",
        ),
        (
            SubmitRequest {
                tags: vec!["a\nb".into()],
                ..good()
            },
            "tags[0]: holds the control character '\\n'",
        ),
        (
            SubmitRequest {
                idempotency_key: key(257),
                ..good()
            },
            "idempotency_key: has 257 bytes",
        ),
        (
            SubmitRequest {
                unique_key: key(0),
                ..good()
            },
            "unique_key: is empty",
        ),
        (
            SubmitRequest {
                concurrency_key: key(257),
                ..good()
            },
            "concurrency_key: has 257 bytes",
        ),
        (
            SubmitRequest {
                concurrency_limit: Some(2),
                ..good()
            },
            "concurrency_limit: limits nothing without",
        ),
        (
            SubmitRequest {
                max_attempts: Some(0),
                ..good()
            },
            "max_attempts: is 0: write a whole number from 1 to 1000",
        ),
        (
            SubmitRequest {
                depends_on: vec![own; 1025],
                ..good()
            },
            "depends_on: has 1025 entries, and 1024 are allowed",
        ),
        (
            SubmitRequest {
                job_id: Some(own),
                depends_on: vec![own],
                ..good()
            },
            "depends_on: holds the job itself",
        ),
        (
            SubmitRequest {
                job_id: Some(JobId::from_random([1; 16])),
                ..good()
            },
            "job_id: is no UUID of version 7",
        ),
        (
            SubmitRequest {
                required_node: Some("a/b".into()),
                ..good()
            },
            "required_node: holds '/'",
        ),
        (
            SubmitRequest {
                required_labels: vec!["l".into(); 17],
                ..good()
            },
            "required_labels: has 17 entries",
        ),
        (
            SubmitRequest {
                late: Late::Fail,
                ..good()
            },
            "late: is \"fail\" without a deadline: write deadline_at",
        ),
        (
            SubmitRequest {
                payload: Some(nested(65)),
                ..good()
            },
            "payload: is nested 65 deep, and 64 are allowed",
        ),
    ];
    for (request, expected) in cases {
        let told = message(request);
        assert!(told.starts_with(expected), "{told}\nis not\n{expected}");
    }
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let _watch = watch();
    let request = SubmitRequest {
        addon_id: String::new(),
        cost_units: 1000,
        tags: vec![String::new()],
        max_attempts: Some(-1),
        backoff: Some(Backoff {
            initial_sec: f64::NAN,
            factor: 0.5,
            max_sec: -1.0,
            jitter: 2.0,
        }),
        ..good()
    };
    let wrong = check(request).unwrap_err();
    let fields: Vec<&str> = wrong.iter().map(|error| error.field.as_str()).collect();
    let backoff = [
        "backoff.initial_sec",
        "backoff.factor",
        "backoff.max_sec",
        "backoff.jitter",
    ];
    let expected = [
        &["addon_id", "cost_units", "max_attempts"][..],
        &backoff,
        &["tags[0]"],
    ]
    .concat();
    assert_eq!(fields, expected);
}

#[test]
fn what_is_at_the_limit_is_allowed() {
    let _watch = watch();
    let limits = Limits::default();
    let payload = Json::of(&"x".repeat(limits.payload_bytes - 2)).unwrap();
    let full = SubmitRequest {
        addon_id: "a".repeat(128),
        cost_units: 100,
        tags: (0..32).map(|number| format!("{number:0>128}")).collect(),
        idempotency_key: Some("k".repeat(256)),
        payload: Some(payload.clone()),
        max_attempts: Some(1000),
        ..good()
    };
    assert!(check(full).is_ok());
    assert!(
        check(SubmitRequest {
            payload: Some(nested(64)),
            ..good()
        })
        .is_ok()
    );
    let over = Json::of(&"x".repeat(limits.payload_bytes - 1)).unwrap();
    assert!(
        message(SubmitRequest {
            payload: Some(over),
            ..good()
        })
        .contains("put it into a file or bucket")
    );
}

#[test]
fn brackets_in_strings_are_no_depth() {
    let _watch = watch();
    let text = r#"{"a": "[[[[\"{{{{\\", "b": [1]}"#;
    assert_eq!(Json::from_text(text.into()).unwrap().depth(), 2);
}

#[test]
fn a_cost_that_can_never_fit_is_refused() {
    let _watch = watch();
    let limits = Limits {
        cost_units: 40,
        ..Limits::default()
    };
    let wrong = SubmitRequest::new("visuals", "indexing", 41)
        .validate(&limits)
        .unwrap_err();
    assert_eq!(
        wrong[0].to_string(),
        "cost_units: is 41, and the policy leaves 40 at most: it could never run; write less"
    );
    assert!(
        SubmitRequest::new("visuals", "indexing", 40)
            .validate(&limits)
            .is_ok()
    );
}

#[test]
fn a_deadline_is_after_the_start() {
    let _watch = watch();
    let time = "2026-01-01T00:00:00Z".parse().unwrap();
    let told = message(SubmitRequest {
        earliest_start_at: Some(time),
        deadline_at: Some(time),
        ..good()
    });
    assert_eq!(
        told,
        "deadline_at: is not after earliest_start_at (2026-01-01T00:00:00Z): write a later time"
    );
}

#[test]
fn an_intent_has_one_form() {
    let _watch = watch();
    let messy = SubmitRequest {
        tags: vec!["b".into(), "a".into(), "b".into()],
        earliest_start_at: Some("2026-01-01T00:00:00.123456789Z".parse().unwrap()),
        ..good()
    };
    let intent = check(messy).unwrap();
    assert_eq!(intent.tags, ["a", "b"]);
    assert_eq!(
        intent.earliest_start_at.unwrap().to_string(),
        "2026-01-01T00:00:00.123456Z"
    );
    let text = serde_json::to_string(&intent).unwrap();
    assert_eq!(serde_json::from_str::<Intent>(&text).unwrap(), intent);
}

#[test]
fn the_same_submission_has_the_same_fingerprint() {
    let _watch = watch();
    let read = |text: &str| {
        let request: SubmitRequest = serde_json::from_str(text).unwrap();
        check(request).unwrap().fingerprint()
    };
    let first = read(
        r#"{"addon_id": "a", "job_type": "t", "cost_units": 5, "idempotency_key": "k", "payload": {"x": 1, "y": [2]}}"#,
    );
    // Defaults written out, other order and spaces, another key.
    let same = read(
        r#"{"payload": {"y":[2],"x":1}, "cost_units": 5, "job_type": "t", "addon_id": "a", "priority": "normal",
            "max_attempts": 1, "tags": [], "constraints": {}, "late": "run", "idempotency_key": "other"}"#,
    );
    assert_eq!(first, same);
    // A request that is sent again is another step of a trace.
    let traced = read(
        r#"{"addon_id": "a", "job_type": "t", "cost_units": 5, "payload": {"x": 1, "y": [2]},
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}"#,
    );
    assert_eq!(first, traced);
    for other in [
        r#"{"addon_id": "a", "job_type": "t", "cost_units": 6, "payload": {"x": 1, "y": [2]}}"#,
        r#"{"addon_id": "a", "job_type": "t", "cost_units": 5, "payload": {"x": 1, "y": [3]}}"#,
        r#"{"addon_id": "a", "job_type": "t", "cost_units": 5}"#,
        r#"{"addon_id": "a", "job_type": "t", "cost_units": 5, "payload": {"x": 1, "y": [2]}, "tags": ["z"]}"#,
    ] {
        assert_ne!(read(other), first, "{other}");
    }
    // It stands on disks: it is the same in every version.
    assert_eq!(format!("{first:?}"), GOLDEN);
}

const GOLDEN: &str = "Fingerprint(27c8ab49288847419b5684baacc41da0)";

#[test]
fn lease_requests() {
    let _watch = watch();
    let limits = Limits::default();
    let wrong = LeaseRequest::default().validate(&limits).unwrap_err();
    let fields: Vec<&str> = wrong.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["addon_id", "job_type", "cost_units"]);
    let job = JobId::generate();
    let take_up = LeaseRequest {
        job_id: Some(job),
        ..LeaseRequest::default()
    };
    assert_eq!(
        take_up.validate(&limits),
        Ok(LeaseAsk::TakeUp(job)),
        "the job says the rest"
    );
    let ask = LeaseRequest {
        addon_id: "a".into(),
        job_type: "t".into(),
        cost_units: 7,
        ..LeaseRequest::default()
    };
    assert!(matches!(
        ask.validate(&limits),
        Ok(LeaseAsk::Capacity { cost_units: 7, .. })
    ));
    let key = LeaseRequest {
        addon_id: "a".into(),
        job_type: "t".into(),
        cost_units: 7,
        request_key: Some("k".into()),
        ..LeaseRequest::default()
    };
    let wrong = key.validate(&limits).unwrap_err();
    assert_eq!((wrong.len(), wrong[0].field.as_str()), (1, "request_key"));
    let named = LeaseRequest {
        instance_id: Some(jobtree_protocol::InstanceId::from_random([1; 16])),
        ..key
    };
    assert!(named.validate(&limits).is_ok());
    let empty = LeaseRequest {
        request_key: Some(String::new()),
        ..named
    };
    let wrong = empty.validate(&limits).unwrap_err();
    assert_eq!((wrong.len(), wrong[0].field.as_str()), (1, "request_key"));
    let pids = LeaseRequest {
        pids: vec![1; 65],
        process_origin: None,
        ..ask
    };
    assert!(
        pids.validate(&limits).unwrap_err()[0]
            .message
            .contains("register the parents alone")
    );
}

#[test]
fn what_workers_send() {
    let _watch = watch();
    let limits = Limits::default();
    let lease_id = LeaseId::generate();
    let progress = |fraction, message: &str| {
        Some(Progress {
            fraction: Some(fraction),
            message: Some(message.into()),
        })
    };
    let first = |wrong: Result<(), Vec<FieldError>>| wrong.unwrap_err()[0].field.clone();

    let beat = Heartbeat {
        progress: progress(1.5, ""),
        ..Heartbeat::of(lease_id)
    };
    assert_eq!(first(beat.validate(&limits)), "progress.fraction");
    let beat = Heartbeat {
        progress: progress(1.0, &"m".repeat(1025)),
        ..beat
    };
    assert_eq!(first(beat.validate(&limits)), "progress.message");
    let beat = Heartbeat {
        progress: progress(1.0, "done soon"),
        pids: Some(vec![0]),
        process_origin: None,
        ..beat
    };
    assert_eq!(first(beat.validate(&limits)), "pids");
    let with_origin = |boot_id: &str, started| Heartbeat {
        pids: Some(vec![5, 6]),
        process_origin: Some(Box::new(ProcessOrigin {
            boot_id: boot_id.to_owned(),
            pid_namespace: 1,
            started,
        })),
        ..Heartbeat::of(lease_id)
    };
    let beat = with_origin("boot", vec![1]);
    assert_eq!(first(beat.validate(&limits)), "process_origin.started");
    let beat = with_origin(&"b".repeat(65), vec![1, 2]);
    assert_eq!(first(beat.validate(&limits)), "process_origin.boot_id");
    assert!(with_origin("boot", vec![1, 2]).validate(&limits).is_ok());

    let metrics = (0..33).map(|number| (format!("m{number}"), 1.0)).collect();
    let report = ReportRequest {
        lease_id,
        job_id: None,
        progress: None,
        metrics,
        pids: None,
        process_origin: None,
    };
    assert_eq!(first(report.validate(&limits)), "metrics");

    let done = CompleteRequest::done(lease_id, Some(Json::of(&"r".repeat(1 << 20)).unwrap()));
    assert_eq!(first(done.validate(&limits)), "result");
    let both = CompleteRequest {
        error: Some("no".into()),
        ..CompleteRequest::done(lease_id, None)
    };
    assert_eq!(first(both.validate(&limits)), "error");
    assert!(
        CompleteRequest::failed(lease_id, "e".repeat(1 << 20))
            .validate(&limits)
            .is_ok(),
        "cut when it is kept"
    );

    let claim = ClaimRequest {
        lease_id: Some(lease_id),
        addon_id: "a".parse().unwrap(),
        job_types: Vec::new(),
        max_jobs: 1001,
        max_leases: 2,
        wait_sec: 0,
        instance_id: InstanceId::generate(),
        node_id: None,
        pids: Vec::new(),
        process_origin: None,
        begins_now: None,
        returns_unbegun: false,
    };
    let wrong = claim.validate(&limits).unwrap_err();
    let fields: Vec<&str> = wrong.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["max_jobs", "lease_id"]);
}

#[test]
fn schedules_submit_what_may_be_submitted_each_time() {
    let _watch = watch();
    let spec = |job| ScheduleSpec {
        name: "nightly".into(),
        cron: "0 3 * * *".into(),
        time_zone: "Europe/Berlin".into(),
        jitter_sec: 0,
        missed: jobtree_protocol::Missed::Once,
        overlap: jobtree_protocol::Overlap::Forbid,
        paused: false,
        job,
    };
    assert_eq!(spec(good()).validate(&Limits::default()), Ok(()));
    let job = SubmitRequest {
        idempotency_key: Some("k".into()),
        cost_units: 0,
        ..good()
    };
    let wrong = spec(job).validate(&Limits::default()).unwrap_err();
    let fields: Vec<&str> = wrong.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["job.idempotency_key", "job.cost_units"]);
}
