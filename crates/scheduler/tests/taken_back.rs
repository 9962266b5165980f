//! Jobs that a worker has claimed and not begun go to a worker that has nothing to do, when the first one has confirmed. The
//! policy is the one that a new user gets, on a machine that has been quiet for long enough.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

mod support;

use std::time::Duration;

use jobtree_protocol::{
    ClaimAnswer, ClaimRequest, CompleteRequest, Each, Heartbeat, HeartbeatAnswer, JobId, JobState,
    LeaseId, SubmitManyRequest, SubmitRequest,
};
use jobtree_queue::signals::Sample;
use jobtree_scheduler::Scheduler;
use jobtree_store::Store;
use support::{OnQuietMachine, claim, start};
use watchdog::Watchdog;

fn scheduler() -> OnQuietMachine {
    start(Store::in_memory())
}

/// A worker that reports begins and returns what it has not begun.
fn returning(jobs: u32) -> ClaimRequest {
    ClaimRequest {
        begins_now: Some(1),
        returns_unbegun: true,
        ..claim("photos", jobs)
    }
}

fn submit(scheduler: &Scheduler, count: usize) -> Vec<JobId> {
    let jobs = vec![SubmitRequest::new("photos", "index", 10); count];
    let answer = scheduler.submit_many(SubmitManyRequest { jobs }).wait();
    let ids = answer.unwrap().jobs.into_iter().map(|job| match job {
        Each::Done(answer) => answer.job_id,
        Each::Refused { error } => panic!("{error}"),
    });
    ids.collect()
}

/// Submits jobs that a worker gets, all in one lease: its claim waits for them.
fn hand_out(scheduler: &Scheduler, worker: ClaimRequest) -> (Vec<JobId>, LeaseId) {
    let count = worker.max_jobs as usize;
    let claim = scheduler.claim(worker);
    // The engine answers in order: it knows the claim now.
    scheduler.load().wait().unwrap();
    let jobs = submit(scheduler, count);
    let lease = claim.wait().unwrap().remove(0);
    assert_eq!(ids(&lease), jobs);
    (jobs, lease.lease_id)
}

fn beat(scheduler: &Scheduler, lease: LeaseId, given_back: &[JobId]) -> HeartbeatAnswer {
    let beat = Heartbeat {
        given_back: given_back.to_vec(),
        ..Heartbeat::of(lease)
    };
    scheduler.heartbeat(beat).wait().unwrap()
}

fn ids(lease: &ClaimAnswer) -> Vec<JobId> {
    lease.jobs.iter().map(|job| job.job_id).collect()
}

/// Renews until the worker is asked for something. Meanwhile the machine is measured: the ramp adds only so much between two
/// samples.
fn asked(scheduler: &Scheduler, lease: LeaseId) -> Vec<JobId> {
    loop {
        scheduler.sample(Sample::idle());
        let asked = beat(scheduler, lease, &[]).give_back;
        if !asked.is_empty() {
            return asked;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn half_of_what_is_not_begun_goes_to_an_idle_worker() {
    let _watchdog = Watchdog::watching("an idle worker");
    let scheduler = scheduler();
    let (jobs, held) = hand_out(&scheduler, returning(6));
    let waiting = scheduler.claim(returning(6));
    // The first of six runs; of the five behind it the last three are asked for.
    let back = asked(&scheduler, held);
    assert_eq!(back, jobs[3..]);
    for job in &jobs[1..] {
        let job = scheduler.job(*job).wait().unwrap();
        assert_eq!(
            (job.state, job.lease_id),
            (JobState::Dispatching, Some(held)),
            "nothing happens to it before its worker has confirmed"
        );
    }
    let again = beat(&scheduler, held, &[]);
    assert_eq!(
        again.give_back, back,
        "asked for once, until it is answered"
    );
    assert_eq!(beat(&scheduler, held, &back).give_back, []);
    let second = waiting.wait().unwrap();
    assert_eq!(ids(&second[0]), back);
    // Whoever gave a job back cannot answer for it any more.
    let done = |lease| CompleteRequest::done(lease, None);
    scheduler.complete(back[0], done(held)).wait().unwrap_err();
    let lease = second[0].lease_id;
    scheduler.complete(back[0], done(lease)).wait().unwrap();
    scheduler.complete(jobs[0], done(held)).wait().unwrap();
}

#[test]
fn a_job_that_was_begun_meanwhile_stays_with_its_worker() {
    let _watchdog = Watchdog::watching("begun meanwhile");
    let scheduler = scheduler();
    let (jobs, held) = hand_out(&scheduler, returning(2));
    let waiting = scheduler.claim(returning(1));
    assert_eq!(asked(&scheduler, held), [jobs[1]]);
    let done = CompleteRequest::done(held, None);
    scheduler.complete(jobs[0], done.clone()).wait().unwrap();
    let begun = Heartbeat {
        job_id: Some(jobs[1]),
        ..Heartbeat::of(held)
    };
    assert_eq!(scheduler.heartbeat(begun).wait().unwrap().give_back, []);
    scheduler.complete(jobs[1], done).wait().unwrap();
    let more = submit(&scheduler, 1);
    assert_eq!(ids(&waiting.wait().unwrap()[0]), more);
}

#[test]
fn a_worker_that_does_not_return_jobs_keeps_its_batch() {
    let _watchdog = Watchdog::watching("a kept batch");
    let scheduler = scheduler();
    // It is the older batch, and the larger one: it would be asked for first.
    let keeps = ClaimRequest {
        returns_unbegun: false,
        ..returning(5)
    };
    let (_, kept) = hand_out(&scheduler, keeps);
    let (jobs, returned) = hand_out(&scheduler, returning(3));
    let waiting = scheduler.claim(returning(3));
    let back = loop {
        scheduler.sample(Sample::idle());
        assert_eq!(beat(&scheduler, kept, &[]).give_back, []);
        let back = beat(&scheduler, returned, &[]).give_back;
        if !back.is_empty() {
            break back;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(back, jobs[2..]);
    beat(&scheduler, returned, &back);
    assert_eq!(ids(&waiting.wait().unwrap()[0]), back);
}

#[test]
fn only_an_idle_worker_of_another_process_takes_jobs_back() {
    let _watchdog = Watchdog::watching("who takes back");
    let scheduler = scheduler();
    let holder = returning(3);
    let (jobs, held) = hand_out(&scheduler, holder.clone());
    // This worker is busy, and would hold the job as the first one does.
    let in_advance = ClaimRequest {
        begins_now: Some(0),
        wait_sec: 3,
        ..returning(3)
    };
    let own = ClaimRequest {
        wait_sec: 3,
        ..holder
    };
    // They wait longer than a lease is left alone.
    let waiting = [scheduler.claim(in_advance), scheduler.claim(own)];
    for claim in waiting {
        assert_eq!(claim.wait().unwrap(), []);
    }
    assert_eq!(beat(&scheduler, held, &[]).give_back, []);
    let _idle = scheduler.claim(returning(3));
    assert_eq!(asked(&scheduler, held), jobs[2..]);
}
