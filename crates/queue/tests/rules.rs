//! The rules one by one: batches, rescues, retries, dependencies, keys, cancellation, redrives.

mod support;

use jobtree_protocol::{
    AckRequest, Advice, ApiError, Backoff, CancelRequest, CompleteRequest, ErrorCode, Heartbeat,
    JobId, JobState, Json, LeaseState, OnDependencyFailure, Progress, ReleaseRequest,
    ReportRequest, SubmitRequest,
};
use jobtree_queue::record::LeaseEnd;
use jobtree_queue::transitions::{
    self as t, Changes, LoadAdvice, Proof, Redrive, RuntimeProof, TimeOut, TransitionError,
};
use support::{World, simple, watch};

fn costing(cost: u32) -> SubmitRequest {
    SubmitRequest::new("visuals", "indexing", cost)
}

fn batch(world: &mut World, costs: &[u32]) -> (Vec<JobId>, jobtree_protocol::LeaseId) {
    let jobs: Vec<JobId> = costs
        .iter()
        .map(|cost| world.submit(costing(*cost)))
        .collect();
    let lease = world.claim(&jobs);
    (jobs, lease)
}

#[test]
fn a_batch_is_charged_its_dearest_job_that_is_left() {
    let _watch = watch();
    let mut world = World::new();
    let (jobs, lease) = batch(&mut world, &[10, 40, 20]);
    let mut costs = vec![world.used()];
    for job in &jobs {
        world
            .complete(*job, &CompleteRequest::done(lease, None))
            .unwrap();
        costs.push(world.used());
    }
    assert_eq!(costs, [40, 40, 20, 0]);
    assert_eq!(world.lease(lease).end, Some(LeaseEnd::Completed));
    assert_eq!(world.lease(lease).state(), LeaseState::Released);
}

#[test]
fn only_the_job_that_ran_is_rescued_when_a_batch_expires() {
    let _watch = watch();
    let mut world = World::new();
    let (jobs, lease) = batch(&mut world, &[10, 10, 10]);
    world
        .complete(jobs[0], &CompleteRequest::done(lease, None))
        .unwrap();
    let enqueued = world.job(jobs[2]).enqueued_at;
    world.pass(60);
    world.expire(lease);
    let told: Vec<_> = jobs
        .iter()
        .map(|job| (world.state(*job), world.job(*job).rescues))
        .collect();
    assert_eq!(
        told,
        [
            (JobState::Done, 0),
            (JobState::Queued, 1),
            (JobState::Queued, 0)
        ]
    );
    assert_eq!(
        world.kinds(jobs[1]),
        ["SUBMITTED", "RUNNING", "LEASE_EXPIRED"]
    );
    assert_eq!(world.kinds(jobs[2]), ["SUBMITTED", "RUNNING", "RETURNED"]);
    assert_eq!(
        world.job(jobs[2]).enqueued_at,
        enqueued,
        "it keeps its place"
    );
    assert_eq!(world.job(jobs[1]).attempts, 0);
}

#[test]
fn a_worker_may_say_which_job_of_its_batch_runs() {
    let _watch = watch();
    let mut world = World::new();
    let (jobs, lease) = batch(&mut world, &[10, 10, 10]);
    world.pass(5);
    let beat = Heartbeat {
        job_id: Some(jobs[1]),
        ..Heartbeat::of(lease)
    };
    world
        .apply(|w| t::heartbeat(&w.cx(), w.lease(lease), None, beat, LoadAdvice::default()))
        .unwrap();
    assert_eq!(world.lease(lease).current().unwrap().id, jobs[1]);
    assert_eq!(world.lease(lease).current_since, world.now.wall);
    world.expire(lease);
    assert_eq!(jobs.map_rescues(&world), [0, 1, 0]);
}

trait Rescues {
    fn map_rescues(&self, world: &World) -> Vec<u32>;
}

impl Rescues for Vec<JobId> {
    fn map_rescues(&self, world: &World) -> Vec<u32> {
        self.iter().map(|job| world.job(*job).rescues).collect()
    }
}

