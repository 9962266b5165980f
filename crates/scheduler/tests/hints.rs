//! Schedulers that share a database hear of each other at once, by hints; and lose nothing when hints are lost. Where a
//! hint has to do it, the fallback is set to come long after the test.
#![cfg(feature = "postgres")]

#[path = "../../store/tests/support/postgres.rs"]
mod postgres;
mod support;
#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::time::{Duration, Instant};

use jobtree_protocol::{
    AddonId, ClaimAnswer, CompleteRequest, JobId, JobState, NodeId, PauseRequest, SubmitRequest,
};
use jobtree_scheduler::Scheduler;
use jobtree_store::{PostgresOptions, Store};
use postgres::Server;
use support::{Folder, LONG, OnQuietMachine, claim, start_with};
use watchdog::Watchdog;

/// No look comes within a test.
const NEVER: Duration = Duration::from_secs(3600);

fn scheduler(options: &PostgresOptions, node: &str, look: Duration) -> OnQuietMachine {
    let store = Store::connect(options).expect("the server is there");
    start_with(store, |options| {
        options.node = NodeId::new(node).expect("a name");
        options.shared = true;
        options.look = look;
    })
}

/// Two schedulers on one database, of which only hints tell each other anything.
fn two(server: &Server) -> (OnQuietMachine, OnQuietMachine) {
    let options = PostgresOptions::new(server.new_place());
    let (a, b) = (
        scheduler(&options, "a", NEVER),
        scheduler(&options, "b", NEVER),
    );
    // If one listens late, it reads everything then, which may do a hint's work once.
    wait_until("both listen", || {
        server.sql(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'jobtree hints' AND state = 'idle' \
             AND query LIKE '%LISTEN%'",
        ) == "2"
    });
    (a, b)
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "{what}: not after {LONG:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn submit(scheduler: &Scheduler, key: Option<&str>) -> JobId {
    let request = SubmitRequest {
        concurrency_key: key.map(str::to_owned),
        concurrency_limit: key.map(|_| 1),
        ..SubmitRequest::new("visuals", "indexing", 5)
    };
    scheduler.submit(request).wait().expect("taken").job_id
}

fn complete(scheduler: &Scheduler, granted: &[ClaimAnswer]) {
    let (lease, job) = (granted[0].lease_id, granted[0].jobs[0].job_id);
    let done = scheduler.complete(job, CompleteRequest::done(lease, None));
    assert_eq!(done.wait().expect("its lease holds").state, JobState::Done);
}

#[test]
fn what_is_submitted_here_is_claimed_there() {
    let _watchdog = Watchdog::watching("submitted here, claimed there");
    let server = Server::start();
    let (a, b) = two(&server);
    for _ in 0..5 {
        let waiting = b.claim(claim("visuals", 1));
        let job = submit(&a, None);
        let granted = waiting.wait().expect("it is asked");
        assert_eq!(granted.len(), 1, "the hint did not come");
        assert_eq!(granted[0].jobs[0].job_id, job);
        // And back: who waits for the end of it here hears that it has ended there.
        let end = a.wait_for(job, LONG);
        complete(&b, &granted);
        assert_eq!(end.wait().expect("it is there").state, JobState::Done);
    }
}

#[test]
fn a_key_that_is_free_there_is_used_here() {
    let _watchdog = Watchdog::watching("a key");
    let server = Server::start();
    let (a, b) = two(&server);
    for _ in 0..3 {
        let first = submit(&a, Some("printer"));
        let here = a.claim(claim("visuals", 1)).wait().expect("it is asked");
        assert_eq!(here[0].jobs[0].job_id, first);
        let waiting = b.claim(claim("visuals", 1));
        let second = submit(&a, Some("printer"));
        wait_until("it is known there that the key is taken", || {
            let explained = b.explain(second).wait();
            explained.is_ok_and(|it| it.reasons.iter().any(|why| why.code == "key_taken"))
        });
        complete(&a, &here);
        let there = waiting.wait().expect("it is asked");
        assert_eq!(there.len(), 1, "the hint did not come");
        assert_eq!(there[0].jobs[0].job_id, second);
        complete(&b, &there);
    }
}

#[test]
fn a_pause_is_followed_everywhere() {
    let _watchdog = Watchdog::watching("a pause");
    let server = Server::start();
    let (a, b) = two(&server);
    let pause = PauseRequest {
        addon_id: AddonId::new("visuals").expect("a name"),
        job_type: None,
        reason: None,
    };
    for _ in 0..3 {
        a.pause(pause.clone()).wait().expect("paused");
        let job = submit(&b, None);
        wait_until("the pause is known there", || {
            let explained = b.explain(job).wait().expect("it waits");
            let mut reasons = explained.reasons.iter();
            reasons.any(|why| why.code == "addon_paused")
        });
        let waiting = b.claim(claim("visuals", 1));
        assert!(a.resume(pause.clone()).wait().expect("resumed"));
        let granted = waiting.wait().expect("it is asked");
        assert_eq!(granted.len(), 1, "the hint did not come");
        assert_eq!(granted[0].jobs[0].job_id, job);
        complete(&b, &granted);
    }
}

#[test]
fn who_submits_and_leaves_is_heard() {
    let _watchdog = Watchdog::watching("last words");
    let server = Server::start();
    let options = PostgresOptions::new(server.new_place());
    let stays = scheduler(&options, "stays", NEVER);
    for _ in 0..3 {
        let waiting = stays.claim(claim("visuals", 1));
        let leaves = scheduler(&options, "leaves", NEVER);
        let job = submit(&leaves, None);
        drop(leaves);
        let granted = waiting.wait().expect("it is asked");
        assert_eq!(granted.len(), 1, "the hint did not come");
        assert_eq!(granted[0].jobs[0].job_id, job);
        complete(&stays, &granted);
    }
}

#[test]
fn nothing_is_lost_with_the_connection_that_listens() {
    let _watchdog = Watchdog::watching("lost hints");
    let server = Server::start();
    let (a, b) = two(&server);
    for _ in 0..3 {
        let waiting = b.claim(claim("visuals", 1));
        let ended = server.sql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'jobtree hints'",
        );
        assert_ne!(ended, "0");
        let job = submit(&a, None);
        let granted = waiting.wait().expect("it is asked");
        assert_eq!(granted.len(), 1, "it was not read again");
        assert_eq!(granted[0].jobs[0].job_id, job);
        complete(&b, &granted);
    }
}

#[test]
fn without_hints_a_look_finds_it() {
    let _watchdog = Watchdog::watching("no hints");
    let server = Server::start();
    let options = PostgresOptions::new(server.new_place()).without_hints();
    let look = Duration::from_millis(200);
    let (a, b) = (
        scheduler(&options, "a", look),
        scheduler(&options, "b", look),
    );
    for _ in 0..3 {
        let waiting = b.claim(claim("visuals", 1));
        let job = submit(&a, None);
        let granted = waiting.wait().expect("it is asked");
        assert_eq!(granted[0].jobs[0].job_id, job);
        complete(&b, &granted);
    }
}
