//! The engine over memory and over SQLite: submit, claim, answer, renew, expire, wait, ask.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

mod support;

use std::time::Duration;

use jobtree_protocol::{
    CancelRequest, CompleteRequest, ErrorCode, EventKind, Heartbeat, JobState, LeaseRequest,
    PauseRequest, ReleaseRequest, SubmitManyRequest, SubmitRequest,
};
use jobtree_store::Store;
use support::{Folder, LONG, claim, start, start_with};
use watchdog::Watchdog;

/// Runs a test over each store.
fn on_each(name: &str, test: impl Fn(Store)) {
    let _watchdog = Watchdog::watching(name);
    test(Store::in_memory());
    let folder = Folder::new(name);
    test(folder.store());
}

#[test]
fn a_job_is_claimed_and_done() {
    on_each("claimed-and-done", |store| {
        let scheduler = start(store);
        let job = scheduler
            .submit(SubmitRequest::new("a", "t", 30))
            .wait()
            .unwrap();
        let leases = scheduler.claim(claim("a", 1)).wait().unwrap();
        assert_eq!(leases[0].jobs[0].job_id, job.job_id);
        assert_eq!(leases[0].jobs[0].state, JobState::Running);
        let lease = leases[0].lease_id;
        let beat = scheduler.heartbeat(Heartbeat::of(lease)).wait().unwrap();
        assert_eq!(beat.ttl_sec, 30);
        let done = CompleteRequest::done(lease, None);
        let answer = scheduler.complete(job.job_id, done.clone()).wait().unwrap();
        assert_eq!(answer.state, JobState::Done);
        // A worker that lost the answer asks again.
        let again = scheduler.complete(job.job_id, done).wait().unwrap();
        assert_eq!(again.state, JobState::Done);
        let ended = scheduler.wait_for(job.job_id, LONG).wait().unwrap();
        assert_eq!(ended.state, JobState::Done);
        let kinds: Vec<EventKind> = scheduler
            .job_events(job.job_id)
            .wait()
            .unwrap()
            .iter()
            .map(|it| it.event.kind)
            .collect();
        assert_eq!(
            kinds,
            [
                EventKind::Submitted,
                EventKind::Admitted,
                EventKind::Running,
                EventKind::Done
            ]
        );
    });
}

#[test]
fn who_asks_first_waits_for_the_job() {
    on_each("long-poll", |store| {
        let scheduler = start(store);
        let waiting = scheduler.claim(claim("a", 5));
        let jobs = (0..3).map(|_| SubmitRequest::new("a", "t", 10)).collect();
        let submitted = scheduler
            .submit_many(SubmitManyRequest { jobs })
            .wait()
            .unwrap();
        assert_eq!(submitted.jobs.len(), 3);
        let leases = waiting.wait().unwrap();
        assert_eq!(leases.len(), 1);
        assert_eq!(leases[0].jobs.len(), 3, "one lease for a batch");
        // While it runs there is nothing else: an answer at once, and empty.
        let none = jobtree_protocol::ClaimRequest {
            wait_sec: 0,
            ..claim("a", 5)
        };
        assert!(scheduler.claim(none).wait().unwrap().is_empty());
    });
}

#[test]
fn who_does_not_want_to_wait_still_gets_what_is_there() {
    on_each("no-wait", |store| {
        let scheduler = start(store);
        let jobs = (0..3).map(|_| SubmitRequest::new("a", "t", 10)).collect();
        let submitted = scheduler.submit_many(SubmitManyRequest { jobs });
        assert_eq!(submitted.wait().unwrap().jobs.len(), 3);
        let at_once = jobtree_protocol::ClaimRequest {
            wait_sec: 0,
            ..claim("a", 5)
        };
        // The grant takes a commit, which is longer than no time at all.
        let leases = scheduler.claim(at_once).wait().unwrap();
        assert_eq!(leases.len(), 1);
        assert_eq!(leases[0].jobs.len(), 3);
    });
}

