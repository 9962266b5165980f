//! What a job waits for, and what its keys do.

mod support;

use jobtree_protocol::{
    AckRequest, ApiError, CancelRequest, CompleteRequest, ErrorCode, JobId, JobState,
    OnDependencyFailure, SubmitRequest,
};
use jobtree_queue::transitions::{self as t, Redrive, TransitionError};
use support::{World, simple, watch};

#[test]
fn a_job_waits_for_its_dependencies() {
    let _watch = watch();
    let mut world = World::new();
    let (one, two) = (world.submit(simple()), world.submit(simple()));
    let last = world.submit(SubmitRequest {
        depends_on: vec![one, two],
        ..simple()
    });
    for job in [one, two] {
        let refused = world.try_claim(&[last]).unwrap_err();
        assert!(matches!(refused, TransitionError::NothingToClaim { .. }));
        let lease = world.claim(&[job]);
        world
            .complete(job, &CompleteRequest::done(lease, None))
            .unwrap();
    }
    assert!(world.job(last).is_dispatchable(world.now.wall));
    world.claim(&[last]);
}

#[test]
fn a_failed_dependency_cancels_down_the_chain_or_is_passed_over_by_choice() {
    let _watch = watch();
    let mut world = World::new();
    let root = world.submit(simple());
    let middle = world.submit(SubmitRequest {
        depends_on: vec![root],
        ..simple()
    });
    let leaf = world.submit(SubmitRequest {
        depends_on: vec![middle],
        ..simple()
    });
    let on_dependency_failure = OnDependencyFailure::Run;
    let cleaner = world.submit(SubmitRequest {
        depends_on: vec![root, middle],
        on_dependency_failure,
        ..simple()
    });
    let lease = world.claim(&[root]);
    world
        .complete(root, &CompleteRequest::failed(lease, "broken"))
        .unwrap();
    assert_eq!(
        [middle, leaf].map(|job| world.state(job)),
        [JobState::Canceled; 2]
    );
    assert!(
        world
            .job(leaf)
            .last_error
            .as_ref()
            .unwrap()
            .contains(&middle.to_string())
    );
    assert!(world.job(cleaner).is_dispatchable(world.now.wall));

    // The same for those that come after the failure.
    let late = world
        .try_submit(SubmitRequest {
            depends_on: vec![root],
            ..simple()
        })
        .unwrap()
        .0;
    assert_eq!(late.state, JobState::Canceled);
    let late = SubmitRequest {
        depends_on: vec![root],
        on_dependency_failure,
        ..simple()
    };
    assert_eq!(world.try_submit(late).unwrap().0.state, JobState::Queued);
}

#[test]
fn unknown_dependencies_are_named_by_their_place() {
    let _watch = watch();
    let mut world = World::new();
    let known = world.submit(simple());
    let unknown = world.job_id();
    let request = SubmitRequest {
        depends_on: vec![known, unknown],
        ..simple()
    };
    let told = ApiError::from(&world.try_submit(request).unwrap_err());
    assert_eq!(told.code, ErrorCode::Invalid);
    assert_eq!(told.fields.len(), 1);
    assert_eq!(told.fields[0].field, "depends_on[1]");
}

#[test]
fn a_key_answers_the_same_after_its_job_is_forgotten() {
    let _watch = watch();
    let mut world = World::new();
    let keyed = |cost| SubmitRequest {
        idempotency_key: Some("order-7".into()),
        ..SubmitRequest::new("visuals", "indexing", cost)
    };
    let (first, _) = world.try_submit(keyed(30)).unwrap();
    let lease = world.claim(&[first.job_id]);
    world
        .complete(first.job_id, &CompleteRequest::done(lease, None))
        .unwrap();
    world.jobs.clear();
    let (again, repeated) = world.try_submit(keyed(30)).unwrap();
    assert!(repeated && again.duplicate);
    assert_eq!((again.job_id, again.state), (first.job_id, first.state));
    let other = world.try_submit(keyed(31)).unwrap_err();
    assert_eq!(ApiError::from(&other).code, ErrorCode::Conflict);
    // Keys belong to an addon.
    let (elsewhere, repeated) = world
        .try_submit(SubmitRequest {
            addon_id: "mail".into(),
            ..keyed(31)
        })
        .unwrap();
    assert!(!repeated && elsewhere.job_id != first.job_id);
}

