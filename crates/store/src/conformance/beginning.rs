//! Jobs of a batch: which of them runs, what its begin costs, and what becomes of those that never began.

use jobtree_protocol::{
    CompleteRequest, Heartbeat, InHand, JobId, JobQuery, JobState, LeaseId, SubmitRequest,
};
use jobtree_queue::Stage;
use jobtree_queue::lease::COMPLETION_GRACE;
use jobtree_queue::transitions::{
    Abilities, LoadAdvice, Proof, RuntimeProof, TimeOut, TransitionError,
};

use super::Case;
use super::world::{World, plain, refused};

pub(super) const CASES: &[Case] = &[
    (
        "only the job in hand is RUNNING",
        only_the_job_in_hand_is_running,
    ),
    (
        "a worker of the first release keeps its batch and completes it",
        a_first_release_worker,
    ),
    (
        "jobs that never began do not time out",
        jobs_that_never_began_do_not_time_out,
    ),
    (
        "a run is timed from its begin",
        a_run_is_timed_from_its_begin,
    ),
    (
        "unbegun jobs return unharmed when the worker dies",
        unbegun_jobs_return_unharmed,
    ),
    (
        "a crash counts for the job in hand alone",
        a_crash_counts_for_the_job_in_hand,
    ),
    (
        "jobs are taken back only after the worker's confirmation",
        taken_back_after_confirmation,
    ),
    (
        "short jobs cost no command and no write for their begin",
        short_jobs_cost_nothing_more,
    ),
    (
        "a claimed job is listed and counted, and is no reservation",
        claimed_jobs_are_no_reservations,
    ),
];

/// The shipped worker, with a lease that it begins at once, and with one that waits for its turn.
const NOW: Abilities = Abilities {
    reports_begin: true,
    begins_now: true,
    returns_unbegun: true,
    in_process: false,
};
const LATER: Abilities = Abilities {
    begins_now: false,
    ..NOW
};

fn batch(world: &World, worker: Abilities, request: &SubmitRequest) -> (Vec<JobId>, LeaseId) {
    let jobs: Vec<_> = (0..3).map(|_| world.submit(request.clone())).collect();
    let lease = world.claim_by(worker, &jobs, world.lease_id());
    (jobs, lease.expect("a lease").lease.id)
}

fn stages(world: &World, jobs: &[JobId]) -> Vec<Stage> {
    jobs.iter().map(|job| world.record(*job).stage()).collect()
}

fn beat(world: &World, beat: Heartbeat) -> jobtree_protocol::HeartbeatAnswer {
    let answer = world
        .store
        .heartbeat(world.stamp(), beat, LoadAdvice::default());
    answer.wait().expect("the lease holds")
}

fn done(world: &World, job: JobId, lease: LeaseId) {
    let answer = world.complete(job, CompleteRequest::done(lease, None));
    assert_eq!(answer.expect("it is the lease's").state, JobState::Done);
}

/// What was written by the commands since, and how many there were.
fn written(world: &World, since: usize) -> Vec<crate::backend::Written> {
    world.told().split_off(since)
}

fn only_the_job_in_hand_is_running(world: &World) {
    use Stage::{Done, Held, Running};
    let (jobs, lease) = batch(world, NOW, &plain());
    assert_eq!(stages(world, &jobs), [Running, Held, Held]);
    let record = world.record(jobs[2]);
    assert_eq!((record.lease_id, record.lease_position), (Some(lease), 2));
    assert_eq!(record.started_at, None);
    done(world, jobs[0], lease);
    assert_eq!(
        stages(world, &jobs),
        [Done, Held, Held],
        "nobody said that the next began"
    );
    let held = world.store.lease(lease).wait().expect("it holds");
    let view = world.record(jobs[1]).view(Some(&held));
    assert_eq!(
        (view.state, view.position),
        (JobState::Dispatching, Some(1))
    );
    assert_eq!(held.view().current, Some(jobs[1]), "in hand all the same");
    world.advance(8);
    let named = Heartbeat {
        job_id: Some(jobs[1]),
        began_ms_ago: Some(3000),
        ..Heartbeat::of(lease)
    };
    beat(world, named);
    assert_eq!(stages(world, &jobs), [Done, Running, Held]);
    let began = world.record(jobs[1]).started_at.expect("it began");
    assert_eq!(world.now().wall.duration_since(began).as_secs(), 3);
    let mut request = CompleteRequest::done(lease, None);
    request.in_hand = Some(InHand {
        job_id: jobs[2],
        began_ms_ago: 0,
    });
    world.complete(jobs[1], request).expect("it is the lease's");
    assert_eq!(stages(world, &jobs), [Done, Done, Running]);
}

