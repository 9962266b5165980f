//! How jobs end, are tried again and come back.

mod support;

use jobtree_protocol::{
    ApiError, Backoff, CancelRequest, CompleteRequest, ErrorCode, JobId, JobState, Json,
    SubmitRequest,
};
use jobtree_queue::transitions::{self as t, Redrive, TransitionError};
use support::{World, simple, watch};

#[test]
fn failed_runs_wait_longer_each_time_until_none_is_left() {
    let _watch = watch();
    let mut world = World::new();
    let backoff = Backoff {
        initial_sec: 10.0,
        factor: 2.0,
        max_sec: 15.0,
        jitter: 0.0,
    };
    let job = world.submit(SubmitRequest {
        max_attempts: Some(4),
        backoff: Some(backoff),
        ..simple()
    });
    for wait in [10, 15, 15] {
        let lease = world.claim(&[job]);
        assert_eq!(
            world.complete(job, &CompleteRequest::failed(lease, "broken")),
            Ok(JobState::Queued)
        );
        let start = world.job(job).not_before.unwrap();
        assert_eq!(start.duration_since(world.now.wall).as_secs(), wait);
        assert!(matches!(
            world.try_claim(&[job]),
            Err(TransitionError::NothingToClaim { .. })
        ));
        world.pass(wait.unsigned_abs());
        assert!(world.job(job).is_dispatchable(world.now.wall));
    }
    let lease = world.claim(&[job]);
    assert_eq!(
        world.complete(job, &CompleteRequest::failed(lease, "broken")),
        Ok(JobState::Failed)
    );
    assert_eq!(world.job(job).last_error.as_deref(), Some("broken"));
    assert_eq!(world.job(job).attempts, 4);
}

#[test]
fn a_completion_is_repeatable_long_after_it_took_effect() {
    let _watch = watch();
    let mut world = World::new();
    let backoff = Backoff {
        initial_sec: 0.0,
        ..Backoff::default()
    };
    let job = world.submit(SubmitRequest {
        max_attempts: Some(3),
        backoff: Some(backoff),
        ..simple()
    });
    let first = world.claim(&[job]);
    world
        .complete(job, &CompleteRequest::failed(first, "broken"))
        .unwrap();
    let second = world.claim(&[job]);
    // It runs again under another lease, and then has ended: the first completion is answered as it was.
    assert_eq!(
        world.complete(job, &CompleteRequest::failed(first, "broken")),
        Ok(JobState::Queued)
    );
    world
        .complete(
            job,
            &CompleteRequest::done(second, Some(Json::of(&7).unwrap())),
        )
        .unwrap();
    assert_eq!(
        world.complete(job, &CompleteRequest::failed(first, "broken")),
        Ok(JobState::Queued)
    );
    assert_eq!(
        world.complete(job, &CompleteRequest::done(second, None)),
        Ok(JobState::Done)
    );
    assert_eq!(world.job(job).result, Some(Json::of(&7).unwrap()));
    let otherwise = world
        .complete(job, &CompleteRequest::failed(second, "no"))
        .unwrap_err();
    assert!(matches!(
        otherwise,
        TransitionError::WrongState {
            state: JobState::Done,
            ..
        }
    ));
}

#[test]
fn completing_from_the_wrong_state_says_the_state_and_what_to_do() {
    let _watch = watch();
    let mut world = World::new();
    let job = world.submit(simple());
    let lease = world.claim(&[job]);
    world.expire(lease);
    let error = world
        .complete(job, &CompleteRequest::done(lease, None))
        .unwrap_err();
    let told = ApiError::from(&error);
    assert_eq!(
        (told.code, told.state),
        (ErrorCode::WrongState, Some(JobState::Queued))
    );
    assert_eq!(told.code.http_status(), 409);
    assert!(
        told.message.contains("is QUEUED") && told.message.contains("stop"),
        "{}",
        told.message
    );
}

