//! Leases: granted for one job or many, fenced, renewed, ended in every way; repetitions; concurrency keys.

use jobtree_protocol::{
    AckRequest, Advice, CancelRequest, CompleteRequest, Heartbeat, InstanceId, JobState, Json,
    Priority, ProcessOrigin, Progress, ReleaseRequest, ReportRequest, RevokeRequest, SubmitRequest,
};
use jobtree_queue::transitions::{
    Admit, LoadAdvice, Proof, RuntimeProof, TakeUp, TimeOut, TransitionError, Unclaimed,
};

use super::Case;
use super::world::{World, node, plain, refused};
use crate::error::StoreError;

pub(super) const CASES: &[Case] = &[
    ("a batch under one lease", a_batch_under_one_lease),
    (
        "completions are repeated and fenced",
        completions_are_repeated_and_fenced,
    ),
    ("many completions, each for itself", many_completions),
    ("a dispatch is taken up once", a_dispatch_is_taken_up_once),
    ("a dispatch comes back", a_dispatch_comes_back),
    ("heartbeats renew and tell", heartbeats_renew_and_tell),
    ("leases end in every way", leases_end_in_every_way),
    ("a run takes too long", a_run_takes_too_long),
    ("a poison job is quarantined", a_poison_job_is_quarantined),
    ("canceling a running job", canceling_a_running_job),
    ("concurrency keys hold", concurrency_keys_hold),
    ("a lease without a job", a_lease_without_a_job),
    (
        "a request for capacity has one lease",
        a_request_for_capacity_has_one_lease,
    ),
    ("retries wait", retries_wait),
    ("what is used is computed", what_is_used_is_computed),
];

fn a_batch_under_one_lease(world: &World) {
    let jobs: Vec<_> = (0..20)
        .map(|cost| {
            world.submit(SubmitRequest {
                cost_units: 20 - cost,
                ..plain()
            })
        })
        .collect();
    let mut asked = jobs.clone();
    asked.reverse();
    let lease_id = world.lease_id();
    let claimed = world.claim_as(&asked, lease_id).expect("a lease");
    assert_eq!(claimed.lease.cost(), 20, "charged at the largest");
    let order: Vec<_> = claimed.jobs.iter().map(|job| job.id).collect();
    assert_eq!(order, asked, "in the order that was asked for");
    let again = world.claim_as(&asked, lease_id).expect("a repetition");
    assert_eq!(again.lease, claimed.lease);
    assert_eq!(again.jobs, claimed.jobs);
    let taken = refused(world.claim_as(&jobs[..2], world.lease_id()));
    assert!(matches!(taken, TransitionError::NothingToClaim { skipped } if skipped.len() == 2));

    // The dearest first: what the lease holds falls.
    world
        .complete(jobs[0], CompleteRequest::done(lease_id, None))
        .expect("it runs");
    let lease = world.store.lease(lease_id).wait().expect("it holds");
    assert_eq!((lease.cost(), lease.jobs.len()), (19, 19));
    for job in &jobs[1..] {
        world
            .complete(*job, CompleteRequest::done(lease_id, None))
            .expect("it runs");
    }
    let lease = world
        .store
        .lease(lease_id)
        .wait()
        .expect("it is remembered");
    assert!(!lease.is_live() && lease.cost() == 0);
}

fn completions_are_repeated_and_fenced(world: &World) {
    let job = world.plain();
    let lease = world.claim(&[job]).id;
    let stranger = world.lease_id();
    let foreign = world.complete(job, CompleteRequest::done(stranger, None));
    assert!(matches!(
        refused(foreign),
        TransitionError::NotYourLease { .. }
    ));
    let result = Json::of(&42).expect("JSON");
    let request = CompleteRequest::done(lease, Some(result.clone()));
    let answer = world.complete(job, request.clone());
    assert_eq!(answer, world.complete(job, request), "a repetition");
    assert_eq!(world.record(job).result, Some(result));
    let other = world.complete(job, CompleteRequest::failed(lease, "no"));
    assert!(matches!(
        refused(other),
        TransitionError::WrongState {
            state: JobState::Done,
            ..
        }
    ));
    let foreign = world.complete(job, CompleteRequest::done(stranger, None));
    assert!(matches!(
        refused(foreign),
        TransitionError::WrongState {
            state: JobState::Done,
            ..
        }
    ));
}

