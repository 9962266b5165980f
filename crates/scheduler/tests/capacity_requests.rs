//! Leases of capacity: a request that is repeated after a lost answer gets the same lease, and answers tell real numbers.
//! The policy is the one that a new user gets, on a machine that has been quiet for long enough.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

mod support;

use jobtree_protocol::{
    ErrorCode, InstanceId, JobId, LeaseAnswer, LeaseRequest, LeaseState, NodeId, ReleaseRequest,
    SubmitRequest,
};
use jobtree_queue::signals::Sample;
use jobtree_scheduler::Scheduler;
use jobtree_store::Store;
use support::{Folder, OnQuietMachine, start};
use watchdog::Watchdog;

fn scheduler() -> OnQuietMachine {
    start(Store::in_memory())
}

fn request(key: &str) -> LeaseRequest {
    LeaseRequest {
        addon_id: "photos".to_owned(),
        job_type: "index".to_owned(),
        cost_units: 60,
        instance_id: Some(InstanceId::from_random([7; 16])),
        request_key: Some(key.to_owned()),
        ..LeaseRequest::default()
    }
}

/// Asks on a machine that was measured since the request before: the ramp adds only so much between two samples.
fn ask(scheduler: &Scheduler, request: LeaseRequest) -> LeaseAnswer {
    scheduler.sample(Sample::idle());
    scheduler.lease_request(request).wait().unwrap()
}

#[test]
fn a_repeated_request_gets_the_same_lease_while_it_holds() {
    let _watchdog = Watchdog::watching("repeated requests");
    let scheduler = scheduler();
    let first = ask(&scheduler, request("a"));
    assert!(first.approved, "{first:?}");
    // There is no room for a second lease of 60 units; the same request needs none.
    let again = ask(&scheduler, request("a"));
    assert_eq!((again.approved, again.lease_id), (true, first.lease_id));
    assert_eq!(scheduler.leases().wait().unwrap().len(), 1);
    let other = ask(&scheduler, request("b"));
    assert!(!other.approved, "{other:?}");
    let lease = first.lease_id.unwrap();
    scheduler
        .release(lease, ReleaseRequest::default())
        .wait()
        .unwrap();
    let next = ask(&scheduler, request("a"));
    assert!(next.approved && next.lease_id != first.lease_id, "{next:?}");
}

#[test]
fn requests_that_are_repeated_side_by_side_get_one_lease() {
    let _watchdog = Watchdog::watching("requests side by side");
    let scheduler = scheduler();
    let replies: Vec<_> = (0..20)
        .map(|_| scheduler.lease_request(request("a")))
        .collect();
    let mut leases: Vec<_> = replies
        .into_iter()
        .map(|reply| reply.wait().unwrap().lease_id.expect("approved"))
        .collect();
    leases.dedup();
    assert_eq!(leases.len(), 1);
    assert_eq!(scheduler.load().wait().unwrap().used, 60);
}

#[test]
fn a_caller_that_left_asks_again_and_gets_its_lease() {
    let _watchdog = Watchdog::watching("a caller that left");
    let scheduler = scheduler();
    for _ in 0..50 {
        // Its answer is on its way, or not: it never looks.
        drop(scheduler.lease_request(request("a")));
    }
    let answer = ask(&scheduler, request("a"));
    assert!(answer.approved, "{answer:?}");
    let live = scheduler.leases().wait().unwrap();
    assert_eq!(live.len(), 1);
    assert_eq!(Some(live[0].lease_id), answer.lease_id);
    // Nothing that the first callers left behind takes it away.
    let lease = scheduler.lease(live[0].lease_id).wait().unwrap();
    assert_eq!(lease.reason, None);
}

#[test]
fn a_lease_whose_answer_was_not_taken_stays_for_the_next_request() {
    let _watchdog = Watchdog::watching("an answer that was not taken");
    let scheduler = scheduler();
    let untaken = scheduler.lease_request(request("a"));
    let lease = loop {
        if let Some(lease) = scheduler.leases().wait().unwrap().first() {
            break lease.lease_id;
        }
    };
    // The engine has answered, and the answer waits to be taken.
    scheduler.load().wait().unwrap();
    drop(untaken);
    // The engine hears that it was dropped, and the store carries commands out in their order: a lease that was given back
    // has ended when the job is taken.
    scheduler.load().wait().unwrap();
    let job = SubmitRequest::new("other", "index", 1);
    scheduler.submit(job).wait().unwrap();
    let shown = scheduler.lease(lease).wait().unwrap();
    assert_eq!((shown.state, shown.reason), (LeaseState::Active, None));
    assert_eq!(ask(&scheduler, request("a")).lease_id, Some(lease));
}

