//! A job that waits is admitted in the same call: by an `ack`, by a `lease/request` that names it, by a poll of
//! `dispatchable` that does not wait, and by a claim that does not wait. The policy is the one that a new user gets, on a
//! machine that has been quiet for long enough.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

mod support;

use std::time::Duration;

use jobtree_protocol::{
    AckRequest, CompleteRequest, ErrorCode, InstanceId, JobId, JobState, LeaseRequest, Priority,
    SubmitRequest,
};
use jobtree_queue::planner::ListenScope;
use jobtree_scheduler::Scheduler;
use jobtree_store::Store;
use support::{Folder, OnQuietMachine, claim, start};
use watchdog::Watchdog;

fn scheduler() -> OnQuietMachine {
    start(Store::in_memory())
}

fn submit(scheduler: &Scheduler, cost: u32) -> JobId {
    let job = SubmitRequest::new("photos", "index", cost);
    scheduler.submit(job).wait().unwrap().job_id
}

fn state(scheduler: &Scheduler, job: JobId) -> JobState {
    scheduler.job(job).wait().unwrap().state
}

#[test]
fn an_ack_admits_a_job_that_waits() {
    let _watchdog = Watchdog::watching("ack");
    let scheduler = scheduler();
    let job = submit(&scheduler, 30);
    assert_eq!(state(&scheduler, job), JobState::Queued);
    let lease = scheduler.ack(job, AckRequest::default()).wait().unwrap();
    assert_eq!(state(&scheduler, job), JobState::Running);
    assert_eq!(scheduler.load().wait().unwrap().used, 30);
    let done = CompleteRequest::done(lease.lease_id, None);
    scheduler.complete(job, done).wait().unwrap();
    assert_eq!(scheduler.load().wait().unwrap().used, 0);
}

#[test]
fn a_lease_request_admits_the_job_that_it_names() {
    let _watchdog = Watchdog::watching("request");
    let scheduler = scheduler();
    let job = submit(&scheduler, 30);
    let request = LeaseRequest {
        job_id: Some(job),
        instance_id: Some(InstanceId::generate()),
        ..LeaseRequest::default()
    };
    let answer = scheduler.lease_request(request.clone()).wait().unwrap();
    assert!(answer.approved, "{answer:?}");
    assert_eq!(
        (answer.numbers.requested, answer.numbers.capacity),
        (30, 100)
    );
    assert_eq!(state(&scheduler, job), JobState::Running);
    // The answer got lost: the same process asks again, and has the same lease.
    let again = scheduler.lease_request(request).wait().unwrap();
    assert_eq!(again.lease_id, answer.lease_id);
    assert_eq!(again.numbers.used, 30, "{again:?}");
}

#[test]
fn a_job_that_does_not_fit_is_denied_with_its_reason() {
    let _watchdog = Watchdog::watching("denied");
    let scheduler = scheduler();
    let (first, second) = (submit(&scheduler, 80), submit(&scheduler, 30));
    scheduler.ack(first, AckRequest::default()).wait().unwrap();
    let error = scheduler.ack(second, AckRequest::default()).wait();
    let error = error.unwrap_err();
    assert_eq!(error.code, ErrorCode::NotNow);
    assert!(error.message.contains("Capacity exceeded"), "{error}");
    let request = LeaseRequest {
        job_id: Some(second),
        ..LeaseRequest::default()
    };
    let answer = scheduler.lease_request(request).wait().unwrap();
    assert!(!answer.approved && answer.lease_id.is_none(), "{answer:?}");
    assert!(answer.reason.contains("Capacity exceeded"), "{answer:?}");
    assert_eq!(answer.numbers.used, 80);
    assert_eq!(state(&scheduler, second), JobState::Queued);
}

#[test]
fn an_ack_of_a_job_that_has_ended_is_refused() {
    let _watchdog = Watchdog::watching("ended");
    let scheduler = scheduler();
    let job = submit(&scheduler, 1);
    scheduler.cancel(job, Default::default()).wait().unwrap();
    let error = scheduler.ack(job, AckRequest::default()).wait();
    assert_eq!(error.unwrap_err().code, ErrorCode::WrongState);
}

/// In a file, where a reading does not wait for what is being written.
#[test]
fn a_poll_that_does_not_wait_returns_what_it_caused_to_be_reserved() {
    let _watchdog = Watchdog::watching("poll");
    let folder = Folder::new("same-call");
    let scheduler = start(folder.store());
    let job = submit(&scheduler, 30);
    let polled = scheduler.dispatchable(None, Duration::ZERO).wait().unwrap();
    assert_eq!(polled.len(), 1, "{polled:?}");
    assert_eq!(
        (polled[0].job_id, polled[0].state),
        (job, JobState::Dispatching)
    );
    scheduler.ack(job, AckRequest::default()).wait().unwrap();
    assert_eq!(state(&scheduler, job), JobState::Running);
}