fn a_first_release_worker(world: &World) {
    use Stage::{Done, Held, Running};
    let (jobs, lease) = batch(world, Abilities::default(), &plain());
    assert_eq!(stages(world, &jobs), [Running, Held, Held]);
    let asked = world
        .store
        .ask_back(world.stamp(), lease, jobs.clone())
        .wait();
    assert!(matches!(refused(asked), TransitionError::KeepsBatch { .. }));
    assert_eq!(beat(world, Heartbeat::of(lease)).give_back, []);
    for (place, job) in jobs.iter().enumerate() {
        let commands = world.told().len();
        world.advance(5);
        done(world, *job, lease);
        let written = written(world, commands);
        assert_eq!(
            written.len(),
            1,
            "the end of one and the begin of the next are one command"
        );
        let mut expected = [Done, Done, Done];
        if place < 2 {
            expected[place + 1] = Running;
            expected[place + 2..].fill(Held);
            let next = world.record(jobs[place + 1]);
            assert_eq!(
                next.started_at,
                Some(world.now().wall),
                "its clock starts now"
            );
        }
        assert_eq!(stages(world, &jobs), expected);
    }
    assert!(
        !world
            .store
            .lease(lease)
            .wait()
            .expect("it was there")
            .is_live()
    );
}

fn limited() -> SubmitRequest {
    SubmitRequest {
        max_runtime_sec: Some(5),
        ..plain()
    }
}

fn time_out(
    world: &World,
    lease: LeaseId,
    job_id: JobId,
) -> Result<JobState, crate::error::StoreError> {
    let current_since = world
        .store
        .lease(lease)
        .wait()
        .expect("it is there")
        .current_since;
    let command = TimeOut {
        job_id,
        current_since,
        by: RuntimeProof::Monotonic,
    };
    world.store.time_out(world.stamp(), lease, command).wait()
}

fn jobs_that_never_began_do_not_time_out(world: &World) {
    for worker in [LATER, NOW, Abilities::default()] {
        let (jobs, lease) = batch(world, worker, &limited());
        world.advance(20);
        if worker != LATER {
            done(world, jobs[0], lease);
        }
        world.advance(if worker.reports_begin { 20 } else { 0 });
        for job in &jobs[1..] {
            let before = world.record(*job);
            if before.has_begun() {
                continue;
            }
            let not_due = refused(time_out(world, lease, *job));
            assert!(
                matches!(not_due, TransitionError::NotDue { .. }),
                "{not_due:?}"
            );
            assert_eq!(world.record(*job), before);
        }
    }
}

fn a_run_is_timed_from_its_begin(world: &World) {
    let (jobs, lease) = batch(world, LATER, &limited());
    world.advance(20);
    let named = Heartbeat {
        job_id: Some(jobs[0]),
        ..Heartbeat::of(lease)
    };
    beat(world, named);
    let by_wall = || {
        let current_since = world
            .store
            .lease(lease)
            .wait()
            .expect("it holds")
            .current_since;
        let command = TimeOut {
            job_id: jobs[0],
            current_since,
            by: RuntimeProof::Wall,
        };
        world.store.time_out(world.stamp(), lease, command).wait()
    };
    // The completion of a run that ended within its limit may still be on its way.
    world.advance(5);
    assert!(matches!(refused(by_wall()), TransitionError::NotDue { .. }));
    world.advance(COMPLETION_GRACE.as_secs());
    assert_eq!(by_wall(), Ok(JobState::Failed));
    assert_eq!(world.state(jobs[1]), JobState::Queued);
}

fn unbegun_jobs_return_unharmed(world: &World) {
    let (jobs, lease) = batch(world, LATER, &plain());
    let before: Vec<_> = jobs.iter().map(|job| world.record(*job)).collect();
    world.advance(60);
    let expired = world.store.expire(world.stamp(), lease, Proof::Wall).wait();
    expired.expect("it was not renewed");
    for before in before {
        let job = world.record(before.id);
        assert_eq!(
            (job.state, job.rescues, job.attempts),
            (JobState::Queued, 0, 0)
        );
        assert_eq!(
            (job.enqueued_at, job.started_at),
            (before.enqueued_at, None)
        );
        assert!(!job.runs_alone());
    }
}

fn a_crash_counts_for_the_job_in_hand(world: &World) {
    for worker in [NOW, LATER, Abilities::default()] {
        let (jobs, lease) = batch(world, worker, &plain());
        // The worker runs the second, whether or not it had time to say so.
        done(world, jobs[0], lease);
        world.advance(60);
        let expired = world.store.expire(world.stamp(), lease, Proof::Wall).wait();
        expired.expect("it was not renewed");
        let rescues: Vec<u32> = jobs.iter().map(|job| world.record(*job).rescues).collect();
        assert_eq!(rescues, [0, 1, 0], "{worker:?}");
    }
}