#[test]
fn a_dispatch_is_taken_up() {
    on_each("take-up", |store| {
        let scheduler = start(store);
        let job = scheduler
            .submit(SubmitRequest::new("a", "t", 30))
            .wait()
            .unwrap();
        let dispatched = scheduler.dispatchable(None, LONG).wait().unwrap();
        assert_eq!(dispatched[0].job_id, job.job_id);
        let request = LeaseRequest {
            job_id: Some(job.job_id),
            ..LeaseRequest::default()
        };
        let answer = scheduler.lease_request(request.clone()).wait().unwrap();
        assert!(answer.approved);
        let error = scheduler.lease_request(request).wait().unwrap_err();
        assert_eq!(error.state, Some(JobState::Running));
        let release = ReleaseRequest {
            return_jobs: true,
            ..ReleaseRequest::default()
        };
        scheduler
            .release(answer.lease_id.unwrap(), release)
            .wait()
            .unwrap();
        // It waits again, and is dispatched again.
        let again = scheduler.dispatchable(None, LONG).wait().unwrap();
        assert_eq!(again[0].job_id, job.job_id);
    });
}

/// The reservation becomes the lease in one command, for a worker that does not wait, too.
#[test]
fn a_claim_takes_up_what_is_reserved() {
    on_each("taken-by-claim", |store| {
        let scheduler = start_with(store, |options| {
            options.policy.dispatch.take_up = Duration::from_secs(3600);
        });
        let submit = |addon, kind| {
            let job = SubmitRequest::new(addon, kind, 10);
            scheduler.submit(job).wait().unwrap().job_id
        };
        // Somebody accepts reservations here, for the next hour.
        let polled = scheduler.dispatchable(None, Duration::ZERO);
        assert_eq!(polled.wait().unwrap().len(), 0);
        let (job, next) = (submit("a", "t"), submit("a", "t"));
        let others = [submit("a", "u"), submit("b", "t")];
        let dispatching = |id| scheduler.job(id).wait().unwrap().state == JobState::Dispatching;
        while ![job, next].into_iter().chain(others).all(dispatching) {
            std::thread::yield_now();
        }
        let mut ask = claim("a", 1);
        ask.job_types = vec![jobtree_protocol::JobType::new("t").unwrap()];
        ask.wait_sec = 0;
        let used = scheduler.status().wait().unwrap().nodes[0].used;
        for expected in [job, next] {
            let leases = scheduler.claim(ask.clone()).wait().unwrap();
            assert_eq!(leases[0].jobs[0].job_id, expected);
        }
        assert!(others.into_iter().all(dispatching), "they are not its own");
        assert_eq!(
            scheduler.status().wait().unwrap().nodes[0].used,
            used,
            "the same units"
        );
        let trail = scheduler.job_events(job).wait().unwrap();
        let kinds: Vec<_> = trail.iter().map(|it| it.event.kind).collect();
        let tail = [EventKind::Dispatching, EventKind::Running];
        assert!(kinds.ends_with(&tail), "{kinds:?}");
    });
}

#[test]
fn a_lease_that_is_not_renewed_runs_out() {
    on_each("expiry", |store| {
        let scheduler = start_with(store, |options| {
            options.policy.dispatch.lease_ttl = Duration::from_secs(1);
        });
        let job = scheduler
            .submit(SubmitRequest::new("a", "t", 100))
            .wait()
            .unwrap();
        let first = scheduler.claim(claim("a", 1)).wait().unwrap();
        // Whoever waits gets it when the lease has run out: its units are free again.
        let second = scheduler.claim(claim("a", 1)).wait().unwrap();
        assert_eq!(second[0].jobs[0].job_id, job.job_id);
        assert_eq!(second[0].jobs[0].rescues, 1);
        let late = CompleteRequest::done(first[0].lease_id, None);
        let error = scheduler.complete(job.job_id, late).wait().unwrap_err();
        assert_eq!(error.code, ErrorCode::LeaseLost);
        let done = CompleteRequest::done(second[0].lease_id, None);
        scheduler.complete(job.job_id, done).wait().unwrap();
    });
}

#[test]
fn capacity_is_granted_up_to_the_limit() {
    on_each("capacity", |store| {
        let scheduler = start(store);
        let ask = |cost| LeaseRequest {
            addon_id: "a".into(),
            job_type: "t".into(),
            cost_units: cost,
            ..LeaseRequest::default()
        };
        let first = scheduler.lease_request(ask(60)).wait().unwrap();
        assert!(first.approved, "{}", first.reason);
        let second = scheduler.lease_request(ask(60)).wait().unwrap();
        assert!(!second.approved);
        assert!(
            second
                .reason
                .contains("used=60, requested=60, capacity=100"),
            "{}",
            second.reason
        );
        scheduler
            .release(first.lease_id.unwrap(), ReleaseRequest::default())
            .wait()
            .unwrap();
        let third = scheduler.lease_request(ask(60)).wait().unwrap();
        assert!(third.approved, "{}", third.reason);
        let decisions = scheduler.decisions(10).wait().unwrap();
        let approved: Vec<bool> = decisions.iter().map(|it| it.approved).collect();
        assert_eq!(approved, [true, false, true]);
    });
}