#[test]
fn a_heartbeat_that_is_a_step_behind_renews_all_the_same() {
    let _watch = watch();
    let mut world = World::new();
    let (jobs, lease) = batch(&mut world, &[10, 10]);
    world
        .complete(jobs[0], &CompleteRequest::done(lease, None))
        .unwrap();
    world.pass(10);
    let progress = Some(Progress {
        fraction: Some(0.9),
        message: None,
    });
    let beat = Heartbeat {
        job_id: Some(jobs[0]),
        progress,
        ..Heartbeat::of(lease)
    };
    let done = world.job(jobs[0]).clone();
    world
        .apply(|w| {
            t::heartbeat(
                &w.cx(),
                w.lease(lease),
                Some(&done),
                beat,
                LoadAdvice::default(),
            )
        })
        .unwrap();
    assert_eq!(world.lease(lease).renewed_at, world.now.wall);
    assert_eq!(world.job(jobs[0]), &done);
    assert_eq!(world.lease(lease).current().unwrap().id, jobs[1]);
}

#[test]
fn a_job_whose_worker_crashed_is_claimed_alone_and_then_quarantined() {
    let _watch = watch();
    let mut world = World::new();
    let poison = world.submit(simple());
    let innocent = world.submit(simple());
    let lease = world.claim(&[poison, innocent]);
    world.expire(lease);
    for (first, second) in [(poison, innocent), (innocent, poison)] {
        let (claimed, _) = world.try_claim(&[first, second]).unwrap();
        assert_eq!(claimed.jobs.len(), 1);
        assert_eq!(
            claimed.skipped,
            [(second, TransitionError::RunsAlone { job_id: second })]
        );
        let back = ReleaseRequest {
            return_jobs: true,
            reason: None,
        };
        let lease = claimed.lease.id;
        world
            .apply(|w| t::release(&w.cx(), w.lease(lease), &w.jobs_of(lease), &back))
            .unwrap();
    }
    for _ in 0..2 {
        let lease = world.claim(&[poison]);
        world.expire(lease);
    }
    let job = world.job(poison);
    assert_eq!(
        (job.state, job.quarantined, job.rescues, job.attempts),
        (JobState::Failed, true, 3, 0)
    );
    assert!(
        world
            .kinds(poison)
            .ends_with(&["LEASE_EXPIRED", "QUARANTINED", "FAILED"])
    );
}

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
fn one_refused_completion_does_not_hold_up_the_others() {
    let _watch = watch();
    let mut world = World::new();
    let (jobs, lease) = batch(&mut world, &[10, 20, 30]);
    let stray = world.submit(simple());
    let done = CompleteRequest::done(lease, None);
    let failed = CompleteRequest {
        retry: false,
        ..CompleteRequest::failed(lease, "broken")
    };
    let requests = [
        (world.job(jobs[0]), &done),
        (world.job(stray), &done),
        (world.job(jobs[1]), &failed),
        (world.job(jobs[0]), &done),
    ];
    let many = t::complete_many(&world.cx(), Some(world.lease(lease)), &requests);
    let states: Vec<_> = many
        .answers
        .iter()
        .map(|answer| answer.as_ref().ok().map(|(done, _)| done.state))
        .collect();
    assert_eq!(
        states,
        [Some(JobState::Done), None, Some(JobState::Failed), None]
    );
    assert_eq!(many.changes.leases.len(), 1, "the lease is written once");
    world.commit(many.changes);
    assert_eq!(world.lease(lease).jobs.len(), 1);
    assert_eq!(world.used(), 30);
}

#[test]
fn a_lease_with_unfinished_jobs_is_not_just_released() {
    let _watch = watch();
    let mut world = World::new();
    let (jobs, lease) = batch(&mut world, &[10, 10]);
    let release = ReleaseRequest::default();
    let refused = world.apply(|w| t::release(&w.cx(), w.lease(lease), &w.jobs_of(lease), &release));
    assert_eq!(
        refused,
        Err(TransitionError::UnfinishedJobs {
            lease_id: lease,
            jobs: jobs.clone()
        })
    );
    // Whoever releases first and completes then, as the lease's name suggests, loses nothing.
    for job in jobs {
        assert_eq!(
            world.complete(job, &CompleteRequest::done(lease, None)),
            Ok(JobState::Done)
        );
    }
    let again = world.apply(|w| t::release(&w.cx(), w.lease(lease), &w.jobs_of(lease), &release));
    assert_eq!(again, Ok(((), true)));
}

