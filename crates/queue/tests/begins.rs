//! When a job of a lease begins, what the times of its worker may say, and which events tell of it.

mod support;

use jobtree_protocol::{CompleteRequest, Heartbeat, InHand, JobId, JobState, LeaseId};
use jobtree_queue::audit::Auditor;
use jobtree_queue::record::Stage;
use jobtree_queue::transitions::{self as t, Abilities};
use support::{UNBEGUN, World, simple, watch};

fn batch(world: &mut World, worker: Abilities) -> (Vec<JobId>, LeaseId) {
    let jobs: Vec<JobId> = (0..3).map(|_| world.submit(simple())).collect();
    let lease = world.claim_by(worker, &jobs);
    (jobs, lease)
}

/// Shows everything to an auditor, as a check of a store does.
fn audit(world: &World) {
    let mut auditor = Auditor::new(false);
    let kept = world.events.iter().filter(|event| event.kind.is_kept());
    for (place, event) in (1..).zip(kept) {
        assert_eq!(auditor.event(place, event), []);
    }
    for job in world.jobs.values() {
        assert_eq!(auditor.job(job), None);
    }
    for lease in world.leases.values().filter(|lease| lease.is_live()) {
        assert_eq!(auditor.live_lease(lease), None);
    }
    assert_eq!(auditor.finish(), []);
}

#[test]
fn times_are_kept_within_the_life_of_the_lease() {
    let _watch = watch();
    let mut world = World::new();
    world.pass(1000);
    let (jobs, lease) = batch(&mut world, UNBEGUN);
    let granted = world.now.wall;
    world.pass(20);
    // Began before it was granted, and ended before it began: neither is believed.
    let ends = [
        (Some(u64::MAX), Some(u64::MAX)),
        (Some(5_000), Some(10_000)),
        (Some(8_000), Some(3_000)),
    ];
    for (job, (began_ms_ago, ended_ms_ago)) in jobs.iter().zip(ends) {
        let request = CompleteRequest {
            began_ms_ago,
            ended_ms_ago,
            ..CompleteRequest::done(lease, None)
        };
        world.complete(*job, &request).unwrap();
    }
    let seconds = |job: JobId| {
        let record = world.job(job);
        let of = |time: jiff::Timestamp| time.duration_since(granted).as_secs();
        (of(record.started_at.unwrap()), of(record.ended_at.unwrap()))
    };
    let told: Vec<_> = jobs.iter().map(|job| seconds(*job)).collect();
    assert_eq!(told, [(0, 0), (15, 15), (12, 17)]);
    assert_eq!(
        world.kinds(jobs[0]),
        ["SUBMITTED", "ADMITTED", "DISPATCHING", "DONE"],
        "begun and ended in one step"
    );
    audit(&world);
}

#[test]
fn a_named_job_begins_and_a_crash_counts_for_it_alone() {
    let _watch = watch();
    let mut world = World::new();
    let (jobs, lease) = batch(&mut world, UNBEGUN);
    let named = Heartbeat {
        job_id: Some(jobs[1]),
        ..Heartbeat::of(lease)
    };
    world.beat(named).unwrap();
    let stages: Vec<Stage> = jobs.iter().map(|job| world.job(*job).stage()).collect();
    assert_eq!(stages, [Stage::Held, Stage::Running, Stage::Held]);
    world.expire(lease);
    let rescues: Vec<u32> = jobs.iter().map(|job| world.job(*job).rescues).collect();
    assert_eq!(rescues, [0, 1, 0]);
    audit(&world);
}

#[test]
fn a_completion_begins_the_job_that_it_names_and_no_other() {
    let _watch = watch();
    let mut world = World::new();
    let (jobs, lease) = batch(&mut world, UNBEGUN);
    let request = CompleteRequest {
        in_hand: Some(InHand {
            job_id: jobs[2],
            began_ms_ago: 0,
        }),
        ..CompleteRequest::done(lease, None)
    };
    world.complete(jobs[0], &request).unwrap();
    assert_eq!(world.job(jobs[1]).stage(), Stage::Held);
    assert_eq!(world.job(jobs[2]).stage(), Stage::Running);
    assert_eq!(world.lease(lease).running().unwrap().id, jobs[2]);
    audit(&world);
}

#[test]
fn a_claimed_job_is_asked_to_stop_and_not_taken_from_its_worker() {
    let _watch = watch();
    let mut world = World::new();
    let (jobs, lease) = batch(&mut world, UNBEGUN);
    let cancel = jobtree_protocol::CancelRequest::default();
    let (state, _) = world
        .apply(|w| t::cancel(&w.cx(), w.job(jobs[2]), w.lease_of(jobs[2]), &cancel))
        .unwrap();
    assert_eq!(state, JobState::Dispatching);
    let answer = world.beat(Heartbeat::of(lease)).unwrap();
    assert_eq!(answer.cancel, [jobs[2]]);
    // Its worker may give it back instead of answering for it.
    let back = Heartbeat {
        given_back: vec![jobs[2]],
        ..Heartbeat::of(lease)
    };
    world.beat(back).unwrap();
    assert_eq!(world.state(jobs[2]), JobState::Canceled);
    audit(&world);
}

#[test]
fn an_auditor_finds_a_job_that_is_claimed_under_a_lease_that_does_not_hold() {
    let _watch = watch();
    let mut world = World::new();
    let (_, lease) = batch(&mut world, UNBEGUN);
    let granted = |event: &&jobtree_protocol::Event| event.job_id.is_some();
    let mut auditor = Auditor::new(false);
    let told = world.events.iter().filter(granted);
    let wrong: Vec<_> = (1..)
        .zip(told)
        .flat_map(|(place, event)| auditor.event(place, event))
        .collect();
    assert_eq!(wrong.len(), 3, "its grant was left out: {wrong:?}");
    assert!(wrong.iter().all(|it| it.lease_id == Some(lease)));
}