#[test]
fn a_claim_that_does_not_wait_gets_what_is_reserved() {
    let _watchdog = Watchdog::watching("claim");
    let scheduler = scheduler();
    let job = submit(&scheduler, 30);
    let polled = scheduler.dispatchable(None, Duration::ZERO).wait().unwrap();
    assert_eq!(polled[0].state, JobState::Dispatching);
    let request = jobtree_protocol::ClaimRequest {
        wait_sec: 0,
        ..claim("photos", 1)
    };
    let leases = scheduler.claim(request).wait().unwrap();
    assert_eq!(leases.len(), 1);
    assert_eq!(leases[0].jobs[0].job_id, job);
}

/// The same claim twice at once accepts one of several reserved jobs, and the second claim lets go of the other one, which is
/// still reserved and keeps its units. They were given to another job.
#[test]
fn a_claim_made_twice_at_once_frees_no_units() {
    let _watchdog = Watchdog::watching("twice");
    let scheduler = scheduler();
    for round in 0..20 {
        let jobs: Vec<JobId> = (0..8).map(|_| submit(&scheduler, 20)).collect();
        let in_use = || {
            let states = jobs.iter().map(|job| state(&scheduler, *job));
            states.filter(|state| state.holds_capacity()).count()
        };
        while in_use() < 5 {
            let polled = scheduler.dispatchable(None, Duration::from_millis(20));
            polled.wait().unwrap();
        }
        let request = jobtree_protocol::ClaimRequest {
            wait_sec: 0,
            lease_id: Some(jobtree_protocol::LeaseId::generate()),
            ..claim("photos", 1)
        };
        let both = [scheduler.claim(request.clone()), scheduler.claim(request)];
        for answer in both {
            answer.wait().unwrap();
        }
        // Whatever is free is given away in the call.
        scheduler.dispatchable(None, Duration::ZERO).wait().unwrap();
        assert_eq!(in_use(), 5, "jobs of 20 units, of 100, in round {round}");
        for job in jobs {
            scheduler.cancel(job, Default::default()).wait().unwrap();
            let lease = scheduler.job(job).wait().unwrap().lease_id;
            if let Some(lease) = lease {
                let done = CompleteRequest::done(lease, None);
                scheduler.complete(job, done).wait().unwrap();
            }
        }
    }
}

/// Six jobs of high priority and a type without a worker kept a served job waiting for minutes.
#[test]
fn jobs_that_no_one_serves_keep_no_served_job_waiting() {
    let _watchdog = Watchdog::watching("unserved");
    let scheduler = scheduler();
    for _ in 0..6 {
        let mut job = SubmitRequest::new("forgotten", "report", 20);
        job.priority = Priority::High;
        scheduler.submit(job).wait().unwrap();
    }
    let job = submit(&scheduler, 30);
    let leases = scheduler.claim(claim("photos", 1)).wait().unwrap();
    assert_eq!(leases[0].jobs[0].job_id, job);
    let status = scheduler.status().wait().unwrap();
    assert_eq!(
        status.nodes[0].reserved, 0,
        "nothing is reserved for no one"
    );
}

/// A program that is told of dispatches need not poll: what may start is reserved for it. Of a type that is not served one job
/// is reserved at a time, as a probe.
#[test]
fn jobs_are_reserved_for_those_who_listen() {
    let _watchdog = Watchdog::watching("listeners");
    let scheduler = scheduler();
    let jobs = [(); 3].map(|()| submit(&scheduler, 5));
    let scope = ListenScope {
        addon: Some("photos".parse().unwrap()),
        job_type: None,
    };
    scheduler.set_listeners(scope, 1);
    let mut after = 0;
    loop {
        let events = scheduler.events(after, 100, support::LONG).wait().unwrap();
        after = events.last().map_or(after, |last| last.cursor);
        let mut kinds = events.iter().map(|it| it.event.kind);
        if kinds.any(|kind| kind == jobtree_protocol::EventKind::Dispatching) {
            break;
        }
    }
    let used = scheduler.load().wait().unwrap().used;
    assert_eq!(used, 15, "of all of them, in the same pass");
    for job in jobs {
        while state(&scheduler, job) != JobState::Dispatching {
            std::thread::yield_now();
        }
    }
}
