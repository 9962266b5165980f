//! Leases and batches: what they cost, how they end, what becomes of their jobs.

mod support;

use std::sync::Arc;

use jobtree_protocol::{
    AckRequest, Advice, ApiError, CancelRequest, CompleteRequest, ErrorCode, Heartbeat, JobId,
    JobState, LeaseId, LeaseState, Progress, ReleaseRequest, ReportRequest, SubmitRequest,
};
use jobtree_queue::record::LeaseEnd;
use jobtree_queue::transitions::{
    self as t, Abilities, Changes, LoadAdvice, Proof, RuntimeProof, TimeOut, TransitionError,
};
use support::{UNBEGUN, World, simple, watch};

fn batch(world: &mut World, costs: &[u32]) -> (Vec<JobId>, LeaseId) {
    let submit = |cost: &u32| world.submit(SubmitRequest::new("visuals", "indexing", *cost));
    let jobs: Vec<JobId> = costs.iter().map(submit).collect();
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
        [
            "SUBMITTED",
            "ADMITTED",
            "DISPATCHING",
            "RUNNING",
            "LEASE_EXPIRED"
        ]
    );
    assert_eq!(
        world.kinds(jobs[2]),
        ["SUBMITTED", "ADMITTED", "DISPATCHING", "RETURNED"]
    );
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
    world.beat(beat).unwrap();
    assert_eq!(world.lease(lease).in_hand().unwrap().id, jobs[1]);
    assert_eq!(world.lease(lease).current_since, world.now.wall);
    world.expire(lease);
    let rescues: Vec<u32> = jobs.iter().map(|job| world.job(*job).rescues).collect();
    assert_eq!(rescues, [0, 1, 0]);
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
    world.beat(beat).unwrap();
    assert_eq!(world.lease(lease).renewed_at, world.now.wall);
    assert_eq!(world.job(jobs[0]), &done);
    assert_eq!(world.lease(lease).in_hand().unwrap().id, jobs[1]);
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
            ..ReleaseRequest::default()
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
    let many = t::complete_many(
        &world.cx(),
        Some(world.lease(lease)),
        &requests,
        world.record(),
    );
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
    world.beat_under(beat, LoadAdvice(Advice::Slow)).unwrap();
    for proof in [seen, Proof::Wall] {
        let refused = world.apply(|w| t::expire(&w.cx(), w.lease(lease), &w.jobs_of(lease), proof));
        assert!(matches!(refused, Err(TransitionError::NotDue { .. })));
    }
    assert!(world.lease(lease).is_live());
}

/// A worker inside the process that has the store open.
const INSIDE: Abilities = Abilities {
    in_process: true,
    ..UNBEGUN
};

fn owner_gone(world: &mut World, lease: LeaseId) -> Result<(), TransitionError> {
    let proof = Proof::OwnerGone;
    let ended = world.apply(|w| t::expire(&w.cx(), w.lease(lease), &w.jobs_of(lease), proof));
    ended.map(|_| ())
}

#[test]
fn the_end_of_a_process_ends_leases_of_workers_inside_it_only() {
    let _watch = watch();
    let mut world = World::new();
    let jobs = [(); 3].map(|()| world.submit(simple()));
    let inside = world.claim_by(INSIDE, &jobs[..2]);
    let elsewhere = world.claim(&jobs[2..]);
    let mut beat = Heartbeat::of(inside);
    beat.job_id = Some(jobs[0]);
    world.beat_under(beat, LoadAdvice::default()).unwrap();
    assert_eq!(owner_gone(&mut world, inside), Ok(()));
    assert!(matches!(
        owner_gone(&mut world, elsewhere),
        Err(TransitionError::NotDue { .. })
    ));
    let rescues = jobs.map(|id| (world.job(id).state, world.job(id).rescues));
    assert_eq!(
        rescues,
        [
            (JobState::Queued, 1),
            (JobState::Queued, 0),
            (JobState::Running, 0)
        ]
    );
    assert_eq!(world.lease(inside).end, Some(LeaseEnd::Expired));
}

#[test]
fn a_lease_that_another_process_works_under_outlives_the_process_of_its_worker() {
    let _watch = watch();
    for by_report in [false, true] {
        let mut world = World::new();
        let job = world.submit(simple());
        let lease = world.claim_by(INSIDE, &[job]);
        if by_report {
            let report = ReportRequest {
                lease_id: lease,
                job_id: Some(job),
                progress: None,
                metrics: Default::default(),
                pids: Some(vec![42]),
                process_origin: None,
            };
            world
                .apply(|w| t::report(&w.cx(), w.lease(lease), Some(w.job(job)), report))
                .unwrap();
        } else {
            let mut beat = Heartbeat::of(lease);
            beat.pids = Some(vec![42]);
            world.beat_under(beat, LoadAdvice::default()).unwrap();
        }
        assert!(matches!(
            owner_gone(&mut world, lease),
            Err(TransitionError::NotDue { .. })
        ));
        assert!(world.lease(lease).is_live());
    }
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
        [
            "SUBMITTED",
            "ADMITTED",
            "RUNNING",
            "TIMEOUT",
            "RETRY_SCHEDULED"
        ]
    );
    assert_eq!((world.job(slow).attempts, world.job(next).attempts), (1, 0));
    assert_eq!(world.state(next), JobState::Queued);
    assert_eq!(world.lease(lease).end, Some(LeaseEnd::Revoked));
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
    assert_eq!(
        refused,
        Err(TransitionError::TakenUp {
            job_id: job,
            state: JobState::Running
        })
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
        process_origin: None,
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
    assert_eq!(world.kinds(jobs[0]), ["SUBMITTED", "ADMITTED", "RUNNING"]);
}

#[test]
fn records_that_do_not_belong_together_change_nothing() {
    let _watch = watch();
    let mut world = World::new();
    let (jobs, lease) = batch(&mut world, &[10, 10]);
    let half = [Arc::clone(&world.jobs[&jobs[0]])];
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
        let written = all.jobs.iter().find(|it| it.id == *job).cloned();
        let record = written.unwrap_or_else(|| world.jobs[job].clone());
        let cx = world.cx();
        let done = t::complete(&cx, &record, Some(&held), &done, world.record()).unwrap();
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
fn a_call_is_compared_with_the_lease_it_names() {
    let _watch = watch();
    let mut world = World::new();
    let (_, lease) = batch(&mut world, &[10]);
    let given = world.lease_id();
    let beat = Heartbeat::of(given);
    let refused =
        world.apply(|w| t::heartbeat(&w.cx(), w.lease(lease), &[], beat, LoadAdvice::default()));
    assert_eq!(
        refused,
        Err(TransitionError::OtherLease {
            given,
            found: lease
        })
    );
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
    assert_eq!(
        state,
        JobState::Dispatching,
        "asked to stop before its turn"
    );
    let beat = Heartbeat::of(lease);
    let answer = world.beat_under(beat, LoadAdvice(Advice::Slow)).unwrap();
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