fn many_completions(world: &World) {
    let jobs: Vec<_> = (0..6).map(|_| world.plain()).collect();
    let (a, b) = (world.claim(&jobs[..3]).id, world.claim(&jobs[3..]).id);
    let nobody = world.job_id();
    let answers = world
        .store
        .complete_many(
            world.stamp(),
            vec![
                (jobs[0], CompleteRequest::done(a, None)),
                (jobs[3], CompleteRequest::failed(b, "no")),
                (jobs[1], CompleteRequest::done(b, None)),
                (nobody, CompleteRequest::done(a, None)),
                (jobs[4], CompleteRequest::done(b, None)),
                (jobs[5], CompleteRequest::done(b, None)),
            ],
        )
        .wait()
        .expect("taken");
    let state = |place: usize| answers[place].as_ref().map(|answer| answer.state).ok();
    assert_eq!(state(0), Some(JobState::Done));
    assert_eq!(state(1), Some(JobState::Failed));
    assert!(matches!(
        refused(answers[2].clone()),
        TransitionError::NotYourLease { .. }
    ));
    assert_eq!(answers[3], Err(StoreError::NoJob(nobody)));
    assert_eq!(
        (state(4), state(5)),
        (Some(JobState::Done), Some(JobState::Done))
    );
    assert!(!world.store.lease(b).wait().expect("known").is_live());
    let left = world.store.lease(a).wait().expect("known");
    let left: Vec<_> = left.jobs.iter().map(|job| job.id).collect();
    assert_eq!(left, [jobs[1], jobs[2]]);
}

fn a_dispatch_is_taken_up_once(world: &World) {
    let job = world.plain();
    world.reserve(job).expect("a place");
    let dispatching = world.store.dispatching().wait().expect("the list");
    assert_eq!(dispatching.len(), 1);
    assert_eq!(dispatching[0], world.record(job));
    let me = InstanceId::from_random([1; 16]);
    let take_up = |instance| {
        let command = TakeUp {
            lease_id: world.lease_id(),
            instance_id: Some(instance),
            pids: vec![5],
            process_origin: None,
        };
        world.store.take_up(world.stamp(), job, command).wait()
    };
    let lease = take_up(me).expect("it is free");
    assert_eq!(take_up(me).expect("a repetition"), lease);
    let other = take_up(InstanceId::from_random([2; 16]));
    assert!(matches!(refused(other), TransitionError::TakenUp { .. }));
    assert!(
        world
            .store
            .dispatching()
            .wait()
            .expect("the list")
            .is_empty()
    );

    let second = world.plain();
    world.reserve(second).expect("a place");
    let ack_under = |given| {
        let request = AckRequest {
            lease_id: Some(given),
            ..AckRequest::default()
        };
        let ack = world
            .store
            .ack(world.stamp(), second, request, world.lease_id());
        ack.wait()
    };
    let busy = refused(ack_under(lease.id));
    assert!(matches!(busy, TransitionError::UnfinishedJobs { .. }));
    let free = world
        .store
        .admit(world.stamp(), without_a_job(world))
        .wait()
        .expect("granted");
    let joined = ack_under(free.id).expect("it joins");
    assert_eq!((joined.jobs.len(), joined.cost()), (1, 25));
    assert_eq!(ack_under(free.id), Ok(joined), "a repetition");
    let third = world.plain();
    world.reserve(third).expect("a place");
    let ack = world
        .store
        .ack(
            world.stamp(),
            third,
            AckRequest::default(),
            world.lease_id(),
        )
        .wait();
    assert_ne!(ack.expect("a lease of its own").id, lease.id);
}

fn a_dispatch_comes_back(world: &World) {
    let job = world.plain();
    let reservation = world.reserve(job).expect("a place");
    let back = |reservation| {
        let why = Unclaimed::TimedOut(Proof::Wall);
        world
            .store
            .return_unclaimed(world.stamp(), job, reservation, why)
            .wait()
    };
    assert!(matches!(
        refused(back(reservation)),
        TransitionError::NotDue { .. }
    ));
    world.advance(31);
    assert_eq!(back(reservation), Ok(JobState::Queued));
    let again = world.reserve(job).expect("a place");
    world.advance(31);
    assert!(
        matches!(refused(back(reservation)), TransitionError::NotDue { .. }),
        "of an older one"
    );
    assert_eq!(back(again), Ok(JobState::Queued));
}