#[test]
fn a_key_stands_for_the_unique_job_that_it_was_answered_with() {
    let _watch = watch();
    let mut world = World::new();
    let unique = |key: Option<&str>| SubmitRequest {
        unique_key: Some("nightly".into()),
        idempotency_key: key.map(Into::into),
        ..simple()
    };
    let first = world.submit(unique(None));
    assert_eq!(world.submit(unique(Some("k"))), first);
    world
        .apply(|w| t::cancel(&w.cx(), w.job(first), None, &CancelRequest::default()))
        .unwrap();
    let (again, repeated) = world.try_submit(unique(Some("k"))).unwrap();
    assert!(
        repeated && again.job_id == first,
        "the same answer as before, not a second job"
    );
}

#[test]
fn a_concurrency_key_holds_over_reservations_leases_and_batches() {
    let _watch = watch();
    let mut world = World::new();
    let keyed = || SubmitRequest {
        concurrency_key: Some("db".into()),
        ..simple()
    };
    let jobs: Vec<JobId> = (0..4).map(|_| world.submit(keyed())).collect();
    // One after the other in one lease is one at a time.
    let lease = world.claim(&jobs[..2]);
    let full = world.try_claim(&jobs[2..3]).unwrap_err();
    let TransitionError::NothingToClaim { skipped } = full else {
        panic!("{full}")
    };
    assert!(matches!(
        *skipped[0].1,
        TransitionError::KeyFull { limit: 1, .. }
    ));
    for job in &jobs[..2] {
        world
            .complete(*job, &CompleteRequest::done(lease, None))
            .unwrap();
    }
    let key_holders = world.key_holders(world.job(jobs[2]));
    let reserve = t::Reserve {
        reservation_id: world.lease_id(),
        node_id: support::node("here"),
        key_holders,
        reason: "admitted".into(),
    };
    world
        .apply(|w| t::reserve(&w.cx(), w.job(jobs[2]), reserve))
        .unwrap();
    assert!(world.try_claim(&jobs[3..]).is_err());
}

#[test]
fn a_denial_is_written_when_its_reason_changes() {
    let _watch = watch();
    let mut world = World::new();
    let job = world.submit(simple());
    for code in ["capacity", "capacity", "not_quiet", "not_quiet", "capacity"] {
        world
            .apply(|w| t::deny(&w.cx(), w.job(job), code, "why"))
            .unwrap();
    }
    assert_eq!(
        world.kinds(job),
        ["SUBMITTED", "DENIED", "DENIED", "DENIED"]
    );
}

#[test]
fn a_wait_for_a_time_can_be_ended_by_hand() {
    let _watch = watch();
    let mut world = World::new();
    let start = world.now.after(std::time::Duration::from_secs(3600)).wall;
    let job = world.submit(SubmitRequest {
        earliest_start_at: Some(start),
        ..simple()
    });
    assert!(!world.job(job).is_dispatchable(world.now.wall));
    assert_eq!(world.job(job).waiting_since(), start);
    assert_eq!(
        world.apply(|w| t::hasten(&w.cx(), w.job(job))),
        Ok(((), false))
    );
    assert!(world.job(job).is_dispatchable(world.now.wall));
    assert_eq!(
        world.apply(|w| t::hasten(&w.cx(), w.job(job))),
        Ok(((), true))
    );
}