#[test]
fn a_renewal_that_comes_first_wins_over_expiry() {
    let _watch = watch();
    let mut world = World::new();
    let (_, lease) = batch(&mut world, &[10]);
    let seen = Proof::Seen {
        revision: world.lease(lease).revision,
    };
    world.pass(40);
    let beat = Heartbeat::of(lease);
    world
        .apply(|w| {
            t::heartbeat(
                &w.cx(),
                w.lease(lease),
                None,
                beat,
                LoadAdvice(Advice::Slow),
            )
        })
        .unwrap();
    for proof in [seen, Proof::Wall] {
        let refused = world.apply(|w| t::expire(&w.cx(), w.lease(lease), &w.jobs_of(lease), proof));
        assert!(matches!(refused, Err(TransitionError::NotDue { .. })));
    }
    assert!(world.lease(lease).is_live());
}

#[test]
fn a_running_job_is_asked_to_stop_and_ends_canceled_even_if_nobody_answers() {
    let _watch = watch();
    let mut world = World::new();
    let (jobs, lease) = batch(&mut world, &[10, 10]);
    let cancel = CancelRequest {
        reason: Some("not needed".into()),
    };
    let (state, _) = world
        .apply(|w| t::cancel(&w.cx(), w.job(jobs[1]), w.lease_of(jobs[1]), &cancel))
        .unwrap();
    assert_eq!(state, JobState::Running);
    let beat = Heartbeat::of(lease);
    let (answer, _) = world
        .apply(|w| {
            t::heartbeat(
                &w.cx(),
                w.lease(lease),
                None,
                beat,
                LoadAdvice(Advice::Slow),
            )
        })
        .unwrap();
    assert_eq!(
        (answer.advice, answer.cancel),
        (Advice::Cancel, vec![jobs[1]])
    );
    world.expire(lease);
    assert_eq!(
        (world.state(jobs[0]), world.state(jobs[1])),
        (JobState::Queued, JobState::Canceled)
    );
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
fn a_run_that_takes_too_long_counts_and_takes_its_lease_with_it() {
    let _watch = watch();
    let mut world = World::new();
    let request = SubmitRequest {
        max_runtime_sec: Some(60),
        max_attempts: Some(2),
        ..simple()
    };
    let slow = world.submit(request);
    let next = world.submit(simple());
    let lease = world.claim(&[slow, next]);
    let current_since = world.lease(lease).current_since;
    let command = TimeOut {
        job_id: slow,
        current_since,
        by: RuntimeProof::Wall,
    };
    world.pass(59);
    let early = world.apply(|w| t::time_out(&w.cx(), w.lease(lease), &w.jobs_of(lease), command));
    assert!(matches!(early, Err(TransitionError::NotDue { .. })));
    world.pass(1);
    world
        .apply(|w| t::time_out(&w.cx(), w.lease(lease), &w.jobs_of(lease), command))
        .unwrap();
    assert_eq!(
        world.kinds(slow),
        ["SUBMITTED", "RUNNING", "TIMEOUT", "RETRY_SCHEDULED"]
    );
    assert_eq!((world.job(slow).attempts, world.job(next).attempts), (1, 0));
    assert_eq!(world.state(next), JobState::Queued);
    assert_eq!(world.lease(lease).end, Some(LeaseEnd::Revoked));
}

#[test]
fn the_next_job_of_a_batch_has_its_own_time() {
    let _watch = watch();
    let mut world = World::new();
    let limited = || SubmitRequest {
        max_runtime_sec: Some(60),
        ..simple()
    };
    let jobs = [world.submit(limited()), world.submit(limited())];
    let lease = world.claim(&jobs);
    let current_since = world.lease(lease).current_since;
    world.pass(50);
    world
        .complete(jobs[0], &CompleteRequest::done(lease, None))
        .unwrap();
    world.pass(50);
    for (job_id, since) in [
        (jobs[0], current_since),
        (jobs[1], current_since),
        (jobs[1], world.lease(lease).current_since),
    ] {
        let command = TimeOut {
            job_id,
            current_since: since,
            by: RuntimeProof::Wall,
        };
        let refused =
            world.apply(|w| t::time_out(&w.cx(), w.lease(lease), &w.jobs_of(lease), command));
        assert!(matches!(refused, Err(TransitionError::NotDue { .. })));
    }
    world.pass(10);
    let command = TimeOut {
        job_id: jobs[1],
        current_since: world.lease(lease).current_since,
        by: RuntimeProof::Wall,
    };
    let (state, _) = world
        .apply(|w| t::time_out(&w.cx(), w.lease(lease), &w.jobs_of(lease), command))
        .unwrap();
    assert_eq!(state, JobState::Failed);
}

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
fn a_key_answers_the_same_after_its_job_is_forgotten() {
    let _watch = watch();
    let mut world = World::new();
    let keyed = |cost| SubmitRequest {
        idempotency_key: Some("order-7".into()),
        ..costing(cost)
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
fn a_take_up_is_repeatable_by_the_process_that_did_it() {
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
    let instance_id = Some(world.instance());
    let ack = AckRequest {
        instance_id,
        ..AckRequest::default()
    };
    let (first, second) = (world.lease_id(), world.lease_id());
    let (lease, _) = world
        .apply(|w| t::ack(&w.cx(), w.job(job), None, ack.clone(), first))
        .unwrap();
    let (again, repeated) = world
        .apply(|w| t::ack(&w.cx(), w.job(job), w.lease_of(job), ack, second))
        .unwrap();
    assert!(repeated && again == lease && lease.id == first);
    let other = AckRequest {
        instance_id: Some(world.instance()),
        ..AckRequest::default()
    };
    let refused = world.apply(|w| t::ack(&w.cx(), w.job(job), w.lease_of(job), other, second));
    assert_eq!(refused, Err(TransitionError::TakenUp { job_id: job }));
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
fn progress_is_told_and_not_kept() {
    let _watch = watch();
    let mut world = World::new();
    let (jobs, lease) = batch(&mut world, &[10]);
    let report = ReportRequest {
        lease_id: lease,
        job_id: None,
        progress: Some(Progress {
            fraction: Some(0.5),
            message: Some("halfway".into()),
        }),
        metrics: [("files".to_owned(), 12.0)].into(),
        pids: Some(vec![42]),
    };
    let renewed = world.lease(lease).renewed_at;
    world.pass(5);
    world
        .apply(|w| t::report(&w.cx(), w.lease(lease), Some(w.job(jobs[0])), report))
        .unwrap();
    let view = world.job(jobs[0]).view(world.lease_of(jobs[0]));
    assert_eq!(view.progress.unwrap().message.as_deref(), Some("halfway"));
    assert_eq!((view.metrics["files"], view.pids), (12.0, vec![42]));
    assert_eq!(
        world.lease(lease).renewed_at,
        renewed,
        "a report does not renew"
    );
    assert_eq!(
        world.events.last().unwrap().kind,
        jobtree_protocol::EventKind::Progress
    );
    assert_eq!(world.kinds(jobs[0]), ["SUBMITTED", "RUNNING"]);
}

#[test]
fn records_that_do_not_belong_together_change_nothing() {
    let _watch = watch();
    let mut world = World::new();
    let (jobs, lease) = batch(&mut world, &[10, 10]);
    let half = [world.job(jobs[0]).clone()];
    let proof = Proof::Seen {
        revision: world.lease(lease).revision,
    };
    let refused = t::expire(&world.cx(), world.lease(lease), &half, proof).unwrap_err();
    assert_eq!(
        refused,
        TransitionError::Inconsistent {
            lease_id: lease,
            job_id: jobs[1]
        }
    );
    assert_eq!(ApiError::from(&refused).code, ErrorCode::Unavailable);
}

#[test]
fn changes_of_one_transaction_are_written_as_the_last_one_has_them() {
    let _watch = watch();
    let mut world = World::new();
    let (jobs, lease) = batch(&mut world, &[10, 20]);
    let mut all = Changes::default();
    let mut held = world.lease(lease).clone();
    for job in &jobs {
        let done = CompleteRequest::done(lease, None);
        let done = t::complete(&world.cx(), world.job(*job), Some(&held), &done).unwrap();
        held = done.changes.leases[0].clone();
        all.absorb(done.changes);
    }
    assert_eq!(
        (all.jobs.len(), all.leases.len(), all.ended.len()),
        (2, 1, 2)
    );
    assert_eq!(all.leases[0].end, Some(LeaseEnd::Completed));
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
fn a_call_is_compared_with_the_lease_it_names() {
    let _watch = watch();
    let mut world = World::new();
    let (_, lease) = batch(&mut world, &[10]);
    let given = world.lease_id();
    let beat = Heartbeat::of(given);
    let refused =
        world.apply(|w| t::heartbeat(&w.cx(), w.lease(lease), None, beat, LoadAdvice::default()));
    assert_eq!(
        refused,
        Err(TransitionError::OtherLease {
            given,
            found: lease
        })
    );
}
