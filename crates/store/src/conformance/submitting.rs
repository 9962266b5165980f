//! Submissions: kept whole, found again by key, id and unique key, alone and among many; dependencies.

use jobtree_protocol::{
    Backoff, CancelRequest, JobState, Json, Late, OnDependencyFailure, Priority, SubmitRequest,
};
use jobtree_queue::transitions::TransitionError;

use super::Case;
use super::world::{World, plain, refused};
use crate::error::StoreError;
use crate::execute::Submission;

pub(super) const CASES: &[Case] = &[
    ("all fields are kept", all_fields_are_kept),
    ("long payloads are kept", long_payloads_are_kept),
    (
        "an idempotency key finds its job",
        an_idempotency_key_finds_its_job,
    ),
    ("an id finds its job", an_id_finds_its_job),
    ("unique while not ended", unique_while_not_ended),
    ("many at once, each for itself", many_at_once),
    ("jobs wait for others", jobs_wait_for_others),
    ("a chain ends with its first", a_chain_ends_with_its_first),
    ("an unknown job is an error", an_unknown_job_is_an_error),
];

fn everything(world: &World) -> SubmitRequest {
    let other = world.plain();
    SubmitRequest {
        priority: Priority::High,
        constraints: jobtree_protocol::Constraints {
            cpu_heavy: true,
            disk_write_heavy: true,
            network_heavy: true,
            memory_heavy: true,
        },
        expected_duration_sec: Some(120),
        payload: Some(
            Json::of(&serde_json::json!({"a": [1, "ü\n", null], "b": 1e300})).expect("JSON"),
        ),
        time_sensitive: true,
        start: jobtree_protocol::Start::Now,
        earliest_start_at: Some("2026-03-02T00:00:00.123456Z".parse().expect("a time")),
        deadline_at: Some("2026-03-03T00:00:00Z".parse().expect("a time")),
        late: Late::Fail,
        max_runtime_sec: Some(600),
        tags: vec!["red".into(), "blue".into()],
        idempotency_key: Some("key 1 'with quotes\"".into()),
        unique_key: Some("unique".into()),
        concurrency_key: Some("printer".into()),
        concurrency_limit: Some(3),
        max_attempts: Some(4),
        backoff: Some(Backoff {
            initial_sec: 0.5,
            factor: 3.0,
            max_sec: 60.0,
            jitter: 0.1,
        }),
        depends_on: vec![other],
        on_dependency_failure: OnDependencyFailure::Run,
        required_node: Some("node-a".into()),
        required_labels: vec!["gpu".into()],
        traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into()),
        ..plain()
    }
}

fn all_fields_are_kept(world: &World) {
    let request = everything(world);
    let intent = World::intent(request.clone());
    let id = world.submit(request);
    let record = world.record(id);
    assert_eq!(*record.intent, intent);
    assert_eq!(record.waiting_for, intent.depends_on);
    assert_eq!(record.not_before, intent.earliest_start_at);
    assert_eq!(record.created_at, world.now().wall);
    // And in history.
    let canceled = world
        .store
        .cancel(world.stamp(), id, CancelRequest::default());
    assert_eq!(canceled.wait(), Ok(JobState::Canceled));
    assert_eq!(*world.record(id).intent, intent);
}

fn long_payloads_are_kept(world: &World) {
    for length in [10, 590, 600, 610, 5000, 100_000] {
        let payload = Json::of(&"x".repeat(length)).expect("JSON");
        let request = SubmitRequest {
            payload: Some(payload.clone()),
            tags: vec!["long".into()],
            ..plain()
        };
        let id = world.submit(request);
        assert_eq!(world.record(id).intent.payload, Some(payload.clone()));
        world.finish(id);
        assert_eq!(
            world.record(id).intent.payload,
            Some(payload),
            "{length}, in history"
        );
    }
}