#[test]
fn a_late_job_fails_only_if_its_submitter_wants_that() {
    let _watch = watch();
    let mut world = World::new();
    let deadline_at = Some(world.now.after(std::time::Duration::from_secs(60)).wall);
    let fails = world.submit(SubmitRequest {
        deadline_at,
        late: jobtree_protocol::Late::Fail,
        ..simple()
    });
    let runs = world.submit(SubmitRequest {
        deadline_at,
        ..simple()
    });
    world.pass(59);
    assert!(
        world
            .apply(|w| t::miss_deadline(&w.cx(), w.job(fails)))
            .is_err()
    );
    world.pass(1);
    assert_eq!(
        world.apply(|w| t::miss_deadline(&w.cx(), w.job(fails))),
        Ok((JobState::Failed, false))
    );
    assert_eq!(world.kinds(fails), ["SUBMITTED", "TIMEOUT", "FAILED"]);
    assert!(
        world
            .apply(|w| t::miss_deadline(&w.cx(), w.job(runs)))
            .is_err()
    );
    world.claim(&[runs]);
}

#[test]
fn a_late_job_that_is_brought_back_runs() {
    let _watch = watch();
    let mut world = World::new();
    let deadline_at = Some(world.now.after(std::time::Duration::from_secs(60)).wall);
    let job = world.submit(SubmitRequest {
        deadline_at,
        late: jobtree_protocol::Late::Fail,
        ..simple()
    });
    world.pass(60);
    world
        .apply(|w| t::miss_deadline(&w.cx(), w.job(job)))
        .unwrap();
    let command = Redrive {
        dependencies: &[],
        same_unique: None,
        reason: Some("still wanted"),
    };
    world
        .apply(|w| t::redrive(&w.cx(), w.job(job), command))
        .unwrap();
    assert!(
        world
            .apply(|w| t::miss_deadline(&w.cx(), w.job(job)))
            .is_err()
    );
    world.claim(&[job]);
}

#[test]
fn a_job_that_belongs_to_a_node_runs_nowhere_else() {
    let _watch = watch();
    let mut world = World::new();
    let job = world.submit(SubmitRequest {
        required_node: Some("there".into()),
        ..simple()
    });
    let TransitionError::NothingToClaim { skipped } = world.try_claim(&[job]).unwrap_err() else {
        panic!()
    };
    assert!(matches!(*skipped[0].1, TransitionError::WrongNode { .. }));
}

#[test]
fn a_canceled_dispatch_cannot_be_taken_up() {
    let _watch = watch();
    let mut world = World::new();
    let job = world.submit(simple());
    let reserve = t::Reserve {
        reservation_id: world.lease_id(),
        node_id: support::node("here"),
        key_holders: 0,
        reason: "admitted".into(),
    };
    world
        .apply(|w| t::reserve(&w.cx(), w.job(job), reserve))
        .unwrap();
    assert_eq!(world.used(), 30);
    world
        .apply(|w| t::cancel(&w.cx(), w.job(job), None, &CancelRequest::default()))
        .unwrap();
    assert_eq!((world.state(job), world.used()), (JobState::Canceled, 0));
    let id = world.lease_id();
    let error = world
        .apply(|w| t::ack(&w.cx(), w.job(job), None, AckRequest::default(), id))
        .unwrap_err();
    assert_eq!(error.state(), Some(JobState::Canceled));
}

#[test]
fn a_job_has_waited_since_it_could_start() {
    let _watch = watch();
    let mut world = World::new();
    let start = world.now.after(std::time::Duration::from_secs(3600)).wall;
    let scheduled = world.submit(SubmitRequest {
        earliest_start_at: Some(start),
        ..simple()
    });
    let first = world.submit(simple());
    let second = world.submit(SubmitRequest {
        depends_on: vec![first],
        ..simple()
    });
    world.pass(4000);
    assert_eq!(world.job(scheduled).waiting_since(), start);
    // Its worker crashes: it keeps its place, which is not that of an hour before its time.
    let lease = world.claim(&[scheduled]);
    world.expire(lease);
    assert_eq!(world.job(scheduled).waiting_since(), start);
    let lease = world.claim(&[first]);
    world
        .complete(first, &CompleteRequest::done(lease, None))
        .unwrap();
    assert_eq!(world.job(second).waiting_since(), world.now.wall);
}