fn heartbeats_renew_and_tell(world: &World) {
    let jobs = [world.plain(), world.plain()];
    let lease = world.claim(&jobs);
    world.advance(20);
    let origin = Box::new(ProcessOrigin {
        boot_id: "00000000-0000-4000-8000-000000000001".to_owned(),
        pid_namespace: 4_026_531_836,
        started: vec![123_456],
    });
    let beat = Heartbeat {
        job_id: Some(jobs[1]),
        progress: Some(Progress {
            fraction: Some(0.5),
            message: Some("half".into()),
        }),
        pids: Some(vec![77]),
        process_origin: Some(origin.clone()),
        ..Heartbeat::of(lease.id)
    };
    let answer = world
        .store
        .heartbeat(world.stamp(), beat, LoadAdvice(Advice::Slow))
        .wait()
        .expect("it holds");
    assert_eq!(answer.advice, Advice::Slow);
    let renewed = world.store.lease(lease.id).wait().expect("it holds");
    assert!(renewed.expires_at > lease.expires_at);
    assert_eq!(renewed.pids, [77]);
    assert_eq!(renewed.process_origin, Some(origin));
    assert_eq!(renewed.in_hand().map(|job| job.id), Some(jobs[1]));
    let report = ReportRequest {
        lease_id: lease.id,
        job_id: None,
        progress: None,
        metrics: [("frames".to_owned(), 3.5)].into(),
        pids: None,
        process_origin: None,
    };
    world
        .store
        .report(world.stamp(), report)
        .wait()
        .expect("it holds");
    let record = world.record(jobs[1]);
    assert_eq!(
        record
            .progress
            .as_ref()
            .and_then(|progress| progress.fraction),
        Some(0.5)
    );
    assert_eq!(record.metrics.get("frames"), Some(&3.5));
    // Told to listeners, and not kept.
    let told = world.told();
    let kinds = told.iter().flat_map(|written| &written.changes.events);
    assert!(kinds.clone().any(|event| !event.kind.is_kept()));
    let trail = world.store.events_of(jobs[1]).wait().expect("a trail");
    assert!(trail.iter().all(|recorded| recorded.event.kind.is_kept()));
}

fn leases_end_in_every_way(world: &World) {
    let jobs: Vec<_> = (0..6).map(|_| world.plain()).collect();
    let released = world.claim(&jobs[..2]).id;
    let keep = world
        .store
        .release(world.stamp(), released, ReleaseRequest::default())
        .wait();
    assert!(matches!(
        refused(keep),
        TransitionError::UnfinishedJobs { .. }
    ));
    let request = ReleaseRequest {
        return_jobs: true,
        ..ReleaseRequest::default()
    };
    let release = || {
        world
            .store
            .release(world.stamp(), released, request.clone())
            .wait()
    };
    assert_eq!((release(), release()), (Ok(()), Ok(())));

    let revoked = world.claim(&jobs[2..4]).id;
    let revoke = world
        .store
        .revoke(world.stamp(), revoked, RevokeRequest::default());
    assert_eq!(revoke.wait(), Ok(()));
    let late = world.complete(jobs[2], CompleteRequest::done(revoked, None));
    assert!(matches!(
        refused(late),
        TransitionError::WrongState {
            state: JobState::Queued,
            ..
        }
    ));

    let expired = world.claim(&jobs[4..]).id;
    let expire = || {
        world
            .store
            .expire(world.stamp(), expired, Proof::Wall)
            .wait()
    };
    assert!(matches!(refused(expire()), TransitionError::NotDue { .. }));
    world.advance(31);
    assert_eq!(expire(), Ok(()));
    assert!(matches!(refused(expire()), TransitionError::NotDue { .. }));
    assert_eq!(
        (world.record(jobs[4]).rescues, world.record(jobs[5]).rescues),
        (1, 0)
    );
    let beat = world
        .store
        .heartbeat(world.stamp(), Heartbeat::of(expired), LoadAdvice::default())
        .wait();
    assert!(matches!(refused(beat), TransitionError::LeaseEnded { .. }));
    for job in jobs {
        assert_eq!(world.state(job), JobState::Queued);
        assert_eq!(world.record(job).lease_id, None);
    }
}

fn a_run_takes_too_long(world: &World) {
    let limited = world.submit(SubmitRequest {
        max_runtime_sec: Some(10),
        max_attempts: Some(2),
        ..plain()
    });
    let other = world.plain();
    let lease = world.claim(&[limited, other]);
    let command = TimeOut {
        job_id: limited,
        current_since: lease.current_since,
        by: RuntimeProof::Wall,
    };
    let time_out = || {
        world
            .store
            .time_out(world.stamp(), lease.id, command)
            .wait()
    };
    assert!(matches!(
        refused(time_out()),
        TransitionError::NotDue { .. }
    ));
    world.advance(11);
    assert_eq!(time_out(), Ok(JobState::Queued));
    assert_eq!(
        (world.record(limited).attempts, world.record(other).attempts),
        (1, 0)
    );
    assert_eq!(world.state(other), JobState::Queued);
}

