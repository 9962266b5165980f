//! A record as order and admission look at it.

mod support;

use std::time::Duration;

use jobtree_queue::candidate::ConcurrencyKey;
use support::{World, simple, watch};

#[test]
fn a_candidate_says_what_its_record_says() {
    let _watchdog = watch();
    let mut world = World::new();
    let later = world
        .now
        .wall
        .checked_add(Duration::from_secs(600))
        .unwrap();
    let mut request = simple();
    request.expected_duration_sec = Some(90);
    request.earliest_start_at = Some(later);
    request.deadline_at = Some(later.checked_add(Duration::from_secs(600)).unwrap());
    request.concurrency_key = Some("disk".into());
    request.concurrency_limit = Some(3);
    request.required_labels = vec!["ssd".into(), "gpu".into()];
    let id = world.submit(request.clone());
    let record = world.job(id);
    let candidate = record.candidate();
    assert_eq!((candidate.id, candidate.revision), (id, record.revision));
    assert_eq!(
        (&candidate.addon, &candidate.job_type),
        (&record.intent.addon_id, &record.intent.job_type)
    );
    assert_eq!(
        (candidate.cost, candidate.priority),
        (record.intent.cost_units, record.intent.priority)
    );
    assert_eq!(candidate.expected_duration, Some(Duration::from_secs(90)));
    assert_eq!(candidate.not_before, Some(later));
    assert_eq!(
        candidate.enqueued_at, later,
        "it waits since it could start"
    );
    assert_eq!(candidate.deadline, request.deadline_at);
    assert_eq!(
        candidate.key,
        Some(ConcurrencyKey {
            key: "disk".into(),
            limit: 3
        })
    );
    assert_eq!(candidate.labels, ["gpu", "ssd"]);
    assert!(!candidate.alone && !candidate.warned);
}

#[test]
fn a_rescued_job_gets_a_lease_of_its_own() {
    let _watchdog = watch();
    let mut world = World::new();
    let id = world.submit(simple());
    let since = world.job(id).candidate().enqueued_at;
    let lease = world.claim(&[id]);
    world.pass(3600);
    world.expire(lease);
    let candidate = world.job(id).candidate();
    assert!(candidate.alone);
    assert_eq!(candidate.enqueued_at, since, "and keeps its place");
}