#[test]
fn a_request_is_repeated_after_a_restart() {
    let _watchdog = Watchdog::watching("a restart");
    let folder = Folder::new("capacity");
    let first = {
        let scheduler = start(folder.store());
        let answer = ask(&scheduler, request("a"));
        scheduler.stop();
        answer
    };
    let scheduler = start(folder.store());
    let again = ask(&scheduler, request("a"));
    assert_eq!(again.lease_id, first.lease_id);
    assert_eq!(scheduler.leases().wait().unwrap().len(), 1);
    assert_eq!((again.granted_units, again.numbers.used), (Some(60), 60));
}

#[test]
fn a_key_is_not_used_for_other_units() {
    let _watchdog = Watchdog::watching("another body");
    let scheduler = scheduler();
    ask(&scheduler, request("a"));
    let other = LeaseRequest {
        cost_units: 10,
        ..request("a")
    };
    let error = scheduler.lease_request(other).wait().unwrap_err();
    assert_eq!(error.code, ErrorCode::Conflict);
    assert!(error.message.contains("draw a new key"), "{error}");
    // The same key of another process, or of another addon, is another request.
    let mut stranger = LeaseRequest {
        cost_units: 10,
        instance_id: Some(InstanceId::from_random([8; 16])),
        ..request("a")
    };
    assert!(ask(&scheduler, stranger.clone()).approved);
    stranger.addon_id = "sounds".to_owned();
    assert!(ask(&scheduler, stranger).approved);
    assert_eq!(scheduler.leases().wait().unwrap().len(), 3);
}

#[test]
fn a_key_needs_the_process_that_drew_it() {
    let scheduler = scheduler();
    let nameless = LeaseRequest {
        instance_id: None,
        ..request("a")
    };
    let error = scheduler.lease_request(nameless).wait().unwrap_err();
    assert_eq!(error.code, ErrorCode::Invalid);
    assert_eq!(error.fields[0].field, "request_key");
}

#[test]
fn another_node_is_refused_and_this_one_is_honoured() {
    let _watchdog = Watchdog::watching("nodes");
    let scheduler = scheduler();
    let own = scheduler.options().node.clone();
    let here = LeaseRequest {
        node_id: Some(own.clone()),
        ..request("a")
    };
    let lease = ask(&scheduler, here).lease_id.expect("approved");
    assert_eq!(scheduler.lease(lease).wait().unwrap().node_id, own);
    for job_id in [None, Some(JobId::from_random([1; 16]))] {
        let elsewhere = LeaseRequest {
            node_id: Some(NodeId::new("elsewhere").unwrap()),
            job_id,
            ..request("b")
        };
        let error = scheduler.lease_request(elsewhere).wait().unwrap_err();
        assert_eq!(error.code, ErrorCode::Invalid);
        assert_eq!(error.fields[0].field, "node_id");
        assert!(error.fields[0].message.contains(own.as_str()), "{error:?}");
    }
    assert_eq!(scheduler.leases().wait().unwrap().len(), 1);
}

#[test]
fn answers_tell_what_is_granted_and_in_use_now() {
    let _watchdog = Watchdog::watching("numbers");
    let scheduler = scheduler();
    let first = LeaseRequest {
        cost_units: 20,
        ..request("a")
    };
    let answer = ask(&scheduler, first.clone());
    assert_eq!(answer.granted_units, Some(20));
    assert_eq!((answer.numbers.used, answer.numbers.requested), (20, 20));
    assert_eq!(answer.numbers.capacity, 100);
    let lease = answer.lease_id.unwrap();
    let shown = scheduler.lease(lease).wait().unwrap();
    assert_eq!(answer.expires_at, Some(shown.expires_at));
    assert_eq!(answer.limits.ttl_sec, 30);
    let other = LeaseRequest {
        cost_units: 30,
        ..request("b")
    };
    assert_eq!(ask(&scheduler, other).numbers.used, 50);
    // As it is now, not as it was when the lease was granted.
    let again = ask(&scheduler, first);
    assert_eq!(again.lease_id, Some(lease));
    assert_eq!((again.numbers.used, again.numbers.capacity), (50, 100));
    assert_eq!(again.limits, answer.limits);
    let denied = ask(&scheduler, request("c"));
    assert_eq!((denied.approved, denied.granted_units), (false, None));
    assert_eq!((denied.numbers.used, denied.numbers.requested), (50, 60));
}
