//! Bounds that types cannot say: what is checked when a request is validated. Not those of things that are also sent many
//! at once: there each is answered for itself, and the request as a whole is sound.

use jobtree_protocol::operations::{MAX_AT_ONCE, MAX_REASON_BYTES, MAX_WAIT_SEC};
use serde_json::{Value, json};

/// A field of a schema, and what holds for it.
pub(super) fn all() -> Vec<(&'static str, &'static str, Value)> {
    let name = json!({"minLength": 1, "maxLength": 128, "pattern": "^[A-Za-z0-9._:-]+$"});
    let key = json!({"minLength": 1, "maxLength": 256});
    let reason = json!({"maxLength": MAX_REASON_BYTES});
    let seconds = json!({"minimum": 1, "maximum": 3_155_760_000_u32});
    let batch = json!({"minimum": 1, "maximum": 1000});
    let wait = json!({"minimum": 0, "maximum": MAX_WAIT_SEC});
    let most = |count: usize| json!({"maxItems": count});
    let at_once = most(MAX_AT_ONCE);
    let positive = json!({"minimum": 0});
    vec![
        ("SubmitRequest", "addon_id", name.clone()),
        ("SubmitRequest", "job_type", name.clone()),
        (
            "SubmitRequest",
            "cost_units",
            json!({"minimum": 1, "maximum": 100}),
        ),
        ("SubmitRequest", "expected_duration_sec", seconds.clone()),
        ("SubmitRequest", "max_runtime_sec", seconds.clone()),
        ("SubmitRequest", "earliest_start_in_sec", seconds.clone()),
        ("SubmitRequest", "deadline_in_sec", seconds.clone()),
        ("SubmitRequest", "tags", most(32)),
        ("SubmitRequest", "idempotency_key", key.clone()),
        ("SubmitRequest", "unique_key", key.clone()),
        ("SubmitRequest", "concurrency_key", key.clone()),
        (
            "SubmitRequest",
            "concurrency_limit",
            json!({"minimum": 1, "maximum": u32::MAX}),
        ),
        ("SubmitRequest", "max_attempts", batch.clone()),
        ("SubmitRequest", "depends_on", most(1024)),
        ("SubmitRequest", "required_labels", most(16)),
        ("SubmitRequest", "required_node", name.clone()),
        (
            "SubmitRequest",
            "traceparent",
            json!({"minLength": 55, "maxLength": 55, "pattern": "^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"}),
        ),
        ("SubmitManyRequest", "jobs", at_once.clone()),
        (
            "LeaseRequest",
            "cost_units",
            json!({"minimum": 0, "maximum": 100}),
        ),
        ("LeaseRequest", "expected_duration_sec", seconds),
        ("LeaseRequest", "request_key", key),
        ("LeaseRequest", "pids", most(64)),
        ("ClaimRequest", "max_jobs", batch.clone()),
        ("ClaimRequest", "max_leases", batch),
        ("ClaimRequest", "wait_sec", wait),
        ("ClaimRequest", "pids", most(64)),
        ("ClaimRequest", "job_types", at_once.clone()),
        ("AckRequest", "pids", most(64)),
        ("PidsRequest", "pids", most(64)),
        ("HeartbeatBody", "pids", most(64)),
        ("HeartbeatBody", "given_back", most(1000)),
        ("ReportBody", "pids", most(64)),
        ("ReportBody", "metrics", json!({"maxProperties": 32})),
        ("HeartbeatManyRequest", "leases", at_once.clone()),
        ("OutputAppend", "pieces", at_once.clone()),
        ("CompleteManyRequest", "jobs", at_once.clone()),
        ("RedriveRequest", "job_ids", at_once),
        ("CancelRequest", "reason", reason.clone()),
        ("CancelManyRequest", "reason", reason.clone()),
        ("RetryRequest", "reason", reason.clone()),
        ("PauseRunRequest", "reason", reason.clone()),
        ("RedriveRequest", "reason", reason.clone()),
        ("ReleaseRequest", "reason", reason.clone()),
        ("RevokeRequest", "reason", reason.clone()),
        ("PauseRequest", "reason", reason),
        ("SignalsRequest", "p95_latency_ms", positive.clone()),
        ("SignalsRequest", "in_flight", positive.clone()),
        ("SignalsRequest", "requests_per_sec", positive),
        (
            "SignalsRequest",
            "error_rate",
            json!({"minimum": 0, "maximum": 1}),
        ),
        (
            "TokenRequest",
            "name",
            json!({"minLength": 1, "maxLength": 128}),
        ),
        ("TokenRequest", "scopes", json!({"minItems": 1})),
        (
            "ScheduleSpec",
            "name",
            json!({"minLength": 1, "maxLength": 128}),
        ),
        ("WebhookRequest", "secret", json!({"minLength": 16})),
        ("WebhookRequest", "url", json!({"pattern": "^https?://"})),
    ]
}

/// Fields that have a default for programs, and none for people.
pub(super) const REQUIRED: &[(&str, &[&str])] =
    &[("SubmitRequest", &["addon_id", "job_type", "cost_units"])];