fn a_poison_job_is_quarantined(world: &World) {
    let poison = world.plain();
    for _ in 0..3 {
        let lease = world.claim(&[poison]).id;
        world.advance(31);
        world
            .store
            .expire(world.stamp(), lease, Proof::Wall)
            .wait()
            .expect("it is due");
    }
    let record = world.record(poison);
    assert_eq!(
        (record.state, record.quarantined, record.attempts),
        (JobState::Failed, true, 0)
    );
    let query = jobtree_protocol::JobQuery {
        quarantined: true,
        ..jobtree_protocol::JobQuery::default()
    };
    assert_eq!(world.list(query), [poison]);
    let back = world
        .store
        .redrive(world.stamp(), poison, Some("fixed".into()));
    assert_eq!(back.wait(), Ok(JobState::Queued));
    assert!(!world.record(poison).quarantined);
    world.finish(poison);
}

fn canceling_a_running_job(world: &World) {
    let job = world.plain();
    let lease = world.claim(&[job]).id;
    let cancel = || {
        let request = CancelRequest {
            reason: Some("changed my mind".into()),
        };
        world.store.cancel(world.stamp(), job, request).wait()
    };
    assert_eq!(
        (cancel(), cancel()),
        (Ok(JobState::Running), Ok(JobState::Running))
    );
    let beat = world
        .store
        .heartbeat(world.stamp(), Heartbeat::of(lease), LoadAdvice::default())
        .wait()
        .expect("it holds");
    assert_eq!((beat.advice, beat.cancel), (Advice::Cancel, vec![job]));
    world.advance(31);
    world
        .store
        .expire(world.stamp(), lease, Proof::Wall)
        .wait()
        .expect("nobody answered");
    assert_eq!(world.state(job), JobState::Canceled);
    assert_eq!(cancel(), Ok(JobState::Canceled));
}

fn concurrency_keys_hold(world: &World) {
    let keyed = || SubmitRequest {
        concurrency_key: Some("printer".into()),
        concurrency_limit: Some(2),
        ..plain()
    };
    let jobs: Vec<_> = (0..6).map(|_| world.submit(keyed())).collect();
    let foreign = world.submit(SubmitRequest {
        addon_id: "sounds".into(),
        ..keyed()
    });
    let holders = || {
        let addon = jobtree_protocol::AddonId::new("visuals").expect("a name");
        world
            .store
            .key_holders(addon, "printer".into())
            .wait()
            .expect("a count")
    };
    assert_eq!(holders(), 0);
    // Jobs of one lease run one after the other, so a batch counts once.
    let batch = world.claim(&jobs[..3]).id;
    assert_eq!(holders(), 1);
    let reservation = world.reserve(jobs[3]).expect("the second place");
    assert_eq!(holders(), 2);
    assert!(matches!(
        refused(world.reserve(jobs[4])),
        TransitionError::KeyFull { limit: 2, .. }
    ));
    let full = world.claim_as(&[jobs[4]], world.lease_id());
    assert!(matches!(
        refused(full),
        TransitionError::NothingToClaim { .. }
    ));
    world.claim(&[foreign]);
    let declined = Unclaimed::Declined {
        reason: "busy".into(),
    };
    world
        .store
        .return_unclaimed(world.stamp(), jobs[3], reservation, declined)
        .wait()
        .expect("it is declined");
    assert_eq!(holders(), 1);
    for job in &jobs[..3] {
        world
            .complete(*job, CompleteRequest::done(batch, None))
            .expect("it runs");
    }
    assert_eq!(holders(), 0);
    world.claim(&[jobs[4]]);
}

fn without_a_job(world: &World) -> Admit {
    Admit {
        lease_id: world.lease_id(),
        addon_id: jobtree_protocol::AddonId::new("visuals").expect("a name"),
        job_type: jobtree_protocol::JobType::new("import").expect("a name"),
        cost_units: 25,
        priority: Priority::High,
        constraints: jobtree_protocol::Constraints::default(),
        expected_duration_sec: Some(9),
        node_id: node(),
        instance_id: None,
        request_key: None,
        pids: Vec::new(),
        process_origin: None,
        reason: "there is room".into(),
    }
}

fn a_lease_without_a_job(world: &World) {
    let command = without_a_job(world);
    let admit = || {
        world
            .store
            .admit(world.stamp(), command.clone())
            .wait()
            .expect("granted")
    };
    let lease = admit();
    assert_eq!(admit(), lease, "a repetition");
    assert_eq!(lease.cost(), 25);
    assert_eq!(
        world.store.live_leases().wait().expect("the leases"),
        std::slice::from_ref(&lease)
    );
    let release = world
        .store
        .release(world.stamp(), lease.id, ReleaseRequest::default());
    assert_eq!(release.wait(), Ok(()));
    assert_eq!(world.store.live_leases().wait().expect("the leases"), []);
}