#[test]
fn what_is_paused_waits_and_says_so() {
    on_each("paused", |store| {
        let scheduler = start(store);
        let pause = PauseRequest {
            addon_id: "a".parse().unwrap(),
            job_type: None,
            reason: None,
        };
        scheduler.pause(pause.clone()).wait().unwrap();
        let job = scheduler
            .submit(SubmitRequest::new("a", "t", 10))
            .wait()
            .unwrap();
        let waiting = scheduler.claim(claim("a", 1));
        // Others are not held up by it.
        scheduler
            .submit(SubmitRequest::new("b", "t", 10))
            .wait()
            .unwrap();
        assert_eq!(scheduler.claim(claim("b", 1)).wait().unwrap().len(), 1);
        let told = scheduler.explain(job.job_id).wait().unwrap();
        let codes: Vec<&str> = told.reasons.iter().map(|it| it.code.as_str()).collect();
        assert_eq!(codes, ["addon_paused"]);
        assert!(scheduler.status().wait().unwrap().addons[&pause.addon_id].paused);
        assert!(scheduler.resume(pause).wait().unwrap());
        assert_eq!(waiting.wait().unwrap()[0].jobs[0].job_id, job.job_id);
    });
}

#[test]
fn a_canceled_job_never_starts_and_those_behind_it_do() {
    on_each("cancel", |store| {
        let scheduler = start(store);
        let first = scheduler
            .submit(SubmitRequest::new("a", "t", 10))
            .wait()
            .unwrap();
        let second = scheduler
            .submit(SubmitRequest {
                depends_on: vec![first.job_id],
                ..SubmitRequest::new("a", "t", 10)
            })
            .wait()
            .unwrap();
        let third = scheduler
            .submit(SubmitRequest::new("a", "t", 10))
            .wait()
            .unwrap();
        let told = scheduler.explain(second.job_id).wait().unwrap();
        assert_eq!(told.reasons[0].code, "dependency");
        let state = scheduler
            .cancel(first.job_id, CancelRequest::default())
            .wait()
            .unwrap();
        assert_eq!(state, JobState::Canceled);
        let ended = scheduler.wait_for(second.job_id, LONG).wait().unwrap();
        assert_eq!(ended.state, JobState::Canceled);
        let leases = scheduler.claim(claim("a", 10)).wait().unwrap();
        let jobs: Vec<_> = leases[0].jobs.iter().map(|job| job.job_id).collect();
        assert_eq!(jobs, [third.job_id]);
        assert_eq!(
            scheduler.retry(first.job_id, None).wait().unwrap(),
            JobState::Queued
        );
    });
}

#[test]
fn a_scheduler_that_starts_again_goes_on() {
    let _watchdog = Watchdog::watching("restart");
    let folder = Folder::new("restart");
    let (queued, running, lease) = {
        let scheduler = start(folder.store());
        let running = scheduler
            .submit(SubmitRequest::new("a", "t", 60))
            .wait()
            .unwrap();
        let lease = scheduler.claim(claim("a", 1)).wait().unwrap()[0].lease_id;
        let queued = scheduler
            .submit(SubmitRequest::new("a", "t", 60))
            .wait()
            .unwrap();
        scheduler.stop();
        (queued.job_id, running.job_id, lease)
    };
    let scheduler = start(folder.store());
    let waiting = scheduler.claim(claim("a", 1));
    // 60 are in use by the lease of before: the other one does not fit.
    let told = scheduler.explain(queued).wait().unwrap();
    assert_eq!(told.reasons[0].code, "capacity", "{told:?}");
    let done = CompleteRequest::done(lease, None);
    scheduler.complete(running, done).wait().unwrap();
    assert_eq!(waiting.wait().unwrap()[0].jobs[0].job_id, queued);
}

#[test]
fn nobody_waits_for_a_scheduler_that_has_stopped() {
    on_each("stopped", |store| {
        let scheduler = start(store);
        let waiting = scheduler.claim(claim("a", 1));
        scheduler.stop();
        assert_eq!(waiting.wait().unwrap_err().code, ErrorCode::Unavailable);
        let after = scheduler.claim(claim("a", 1)).wait().unwrap_err();
        assert_eq!(after.code, ErrorCode::Unavailable);
    });
}