fn an_idempotency_key_finds_its_job(world: &World) {
    let request = SubmitRequest {
        idempotency_key: Some("k".into()),
        ..plain()
    };
    let first = world.submit(request.clone());
    let again = world
        .store
        .submit(world.stamp(), world.submission(request.clone()))
        .wait();
    let again = again.expect("the same is taken");
    assert!(again.duplicate && again.job_id == first);

    let other = SubmitRequest {
        cost_units: 11,
        ..request.clone()
    };
    let conflict = world
        .store
        .submit(world.stamp(), world.submission(other))
        .wait();
    assert!(
        matches!(refused(conflict), TransitionError::KeyConflict { job_id, .. } if job_id == first)
    );

    let elsewhere = SubmitRequest {
        addon_id: "sounds".into(),
        ..request.clone()
    };
    let elsewhere = world
        .store
        .submit(world.stamp(), world.submission(elsewhere))
        .wait();
    assert!(!elsewhere.expect("keys belong to an addon").duplicate);

    world.finish(first);
    let late = world
        .store
        .submit(world.stamp(), world.submission(request))
        .wait();
    let late = late.expect("also after its end");
    assert_eq!((late.job_id, late.duplicate), (first, true));
}

fn an_id_finds_its_job(world: &World) {
    let id = world.job_id();
    let submit = |request| {
        let submission = Submission::with_id(id, World::intent(request));
        world.store.submit(world.stamp(), submission).wait()
    };
    assert!(!submit(plain()).expect("new").duplicate);
    assert!(submit(plain()).expect("the same").duplicate);
    let other = SubmitRequest {
        cost_units: 11,
        ..plain()
    };
    assert!(matches!(
        refused(submit(other.clone())),
        TransitionError::IdConflict { .. }
    ));
    world.finish(id);
    assert!(submit(plain()).expect("from history").duplicate);
    assert!(matches!(
        refused(submit(other)),
        TransitionError::IdConflict { .. }
    ));
}

fn unique_while_not_ended(world: &World) {
    let request = SubmitRequest {
        unique_key: Some("u".into()),
        ..plain()
    };
    let first = world.submit(request.clone());
    let submit = || {
        let answer = world
            .store
            .submit(world.stamp(), world.submission(request.clone()));
        answer.wait().expect("taken")
    };
    assert_eq!(submit().job_id, first);
    let lease = world.claim(&[first]);
    let while_it_runs = submit();
    assert_eq!(
        (while_it_runs.job_id, while_it_runs.state),
        (first, JobState::Running)
    );
    let failed = jobtree_protocol::CompleteRequest::failed(lease.id, "no");
    world.complete(first, failed).expect("it ran");
    let second = submit();
    assert!(!second.duplicate);
    let back = world.store.redrive(world.stamp(), first, None).wait();
    assert!(matches!(
        refused(back),
        TransitionError::UniqueConflict { .. }
    ));
    world.finish(second.job_id);
    let back = world.store.redrive(world.stamp(), first, None).wait();
    assert_eq!(back, Ok(JobState::Queued));
    assert_eq!(submit().job_id, first);
}