#[test]
fn dead_letters_come_back_with_new_counts_and_in_order() {
    let _watch = watch();
    let mut world = World::new();
    let root = world.submit(simple());
    let leaf = world.submit(SubmitRequest {
        depends_on: vec![root],
        ..simple()
    });
    let lease = world.claim(&[root]);
    world
        .complete(root, &CompleteRequest::failed(lease, "broken"))
        .unwrap();
    let redrive = |world: &mut World, job: JobId| {
        world.apply(|w| {
            let dependencies = w.states(&w.job(job).intent.depends_on);
            t::redrive(
                &w.cx(),
                w.job(job),
                Redrive {
                    dependencies: &dependencies,
                    same_unique: None,
                    reason: None,
                },
            )
        })
    };
    let early = redrive(&mut world, leaf).unwrap_err();
    assert!(
        matches!(early, TransitionError::DependencyFailed { .. }),
        "{early}"
    );
    redrive(&mut world, root).unwrap();
    redrive(&mut world, leaf).unwrap();
    assert_eq!((world.job(root).attempts, world.job(root).redrives), (0, 1));
    assert_eq!(world.job(leaf).waiting_for, [root]);
    let lease = world.claim(&[root]);
    world
        .complete(root, &CompleteRequest::done(lease, None))
        .unwrap();
    assert!(world.job(leaf).is_dispatchable(world.now.wall));
    assert!(world.kinds(root).contains(&"REDRIVEN"));
}

#[test]
fn a_redrive_does_not_make_a_second_unique_job() {
    let _watch = watch();
    let mut world = World::new();
    let unique = || SubmitRequest {
        unique_key: Some("nightly".into()),
        ..simple()
    };
    let first = world.submit(unique());
    assert_eq!(
        world.submit(unique()),
        first,
        "the job that is there is the answer"
    );
    world
        .apply(|w| t::cancel(&w.cx(), w.job(first), None, &CancelRequest::default()))
        .unwrap();
    let second = world.submit(unique());
    assert_ne!(second, first);
    let command = Redrive {
        dependencies: &[],
        same_unique: Some(second),
        reason: None,
    };
    let refused = world.apply(|w| t::redrive(&w.cx(), w.job(first), command));
    assert_eq!(
        refused,
        Err(TransitionError::UniqueConflict {
            job_id: first,
            other: second
        })
    );
}

#[test]
fn a_long_error_is_cut_and_not_refused() {
    let _watch = watch();
    let mut world = World::new();
    world.rules.error_bytes = 5;
    let job = world.submit(simple());
    let lease = world.claim(&[job]);
    world
        .complete(job, &CompleteRequest::failed(lease, "zu groß"))
        .unwrap();
    assert_eq!(world.job(job).last_error.as_deref(), Some("zu gr"));
    let job = world.submit(simple());
    let lease = world.claim(&[job]);
    world
        .complete(job, &CompleteRequest::failed(lease, "größe"))
        .unwrap();
    assert_eq!(
        world.job(job).last_error.as_deref(),
        Some("grö"),
        "no half of a letter"
    );
}

#[test]
fn records_are_read_as_they_were_written() {
    let _watch = watch();
    let mut world = World::new();
    let request = SubmitRequest {
        payload: Some(Json::of(&["a", "b"]).unwrap()),
        idempotency_key: Some("k".into()),
        max_attempts: Some(3),
        ..simple()
    };
    let job = world.submit(request);
    let lease = world.claim(&[job]);
    world
        .complete(job, &CompleteRequest::failed(lease, "broken"))
        .unwrap();
    let record = world.job(job);
    let text = serde_json::to_string(record).unwrap();
    assert_eq!(
        &serde_json::from_str::<jobtree_queue::JobRecord>(&text).unwrap(),
        record
    );
    let text = serde_json::to_string(world.lease(lease)).unwrap();
    assert_eq!(
        &serde_json::from_str::<jobtree_queue::LeaseRecord>(&text).unwrap(),
        world.lease(lease)
    );
    let key = world.keys.values().next().unwrap();
    let text = serde_json::to_string(key).unwrap();
    assert_eq!(
        &serde_json::from_str::<jobtree_queue::KeyRecord>(&text).unwrap(),
        key
    );
}