fn taken_back_after_confirmation(world: &World) {
    let (jobs, lease) = batch(world, NOW, &plain());
    let asked = world
        .store
        .ask_back(world.stamp(), lease, jobs.clone())
        .wait();
    assert_eq!(
        asked,
        Ok(jobs[1..].to_vec()),
        "the one in hand is left to its worker"
    );
    let again = world
        .store
        .ask_back(world.stamp(), lease, jobs.clone())
        .wait();
    assert_eq!(again, asked);
    let held = [Stage::Running, Stage::Held, Stage::Held];
    assert_eq!(stages(world, &jobs), held, "to be asked changes nothing");
    // The worker has begun the second meanwhile, and keeps it.
    let answer = beat(world, Heartbeat::of(lease));
    assert_eq!(answer.give_back, jobs[1..]);
    assert_eq!(stages(world, &jobs), held, "nor does to hear of it");
    let commands = world.told().len();
    let confirmed = Heartbeat {
        job_id: Some(jobs[1]),
        given_back: vec![jobs[2]],
        ..Heartbeat::of(lease)
    };
    assert_eq!(beat(world, confirmed).give_back, []);
    assert_eq!(written(world, commands).len(), 1);
    assert_eq!(world.state(jobs[2]), JobState::Queued);
    let next = world.claim(&[jobs[2]]);
    for (job, lease) in [(jobs[2], next.id), (jobs[0], lease), (jobs[1], lease)] {
        done(world, job, lease);
    }
    // A lease of which everything is given back is over.
    let (jobs, lease) = batch(world, LATER, &plain());
    let confirmed = Heartbeat {
        given_back: jobs.clone(),
        ..Heartbeat::of(lease)
    };
    beat(world, confirmed);
    assert_eq!(stages(world, &jobs), [Stage::Waiting; 3]);
    assert!(
        !world
            .store
            .lease(lease)
            .wait()
            .expect("it was there")
            .is_live()
    );
}

fn short_jobs_cost_nothing_more(world: &World) {
    const JOBS: usize = 50;
    let jobs: Vec<_> = (0..JOBS).map(|_| world.plain()).collect();
    let commands = world.told().len();
    let lease = world.lease_id();
    world.claim_by(NOW, &jobs, lease).expect("a lease");
    world.advance(1);
    let each = jobs.iter().enumerate().map(|(place, job)| {
        let request = CompleteRequest {
            began_ms_ago: Some(1000 - 20 * place as u64),
            ended_ms_ago: Some(980 - 20 * place as u64),
            ..CompleteRequest::done(lease, None)
        };
        (*job, request)
    });
    let answers = world
        .store
        .complete_many(world.stamp(), each.collect())
        .wait();
    assert!(
        answers
            .expect("they are the lease's")
            .iter()
            .all(Result::is_ok)
    );
    let written = written(world, commands);
    assert_eq!(written.len(), 2, "a claim and a completion");
    let count =
        |of: &dyn Fn(&crate::backend::Written) -> usize| written.iter().map(of).sum::<usize>();
    assert_eq!(count(&|it| it.changes.jobs.len()), 2 * JOBS);
    assert_eq!(count(&|it| it.changes.leases.len()), 2);
    // One for each job and one for the lease, each time; and for each job that it was admitted.
    assert_eq!(count(&|it| it.changes.events.len()), 2 * (JOBS + 1) + JOBS);
    for (place, job) in jobs.iter().enumerate() {
        let job = world.record(*job);
        let (began, ended) = (
            job.started_at.expect("it ran"),
            job.ended_at.expect("it ended"),
        );
        let first = place == 0;
        assert_eq!(
            ended.duration_since(began).as_millis(),
            20,
            "job {place}, first: {first}"
        );
    }
}

fn claimed_jobs_are_no_reservations(world: &World) {
    let (jobs, lease) = batch(world, LATER, &plain());
    let reserved = world.plain();
    world.reserve(reserved).expect("a place");
    let dispatching = world
        .store
        .dispatching()
        .wait()
        .expect("the dispatched ones");
    let ids: Vec<JobId> = dispatching.iter().map(|job| job.id).collect();
    assert_eq!(ids, [reserved]);
    let query = JobQuery {
        state: vec![JobState::Dispatching],
        ..JobQuery::default()
    };
    assert_eq!(world.list(query), [&jobs[..], &[reserved]].concat());
    let counts = world.store.counts(false).wait().expect("counts");
    let counted = counts
        .iter()
        .find(|count| count.state == JobState::Dispatching);
    assert_eq!(counted.map(|count| count.jobs), Some(4));
    let usage = world.store.usage().wait().expect("what is used");
    assert_eq!(
        (usage[0].units, usage[0].leases, usage[0].reservations),
        (20, 1, 1)
    );
    assert_eq!(
        world.store.lease(lease).wait().expect("it holds").in_hand(),
        None
    );
}
