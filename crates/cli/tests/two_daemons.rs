//! Two daemons on one PostgreSQL: every call may be made at either of them, and what each machine counts follows.

#[path = "random_calls/http.rs"]
mod http;
#[path = "two_daemons/pair.rs"]
mod pair;
#[path = "two_daemons/races.rs"]
mod races;
mod support;

use std::thread;
use std::time::Duration;

use jobtree_client::Client;
use jobtree_protocol::{
    AckRequest, AddonId, CompleteRequest, InstanceId, JobId, JobState, LeaseRequest,
    ReleaseRequest, SubmitRequest,
};
use pair::{HEARD, Pair};
use support::{Load, signal, until, watch};

const ADDON: &str = "photos";

fn addon() -> AddonId {
    ADDON.parse().expect("a name")
}

/// Waits for a dispatch of this job, which is made because callers of its addon ask for some.
fn dispatched(client: &Client, job: JobId) {
    until(|| {
        let jobs = client.dispatchable(Some(&addon()), Duration::from_secs(1));
        let jobs = jobs.expect("the daemon answers");
        jobs.iter().any(|it| it.job_id == job)
    });
}

/// Takes a dispatched job up and completes it.
fn run(client: &Client, job: JobId) {
    let request = AckRequest {
        instance_id: Some(InstanceId::generate()),
        ..AckRequest::default()
    };
    let lease = client.ack(job, &request).expect("it is dispatched");
    let done = CompleteRequest::done(lease.lease_id, None);
    let answer = client.complete(job, &done).expect("it is this lease's");
    assert_eq!(answer.state, JobState::Done);
}

/// Twenty jobs, one after the other: submitted and dispatched at n1, taken up and completed at n2. Every other one has a
/// concurrency key, which the next one waits for.
#[test]
fn what_one_node_dispatches_and_the_other_completes_is_given_back() {
    let _watchdog = watch();
    let pair = Pair::start();
    let [n1, n2] = pair.clients();
    for number in 0..20 {
        let request = SubmitRequest {
            concurrency_key: (number % 2 == 0).then(|| "printer".to_owned()),
            concurrency_limit: (number % 2 == 0).then_some(1),
            ..SubmitRequest::new(ADDON, "index", 3)
        };
        let job = n1.submit(request).expect("it is taken").job_id;
        dispatched(&n1, job);
        // n1 has read its own dispatch by now.
        thread::sleep(Duration::from_millis(100));
        run(&n2, job);
    }
    pair.is_idle();
    let key = SubmitRequest {
        concurrency_key: Some("printer".to_owned()),
        concurrency_limit: Some(1),
        ..SubmitRequest::new(ADDON, "index", 3)
    };
    for client in [&n1, &n2] {
        let job = client.submit(key.clone()).expect("it is taken").job_id;
        let begun = std::time::Instant::now();
        dispatched(client, job);
        assert!(begun.elapsed() < HEARD, "the key was held by no job");
        run(client, job);
    }
    pair.is_idle();
}

/// A lease of capacity of n1 ends at n2, ten times: n1 hears of it at once. By its periodic read alone, which comes every five
/// seconds, ten of them would take half a minute.
#[test]
fn capacity_that_is_released_at_the_other_node_is_free_at_once() {
    let _watchdog = watch();
    let pair = Pair::start();
    let [n1, n2] = pair.clients();
    let begun = std::time::Instant::now();
    for _ in 0..10 {
        let request = LeaseRequest {
            addon_id: ADDON.to_owned(),
            job_type: "index".to_owned(),
            cost_units: 20,
            instance_id: Some(InstanceId::generate()),
            ..LeaseRequest::default()
        };
        let lease = n1.lease_request(&request).expect("the daemon answers");
        let lease = lease.lease_id.expect("there is room");
        n2.release(lease, &ReleaseRequest::default())
            .expect("it is live");
        until(|| pair::own_status(&n1).used == 0);
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(15), "ten releases took {took:?}");
}

/// Each daemon tells of both machines: first of its own, then of the other one as it last described itself. One that is stopped
/// shows as silent.
#[test]
fn each_daemon_tells_of_both_machines() {
    let _watchdog = watch();
    let pair = Pair::start();
    let [n1, n2] = pair.clients();
    let names = |client: &Client| {
        let nodes = client.status().expect("the daemon answers").nodes;
        nodes
            .iter()
            .map(|it| it.node_id.to_string())
            .collect::<Vec<_>>()
    };
    until(|| names(&n1) == ["n1", "n2"] && names(&n2) == ["n2", "n1"]);
    pair.daemons[1].push(Load::Busy);
    until(|| {
        let nodes = n1.status().expect("the daemon answers").nodes;
        let other = &nodes[1];
        assert!(!other.silent && other.last_seen.is_some());
        assert_eq!(other.version, env!("CARGO_PKG_VERSION"));
        other.busy > 4.0
    });
    let frame = pair.daemons[0].run(&["top", "--once"]).text();
    assert!(frame.contains("n1 ") && frame.contains("n2 "), "{frame}");
    signal("STOP", pair.daemons[1].pid());
    until(|| n1.status().expect("the daemon answers").nodes[1].silent);
    let frame = pair.daemons[0].run(&["top", "--once"]).text();
    assert!(frame.contains("n2 SILENT for"), "{frame}");
    let screen = pair.daemons[0].run(&["status"]).text();
    assert!(screen.contains("n1: "), "{screen}");
    assert!(screen.contains("n2: SILENT for"), "{screen}");
    signal("CONT", pair.daemons[1].pid());
    until(|| !n1.status().expect("the daemon answers").nodes[1].silent);
}