fn a_request_for_capacity_has_one_lease(world: &World) {
    let instance = |number: u8| Some(InstanceId::from_random([number; 16]));
    let command = |number: u8, key: &str| Admit {
        instance_id: instance(number),
        request_key: Some(key.to_owned()),
        ..without_a_job(world)
    };
    let admit = |command: Admit| world.store.admit(world.stamp(), command).wait();
    let first = admit(command(1, "a b")).expect("granted");
    assert_eq!(first.request_key.as_deref(), Some("a b"));
    assert_eq!(
        admit(command(1, "a b")),
        Ok(first.clone()),
        "another id, the same request"
    );
    // Another request, another process, another addon.
    let other_addon = Admit {
        addon_id: jobtree_protocol::AddonId::new("sounds").expect("a name"),
        ..command(1, "a b")
    };
    let others = [command(1, "a"), command(2, "a b"), other_addon];
    let mut ids = vec![first.id];
    for other in others {
        ids.push(admit(other).expect("granted").id);
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4);
    // The key of a lease that holds is not used for something else.
    let larger = Admit {
        cost_units: 26,
        ..command(1, "a b")
    };
    assert!(matches!(
        admit(larger),
        Err(StoreError::Refused(why)) if matches!(*why, TransitionError::RequestConflict { lease_id, .. } if lease_id == first.id)
    ));
    // Renewals do not change whose it is; its end does.
    let beat = Heartbeat::of(first.id);
    let beat = world
        .store
        .heartbeat(world.stamp(), beat, LoadAdvice::default());
    beat.wait().expect("it holds");
    assert_eq!(admit(command(1, "a b")).expect("granted").id, first.id);
    let release = ReleaseRequest::default();
    let released = world.store.release(world.stamp(), first.id, release).wait();
    assert_eq!(released, Ok(()));
    let second = admit(command(1, "a b")).expect("granted");
    assert_ne!(second.id, first.id);
    assert_eq!(admit(command(1, "a b")).expect("granted"), second);
}

fn retries_wait(world: &World) {
    let job = world.submit(SubmitRequest {
        max_attempts: Some(3),
        ..plain()
    });
    for attempt in 1..=2 {
        let lease = world.claim(&[job]).id;
        let answer = world
            .complete(job, CompleteRequest::failed(lease, "no"))
            .expect("it runs");
        assert_eq!(answer.state, JobState::Queued);
        assert!(
            answer
                .next_earliest_start_at
                .is_some_and(|start| start > world.now().wall)
        );
        assert_eq!(world.record(job).attempts, attempt);
        let early = refused(world.claim_as(&[job], world.lease_id()));
        assert!(matches!(early, TransitionError::NothingToClaim { .. }));
        if attempt == 1 {
            world.advance(3600);
        } else {
            world
                .store
                .hasten(world.stamp(), job)
                .wait()
                .expect("it waits");
        }
    }
    world.fail(job);
    assert_eq!(world.record(job).completions.len(), 3);
    assert_eq!(world.record(job).attempts, 3);
}

fn what_is_used_is_computed(world: &World) {
    let of_cost = |addon: &str, cost| world.submit(SubmitRequest::new(addon, "indexing", cost));
    let batch = [of_cost("visuals", 5), of_cost("visuals", 30)];
    let dispatched = of_cost("visuals", 7);
    let foreign = of_cost("sounds", 11);
    let used = || {
        let usage = world.store.usage().wait().expect("the usage");
        let tell = |usage: &crate::Usage| {
            (
                usage.addon_id.to_string(),
                usage.units,
                usage.leases,
                usage.reservations,
            )
        };
        usage.iter().map(tell).collect::<Vec<_>>()
    };
    assert_eq!(used(), []);
    let lease = world.claim(&batch).id;
    world.claim(&[foreign]);
    world.reserve(dispatched).expect("a place");
    assert_eq!(
        used(),
        [
            ("sounds".to_owned(), 11, 1, 0),
            ("visuals".to_owned(), 37, 1, 1)
        ]
    );
    world
        .complete(batch[1], CompleteRequest::done(lease, None))
        .expect("it runs");
    assert_eq!(
        used()[1],
        ("visuals".to_owned(), 12, 1, 1),
        "the dearest of the batch has ended"
    );
}