fn many_at_once(world: &World) {
    let keyed = |cost_units| SubmitRequest {
        idempotency_key: Some("k".into()),
        cost_units,
        ..plain()
    };
    let unique = SubmitRequest {
        unique_key: Some("u".into()),
        ..plain()
    };
    let first = world.submission(plain());
    let second = world.submission(SubmitRequest {
        depends_on: vec![first.id],
        ..plain()
    });
    let lost = world.submission(SubmitRequest {
        depends_on: vec![world.job_id()],
        ..plain()
    });
    let (first_id, second_id) = (first.id, second.id);
    let batch = vec![
        first,
        second,
        lost,
        world.submission(keyed(1)),
        world.submission(keyed(1)),
        world.submission(keyed(2)),
        world.submission(unique.clone()),
        world.submission(unique),
    ];
    let ids: Vec<_> = batch.iter().map(|submission| submission.id).collect();
    let answers = world
        .store
        .submit_many(world.stamp(), batch)
        .wait()
        .expect("taken");
    let job = |place: usize| answers[place].as_ref().expect("taken").job_id;
    assert_eq!((job(0), job(1)), (first_id, second_id));
    assert!(matches!(
        answers[2],
        Err(TransitionError::UnknownDependencies { .. })
    ));
    assert_eq!((job(3), job(4)), (ids[3], ids[3]));
    assert!(matches!(
        answers[5],
        Err(TransitionError::KeyConflict { .. })
    ));
    assert_eq!((job(6), job(7)), (ids[6], ids[6]));
    assert_eq!(world.record(second_id).waiting_for, [first_id]);
    assert!(matches!(
        world.store.job(ids[2]).wait(),
        Err(StoreError::NoJob(_))
    ));
    world.finish(first_id);
    assert!(world.record(second_id).waiting_for.is_empty());
}

fn jobs_wait_for_others(world: &World) {
    let (a, b) = (world.plain(), world.plain());
    let both = world.submit(SubmitRequest {
        depends_on: vec![a, b],
        ..plain()
    });
    let early = refused(world.claim_as(&[both], world.lease_id()));
    assert!(matches!(early, TransitionError::NothingToClaim { .. }));
    world.finish(a);
    assert_eq!(world.record(both).waiting_for, [b]);
    // Both at once, in one batch, with a third that waits for the second.
    let third = world.submit(SubmitRequest {
        depends_on: vec![both],
        ..plain()
    });
    world.finish(b);
    world.finish(both);
    assert!(world.record(third).waiting_for.is_empty());
    world.finish(third);

    let (c, d) = (world.plain(), world.plain());
    let joined = world.submit(SubmitRequest {
        depends_on: vec![c, d],
        ..plain()
    });
    let lease = world.claim(&[c, d]).id;
    let done = |job| (job, jobtree_protocol::CompleteRequest::done(lease, None));
    let answers = world
        .store
        .complete_many(world.stamp(), vec![done(c), done(d)])
        .wait()
        .expect("taken");
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert!(
        world.record(joined).waiting_for.is_empty(),
        "both ends counted"
    );
    world.finish(joined);
}

fn a_chain_ends_with_its_first(world: &World) {
    let first = world.plain();
    let second = world.submit(SubmitRequest {
        depends_on: vec![first],
        ..plain()
    });
    let third = world.submit(SubmitRequest {
        depends_on: vec![second],
        ..plain()
    });
    let cleanup = world.submit(SubmitRequest {
        depends_on: vec![third],
        on_dependency_failure: OnDependencyFailure::Run,
        ..plain()
    });
    world.fail(first);
    assert_eq!(world.state(second), JobState::Canceled);
    assert_eq!(world.state(third), JobState::Canceled);
    assert_eq!(world.state(cleanup), JobState::Queued);
    assert!(world.record(cleanup).waiting_for.is_empty());
    let late = SubmitRequest {
        depends_on: vec![first],
        ..plain()
    };
    let answer = world
        .store
        .submit(world.stamp(), world.submission(late))
        .wait();
    let answer = answer.expect("it is taken, and ends at once");
    assert_eq!(answer.state, JobState::Canceled);
    assert_eq!(world.state(answer.job_id), JobState::Canceled);
}

fn an_unknown_job_is_an_error(world: &World) {
    let nobody = world.job_id();
    assert_eq!(
        world.store.job(nobody).wait(),
        Err(StoreError::NoJob(nobody))
    );
    let cancel = world
        .store
        .cancel(world.stamp(), nobody, CancelRequest::default());
    assert_eq!(cancel.wait(), Err(StoreError::NoJob(nobody)));
    let lease = world.lease_id();
    assert_eq!(
        world.store.lease(lease).wait(),
        Err(StoreError::NoLease(lease))
    );
}
